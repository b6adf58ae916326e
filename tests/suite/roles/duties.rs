//! What users do who have a role: every call and every command that it is for.

use std::time::Duration;

use mongodb::Database;
use ttl_index::{Error, MongoStore, Pruned, Reference, TtlIndex};

use super::bench::Bench;
use crate::support::program::Program;

/// A collection that is there.
pub(super) const SESSIONS: &str = "sessions";
/// A collection that was not there when its TTL index was made.
pub(super) const LATE: &str = "late";
/// The collection that a guard of the first looks at.
pub(super) const CHILDREN: &str = "children";

pub(super) fn guard() -> Reference {
    Reference::by(CHILDREN, "session")
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Duty {
    Sweep,
    Manage,
    Look,
}

impl Duty {
    pub(super) fn word(self) -> &'static str {
        match self {
            Duty::Sweep => "sweep",
            Duty::Manage => "manage",
            Duty::Look => "look",
        }
    }
}

/// How the library is used.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Way {
    Usual,
    PortableOnly,
}

impl Way {
    pub(super) fn store(self, database: Database) -> MongoStore {
        match self {
            Way::Usual => MongoStore::new(database),
            Way::PortableOnly => MongoStore::new(database).portable_only(),
        }
    }
}

/// All calls of the library; the first error ends them.
pub(super) async fn by_the_library(bench: &Bench, duty: Duty, way: Way) -> Result<(), Error> {
    let ttl = bench.registry(way).await?;
    match duty {
        Duty::Sweep => {
            for collection in [SESSIONS, LATE] {
                let report = ttl.sweep(collection).batch_size(2).await?;
                if let Some(error) = report.error {
                    return Err(error);
                }
                assert_eq!(report.deleted, 3);
            }
            // The first claim makes the record, the next one changes it.
            for _ in 0..2 {
                while let Pruned::NotDue { .. } = ttl.sweep_if_due(Duration::from_millis(1)).await? {}
            }
        }
        Duty::Manage => {
            for collection in [SESSIONS, LATE] {
                let index = TtlIndex::on("t").expire_after(Duration::ZERO);
                ttl.create_index(collection, index.clone()).await?;
                ttl.create_index(collection, index).await?;
                ttl.modify_index(collection, Duration::from_secs(60)).await?;
                assert_eq!(ttl.list_indexes().collection(collection).await?.len(), 1);
                ttl.repair(collection).await?;
                ttl.drop_index(collection, "t_1").await?;
            }
            ttl.create_index(SESSIONS, TtlIndex::on("t").expire_after(Duration::ZERO)).await?;
            ttl.set_guards(SESSIONS, [guard()]).await?;
            ttl.drop_index(SESSIONS, "t_1").await?;
            ttl.pause().await?;
            ttl.resume().await?;
            ttl.tune().max_rate(500.0).finish_now(true).await?;
            ttl.tune().reset().await?;
        }
        Duty::Look => {
            assert_eq!(ttl.list_indexes().await?.len(), 2);
            ttl.rule(SESSIONS).await?;
            assert_eq!(ttl.kept(SESSIONS, [1]).await?, [None]);
            ttl.now().await?;
            ttl.status().await?;
            ttl.operations().await?;
            ttl.tune().await?;
            let plan = ttl.plan().await?;
            assert_eq!((plan.backlog, &plan.indexes[0].uncounted), (3, &None), "{plan:?}");
        }
    }
    Ok(())
}

/// All commands of the program, or what the first that failed said.
pub(super) fn by_the_program(bench: &Bench, duty: Duty) -> Result<(), String> {
    let commands: &[&[&str]] = match duty {
        Duty::Sweep => &[&["sweep"], &["sweep", SESSIONS, LATE], &["sweep", "--if-due", "1h"]],
        Duty::Manage => &[
            &["create", SESSIONS, "t"],
            &["create", LATE, "t", "--expire-after", "1d"],
            &["create", SESSIONS, "t", "--expire-after", "1d", "--or-modify"],
            &["modify", SESSIONS, "--expire-after", "2d"],
            &["list"],
            &["pause"],
            &["resume"],
            &["tune", "--max-rate", "500", "--finish-now"],
            &["tune", SESSIONS, "--target-lag", "1h"],
            &["tune", "--reset"],
            &["repair", LATE],
            &["drop", SESSIONS],
            &["drop", LATE, "t_1"],
        ],
        Duty::Look => &[
            &["list"],
            &["list", SESSIONS],
            &["explain", SESSIONS],
            &["explain", LATE],
            &["status"],
            &["plan"],
            &["operations"],
            &["tune"],
        ],
    };
    for command in commands {
        let run = Program::at(&bench.uri).run(command);
        if run.code != Some(0) {
            return Err(run.stderr);
        }
    }
    if matches!(duty, Duty::Look) {
        // What it may not read it notes.
        let doctor = Program::at(&bench.uri).run(&["doctor"]);
        if doctor.stdout.contains("lacks the privilege") {
            return Err(doctor.stdout);
        }
    }
    Ok(())
}
