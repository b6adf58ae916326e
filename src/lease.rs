//! Who sweeps a database: one holder at a time, however many processes would like to.
//!
//! | file | concern |
//! |---|---|
//! | `lease.rs` | the record, and taking it |
//! | [`observer`] | when somebody else's lease is over: pure |
//! | [`held`] | keeping a lease, acknowledging changes of the registry, giving it back |
//! | [`acknowledged`] | waiting until the holder goes by a change |
//!
//! # Expected flow
//!
//! A claimant reads the record until it is free, or until its renewal counter has stood still for long enough; takes it in
//! one guarded step that raises the term; reads the registry *after* that; renews while it sweeps; and gives it back.
//!
//! # Guarantees
//!
//! - Two holders never sweep at once. An observer waits from when it *read* a renewal, on its own monotonic clock; the
//!   holder counts from *before* it wrote that renewal, and ends earlier. No two clocks are compared.
//! - A delete that was held up takes no effect once the lease is over, where the server compares with its own clock.
//! - A crashed holder's lease needs nobody to remove it.
//!
//! # Assumptions
//!
//! Monotonic clocks of different machines run at nearly the same speed. Correctness of deletes never depends on the lease:
//! each is conditional. The rate, and the guarantee of `drop_index` and `modify_index`, do.

mod acknowledged;
mod held;
mod observer;

pub(crate) use acknowledged::{MAX_WAIT, wait_until_acknowledged};
pub(crate) use held::{Lease, Standing};

use std::time::Duration;

use mongodb::bson::{Bson, DateTime, Document, doc, oid::ObjectId};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tracing::info;

use self::observer::{Observer, View};
use crate::{
    clock::between,
    error::{Code, Error, Refusal, Result},
    store::{DynStore, Guard, Records, Store},
};

/// Within which somebody else takes over after a crash, unless told otherwise.
pub(crate) const LEASE_TIME: Duration = Duration::from_secs(15);

/// The record of the lease.
const ID: &str = "lease";

/// Who would like to hold the lease, and how long it lasts without a renewal.
#[derive(Clone, Debug)]
pub(crate) struct Claimant {
    /// Unlike any other claimant's.
    pub(crate) id: String,
    /// Within which another claimant takes over after a crash.
    pub(crate) lease_time: Duration,
}

impl Claimant {
    pub(crate) fn new(name: &str, lease_time: Duration) -> Self {
        Self { id: format!("{name}/{}", ObjectId::new().to_hex()), lease_time }
    }

    /// How long the counter stands still before the lease is over. The rest of the lease time is for noticing it.
    fn still(&self) -> Duration {
        self.lease_time * 4 / 5
    }

    fn renew_every(&self) -> Duration {
        self.lease_time / 5
    }

    fn look_every(&self) -> Duration {
        self.lease_time / 15
    }
}

/// What this process calls itself unless told otherwise.
pub(crate) fn default_name() -> String {
    let process = std::process::id();
    // Shells know the first and do not always pass it on.
    let host = std::env::var("HOSTNAME").or_else(|_| std::fs::read_to_string("/etc/hostname"));
    match host.as_deref().map(str::trim) {
        Ok(host) if !host.is_empty() => format!("process {process} on {host}"),
        _ => format!("process {process}"),
    }
}

/// The lease as the database holds it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Record {
    /// None if it is free.
    pub(crate) holder: Option<String>,
    /// Rises with every taking.
    pub(crate) term: i64,
    /// Rises with every renewal.
    pub(crate) renewal: i64,
    /// It is over once the counter has stood still for so long.
    still: Duration,
    /// How long a delete may take effect after that.
    settle: Duration,
    /// The registry's revision that the holder goes by.
    pub(crate) revision: Option<i64>,
    /// Who asks for it.
    vacate: Option<String>,
    /// When it was taken.
    pub(crate) since: Option<DateTime>,
    /// When it was renewed last, by the database's clock as the holder reckons it. Only to be shown.
    renewed: Option<DateTime>,
    /// What the holder tells of its work.
    pub(crate) work: Document,
}

impl Record {
    pub(crate) async fn read(store: &dyn Store) -> Result<Option<Self>> {
        store.record(Records::Lease, ID).await?.as_ref().map(Self::parse).transpose()
    }

    /// When its holder was last heard of, if that was so long ago that it is gone, most likely. Only to be shown: who takes
    /// the lease waits for the counter to stand still.
    pub(crate) fn silent_since(&self, now: DateTime) -> Option<DateTime> {
        self.renewed.filter(|renewed| between(*renewed, now) > self.still * 2)
    }

