//! Standing by for the lease, holding it, and being told to stop.

use std::{sync::Arc, time::Duration};

use tokio::{sync::watch, task::JoinSet, time::sleep};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::{
    Options,
    status::{Activity, SweeperStatus},
    tenure::{End, Tenure},
};
use crate::{
    error::{Error, Result},
    lease::{self, Claimant, Lease, Patience},
    meter::Labels,
    registry::TtlRegistry,
};

/// While the lease cannot be had it is tried again after this; where the database answers and refuses, twice as late each
/// time, up to the lease time.
const FIRST_RETRY: Duration = Duration::from_secs(1);

/// The request to stop.
#[derive(Clone, Debug)]
pub(super) struct Stop {
    pub(super) asked: CancellationToken,
    /// From now on nothing is waited for. The lease time after the request.
    pub(super) late: CancellationToken,
}

pub(super) async fn run(
    registry: TtlRegistry,
    options: Options,
    asked: CancellationToken,
    told: watch::Sender<SweeperStatus>,
) -> Result<()> {
    info!(name = options.name, max_rate = options.terms.max_rate, "sweeper started");
    let stop = Stop { asked, late: CancellationToken::new() };
    // Ends with this.
    let mut timer = JoinSet::new();
    let (ending, lease_time) = (stop.clone(), options.lease_time);
    timer.spawn(async move {
        ending.asked.cancelled().await;
        sleep(lease_time).await;
        ending.late.cancel();
    });
    // Said from the start, so that it shows if nobody ever sweeps.
    registry.meter.lease(false, 0);
    while let Some(lease) = stand_by(&registry, &options, &stop, &told).await? {
        let lease = Arc::new(lease);
        registry.meter.lease(true, lease.term());
        let end = Tenure::new(&registry, &options, &stop, &told, lease.clone()).hold().await;
        registry.meter.lease(false, lease.term());
        match end {
            End::Stopped => give_back(lease, None, &stop).await,
            End::HandOver(to) => give_back(lease, Some(to), &stop).await,
            End::Lost => lease.abandon(),
        }
    }
    info!(name = options.name, "sweeper stopped");
    Ok(())
}

/// The lease, once it can be had; none if the sweeper is stopped before.
async fn stand_by(
    registry: &TtlRegistry,
    options: &Options,
    stop: &Stop,
    told: &watch::Sender<SweeperStatus>,
) -> Result<Option<Lease>> {
    let (mut retry, mut news) = (FIRST_RETRY, true);
    loop {
        told.send_modify(|status| status.activity = Activity::Standby);
        // Another one each time: what an earlier tenure left under way must have lapsed as well.
        let claimant = Claimant::new(&options.name, options.lease_time);
        let (store, asked) = (registry.store.clone(), stop.asked.clone());
        // A task of its own: a driver call must not be dropped halfway.
        let taking = tokio::spawn(async move { lease::take(&store, &claimant, Patience::StandBy, &asked).await });
        let taken = tokio::select! {
            taken = taking => taken,
            () = stop.late.cancelled() => return Ok(None),
        };
        match taken {
            Ok(Ok(lease)) => return Ok(lease),
            Ok(Err(error @ Error::Unfit(_))) => return Err(error),
            Ok(Err(error)) => {
                registry.meter.error(&Labels { collection: "", index: "" }, error.kind(), error.code());
                if std::mem::take(&mut news) {
                    warn!(error = error.in_full(), retry_in = ?retry, "the lease cannot be had");
                } else {
                    debug!(error = error.in_full(), retry_in = ?retry, "the lease still cannot be had");
                }
                told.send_modify(|status| status.activity = Activity::Away);
                if error.is_away() {
                    retry = FIRST_RETRY;
                }
            }
            Err(error) => warn!(%error, "taking the lease was broken off"),
        }
        tokio::select! {
            () = stop.asked.cancelled() => return Ok(None),
            () = sleep(retry) => {}
        }
        retry = (retry * 2).min(options.lease_time);
    }
}

/// Gives the lease back, or leaves it to lapse if that takes longer than a stop may.
async fn give_back(lease: Arc<Lease>, to: Option<String>, stop: &Stop) {
    let giving = lease.clone();
    // A task of its own: a driver call must not be dropped halfway.
    let given = tokio::spawn(async move { giving.give_back(to).await });
    tokio::select! {
        _ = given => {}
        () = stop.late.cancelled() => {
            warn!(holder = lease.holder(), "the lease could not be given back in time; it lapses");
            lease.abandon();
        }
    }
}
