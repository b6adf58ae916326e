//! What can be typed.

#![allow(clippy::doc_markdown)] // what stands here is printed as help

use std::{path::PathBuf, time::Duration};

use clap::{Args as Group, Parser, Subcommand};
use ttl_index::{
    ClosedWindow,
    bson::{DateTime, Document},
};

use super::{json, time};

/// TTL indexes with Firestore's rules and MongoDB's API.
///
/// Exit codes: 0 done; 1 failed; 2 usage; 3 refused, or `doctor` or `plan` found something; 4 `sweep` left due documents behind.
#[derive(Debug, Parser)]
#[command(version)]
pub(crate) struct Args {
    /// The database: mongodb://…/DB, mongodb+srv://…/DB, embedded:PATH or embedded::memory:
    // Taken as it is: a complaint of the parser would print it, with the password in it.
    #[arg(long, env = "TTL_INDEX_URI", hide_env_values = true, global = true, value_name = "URI")]
    pub(crate) uri: Option<String>,

    /// Print one JSON document a line
    #[arg(long, global = true)]
    pub(crate) json: bool,

    /// Log what is done to stderr; twice for more. `RUST_LOG` overrules it
    #[arg(short, long, action = clap::ArgAction::Count, global = true)]
    pub(crate) verbose: u8,

    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make a TTL index and print it
    Create(Create),
    /// Print the TTL indexes
    List {
        /// Only that of this collection
        #[arg(value_name = "COLL")]
        collection: Option<String>,
    },
    /// Change how long after their date documents expire
    Modify {
        /// The collection
        #[arg(value_name = "COLL")]
        collection: String,
        /// The new period: 90, 90s, 36h, 30d
        #[arg(long, value_name = "D", value_parser = time::duration, allow_hyphen_values = true)]
        expire_after: Duration,
    },
    /// Declare what keeps documents that are due, instead of what was declared before
    Guard(Guard),
    /// Drop a TTL index
    Drop {
        /// The collection
        #[arg(value_name = "COLL")]
        collection: String,
        /// Only if it has this name
        name: Option<String>,
    },
    /// Make good what a TTL index lacks, so that it is ACTIVE again
    Repair {
        /// The collection
        #[arg(value_name = "COLL")]
        collection: String,
    },
    /// Print how creations, repairs and drops go, or went: the last 100
    Operations {
        /// Only the one with this id
        id: Option<String>,
    },
    /// Say of documents whether they are due, when they expire, and why
    Explain(Explain),
    /// Say what is wrong with the documents and indexes of collections that have a TTL index, and what would mend it; reads
    /// only
    Doctor(Doctor),
    /// Delete what is due: one pass over each collection, until it is drained or a limit is reached
    Sweep(Sweep),
    /// Put the documents of an archive back; what is there is left as it is
    Restore(Restore),
    /// Say how fast documents will have to be deleted, and whether that will do; reads only. With --trace, of a load in a file,
    /// without any database
    Plan(Plan),
    /// Print the MongoDB role that a user needs, as the createRole command that makes it
    Role(super::role::Args),
    /// Sweep in the background until SIGTERM or SIGINT: visit every TTL index about once a minute, as the only one who does
    Run(Run),
    /// Say who sweeps this database, and how it goes
    Status {
        /// Again and again, until SIGINT
        #[arg(long)]
        watch: bool,
    },
    /// Pause sweeping in every process; nothing is deleted once this has returned
    Pause {
        /// How long: 90, 90s, 36h, 30d; until it is resumed by default. Says as well how fast documents will have to be deleted
        /// afterwards
        #[arg(long = "for", value_name = "D", value_parser = time::duration, allow_hyphen_values = true)]
        duration: Option<Duration>,
        /// Only say so, and do not pause
        #[arg(long, requires = "duration")]
        dry_run: bool,
    },
    /// Have sweeping go on
    Resume,
    /// Say how fast sweepers may go, and set it for all of them, now and after restarts; what is set wins over their options
    Tune(Tune),
    /// Insert documents from JSON Lines, in pages of 200
    Import {
        /// The collection
        #[arg(value_name = "COLL")]
        collection: String,
        /// JSON Lines, canonical or relaxed Extended JSON; - is standard input
        #[arg(value_name = "FILE|-")]
        file: PathBuf,
    },
    /// Write documents as JSON Lines, in canonical Extended JSON, or as CSV
    Export(Export),
}

