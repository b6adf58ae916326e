//! The program `ttl-index`, run as a process of its own.

use std::ffi::OsStr;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

/// The program, for one database.
pub(crate) struct Program {
    uri: Option<String>,
}

/// What a run of the program left behind.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Program {
    pub(crate) fn at(uri: impl Into<String>) -> Program {
        Program { uri: Some(uri.into()) }
    }

    pub(crate) fn embedded(file: &Path) -> Program {
        Program::at(format!("embedded:{}", file.display()))
    }

    /// Not told of any database.
    pub(crate) fn alone() -> Program {
        Program { uri: None }
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Run {
        self.run_with_input(arguments, "")
    }

    pub(crate) fn run_with_input(&self, arguments: &[&str], input: &str) -> Run {
        let mut child = self.start(arguments);
        let mut stdin = child.stdin.take().unwrap();
        let input = input.to_owned();
        // On a thread, as the program may fill its output before it has read everything; and it need not read at all.
        let writing = std::thread::spawn(move || drop(stdin.write_all(input.as_bytes())));
        let run = Run::of(child.wait_with_output().unwrap());
        writing.join().unwrap();
        run
    }

    /// As [`Program::run`] with `--json`: what it printed, line by line, after it succeeded.
    pub(crate) fn json(&self, arguments: &[&str]) -> Vec<Value> {
        let run = self.run(&[&["--json"], arguments].concat());
        assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{arguments:?}: {run:?}");
        run.lines()
    }

    pub(crate) fn start(&self, arguments: &[impl AsRef<OsStr>]) -> Child {
        let mut command = self.command(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    pub(crate) fn command(&self, arguments: &[impl AsRef<OsStr>]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ttl-index"));
        command.args(arguments).env_remove("TTL_INDEX_URI").env_remove("RUST_LOG");
        if let Some(uri) = &self.uri {
            command.env("TTL_INDEX_URI", uri);
        }
        command
    }
}

impl Run {
    pub(crate) fn of(output: Output) -> Run {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        let run = Run { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) };
        assert!(!run.stderr.contains("panicked"), "{run:?}");
        run
    }

    /// Its standard output as JSON Lines.
    pub(crate) fn lines(&self) -> Vec<Value> {
        self.stdout.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{self:?}"))).collect()
    }

    /// Asserts that it failed with this exit code, said why in these words, and printed nothing else.
    #[track_caller]
    pub(crate) fn failed(&self, code: i32, words: &str) {
        assert_eq!((self.code, self.stdout.as_str()), (Some(code), ""), "{self:?}");
        assert!(self.stderr.starts_with("error: ") && self.stderr.contains(words), "no {words:?} in {self:?}");
    }
}
