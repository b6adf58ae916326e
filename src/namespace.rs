//! Collection names, checked once.

use std::fmt;

use crate::error::{Code, Refusal};

/// The prefix of the collections in which this library keeps its own data.
pub(crate) const OWN_PREFIX: &str = "ttl_index.";

/// The name of a collection that may carry a TTL index.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct CollectionName(String);

impl CollectionName {
    /// Refuses what MongoDB refuses, the server's own `system.` collections and this library's own.
    pub(crate) fn parse(name: &str) -> Result<Self, Refusal> {
        let refuse = |message: String| Err(Refusal::new(Code::InvalidNamespace, message));
        if name.is_empty() {
            return refuse("Invalid namespace specified: the collection name is empty".to_owned());
        }
        if name.starts_with('.') {
            return refuse(format!("Collection names cannot start with '.': {name}"));
        }
        if name.contains(['$', '\0']) {
            return refuse(format!("Invalid collection name: {}", name.escape_debug()));
        }
        if name.starts_with("system.") {
            return refuse(format!("Invalid system namespace: {name}; the server's own collections are left alone"));
        }
        if name.starts_with(OWN_PREFIX) {
            return refuse(format!("{name} holds this library's own data and cannot have a TTL index"));
        }
        Ok(Self(name.to_owned()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for CollectionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_exact_system_prefix_is_special() {
        for good in ["a", "a.b", "fs.files", "system_admins", "systemx.a", "ttl_indexes", "日本"] {
            assert!(CollectionName::parse(good).is_ok(), "{good}");
        }
        for bad in ["", ".a", "a$b", "a\0b", "system.profile", "system.buckets.x", "ttl_index.registry"] {
            assert_eq!(CollectionName::parse(bad).unwrap_err().code(), Code::InvalidNamespace, "{bad:?}");
        }
    }
}