#[derive(Debug, Group)]
pub(crate) struct Create {
    /// The collection, which need not exist
    #[arg(value_name = "COLL")]
    pub(crate) collection: String,
    /// The path of the field that holds the date
    pub(crate) field: String,
    /// How long after its date a document expires: 90, 90s, 36h, 30d; at its date by default
    #[arg(long, value_name = "D", value_parser = time::duration, allow_hyphen_values = true)]
    pub(crate) expire_after: Option<Duration>,
    /// Only documents matching this filter expire
    #[arg(long, value_name = "JSON", value_parser = json::document)]
    pub(crate) partial_filter: Option<Document>,
    #[command(flatten)]
    pub(crate) keep: KeepWhile,
    /// The name; by default the field and its direction
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// Build no ordinary index; every pass then reads the whole collection
    #[arg(long)]
    pub(crate) no_supporting_index: bool,
    /// Change the period if the same index is there with another one
    #[arg(long, requires = "expire_after")]
    pub(crate) or_modify: bool,
}

#[derive(Debug, Group)]
pub(crate) struct Guard {
    /// The collection
    #[arg(value_name = "COLL")]
    pub(crate) collection: String,
    #[command(flatten)]
    pub(crate) keep: KeepWhile,
    /// Nothing keeps them
    #[arg(long, conflicts_with = "keep_while", required_unless_present = "keep_while")]
    pub(crate) none: bool,
}

#[derive(Debug, Group)]
pub(crate) struct KeepWhile {
    /// Keep a document as long as another collection has one that references it; may be given several times:
    /// {"collection":"reads","field":"article_id"}, and optionally "date":"readAt","newerThanSeconds":604800 and
    /// "withoutIndex":true
    #[arg(long, value_name = "JSON", value_parser = json::document)]
    pub(crate) keep_while: Vec<Document>,
}

#[derive(Debug, Group)]
pub(crate) struct Explain {
    /// The collection (not with --field), then documents; - reads JSON Lines from standard input
    #[arg(value_name = "COLL|JSON|-")]
    pub(crate) words: Vec<String>,
    /// Judge by a TTL index on this field, without any database
    #[arg(long, value_name = "F", requires = "expire_after")]
    pub(crate) field: Option<String>,
    /// The period of that index: 90, 90s, 36h, 30d
    #[arg(long, value_name = "D", value_parser = time::duration, allow_hyphen_values = true, requires = "field")]
    pub(crate) expire_after: Option<Duration>,
    /// The partial filter of that index
    #[arg(long, value_name = "JSON", value_parser = json::document, requires = "field")]
    pub(crate) partial_filter: Option<Document>,
    /// Judge at this instant, such as 2013-07-01T00:00:00Z; by default the database's now, or the clock's with --field
    #[arg(long, value_name = "T", value_parser = time::instant)]
    pub(crate) now: Option<DateTime>,
    /// How many documents of the collection, if none are given
    #[arg(long, value_name = "N", default_value_t = 20, conflicts_with = "field")]
    pub(crate) limit: u32,
}

#[derive(Debug, Group)]
pub(crate) struct Doctor {
    /// The collection, which need not have a TTL index; by default all that have one, the database's own too
    #[arg(value_name = "COLL")]
    pub(crate) collection: Option<String>,
    /// The most documents of each collection that are judged
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub(crate) sample: u32,
    /// Judge at this instant, such as 2013-07-01T00:00:00Z; by default the database's now
    #[arg(long, value_name = "T", value_parser = time::instant)]
    pub(crate) now: Option<DateTime>,
    /// Findings that are meant to be so, and are left out, such as null_field,missing_field
    #[arg(long, value_name = "KIND", value_delimiter = ',', value_parser = super::doctor::kind)]
    pub(crate) except: Vec<ttl_index::FindingKind>,
}

