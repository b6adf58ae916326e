//! Until when deletes may take effect, so that one that was held up does nothing once somebody else may be sweeping, or a
//! rule is no longer in force.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use mongodb::bson::DateTime;
use tokio::time::Instant;

/// How long a statement may be on its way to the server. One that is held up longer deletes nothing, where the backend
/// compares with its own clock.
const ON_ITS_WAY: Duration = Duration::from_secs(5);

/// Less than this is not worth sending a statement for.
const TOO_SHORT: Duration = Duration::from_millis(50);

/// The end of what a holder of the lease may do, moved on with every renewal. Clones are the same fence.
#[derive(Clone, Debug)]
pub(crate) struct Fence(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    /// None once it is closed for good.
    bound: Option<Bound>,
    /// A statement that was sent, and whose reply did not say what it has done, has no effect any more from this instant
    /// on.
    unsettled: Option<Instant>,
}

/// One instant, by two clocks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Bound {
    /// By this process's monotonic clock.
    pub(crate) local: Instant,
    /// By the server's clock, no later; none if nothing has to end by then.
    pub(crate) server: Option<DateTime>,
}

/// What a statement that is sent now must keep to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Statement {
    /// How long the server may work on it.
    pub(crate) limit: Duration,
    /// It must begin before this instant of the server's.
    pub(crate) before: Option<DateTime>,
    /// Where both are kept it has no effect any more from this instant on.
    pub(crate) settled: Instant,
}

impl Fence {
    pub(crate) fn new(bound: Bound) -> Self {
        Self(Arc::new(Mutex::new(State { bound: Some(bound), unsettled: None })))
    }

    /// One that never comes.
    pub(crate) fn unlimited() -> Self {
        Self::new(Bound { local: Instant::now() + Duration::from_secs(10 * 365 * 86_400), server: None })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Moves it on, unless it is closed.
    pub(crate) fn extend(&self, to: Bound) {
        if let Some(bound) = &mut self.state().bound {
            *bound = to;
        }
    }

    /// From now on nothing is sent.
    pub(crate) fn close(&self) {
        self.state().bound = None;
    }

    /// Whether anything may be sent yet.
    pub(crate) fn is_open(&self) -> bool {
        self.state().bound.is_some_and(|bound| Instant::now() < bound.local)
    }

    /// What a statement must keep to that is sent now and would like this time; none if there is not enough time left.
    pub(crate) fn statement(&self, limit: Duration) -> Option<Statement> {
        let bound = self.state().bound?;
        let now = Instant::now();
        let left = bound.local.checked_duration_since(now)?;
        let limit = limit.min(left / 2);
        if limit < TOO_SHORT {
            return None;
        }
        // It begins so early that it ends in time, and soon after it was sent.
        let begin_within = ON_ITS_WAY.min(left.saturating_sub(limit));
        let before = bound.server.map(|server| {
            let earlier = i64::try_from(left.saturating_sub(begin_within).as_millis()).unwrap_or(i64::MAX);
            DateTime::from_millis(server.timestamp_millis().saturating_sub(earlier))
        });
        Some(Statement { limit, before, settled: now + begin_within + limit })
    }

    /// A statement is being sent that has no effect any more from this instant on. Returns how it stood before.
    pub(crate) fn sending(&self, settled: Instant) -> Option<Instant> {
        let mut state = self.state();
        let before = state.unsettled;
        state.unsettled = before.max(Some(settled));
        before
    }

    /// The reply to the last statement said what it has done: it stands as before. An earlier one may still be under way.
    pub(crate) fn settled(&self, before: Option<Instant>) {
        self.state().unsettled = before;
    }

    /// From when on nothing that was sent has an effect any more.
    pub(crate) fn unsettled(&self) -> Option<Instant> {
        self.state().unsettled.filter(|until| Instant::now() < *until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn a_statement_begins_soon_and_ends_before_the_fence() {
        let end = Bound { local: Instant::now() + 60 * SECOND, server: Some(DateTime::from_millis(60_000)) };
        let fence = Fence::new(end);
        let early = fence.statement(2 * SECOND).unwrap();
        assert_eq!((early.limit, early.before), (2 * SECOND, Some(DateTime::from_millis(5_000))));
        assert_eq!(early.settled, Instant::now() + 7 * SECOND);

        tokio::time::advance(57 * SECOND).await;
        let late = fence.statement(2 * SECOND).unwrap();
        assert_eq!((late.limit, late.before), (1500 * SECOND / 1000, Some(DateTime::from_millis(58_500))));
        assert_eq!(late.settled, end.local);

        tokio::time::advance(3 * SECOND).await;
        assert_eq!(fence.statement(2 * SECOND), None);
        assert!(!fence.is_open());
        fence.extend(Bound { local: Instant::now() + SECOND, server: None });
        assert!(fence.is_open());
        fence.close();
        fence.extend(Bound { local: Instant::now() + SECOND, server: None });
        assert!(!fence.is_open());
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_not_answered_is_unsettled_until_it_can_have_no_effect() {
        let fence = Fence::new(Bound { local: Instant::now() + 60 * SECOND, server: None });
        let before = fence.sending(Instant::now() + SECOND);
        assert!(fence.unsettled().is_some());
        fence.settled(before);
        assert_eq!(fence.unsettled(), None);
        let unanswered = Instant::now() + SECOND;
        fence.sending(unanswered);
        // The answer to a later one says nothing of it.
        let before = fence.sending(Instant::now() + 10 * SECOND);
        fence.settled(before);
        assert_eq!(fence.unsettled(), Some(unanswered));
        tokio::time::advance(SECOND).await;
        assert_eq!(fence.unsettled(), None);
    }
}
