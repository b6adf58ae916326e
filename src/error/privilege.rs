//! What a user may not do, read from the server's answer.

use std::fmt;

use mongodb::error::ErrorKind;

/// What the server says to a user without the right to do something.
const UNAUTHORIZED: i32 = 13;

/// The commands that are sent, and the actions that MongoDB asks for before it carries one out.
///
/// Source: what MongoDB 6.0.5 answers to users who have all of a command's actions but one.
const ACTIONS: [(&str, &[&str]); 11] = [
    ("aggregate", &["find"]),
    ("count", &["find"]),
    ("createIndexes", &["createIndex"]),
    ("delete", &["remove"]),
    ("dropIndexes", &["dropIndex"]),
    ("find", &["find"]),
    ("findAndModify", &["find", "update"]),
    ("insert", &["insert"]),
    ("listCollections", &["listCollections"]),
    ("listIndexes", &["listIndexes"]),
    ("update", &["update"]),
];

/// A privilege that the user lacks, as MongoDB calls it: an action on a collection, or on a database.
///
/// The server tells the command that it refused; the actions are those that the command needs, of which one at least is
/// missing. The roles that have them are printed by `ttl-index role`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MissingPrivilege {
    /// The actions, as in `remove`; of more than one, any may be the one that is missing.
    pub actions: Vec<&'static str>,
    /// The database.
    pub database: String,
    /// The collection; none if the action is one on the whole database.
    pub collection: Option<String>,
}

impl MissingPrivilege {
    /// What is missing, if the server refused a command of this library's for want of a privilege.
    ///
    /// None also where a backend says so in other words than MongoDB.
    pub fn of(error: &mongodb::error::Error) -> Option<Self> {
        match error.kind.as_ref() {
            ErrorKind::Command(command) if command.code == UNAUTHORIZED => Self::told(&command.message),
            _ => None,
        }
    }

    /// `not authorized on DB to execute command { delete: "c", … }`.
    fn told(message: &str) -> Option<Self> {
        let (database, command) = message.strip_prefix("not authorized on ")?.split_once(" to execute command { ")?;
        let (name, rest) = command.split_once(": ")?;
        let (_, actions) = ACTIONS.iter().find(|(command, _)| *command == name)?;
        let mut actions = actions.to_vec();
        if name == "findAndModify" && rest.contains("upsert: true") {
            actions.push("insert");
        }
        let quoted = rest.strip_prefix('"').and_then(|rest| rest.split_once('"'));
        let collection = quoted.map(|(collection, _)| collection.to_owned());
        Some(Self { actions, database: database.to_owned(), collection })
    }
}

impl fmt::Display for MissingPrivilege {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let which = if let [_] = self.actions[..] { "the privilege" } else { "one of the privileges" };
        write!(f, "the user lacks {which} {} on ", self.actions.join(", "))?;
        if let Some(collection) = &self.collection {
            write!(f, "the collection {collection} of ")?;
        }
        write!(f, "the database {}; `ttl-index role` prints the roles that have what is needed", self.database)
    }
}

/// For the end of a message: the missing privilege behind a colon, or nothing.
pub(super) fn named(error: &mongodb::error::Error) -> String {
    MissingPrivilege::of(error).map(|missing| format!(": {missing}")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::MissingPrivilege;

    #[test]
    fn what_the_server_refused_is_named() {
        let told =
            |command: &str| MissingPrivilege::told(&format!("not authorized on a.b to execute command {command}"));
        for (command, words) in [
            (
                r#"{ delete: "c.d", maxTimeMS: 5, $db: "a" }"#,
                "the privilege remove on the collection c.d of the database a.b",
            ),
            (r#"{ listCollections: 1, $db: "a" }"#, "the privilege listCollections on the database a.b"),
            (
                r#"{ findAndModify: "c", query: {}, update: {}, upsert: true }"#,
                "one of the privileges find, update, insert on the collection c of the database a.b",
            ),
        ] {
            let text = told(command).unwrap().to_string();
            assert!(text.starts_with(&format!("the user lacks {words}; ")), "{text}");
        }
        for other in ["{ shutdown: 1 }", "{}", ""] {
            assert_eq!(told(other), None);
        }
        assert_eq!(MissingPrivilege::told("command find requires authentication"), None);
    }
}