#[derive(Debug, Group)]
pub(crate) struct Sweep {
    /// The collections; by default all that have a TTL index
    #[arg(value_name = "COLL")]
    pub(crate) collections: Vec<String>,
    /// Documents in a batch; by default as many as take about 75 ms
    #[arg(long, value_name = "N")]
    pub(crate) batch_size: Option<u32>,
    /// The most batches
    #[arg(long, value_name = "N")]
    pub(crate) max_batches: Option<u64>,
    /// How long new batches may begin: 90, 90s, 36h, 30d
    #[arg(long, value_name = "D", value_parser = time::duration, allow_hyphen_values = true)]
    pub(crate) max_time: Option<Duration>,
    /// The most documents a second
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) rate: Option<f64>,
    /// Only documents with a date at or before this instant, such as 2013-07-01T00:00:00Z
    #[arg(long, value_name = "T", value_parser = time::instant)]
    pub(crate) cutoff: Option<DateTime>,
    /// If somebody else is sweeping, ask for it and wait
    #[arg(long)]
    pub(crate) wait: bool,
    /// Only if no process has swept so within this time: 90, 90s, 36h, 30d; then at most 20 batches a collection and 30s over
    /// all unless told otherwise
    #[arg(long, value_name = "D", value_parser = time::duration, allow_hyphen_values = true,
        conflicts_with_all = ["wait", "cutoff", "archive"])]
    pub(crate) if_due: Option<Duration>,
    /// Write each document to this file before it is deleted: .jsonl, .jsonl.gz, .csv or .csv.gz; of one collection
    #[arg(long, value_name = "FILE")]
    pub(crate) archive: Option<PathBuf>,
    /// The columns of an archive in CSV, such as _id,user.name; the rest of each document is not kept
    #[arg(long, value_name = "F,F", value_delimiter = ',', requires = "archive")]
    pub(crate) fields: Vec<String>,
}

#[derive(Debug, Group)]
pub(crate) struct Export {
    /// The collection
    #[arg(value_name = "COLL")]
    pub(crate) collection: String,
    /// Only what is due, by the collection's TTL index and the database's now
    #[arg(long)]
    pub(crate) due: bool,
    /// As CSV, RFC 4180, that no spreadsheet takes for formulas
    #[arg(long)]
    pub(crate) csv: bool,
    /// The columns, as paths: a,b.c; by default those that the documents have, which are read once more to find them
    #[arg(long, value_name = "F,F…", requires = "csv", value_delimiter = ',')]
    pub(crate) fields: Option<Vec<String>>,
    /// Where to; standard output by default. The file is written as FILE.part, and gets its name when it is whole
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Debug, Group)]
pub(crate) struct Restore {
    /// An archive that `sweep --archive` wrote, its manifest beside it; not CSV
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// How long from now on none of the documents expires: 90, 90s, 36h, 30d
    #[arg(long, value_name = "D", default_value = "30d", value_parser = time::duration, allow_hyphen_values = true)]
    pub(crate) extend: Duration,
    /// The collection to put them into; by default the one they were deleted from
    #[arg(long, value_name = "COLL")]
    pub(crate) into: Option<String>,
}

#[derive(Debug, Group)]
pub(crate) struct Plan {
    /// The collections; by default all that have a TTL index
    #[arg(value_name = "COLL")]
    pub(crate) collections: Vec<String>,
    /// The load: lines `expires_at_seconds,count`, with seconds since the rule comes into force, which is on a Monday at
    /// midnight UTC; negative for what has expired before. - is standard input
    #[arg(long, value_name = "FILE|-", conflicts_with = "collections")]
    pub(crate) trace: Option<PathBuf>,
    /// Within which a document shall be gone that is due: 90, 90s, 36h, 30d; by default what is in force, 24h of a trace
    #[arg(long, value_name = "D", value_parser = time::duration, allow_hyphen_values = true)]
    pub(crate) target_lag: Option<Duration>,
    /// The most documents a second; by default what is in force, 1000 of a trace
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) max_rate: Option<f64>,
    /// The least documents a second while anything is due; by default what is in force, 50 of a trace
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) min_rate: Option<f64>,
    /// When nothing is deleted, such as "Mon-Fri 09:00-17:00 Europe/Berlin"; may be given several times. By default what is in
    /// force, never of a trace
    #[arg(long, value_name = "WINDOW", value_parser = time::window)]
    pub(crate) window: Vec<ClosedWindow>,
    /// How many documents are foreseen for each one of a trace that will expire, to see what a wrong forecast does; 1 by default
    #[arg(long, value_name = "X", requires = "trace", allow_hyphen_values = true)]
    pub(crate) forecast_scale: Option<f64>,
}

