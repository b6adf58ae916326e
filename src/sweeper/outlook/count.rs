//! The counts that a plan is made from: the same that a sweeper makes, one after the other.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use mongodb::bson::{DateTime, oid::ObjectId};
use tokio::time::Instant;

use crate::{
    entry::{Entry, IndexState},
    error::Result,
    pacing::{Member, Pacer, Terms},
    registry::walkable,
    store::{Census, CensusTarget, Collection, DynStore},
    sweeper::drift::{Drift, of as drift_of, of_collection as drift_of_collection},
};

/// The means for one plan: each statement takes at most two seconds on the server.
const MOST_STATEMENTS: u32 = 1_500;
const MOST_KEYS: u64 = 5_000_000;

/// What is planned for, and by which limits.
pub(super) struct Count {
    pub(super) store: DynStore,
    pub(super) entries: Vec<Entry>,
    pub(super) terms: Terms,
    pub(super) finish_now: Option<DateTime>,
    /// How long new statements may begin.
    pub(super) max_time: Duration,
}

/// What is known after counting.
pub(super) struct Counted {
    pub(super) now: DateTime,
    pub(super) pacer: Pacer,
    /// What may not be counted in whole, and why.
    pub(super) uncounted: HashMap<ObjectId, String>,
}

impl Count {
    pub(super) async fn run(self) -> Result<Counted> {
        let began = Instant::now();
        let (targets, mut uncounted) = self.look().await?;
        let now = self.store.now().await?;
        let mut pacer = self.pacer(&targets);
        let (mut statements, mut keys, mut stuck) = (0, 0, HashSet::new());
        loop {
            let mut wants = pacer.wants(now);
            wants.retain(|(id, _)| !stuck.contains(id));
            let all = statements < MOST_STATEMENTS && keys < MOST_KEYS && began.elapsed() < self.max_time;
            let most = wants.iter().max_by(|(_, a), (_, b)| a.weight.total_cmp(&b.weight)).filter(|_| all);
            let Some((id, want)) = most.copied() else {
                let why = format!("counting ended after {statements} statements and {keys} keys");
                uncounted.extend(wants.into_iter().map(|(id, _)| (id, why.clone())));
                break;
            };
            statements += 1;
            let census = self.store.census(&targets[&id], want.range).await?;
            keys += census.as_ref().map_or(want.range.limit, Census::documents);
            if census.is_none() {
                stuck.insert(id);
                uncounted.insert(id, "the database does not count it, or not in time".to_owned());
            }
            if let Some(forecast) = pacer.forecast(id) {
                forecast.counted(&want, census.as_ref(), now);
            }
        }
        pacer.plan(now, Instant::now());
        Ok(Counted { now, pacer, uncounted })
    }

    /// What can be counted, and why the rest cannot.
    async fn look(&self) -> Result<(HashMap<ObjectId, CensusTarget>, HashMap<ObjectId, String>)> {
        let collections = self.store.collections().await?;
        let (mut targets, mut uncounted) = (HashMap::new(), HashMap::new());
        for entry in &self.entries {
            match self.target(entry, &collections).await? {
                Ok(target) => drop(targets.insert(entry.id, target)),
                Err(why) => drop(uncounted.insert(entry.id, why)),
            }
        }
        Ok((targets, uncounted))
    }

    /// Or why it cannot be counted.
    async fn target(
        &self,
        entry: &Entry,
        collections: &HashMap<String, Collection>,
    ) -> Result<Result<CensusTarget, String>> {
        let collection = &entry.definition.collection;
        let no = |why: &str| Ok(Err(why.to_owned()));
        match (entry.state, drift_of_collection(entry, collections)) {
            (IndexState::NeedsRepair, _) => return no(entry.problem.as_deref().unwrap_or("it needs to be repaired")),
            (IndexState::Creating, _) => return no("it is still being made"),
            (_, Drift::Broken(why)) => return Ok(Err(why)),
            (_, Drift::Renamed(to)) => return Ok(Err(format!("{collection} was renamed to {to}"))),
            _ if entry.supporting.is_none() => return no("it has no supporting index to count by"),
            _ => {}
        }
        let mut seen = collections.get(collection.as_str()).cloned().unwrap_or_default();
        seen.indexes = self.store.indexes(collection).await?;
        if let Drift::Broken(why) = drift_of(entry, collections, &seen) {
            return Ok(Err(why));
        }
        let index = seen.indexes.into_iter().find(|index| walkable(&entry.definition, index));
        let (collection, rule) = (collection.clone(), entry.rule.clone());
        Ok(Ok(CensusTarget { entry: entry.id, collection, rule, index }))
    }

    fn pacer(&self, targets: &HashMap<ObjectId, CensusTarget>) -> Pacer {
        let member = |entry: &Entry| Member {
            id: entry.id,
            rule_since: entry.rule_since,
            expire_after: entry.rule.period_millis(),
            interval: Duration::from_secs(60),
            target_lag: entry.target_lag,
            max_rate: entry.max_rate,
            counted: targets.contains_key(&entry.id),
        };
        let mut pacer = Pacer::new(self.terms.clone());
        pacer.keep(&self.terms, self.finish_now, self.entries.iter().map(member), Instant::now());
        pacer
    }
}
