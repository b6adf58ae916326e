//! Bringing the lifetime in force into line with a retention that was handed over.

use std::{collections::BTreeMap, time::Duration};

use tracing::{error, info};

use super::{AppliedRetention, Retention, RetentionOutcome, retention::Step};
use crate::{
    error::{Code, Error, Refusal, Result},
    index::ExpireAfter,
    lease::{MAX_WAIT, wait_until_acknowledged},
    namespace::CollectionName,
    registry::{Slot, Snapshot, TtlRegistry, no_index, set_period},
};

pub(super) async fn apply(registry: &TtlRegistry, retentions: &BTreeMap<String, Retention>) -> Vec<AppliedRetention> {
    let mut applied = Vec::new();
    for (collection, retention) in retentions {
        let outcome = one(registry, collection, retention).await.unwrap_or_else(RetentionOutcome::Failed);
        let days = retention.days();
        match &outcome {
            RetentionOutcome::InForce => {}
            RetentionOutcome::Modified { before } => info!(collection, days, ?before, "retention modified"),
            RetentionOutcome::Refused(refusal) => error!(collection, days, error = %refusal, "retention refused"),
            RetentionOutcome::Failed(error) => {
                error!(collection, days, error = error.in_full(), "retention not applied; the collection is not swept");
            }
        }
        applied.push(AppliedRetention { collection: collection.clone(), retention: retention.clone(), outcome });
    }
    applied
}

async fn one(registry: &TtlRegistry, collection: &str, retention: &Retention) -> Result<RetentionOutcome> {
    let collection = CollectionName::parse(collection)?;
    let store = &registry.store;
    loop {
        let snapshot = Snapshot::load(&**store).await?;
        let slot = snapshot.find(&collection).ok_or_else(|| no_index(&collection))?;
        let (id, before) = match slot {
            Slot::Good(entry) => (entry.id, Some(entry.definition.expire_after.duration())),
            Slot::Broken(broken) => (broken.id.ok_or_else(|| Error::from(broken.refusal()))?, None),
        };
        match retention.step(before) {
            Step::Leave => return Ok(RetentionOutcome::InForce),
            Step::Refuse => return Ok(RetentionOutcome::Refused(would_shorten(&collection, retention, before))),
            Step::Modify => {}
        }
        // Only if the lifetime in force is still the one that was compared with.
        let period = ExpireAfter::from_duration(retention.period())?;
        if let Some(revision) = set_period(&**store, id, period, snapshot.revision).await? {
            wait_until_acknowledged(store, revision, MAX_WAIT).await?;
            return Ok(RetentionOutcome::Modified { before });
        }
    }
}

fn would_shorten(collection: &CollectionName, retention: &Retention, in_force: Option<Duration>) -> Refusal {
    let kept = match in_force {
        Some(lifetime) => format!("{collection} keeps its documents for {} s", lifetime.as_secs()),
        None => format!("how long {collection} keeps its documents cannot be understood"),
    };
    Refusal::new(
        Code::BadValue,
        format!(
            "{kept}, and a fallback of {retention} is not taken for a wish to keep them for less; mend the setting, or \
             modify the TTL index"
        ),
    )
}