#[derive(Debug, Group)]
#[allow(clippy::struct_excessive_bools)] // each a switch that can be typed
pub(crate) struct Tune {
    /// For the TTL index of this collection: the target lag and the highest rate; by default for the whole database
    #[arg(value_name = "COLL")]
    pub(crate) collection: Option<String>,
    /// Within which a document shall be gone that is due: 90, 90s, 36h, 30d
    #[arg(long, value_name = "D", value_parser = time::duration, allow_hyphen_values = true)]
    pub(crate) target_lag: Option<Duration>,
    /// The most documents a second
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) max_rate: Option<f64>,
    /// The documents a second below which it goes no slower while anything is due
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) min_rate: Option<f64>,
    /// A closed window, in which nothing is deleted: "Mon-Fri 09:00-17:00 Europe/Berlin"; weekdays and zone may be left out,
    /// and it may be given several times. Those that were set before are replaced
    #[arg(long, value_name = "WINDOW", value_parser = time::window)]
    pub(crate) window: Vec<ClosedWindow>,
    /// No closed windows, whatever a sweeper was told
    #[arg(long, conflicts_with = "window")]
    pub(crate) always_open: bool,
    /// Delete what is due now as fast as is allowed, closed windows or not
    #[arg(long)]
    pub(crate) finish_now: bool,
    /// No longer
    #[arg(long, conflicts_with = "finish_now")]
    pub(crate) no_finish_now: bool,
    /// Leave everything to the options of the sweepers again that is not set along with this
    #[arg(long)]
    pub(crate) reset: bool,
}

#[derive(Debug, Group)]
pub(crate) struct Run {
    /// Within which a document shall be gone that is due: 90, 90s, 36h, 30d
    #[arg(long, value_name = "D", default_value = "24h", value_parser = time::duration, allow_hyphen_values = true)]
    pub(crate) target_lag: Duration,
    /// The most documents a second, over all TTL indexes
    #[arg(long, value_name = "N", default_value_t = 1000.0, allow_hyphen_values = true)]
    pub(crate) max_rate: f64,
    /// The documents a second below which it goes no slower while anything is due; --max-rate at most
    #[arg(long, value_name = "N", default_value_t = 50.0, allow_hyphen_values = true)]
    pub(crate) min_rate: f64,
    /// A closed window, in which nothing is deleted: "Mon-Fri 09:00-17:00 Europe/Berlin"; weekdays and zone may be left out,
    /// and it may be given several times
    #[arg(long, value_name = "WINDOW", value_parser = time::window)]
    pub(crate) window: Vec<ClosedWindow>,
    /// The most documents in a batch, which has as many as take about 75 ms, and half a second's worth of the rate
    #[arg(long, value_name = "N", default_value_t = 5000)]
    pub(crate) batch_size: u32,
    /// How often each TTL index is visited: 90, 90s, 36h, 30d
    #[arg(long, value_name = "D", default_value = "60s", value_parser = time::duration, allow_hyphen_values = true)]
    pub(crate) interval: Duration,
    /// Within which another process takes over after a crash: 90, 90s, 36h, 30d
    #[arg(long, value_name = "D", default_value = "15s", value_parser = time::duration, allow_hyphen_values = true)]
    pub(crate) lease_time: Duration,
    /// What this process is called where it is shown who sweeps; its number and host by default
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// Serve metrics for Prometheus at http://ADDR/metrics
    #[arg(long, value_name = "ADDR")]
    pub(crate) metrics_listen: Option<std::net::SocketAddr>,
}
