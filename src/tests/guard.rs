//! What a guard asks the task of its object, and how a grant ends.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::mpsc::{self, UnboundedReceiver};
use tokio::time::advance;
use tracing::Span;

use super::shared;
use crate::combiner::Combiner;
use crate::core::bakery::{Claim, Lease, LeaseTerms, Mode};
use crate::core::turns::{HoldTerms, TurnId};
use crate::error::{LostReason, UnlockError};
use crate::guard::grant::{End, Grant, GuardRequest, GuardState, Requests, Trace};
use crate::guard::token_issuer::TokenIssuer;
use crate::guard::{LockGuard, Tokens};
use crate::testing::FaultyStore;

const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// The lease of a TTL of 60 s.
const LEASE: Duration = s(58);

/// What guards ask of their task.
type Asked = UnboundedReceiver<(TurnId, GuardRequest)>;

/// Requests stay where they are.
#[derive(Debug)]
struct NoCombiner;

impl Combiner for NoCombiner {
    fn run(&self) {}
    fn wake(&self) {}
}

/// A grant from now on, its guard, and what that asks of the task.
fn granted(hold: Option<HoldTerms>) -> (Arc<Grant>, LockGuard, Asked) {
    let shared = shared(&FaultyStore::new());
    let (name, clock): (Arc<str>, _) = (Arc::from("users::snap"), Arc::clone(&shared.clock));
    let terms = LeaseTerms::new(s(60), s(1));
    let claim = Claim {
        contender: shared.id,
        round: 1,
        mode: Mode::Exclusive,
        ticket: None,
        owner: "snap".into(),
        held_since: None,
    };
    let turn = TurnId { place: shared.id, round: 1, number: 1 };
    let lease = Lease::new(terms, clock.elapsed());
    let (lease, tally) = ((lease, LostReason::Expired), Arc::clone(&shared.tally));
    let granted = clock.elapsed();
    let limit = hold.map(|terms| terms.limit(granted));
    let trace = Trace { span: Span::none(), label: None };
    let grant = Grant::new((name, 0), trace, clock, granted, lease, limit, tally);
    let grant = Arc::new(grant);
    let (sender, receiver) = mpsc::unbounded_channel();
    let requests = Requests::of(turn, sender, Weak::<NoCombiner>::new());
    let fence = TokenIssuer::new(shared, Arc::clone(&grant), claim, requests.clone());
    let guard = LockGuard::new(Arc::clone(&grant), Tokens::Own(fence), requests);
    (grant, guard, receiver)
}

/// How often the task was asked to release.
fn releases(mut requests: Asked) -> usize {
    let asked = std::iter::from_fn(|| requests.try_recv().ok());
    asked.filter(|(_, request)| matches!(request, GuardRequest::Release { .. })).count()
}

#[tokio::test]
async fn unlock_is_reported_once() {
    let (_, guard, requests) = granted(None);
    let unlocking = tokio::spawn(guard.unlock());
    tokio::task::yield_now().await;
    unlocking.abort();
    assert!(unlocking.await.is_err_and(|error| error.is_cancelled()));
    assert_eq!(releases(requests), 1);
}

#[tokio::test(start_paused = true)]
async fn drop_is_reported_once() {
    for pause in [s(0), LEASE] {
        let (_, guard, requests) = granted(None);
        advance(pause).await;
        drop(guard);
        assert_eq!(releases(requests), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn unlock_that_the_client_overtakes_is_told_why() {
    for reason in [LostReason::RowMissing, LostReason::ClientClosed, LostReason::Expired] {
        let (grant, guard, mut requests) = granted(None);
        let unlocking = tokio::spawn(guard.unlock());
        let request = requests.recv().await.expect("it asks the task");
        grant.lose(reason.clone());
        assert_eq!(grant.ended(), Some(End::Released), "it was held until then");
        drop(request);
        let error = unlocking.await.expect("it does not panic").expect_err("the rows were lost");
        assert!(
            matches!(&error, UnlockError::Lost { reason: why, .. } if *why == reason),
            "{error:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn unlock_after_its_runtime_is_closed() {
    let (_, guard, requests) = granted(None);
    let unlocking = tokio::spawn(guard.unlock());
    tokio::task::yield_now().await;
    drop(requests);
    let error = unlocking.await.expect("it does not panic").expect_err("nothing answers");
    assert!(matches!(error, UnlockError::Closed), "{error:?}");
}

/// What came first by the clock is the reason, however late it is noticed and by what.
#[tokio::test(start_paused = true)]
async fn first_reason_is_the_reason() {
    use LostReason::{ClientClosed, Expired, HoldLimit};
    let hold = |seconds| HoldTerms::new(Some(s(seconds)), Some(s(1))).expect("it makes sense");
    for (max_hold, lost_at, expected) in [
        (None, LEASE - s(1), ClientClosed),
        (None, LEASE, Expired),
        (hold(10), s(10), ClientClosed),
        (hold(10), s(11), HoldLimit),
        (hold(10), LEASE * 2, HoldLimit),
        (hold(57), LEASE * 2, Expired),
        (hold(58), LEASE * 2, Expired),
    ] {
        let (grant, guard, _requests) = granted(max_hold);
        advance(lost_at).await;
        grant.lose(ClientClosed);
        assert_eq!(guard.state(), GuardState::Lost(expected), "{max_hold:?}, {lost_at:?}");
        let error = guard.unlock().await.expect_err("it was lost");
        assert!(matches!(error, UnlockError::Lost { .. }), "{error:?}");
    }
}
