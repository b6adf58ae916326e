//! What can go wrong, in families: a request that is refused, a backend that fails, a backend that is unfit to be swept.
//!
//! A refusal carries the code and code name that MongoDB gives for the same thing, so that code written against MongoDB
//! keeps recognising it.

mod overload;
mod privilege;

use std::fmt;

pub(crate) use overload::Overload;
pub use privilege::MissingPrivilege;

/// The error codes of MongoDB that refusals carry.
///
/// Source: the replies of MongoDB 6.0.5 to the same requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(i32)]
pub enum Code {
    /// A value is out of what the request allows.
    BadValue = 2,
    /// A value has another BSON type than the request demands.
    TypeMismatch = 14,
    /// The collection does not exist.
    NamespaceNotFound = 26,
    /// No TTL index answers to this name or key.
    IndexNotFound = 27,
    /// The definition cannot be a TTL index, or a limit is reached.
    CannotCreateIndex = 67,
    /// The option is not allowed here.
    InvalidOptions = 72,
    /// The collection name is not allowed.
    InvalidNamespace = 73,
    /// The index is there already with other options.
    IndexOptionsConflict = 85,
    /// Another index has this name already.
    IndexKeySpecsConflict = 86,
    /// Somebody else is at it.
    ConflictingOperationInProgress = 117,
    /// The name belongs to a view.
    CommandNotSupportedOnView = 166,
    /// An option that an index on `_id`, or any index, cannot have.
    InvalidIndexSpecificationOption = 197,
    /// The filter uses an expression that is not allowed in this place.
    QueryFeatureNotAllowed = 224,
    /// The collection is not the one that the TTL index was made for.
    CollectionUuidMismatch = 361,
    /// A document with this `_id` is there already.
    DuplicateKey = 11000,
}

impl Code {
    /// The number MongoDB uses.
    pub const fn number(self) -> i32 {
        self as i32
    }

    /// The `codeName` MongoDB uses.
    pub const fn name(self) -> &'static str {
        match self {
            Code::BadValue => "BadValue",
            Code::TypeMismatch => "TypeMismatch",
            Code::NamespaceNotFound => "NamespaceNotFound",
            Code::IndexNotFound => "IndexNotFound",
            Code::CannotCreateIndex => "CannotCreateIndex",
            Code::InvalidOptions => "InvalidOptions",
            Code::InvalidNamespace => "InvalidNamespace",
            Code::IndexOptionsConflict => "IndexOptionsConflict",
            Code::IndexKeySpecsConflict => "IndexKeySpecsConflict",
            Code::ConflictingOperationInProgress => "ConflictingOperationInProgress",
            Code::CommandNotSupportedOnView => "CommandNotSupportedOnView",
            Code::InvalidIndexSpecificationOption => "InvalidIndexSpecificationOption",
            Code::QueryFeatureNotAllowed => "QueryFeatureNotAllowed",
            Code::CollectionUuidMismatch => "CollectionUUIDMismatch",
            Code::DuplicateKey => "DuplicateKey",
        }
    }
}

/// A request that was refused. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    code: Code,
    message: String,
    holder: Option<String>,
}

impl Refusal {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), holder: None }
    }

    /// The same, because of this holder.
    pub(crate) fn because_of(self, holder: String) -> Self {
        Self { holder: Some(holder), ..self }
    }

    /// The code MongoDB gives for the same refusal.
    pub fn code(&self) -> Code {
        self.code
    }

    /// What was wrong, where, and what to do.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Who is sweeping, if that is why.
    pub fn holder(&self) -> Option<&str> {
        self.holder.as_deref()
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} {})", self.message, self.code.number(), self.code.name())
    }
}

impl std::error::Error for Refusal {}