    fn parse(record: &Document) -> Result<Self> {
        let unreadable = |field: &str| {
            let what = record.get(field).unwrap_or(&Bson::Null);
            Error::Unreadable(format!(
                "the lease in {} has no readable {field} ({what}), so nobody sweeps; remove the record when no sweeper \
                 is running",
                Records::Lease.collection()
            ))
        };
        let number = |field: &str| match record.get(field) {
            Some(Bson::Int64(number)) => Ok(*number),
            Some(Bson::Int32(number)) => Ok(i64::from(*number)),
            _ => Err(unreadable(field)),
        };
        let text = |field: &str| match record.get(field) {
            Some(Bson::String(text)) => Ok(Some(text.clone())),
            None | Some(Bson::Null) => Ok(None),
            _ => Err(unreadable(field)),
        };
        let millis = |field: &str| u64::try_from(number(field)?).map_err(|_| unreadable(field));
        Ok(Self {
            holder: text("holder")?,
            term: number("term")?,
            renewal: number("renewal")?,
            still: Duration::from_millis(millis("still_ms")?),
            settle: Duration::from_millis(millis("settle_ms")?),
            revision: record.get_i64("revision").ok(),
            vacate: text("vacate")?,
            since: record.get_datetime("since").ok().copied(),
            renewed: record.get_datetime("renewed").ok().copied(),
            work: record.get_document("work").cloned().unwrap_or_default(),
        })
    }
}

/// What to do while somebody else holds the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// Give up as soon as the holder shows a sign of life.
    Refuse,
    /// Ask it to hand over at the end of a batch.
    Ask,
    /// Wait until it is over.
    StandBy,
}

/// Takes the lease; none if it was told to stop before it had it. Not to be dropped halfway, as it calls the driver.
pub(crate) async fn take(
    store: &DynStore,
    claimant: &Claimant,
    patience: Patience,
    stop: &CancellationToken,
) -> Result<Option<Lease>> {
    let (mut observer, mut said) = (Observer::default(), false);
    while !stop.is_cancelled() {
        let record = Record::read(&**store).await?;
        let view = observer.look(record.as_ref(), &claimant.id, Instant::now());
        match view {
            View::Free | View::Over => {
                if let Some(lease) = try_take(store, claimant, record.as_ref(), view == View::Over).await? {
                    return Ok(Some(lease));
                }
            }
            View::Held { alive: true } if patience == Patience::Refuse => {
                return Err(held_by(record.and_then(|record| record.holder)).into());
            }
            View::Held { .. } => {
                if patience == Patience::StandBy && !said {
                    said = true;
                    info!(
                        claimant = claimant.id,
                        holder = record.as_ref().and_then(|it| it.holder.as_deref()),
                        "standing by"
                    );
                }
                if patience == Patience::Ask {
                    ask(&**store, claimant, record.as_ref()).await?;
                }
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = sleep(claimant.look_every()) => {}
                }
            }
        }
    }
    if patience == Patience::Ask {
        take_back_request(&**store, claimant).await?;
    }
    Ok(None)
}

fn held_by(holder: Option<String>) -> Refusal {
    let holder = holder.unwrap_or_default();
    let why = format!("{holder} is sweeping this database; wait for it, or ask it to hand over (`wait`, or `--wait`)");
    Refusal::new(Code::ConflictingOperationInProgress, why).because_of(holder)
}

/// One guarded step from the record as it was seen. None if somebody was quicker.
async fn try_take(store: &DynStore, claimant: &Claimant, seen: Option<&Record>, lapsed: bool) -> Result<Option<Lease>> {
    let settle = store.settle_time().await?;
    let told = store.now().await?;
    let told_at = Instant::now();
    let millis = |duration: Duration| i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
    let term = seen.map_or(0, |record| record.term) + 1;
    let fields = doc! {
        "holder": &claimant.id,
        "term": term,
        "renewal": 0_i64,
        "still_ms": millis(claimant.still()),
        "settle_ms": millis(settle),
        "revision": Bson::Null,
        "vacate": Bson::Null,
        "since": told,
        "renewed": told,
    };
    let guard = match seen {
        None => Guard::Missing,
        Some(record) => Guard::Has(doc! {
            "holder": record.holder.clone(), "term": record.term, "renewal": record.renewal,
        }),
    };
    let before = Instant::now();
    if store.set_record(Records::Lease, ID, guard, fields).await?.is_none() {
        return Ok(None);
    }
    // What a holder that is gone had under way may still take effect for this long.
    let settled = before + seen.filter(|_| lapsed).map(|record| record.settle).unwrap_or_default();
    Ok(Some(Lease::start(store.clone(), claimant.clone(), term, held::Taken { before, told, told_at, settled })))
}

async fn ask(store: &dyn Store, claimant: &Claimant, record: Option<&Record>) -> Result<()> {
    let Some(record) = record.filter(|record| record.vacate.is_none()) else { return Ok(()) };
    let guard = Guard::Has(doc! { "holder": record.holder.clone(), "term": record.term, "vacate": Bson::Null });
    store.set_record(Records::Lease, ID, guard, doc! { "vacate": &claimant.id }).await.map(drop)
}

/// Takes a request to hand over back, as nobody waits for it any more.
async fn take_back_request(store: &dyn Store, claimant: &Claimant) -> Result<()> {
    let asked = Guard::Has(doc! { "vacate": &claimant.id });
    store.set_record(Records::Lease, ID, asked, doc! { "vacate": Bson::Null }).await?;
    // It may have been handed over meanwhile.
    let handed_over = Guard::Has(doc! { "holder": &claimant.id });
    store.set_record(Records::Lease, ID, handed_over, doc! { "holder": Bson::Null }).await.map(drop)
}
