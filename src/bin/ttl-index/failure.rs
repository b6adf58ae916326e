//! What an error looks like, and which exit code it gives.

use std::{
    error::Error,
    fmt,
    io::{self, Write},
    process::ExitCode,
};

use mongodb::error::ErrorKind;
use ttl_index::MissingPrivilege;

use super::target;

pub(crate) const DONE: u8 = 0;
pub(crate) const FAILED: u8 = 1;
pub(crate) const USAGE: u8 = 2;
pub(crate) const REFUSED: u8 = 3;
pub(crate) const LEFT_BEHIND: u8 = 4;

/// What was typed, or read, is not what the command takes.
#[derive(Debug)]
pub(crate) struct Usage(pub(crate) String);

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for Usage {}

/// Nobody reads standard output any more, as when `head` has enough. Nothing is wrong, and nothing is said.
#[derive(Debug)]
pub(crate) struct ReaderGone;

impl fmt::Display for ReaderGone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("nobody reads standard output any more")
    }
}

impl Error for ReaderGone {}

/// Prints an error with everything that caused it, and returns the exit code.
pub(crate) fn report(error: &anyhow::Error) -> u8 {
    if error.is::<ReaderGone>() {
        return DONE;
    }
    print(&chain(error.as_ref()));
    let refused = |cause: &(dyn Error + 'static)| {
        cause.downcast_ref::<ttl_index::Error>().is_some_and(|error| error.refusal().is_some())
    };
    if error.chain().any(<dyn Error>::is::<Usage>) {
        USAGE
    } else if error.chain().any(refused) {
        REFUSED
    } else {
        FAILED
    }
}

/// Prints what the parser has to say: an error, or the help that was asked for.
pub(crate) fn unparsed(error: &clap::Error) -> ExitCode {
    let text = error.render().to_string();
    // Whatever was typed is quoted, and a URI may have been typed in a wrong place.
    let text = std::env::args_os().fold(text, |text, arg| match target::secret(&arg.to_string_lossy()) {
        Some(secret) => text.replace(secret, "***"),
        None => text,
    });
    // If nobody reads it there is nobody to tell.
    let _ = if error.use_stderr() {
        io::stderr().write_all(text.as_bytes())
    } else {
        io::stdout().write_all(text.as_bytes())
    };
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(USAGE))
}

/// Prints an error that does not end the command.
pub(crate) fn print(text: &str) {
    let _ = writeln!(io::stderr(), "error: {text}");
}

/// An error and its causes, outermost first.
pub(crate) fn chain(error: &(dyn Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |&error| error.source());
    let mut words: Vec<String> = causes.map(in_words).collect();
    // A missing privilege is named by the library's error and, again, in the place of the driver's.
    words.dedup_by(|cause, effect| effect.ends_with(cause.as_str()));
    words.join(": ")
}

/// The driver's own words wrap what happened in labels, and list every document of a failed insert; the server's, to a user
/// without a privilege, are the whole command and do not name it.
fn in_words(error: &(dyn Error + 'static)) -> String {
    let Some(driver) = error.downcast_ref::<mongodb::error::Error>() else { return error.to_string() };
    if let Some(missing) = MissingPrivilege::of(driver) {
        return missing.to_string();
    }
    match driver.kind.as_ref() {
        ErrorKind::InsertMany(insert) => match insert.write_errors.iter().flatten().next() {
            Some(first) => first.message.clone(),
            None => format!("{:?}", insert.write_concern_error),
        },
        kind => kind.to_string(),
    }
}
