//! `role`: the MongoDB role that a user needs, and no more.
//!
//! [`NEEDS`] is the one table that the roles are derived from. The tests take away each action of each role and see that
//! something fails, so that a row that nothing needs does not stay.

use anyhow::bail;
use mongodb::options::ConnectionString;
use serde_json::{Value, json};

use self::{
    Duty::{Look, Manage, Sweep},
    On::{Children, Collections, Database, Own},
};
use super::{
    failure::{DONE, Usage},
    output,
};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// What the user is for
    #[arg(value_enum)]
    duty: Duty,
    /// The collections with TTL indexes; by default all of the database
    #[arg(value_name = "COLL")]
    collections: Vec<String>,
    /// A collection that guards look at, if not all of the database is meant; may be given several times
    #[arg(long, value_name = "COLL", requires = "collections")]
    children: Vec<String>,
    /// The database; by default that of the URI, to which no connection is made
    #[arg(long, value_name = "NAME")]
    db: Option<String>,
    /// For programs that use `MongoStore::portable_only`, which take their time from a collection
    #[arg(long)]
    portable_only: bool,
}

/// What a user is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Duty {
    /// Delete what is due: a sweeper, or `sweep`
    Sweep,
    /// Create, modify, drop and repair TTL indexes, pause, resume and tune
    Manage,
    /// List, explain, doctor, status, operations, and read the documents that are judged
    Look,
}

/// What an action is allowed on. MongoDB knows collections by name, or all of a database; it has no names by prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum On {
    /// The database as a whole.
    Database,
    /// The collections that have TTL indexes.
    Collections,
    /// The collections that guards look at.
    Children,
    /// A collection of this library's own.
    Own(&'static str),
}

const REGISTRY: On = Own("ttl_index.registry");
const PROBE: On = Own("ttl_index.probe");
const CLOCK: On = Own("ttl_index.clock");
const LEASE: On = Own("ttl_index.lease");
const OPERATIONS: On = Own("ttl_index.operations");
const PRUNES: On = Own("ttl_index.prunes");

/// An action, and the duties that need it.
type Need = (On, &'static str, &'static [Duty]);

/// Whatever version of the library is used, and however.
///
/// Not there, as MongoDB 6.0.5 does without: `createCollection` for what an insert or an index makes along the way, and
/// anything for `hello`, for `collectionUUID` or for closing a cursor.
const NEEDS: [Need; 14] = [
    // A collection's kind and identity; not only its name, which would need less.
    (Database, "listCollections", &[Sweep, Manage, Look]),
    // The index to walk; the index to share or to drop.
    (Collections, "listIndexes", &[Sweep, Manage, Look]),
    (Collections, "find", &[Sweep, Look]),
    (Collections, "remove", &[Sweep]),
    (Collections, "createIndex", &[Manage]),
    (Collections, "dropIndex", &[Manage]),
    (Children, "find", &[Sweep, Look]),
    // Whether a guard can do, and what native TTL indexes there are.
    (Children, "listIndexes", &[Manage, Look]),
    (REGISTRY, "find", &[Sweep, Manage, Look]),
    // A sweep notes the identity of a collection that was not there when its TTL index was made.
    (REGISTRY, "update", &[Sweep, Manage]),
    (REGISTRY, "insert", &[Manage]),
    // What the backend can do is tried out before the first deletion.
    (PROBE, "find", &[Sweep]),
    (PROBE, "insert", &[Sweep]),
    (PROBE, "remove", &[Sweep]),
];

/// Where the time is not taken from `hello`.
const PORTABLE_ONLY: [Need; 3] = [
    (CLOCK, "find", &[Sweep, Manage, Look]),
    (CLOCK, "insert", &[Sweep, Manage, Look]),
    (CLOCK, "update", &[Sweep, Manage, Look]),
];

/// For the background sweeper, its lease, operations, and sweeping now and then.
const SWEEPER: [Need; 10] = [
    (LEASE, "find", &[Sweep, Manage, Look]),
    (LEASE, "insert", &[Sweep]),
    (LEASE, "update", &[Sweep]),
    (OPERATIONS, "find", &[Manage, Look]),
    (OPERATIONS, "insert", &[Manage]),
    (OPERATIONS, "update", &[Manage]),
    (OPERATIONS, "remove", &[Manage]),
    (PRUNES, "find", &[Sweep]),
    (PRUNES, "insert", &[Sweep]),
    (PRUNES, "update", &[Sweep]),
];