/// Any error of this library.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The request was refused; nothing was changed.
    #[error(transparent)]
    Refused(#[from] Refusal),

    /// The MongoDB-compatible backend could not be reached, or answered with an error.
    #[error("{action} failed{}", privilege::named(.source))]
    Backend {
        /// What was being done, and where.
        action: String,
        /// What the driver reported.
        #[source]
        source: mongodb::error::Error,
    },

    /// The embedded store failed.
    #[error("{action} failed")]
    Embedded {
        /// What was being done, and where.
        action: String,
        /// What the storage engine reported.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },

    /// An archive could not be read or written, or is not what was written. Nothing was deleted because of it.
    #[error("{action} failed")]
    Archive {
        /// What was being done, and with which file.
        action: String,
        /// What went wrong.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },

    /// The file of an embedded store is in use.
    #[error("{path} is in use by another process or handle; an embedded file belongs to one process at a time")]
    InUse {
        /// The file.
        path: String,
    },

    /// The backend compares or deletes in another way than MongoDB, so that a sweep could delete the wrong documents.
    /// Nothing was deleted.
    #[error("this backend is not swept: {0}")]
    Unfit(String),

    /// The change was made, but whoever sweeps has not confirmed in time that it goes by it.
    #[error(
        "the change is made, but not yet guaranteed: {holder} has not confirmed it within {waited:?}; until it has, or its \
         lease is over, documents may still be deleted as before the change"
    )]
    NotYetGuaranteed {
        /// Who sweeps.
        holder: String,
        /// How long it was waited for.
        waited: std::time::Duration,
    },

    /// The runtime was shut down, or the caller gave up, before it was done.
    #[error("it was broken off before it was done")]
    Interrupted,

    /// The hook that is asked before documents are deleted failed. Nothing of the batch was deleted.
    #[error("the veto hook failed on a batch of {collection}, of which nothing was deleted")]
    Veto {
        /// The collection.
        collection: String,
        /// What it reported, or what was wrong with its answer.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },

    /// Data in the database could not be understood. Nothing was changed or deleted because of it.
    #[error("{0}")]
    Unreadable(String),
}

impl Error {
    /// The refusal, if the request was refused.
    pub fn refusal(&self) -> Option<&Refusal> {
        match self {
            Error::Refused(refusal) => Some(refusal),
            _ => None,
        }
    }

    /// In one word, which stays: `refused`, `backend`, `embedded`, `archive`, `in_use`, `unfit`, `not_yet_guaranteed`,
    /// `interrupted`, `veto` or `unreadable`.
    pub const fn kind(&self) -> &'static str {
        match self {
            Error::Refused(_) => "refused",
            Error::Backend { .. } => "backend",
            Error::Embedded { .. } => "embedded",
            Error::Archive { .. } => "archive",
            Error::InUse { .. } => "in_use",
            Error::Unfit(_) => "unfit",
            Error::NotYetGuaranteed { .. } => "not_yet_guaranteed",
            Error::Interrupted => "interrupted",
            Error::Veto { .. } => "veto",
            Error::Unreadable(_) => "unreadable",
        }
    }

    /// MongoDB's error code: that of a refusal, or the one the server answered with.
    pub fn code(&self) -> Option<i32> {
        match self {
            Error::Refused(refusal) => Some(refusal.code().number()),
            Error::Backend { source, .. } => server_code(source),
            _ => None,
        }
    }

    /// The privilege that the backend found missing, if that is what went wrong.
    pub fn missing_privilege(&self) -> Option<MissingPrivilege> {
        match self {
            Error::Backend { source, .. } => MissingPrivilege::of(source),
            _ => None,
        }
    }

    /// Whether the database could not be reached, or is just now not what it takes: no fault of the request.
    pub(crate) fn is_away(&self) -> bool {
        use mongodb::error::ErrorKind;
        let Error::Backend { source, .. } = self else { return false };
        match server_code(source) {
            Some(code) => AWAY.contains(&code),
            None => matches!(
                source.kind.as_ref(),
                ErrorKind::Io(_)
                    | ErrorKind::ServerSelection { .. }
                    | ErrorKind::ConnectionPoolCleared { .. }
                    | ErrorKind::DnsResolve { .. }
                    | ErrorKind::Authentication { .. }
            ),
        }
    }

    /// Whether trying again can be no use before somebody mends something.
    ///
    /// Only what is certain: a refusal, or an answer of the server that is not known to be about its state at that moment.
    pub(crate) fn is_lasting(&self) -> bool {
        match self {
            Error::Refused(_) => true,
            Error::Backend { source, .. } => {
                let passing = source.contains_label(mongodb::error::RETRYABLE_WRITE_ERROR);
                !passing && server_code(source).is_some_and(|code| !PASSING.contains(&code))
            }
            _ => false,
        }
    }

    /// The error with what caused it, without the driver's own words about its words.
    pub(crate) fn in_full(&self) -> String {
        match self {
            // The server's words are then the command that it refused.
            _ if self.missing_privilege().is_some() => self.to_string(),
            Error::Backend { source, .. } => format!("{self}: {}", source.kind),
            Error::Embedded { source, .. } | Error::Archive { source, .. } | Error::Veto { source, .. } => {
                format!("{self}: {source}")
            }
            other => other.to_string(),
        }
    }

    pub(crate) fn backend(action: impl Into<String>) -> impl FnOnce(mongodb::error::Error) -> Self {
        let action = action.into();
        move |source| Error::Backend { action, source }
    }

    #[cfg(feature = "embedded")]
    pub(crate) fn embedded<E>(action: impl Into<String>) -> impl FnOnce(E) -> Self
    where
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let action = action.into();
        move |source| Error::Embedded { action, source: source.into() }
    }
}

/// Codes of a server that is starting, stopping, or not the primary.
///
/// Source: the state-change and retryable errors of MongoDB's driver specifications.
const AWAY: [i32; 12] = [
    6,     // HostUnreachable
    7,     // HostNotFound
    89,    // NetworkTimeout
    91,    // ShutdownInProgress
    189,   // PrimarySteppedDown
    9001,  // SocketException
    10107, // NotWritablePrimary
    11600, // InterruptedAtShutdown
    11602, // InterruptedDueToReplStateChange
    13435, // NotPrimaryNoSecondaryOk
    13436, // NotPrimaryOrSecondary
    10058, // LegacyNotPrimary
];

/// Server codes that say something of the moment, or of the user who asked, rather than of the request.
const PASSING: [i32; 23] = [
    6, 7, 89, 9001, // the network between servers
    91, 11600, 11602, 189, 10107, 13435, 13436, // a server that stops, or is not the primary
    13, 18, // another user may be allowed to
    24, 46, 50, 112, 117, 202, 262, 276, 40333, // locked, busy or out of time
    14031, // no space on the disk
];

/// The code of a command or write error that the server answered with.
pub(crate) fn server_code(error: &mongodb::error::Error) -> Option<i32> {
    use mongodb::error::{ErrorKind, WriteFailure};
    match error.kind.as_ref() {
        ErrorKind::Command(command) => Some(command.code),
        ErrorKind::Write(WriteFailure::WriteError(write)) => Some(write.code),
        ErrorKind::InsertMany(insert) => {
            insert.write_errors.as_ref().and_then(|errors| errors.first()).map(|first| first.code)
        }
        _ => None,
    }
}

/// The result of this library's calls.
pub type Result<T, E = Error> = std::result::Result<T, E>;
