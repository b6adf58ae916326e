//! The program `ttl-index`: TTL indexes from the command line.
//!
//! | module | concern |
//! |---|---|
//! | `args` | what can be typed |
//! | `time` | durations, instants and times of the week, in and out |
//! | `json` | Extended JSON, in and out |
//! | `target` | which database a URI means, and its documents |
//! | `role` | the privileges that a user needs |
//! | `daemon`, `status`, `pause`, `tune` | `run`, and `status`, `pause` and `resume`, `tune` |
//! | `signal` | SIGINT and SIGTERM |
//! | `indexes`, `operations`, `explain`, `doctor`, `sweep`, `archive`, `import`, `export` | the commands |
//! | `plan`, `plot` | what is planned for a database or a trace, and drawn |
//! | `pace` | rates, lateness and what holds back, in words |
//! | `sink` | where an export goes: a file that is whole, or standard output |
//! | `listen` | the page of metrics |
//! | `output` | tables, lines of JSON, progress |
//! | `failure` | what an error looks like, and which exit code it gives |

mod archive;
mod args;
mod daemon;
mod doctor;
mod explain;
mod export;
mod failure;
mod import;
mod indexes;
mod json;
mod listen;
mod operations;
mod output;
mod pace;
mod pause;
mod plan;
mod plot;
mod role;
mod signal;
mod sink;
mod status;
mod sweep;
mod target;
mod time;
mod tune;

use std::{io, process::ExitCode};

use anyhow::Context;
use clap::Parser;
use tracing_subscriber::EnvFilter;

use self::args::{Args, Command};

fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => return failure::unparsed(&error),
    };
    // A daemon tells what it does.
    let daemon = matches!(args.command, Command::Run(_));
    log_to_stderr(args.verbose + u8::from(daemon));
    // Several threads, so that reading a file never holds up the driver's own tasks.
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("starting the runtime");
    let outcome = runtime.and_then(|runtime| {
        let outcome = runtime.block_on(run(args));
        // Left to the end of the process: a driver's client that was dropped says goodbye on the runtime, and panics if
        // that is shut down under it.
        std::mem::forget(runtime);
        outcome
    });
    outcome.unwrap_or_else(|error| failure::report(&error)).into()
}

/// Carries the command out and returns the exit code.
async fn run(args: Args) -> anyhow::Result<u8> {
    let (uri, json) = (args.uri.as_deref(), args.json);
    match args.command {
        Command::Create(create) => indexes::create(create, uri, json).await,
        Command::List { collection } => indexes::list(collection, uri, json).await,
        Command::Modify { collection, expire_after } => indexes::modify(&collection, expire_after, uri, json).await,
        Command::Guard(guard) => indexes::guard(guard, uri, json).await,
        Command::Drop { collection, name } => indexes::drop(&collection, name, uri, json).await,
        Command::Repair { collection } => operations::repair(&collection, uri, json).await,
        Command::Operations { id } => operations::list(id, uri, json).await,
        Command::Explain(explain) => explain::run(explain, uri, json).await,
        Command::Doctor(doctor) => doctor::run(doctor, uri, json).await,
        Command::Sweep(sweep) => sweep::run(sweep, uri, json).await,
        Command::Plan(args) => plan::run(args, uri, json).await,
        Command::Restore(args) => archive::restore(args, uri, json).await,
        Command::Role(args) => role::run(&args, uri, json),
        Command::Run(run) => daemon::run(run, uri).await,
        Command::Status { watch } => status::status(watch, uri, json).await,
        Command::Pause { duration, dry_run } => pause::pause(duration, dry_run, uri, json).await,
        Command::Resume => pause::resume(uri, json).await,
        Command::Tune(args) => tune::run(args, uri, json).await,
        Command::Import { collection, file } => import::run(&collection, &file, uri, json).await,
        Command::Export(export) => export::run(export, uri, json).await,
    }
}

/// `RUST_LOG` decides if it is set.
fn log_to_stderr(verbose: u8) {
    let default = match verbose {
        // How a pass or a request failed is said once, by the command itself.
        0 => "warn,ttl_index::registry::failing=off,ttl_index::sweep::pass::closing=off",
        1 => "ttl_index=info,warn",
        _ => "ttl_index=debug,warn",
    };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(default));
    // What cannot be logged (a full disk, a reader that is gone) is not worth a panic, which saying so on stderr would be.
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).with_ansi(false);
    log.log_internal_errors(false).init();
}