/// What no name of a database holds.
const NOT_IN_A_DATABASE: [char; 6] = ['/', '\\', '.', ' ', '"', '$'];

/// Whether this version has them.
const HAS_SWEEPER: bool = true;

pub(crate) fn run(args: &Args, uri: Option<&str>, json: bool) -> anyhow::Result<u8> {
    // In a role an empty name means every database, or every collection.
    if let Some(odd) =
        args.collections.iter().chain(&args.children).find(|name| name.is_empty() || name.contains(['$', '\0']))
    {
        bail!(Usage(format!("{odd:?} is no name of a collection")));
    }
    if let Some(odd) = args.db.as_ref().filter(|name| name.is_empty() || name.contains(NOT_IN_A_DATABASE)) {
        bail!(Usage(format!("{odd:?} is no name of a database")));
    }
    let database = match (&args.db, uri) {
        (Some(name), _) => name.clone(),
        (None, Some(uri)) => named_by(uri)?,
        // No name that a database can have.
        (None, None) => "<DB>".to_owned(),
    };
    let role = args.create_role(&database);
    output::line(if json { role.to_string() } else { format!("{role:#}") })?;
    Ok(DONE)
}

fn named_by(uri: &str) -> anyhow::Result<String> {
    if uri.starts_with("embedded:") {
        bail!(Usage("an embedded store has no users, and so no roles; give the database with --db".to_owned()));
    }
    // What is wrong with it is not said, as it may hold a password; the other commands tell more.
    match ConnectionString::parse(uri) {
        Ok(ConnectionString { default_database: Some(name), .. }) => Ok(name),
        _ => bail!(Usage("the URI names no database; give it with --db".to_owned())),
    }
}

impl Args {
    /// The command that makes the role.
    fn create_role(&self, database: &str) -> Value {
        let name = match self.duty {
            Sweep => "ttlIndexSweep",
            Manage => "ttlIndexManage",
            Look => "ttlIndexLook",
        };
        let privilege = |(collection, actions): (&str, Vec<&str>)| json!({ "resource": { "db": database, "collection": collection }, "actions": actions });
        let privileges: Vec<Value> = self.privileges().into_iter().map(privilege).collect();
        json!({ "createRole": name, "privileges": privileges, "roles": [] })
    }

    /// The actions on each collection; the empty name is all of the database, and the database itself.
    fn privileges(&self) -> Vec<(&str, Vec<&'static str>)> {
        let optional = [(self.portable_only, &PORTABLE_ONLY[..]), (HAS_SWEEPER, &SWEEPER)];
        let optional = optional.into_iter().filter(|(wanted, _)| *wanted).flat_map(|(_, needs)| needs);
        let needs = NEEDS.iter().chain(optional).filter(|(_, _, duties)| duties.contains(&self.duty));
        let mut privileges: Vec<(&str, Vec<&'static str>)> = vec![("", Vec::new())];
        for (on, action, _) in needs {
            let names = match on {
                Collections if !self.collections.is_empty() => self.collections.iter().map(String::as_str).collect(),
                Children if !self.collections.is_empty() => self.children.iter().map(String::as_str).collect(),
                Children | Collections | Database => vec![""],
                Own(name) => vec![*name],
            };
            for name in names {
                match privileges.iter_mut().find(|(on, _)| *on == name) {
                    Some((_, actions)) => actions.push(action),
                    None => privileges.push((name, vec![action])),
                }
            }
        }
        // What is allowed on all collections need not be allowed on one, nor anything twice.
        let everywhere = privileges[0].1.clone();
        for (on, actions) in &mut privileges {
            let mut seen = Vec::new();
            actions.retain(|action| {
                let new = !seen.contains(action) && (on.is_empty() || !everywhere.contains(action));
                seen.push(*action);
                new
            });
        }
        privileges.retain(|(_, actions)| !actions.is_empty());
        privileges
    }
}
