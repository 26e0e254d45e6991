//! One grant of a lock: the state that its guard and the task of its object share, and the guard's
//! requests.

use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use tokio::runtime::{self, Handle};
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;
use tracing::{Span, warn};
use uuid::Uuid;

use crate::admin::types::HeldPlace;
use crate::clock::Clock;
use crate::combiner::Combiner;
use crate::context::Process;
use crate::context::tally::Tally;
use crate::core::bakery::{Lease, Loss};
use crate::core::object::io::Need;
use crate::core::turns::{HoldLimit, TurnId};
use crate::error::{EnsureError, ExpiringReason, LostReason, UnlockError};
use crate::fencing::{FencingError, FencingToken};
use crate::options::shown;

/// What the log says of an acquisition, from its request to the end of its grant.
#[derive(Clone, Debug)]
pub(crate) struct Trace {
    /// It follows from the caller's span, which may end earlier. It gets the last fencing token.
    pub(crate) span: Span,
    /// The label of the request. Spans may be off where warnings are on.
    pub(crate) label: Option<Arc<str>>,
}

/// The state that the task of the object and the guard of one grant share.
#[derive(Debug)]
pub(crate) struct Grant {
    /// The name in the table.
    name: Arc<str>,
    /// How many bytes of it callers leave out.
    prefix: usize,
    trace: Trace,
    clock: Arc<dyn Clock>,
    process: Process,
    /// The runtime of the client's tasks.
    runtime: runtime::Id,
    granted: Duration,
    hold_limit: Option<HoldLimit>,
    /// Why it is lost when its lease ends.
    expiry: LostReason,
    /// Locked only briefly, and never while foreign code runs: a waker, a recorder of metrics or a
    /// subscriber to warnings may look at the guard. It orders renewals and ends, so that a lost
    /// lock stays lost.
    standing: Mutex<LeaseStatus>,
    /// Clocks differ by too much, so leases may be worth less than they say.
    clocks_differ: AtomicBool,
    /// Wakes those that wait for a later phase, after it stands in `standing`.
    /// Made when it is needed, as the tokens are.
    phase: OnceLock<watch::Sender<Phase>>,
    /// Cancelled when the grant ends.
    token: OnceLock<CancellationToken>,
    /// A child of `token` that is cancelled before, when the grant is expiring.
    expiring_token: OnceLock<CancellationToken>,
    /// Why a lock was lost that its guard had released, before the task learned of the release.
    overtaken: OnceLock<LostReason>,
    is_collected: AtomicBool,
    /// The holder had the lock alone, and shares it from now on.
    shares: AtomicBool,
    tally: Arc<Tally>,
}

/// What becomes of a grant, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// It is held.
    Held,
    /// Its holder is to finish.
    Expiring,
    /// It has ended.
    Ended,
}

/// Where a guard asks its object.
#[derive(Clone, Debug)]
pub(crate) struct Requests {
    /// The turn of the guard: an object may have several.
    turn: TurnId,
    object: mpsc::UnboundedSender<(TurnId, GuardRequest)>,
    /// What handles the requests.
    combiner: Weak<dyn Combiner>,
}

impl Requests {
    /// The requests of a turn.
    pub(crate) fn of(
        turn: TurnId,
        object: mpsc::UnboundedSender<(TurnId, GuardRequest)>,
        combiner: Weak<dyn Combiner>,
    ) -> Self {
        Requests { turn, object, combiner }
    }

    /// The client whose place is used: this one or, for a turn of another client, that one.
    pub(crate) fn keeper(&self) -> Uuid {
        Uuid::from_u128(self.turn.place.client)
    }

    /// That place.
    pub(crate) fn place(&self) -> HeldPlace {
        HeldPlace::new(self.turn.place, self.turn.round)
    }

    /// The slot of that place.
    #[cfg(feature = "test-util")]
    pub(crate) fn slot(&self) -> i16 {
        self.turn.place.slot
    }

    /// Asks the object, which handles it at once. If it has ended, and with it the turn, the
    /// request is dropped.
    pub(crate) fn send(&self, request: GuardRequest) {
        if let Some(combiner) = self.enqueue(request) {
            combiner.run();
        }
    }

    /// The same, but leaves the work to the task of the object.
    pub(crate) fn leave(&self, request: GuardRequest) {
        if let Some(combiner) = self.enqueue(request) {
            combiner.wake();
        }
    }

    fn enqueue(&self, request: GuardRequest) -> Option<Arc<dyn Combiner>> {
        self.object.send((self.turn, request)).ok()?;
        self.combiner.upgrade()
    }
}

/// A guard's request to its object. The reply is dropped unsent if the lock is lost
/// first; the grant knows why.
#[derive(Debug)]
pub(crate) enum GuardRequest {
    /// Release the lock.
    Release {
        /// The caller that waits for the acknowledgement, if any.
        reply: Option<oneshot::Sender<Result<(), UnlockError>>>,
    },
    /// A read has shown that the rows of the lock are gone. Boxed: it is the largest by far, and
    /// the channel has room for 32 from the beginning.
    RowsLost(Box<Loss>),
    /// Issue a fencing token from those that the keeper of the place has reserved.
    IssueToken {
        /// The caller that waits for it.
        reply: oneshot::Sender<Result<FencingToken, FencingError>>,
    },
    /// Write other rows from now on.
    Revise {
        /// How long they live, if that is longer than before.
        ttl: Option<Duration>,
        /// What they say of the work under the lock.
        note: Option<String>,
        /// The caller that waits until they are written.
        reply: oneshot::Sender<Result<Duration, EnsureError>>,
    },
    /// Share the lock from now on.
    Share {
        /// The caller that waits until the rows say so.
        reply: oneshot::Sender<Result<Duration, EnsureError>>,
    },
    /// Confirm that the lock is held.
    Confirm {
        /// What to confirm.
        need: Need,
        /// The caller that waits to learn how long the lock is held.
        reply: oneshot::Sender<Result<Duration, EnsureError>>,
    },
}

/// What a guard knows about its lock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GuardState {
    /// Held.
    Held {
        /// How long the lease still lasts without renewal.
        remaining: Duration,
    },
    /// Held, but prepare to stop: no renewal was acknowledged for two thirds of the lease, or
    /// clocks were found to differ by more than leases allow for, so that another client may be
    /// admitted before this lease ends.
    AtRisk {
        /// How long the lease still lasts without renewal.
        remaining: Duration,
    },
    /// Held, but not for long: finish, and release it. It is never `Held` again. If it is not
    /// released in time it is lost; no other client is admitted before.
    Expiring {
        /// Why.
        reason: ExpiringReason,
        /// How long the lock is still held. After `max_hold` that is until the end of the grace, or
        /// of the lease if that ends earlier and is not renewed; otherwise until the end of the
        /// lease, which is not renewed any more.
        remaining: Duration,
    },
    /// Lost. Final.
    Lost(LostReason),
    /// Released.
    Released,
}

impl GuardState {
    /// Whether the lock is held: neither lost nor released.
    ///
    /// # Example
    ///
    /// ```
    /// # use bakery_lock::{LockClient, MemoryStore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let store = MemoryStore::new();
    /// # let client = LockClient::builder_in_memory(&store).build().await?;
    /// let guard = client.lock("users::snap").await?;
    /// let handle = guard.handle();
    /// assert!(handle.state().is_held());
    /// guard.unlock().await?;
    /// assert!(!handle.state().is_held());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn is_held(&self) -> bool {
        match self {
            GuardState::Held { .. } | GuardState::AtRisk { .. } | GuardState::Expiring { .. } => {
                true
            }
            GuardState::Lost(_) | GuardState::Released => false,
        }
    }

    /// How long the lock is still held; zero when it is not.
    pub(crate) fn remaining(&self) -> Duration {
        match *self {
            GuardState::Held { remaining }
            | GuardState::AtRisk { remaining }
            | GuardState::Expiring { remaining, .. } => remaining,
            GuardState::Lost(_) | GuardState::Released => Duration::ZERO,
        }
    }
}

impl fmt::Display for GuardState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GuardState::Held { remaining } => write!(f, "held for {remaining:.1?} at least"),
            GuardState::AtRisk { remaining } => write!(f, "at risk, held for {remaining:.1?}"),
            GuardState::Expiring { reason, remaining } => {
                write!(f, "held for {remaining:.1?} more: {reason}")
            }
            GuardState::Lost(reason) => write!(f, "lost: {reason}"),
            GuardState::Released => f.write_str("released"),
        }
    }
}

/// The lease of a grant, and how it ended.
#[derive(Clone, Debug)]
struct LeaseStatus {
    lease: Lease,
    /// When the grant or the last renewal was acknowledged.
    acknowledged: Duration,
    /// Why the holder is to finish, once that is so.
    expiring: Option<ExpiringReason>,
    /// Final.
    end: Option<End>,
}

impl LeaseStatus {
    fn phase(&self) -> Phase {
        match (&self.end, &self.expiring) {
            (Some(_), _) => Phase::Ended,
            (None, Some(_)) => Phase::Expiring,
            (None, None) => Phase::Held,
        }
    }
}

/// How a grant ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The lock was lost.
    Lost(LostReason),
    /// The lock was released.
    Released,
}

impl End {
    /// The error of an `unlock` of this lock after this end.
    pub(crate) fn into_unlock_error(self, name: &str) -> UnlockError {
        match self {
            End::Lost(reason) => UnlockError::Lost { name: name.to_owned(), reason },
            // Only a guard releases, and that consumes it.
            End::Released => UnlockError::Closed,
        }
    }

    /// The error of a token of this lock after this end.
    pub(crate) fn into_fencing_error(self, name: &str) -> FencingError {
        match self {
            End::Lost(reason) => FencingError::lost(name, reason),
            End::Released => FencingError::released(name),
        }
    }
}

impl Grant {
    /// A grant of the object `name`, of which callers leave out a prefix of some bytes, with its
    /// first lease, why it is lost when that ends, and its hold limit. The tally, which has counted
    /// it, counts its end. Called in the context of the client's runtime.
    pub(crate) fn new(
        (name, prefix): (Arc<str>, usize),
        trace: Trace,
        clock: Arc<dyn Clock>,
        granted: Duration,
        (lease, expiry): (Lease, LostReason),
        hold_limit: Option<HoldLimit>,
        tally: Arc<Tally>,
    ) -> Self {
        Grant {
            name,
            prefix,
            trace,
            clock,
            process: Process::current(),
            runtime: Handle::current().id(),
            granted,
            hold_limit,
            expiry,
            standing: Mutex::new(LeaseStatus {
                lease,
                acknowledged: granted,
                expiring: None,
                end: None,
            }),
            clocks_differ: AtomicBool::new(false),
            phase: OnceLock::new(),
            token: OnceLock::new(),
            expiring_token: OnceLock::new(),
            overtaken: OnceLock::new(),
            is_collected: AtomicBool::new(false),
            shares: AtomicBool::new(false),
            tally,
        }
    }

    /// The name of the object, as it was requested.
    pub(crate) fn requested_name(&self) -> &str {
        &self.name[self.prefix..]
    }

    /// The name of the object.
    pub(crate) fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// The span of the acquisition.
    pub(crate) fn span(&self) -> &Span {
        &self.trace.span
    }

    /// The holder shares the lock, which it had alone; or not, after all.
    pub(crate) fn set_shares(&self, shares: bool) {
        self.shares.store(shares, Ordering::SeqCst);
    }

    /// Whether the holder shares the lock, which it had alone.
    pub(crate) fn shares(&self) -> bool {
        self.shares.load(Ordering::SeqCst)
    }

    /// The label of the request.
    pub(crate) fn label(&self) -> Option<&str> {
        self.trace.label.as_deref()
    }

    /// Notes the token that a guard has got.
    pub(crate) fn trace_token(&self, token: FencingToken) {
        self.trace.span.record("token", token.value());
    }

    /// When the lock is taken from its holder, if it has a hold limit.
    pub(crate) fn hold_ends(&self) -> Option<Duration> {
        self.hold_limit.map(|limit| limit.ends)
    }

    /// When its holder is to finish by its hold limit.
    pub(crate) fn expiring_from(&self) -> Option<Duration> {
        self.hold_limit.map(|limit| limit.expiring_from)
    }

    fn standing(&self) -> MutexGuard<'_, LeaseStatus> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Installs a renewed lease; `Err` says how the grant had ended before.
    pub(crate) fn renew(&self, renewed: Lease) -> Result<(), End> {
        let acknowledged = self.clock.elapsed();
        let left = self.unless_ended(None, |standing| {
            let left = standing.lease.left(acknowledged);
            (standing.lease, standing.acknowledged) = (renewed, acknowledged);
            left
        })?;
        self.tally.renewed(left);
        Ok(())
    }

    /// The holder is to finish, for the first reason that it is given.
    pub(crate) fn expire(&self, reason: &ExpiringReason) {
        let begins = self.unless_ended(None, |standing| {
            let begins = standing.expiring.is_none();
            standing.expiring.get_or_insert_with(|| reason.clone());
            begins
        });
        if begins == Ok(true) {
            self.announce_phase();
            self.tally.expiring(reason);
            self.warn_expiring(reason);
        }
    }

    /// Why the holder is to finish, if it is, or was.
    pub(crate) fn expiring(&self) -> Option<ExpiringReason> {
        self.standing().expiring.clone()
    }

    /// Notices by the clock that the hold limit is reached.
    pub(crate) fn look_at_hold_limit(&self) {
        if self.expiring_from().is_some_and(|from| self.clock.elapsed() >= from) {
            self.expire(&ExpiringReason::HoldLimit);
        }
    }

    /// Records whether clocks differ by too much for leases.
    pub(crate) fn set_clocks_differ(&self, differ: bool) {
        // Nothing else is ordered by it.
        self.clocks_differ.store(differ, Ordering::Relaxed);
    }

    /// Whether clocks differ by too much for leases.
    pub(crate) fn clocks_differ(&self) -> bool {
        self.clocks_differ.load(Ordering::Relaxed)
    }

    /// The caller has the guard.
    pub(crate) fn collect(&self) {
        // Nothing else is ordered by it, here and below.
        self.is_collected.store(true, Ordering::Relaxed);
    }

    /// Whether the caller has the guard. Until then that lies in the answer to a future, which may
    /// never be polled again.
    pub(crate) fn is_collected(&self) -> bool {
        self.is_collected.load(Ordering::Relaxed)
    }

    /// Ends the grant, once; `Err` says how it had ended before.
    pub(crate) fn end(&self, end: End) -> Result<(), End> {
        self.unless_ended(Some(end), |_| ())
    }

    /// How the grant ended, if it did.
    pub(crate) fn ended(&self) -> Option<End> {
        self.unless_ended(None, |_| ()).err()
    }

    /// Whether the lock is held, when a token is issued.
    pub(crate) fn check_held(&self) -> Result<(), FencingError> {
        self.ended().map_or(Ok(()), |end| Err(end.into_fencing_error(&self.name)))
    }

    /// Ends the grant as lost. If the guard had released it, [`overtaken`](Self::overtaken) keeps
    /// the reason for its `unlock`.
    pub(crate) fn lose(&self, reason: LostReason) {
        if let Err(End::Released) = self.end(End::Lost(reason.clone())) {
            // The task loses a grant only once.
            let _ = self.overtaken.set(reason);
        }
    }

    /// Whether the client's tasks, which wake those that wait for the end, run on the runtime on
    /// which this is called: where that is blocked, nothing would look.
    pub(crate) fn is_watched_here(&self) -> bool {
        Handle::try_current().is_ok_and(|current| current.id() == self.runtime)
    }

    /// Why the lock was lost between its release by the guard and the moment the task learned of
    /// it; `None` if it was not.
    pub(crate) fn overtaken(&self) -> Option<LostReason> {
        self.overtaken.get().cloned()
    }

    /// The state of the lock, by the clock.
    pub(crate) fn state(&self) -> GuardState {
        self.look_at_hold_limit();
        let seen = self.unless_ended(None, |standing| (standing.lease, standing.expiring.clone()));
        match seen {
            Err(End::Lost(reason)) => GuardState::Lost(reason),
            Err(End::Released) => GuardState::Released,
            Ok((lease, expiring)) => {
                let now = self.clock.elapsed();
                let ends = self.hold_ends().map_or(lease.deadline(), |e| e.min(lease.deadline()));
                let remaining = ends.saturating_sub(now);
                if let Some(reason) = expiring {
                    GuardState::Expiring { reason, remaining }
                } else if self.clocks_differ() || now >= lease.at_risk_from() {
                    GuardState::AtRisk { remaining }
                } else {
                    GuardState::Held { remaining }
                }
            }
        }
    }

    /// How long until the state changes if the lease is not renewed; zero once the grant has ended.
    pub(crate) fn changes_in(&self) -> Duration {
        let Ok(lease) = self.unless_ended(None, |standing| standing.lease) else {
            return Duration::ZERO;
        };
        let now = self.clock.elapsed();
        let changes = [
            Some(lease.at_risk_from()),
            Some(lease.deadline()),
            self.expiring_from(),
            self.hold_ends(),
        ];
        let next = changes.into_iter().flatten().filter(|change| *change > now).min();
        next.map_or(Duration::ZERO, |next| next - now)
    }

    /// Resolves with the next phase after this one, which [`expiring`](Self::expiring) or
    /// [`ended`](Self::ended) then shows.
    pub(crate) fn phase_after(
        &self,
        phase: Phase,
    ) -> impl Future<Output = Phase> + Send + Sync + use<> {
        let mut phases = self.phase.get_or_init(|| watch::Sender::new(Phase::Held)).subscribe();
        self.announce_phase();
        async move {
            // Without its sender the grant is gone, and with it all that could wait for its end.
            phases.wait_for(|next| *next > phase).await.map_or(Phase::Ended, |next| *next)
        }
    }

    /// A token that is cancelled when the grant ends.
    pub(crate) fn token(&self) -> CancellationToken {
        let token = self.root_token().child_token();
        self.announce_phase();
        token
    }

    fn root_token(&self) -> &CancellationToken {
        self.token.get_or_init(CancellationToken::new)
    }

    /// A token that is cancelled when the holder is to finish, and when the grant ends.
    pub(crate) fn expiring_token(&self) -> CancellationToken {
        let token = self.expiring_token.get_or_init(|| self.root_token().child_token()).clone();
        self.announce_phase();
        token
    }

    /// Wakes those that wait for the present phase, or for one before it. Called after each change,
    /// and by those that begin to wait: whichever comes later finds what the other one did.
    fn announce_phase(&self) {
        let phase = self.standing().phase();
        if let Some(sender) = self.phase.get() {
            sender.send_if_modified(|known| {
                let is_later = *known < phase;
                *known = phase.max(*known);
                is_later
            });
        }
        if let Some(token) = self.expiring_token.get().filter(|_| phase >= Phase::Expiring) {
            token.cancel();
        }
        if let Some(token) = self.token.get().filter(|_| phase == Phase::Ended) {
            token.cancel();
        }
    }

    /// Counts that the lock became at risk, and warns.
    pub(crate) fn warn_at_risk(&self, remaining: Duration) {
        self.tally.at_risk();
        let acknowledged = self.standing().acknowledged;
        let (held_for, unrenewed_for) = self.times(acknowledged);
        let (Trace { span, label }, object) = (&self.trace, shown(&self.name));
        let label = label.as_deref();
        warn!(parent: span, object, label, ?remaining, ?held_for, ?unrenewed_for, "lock at risk");
    }

    fn warn_expiring(&self, reason: &ExpiringReason) {
        let remaining = self.state().remaining();
        let (Trace { span, label }, object) = (&self.trace, shown(&self.name));
        let label = label.as_deref();
        warn!(parent: span, object, label, %reason, ?remaining, "lock expiring");
    }

    fn warn_lost(&self, reason: &LostReason, acknowledged: Duration) {
        let (held_for, unrenewed_for) = self.times(acknowledged);
        let (Trace { span, label }, object) = (&self.trace, shown(&self.name));
        let label = label.as_deref();
        warn!(parent: span, object, label, %reason, ?held_for, ?unrenewed_for, "lock lost");
    }

    /// How long the lock has been held, and how long no renewal was acknowledged.
    fn times(&self, acknowledged: Duration) -> (Duration, Duration) {
        let now = self.clock.elapsed();
        (now.saturating_sub(self.granted), now.saturating_sub(acknowledged))
    }

    /// Applies `act` to the lease, and then ends the grant if there is an `end`; `Err` says how it
    /// had ended before. An end by time alone that was not noticed yet is noticed here.
    fn unless_ended<T>(
        &self,
        end: Option<End>,
        act: impl FnOnce(&mut LeaseStatus) -> T,
    ) -> Result<T, End> {
        let mut standing = self.standing();
        if let Some(ended) = &standing.end {
            return Err(ended.clone());
        }
        let over = self.loss(&standing).map(End::Lost);
        let outcome = match &over {
            Some(over) => Err(over.clone()),
            None => Ok(act(&mut standing)),
        };
        let acknowledged = standing.acknowledged;
        let end = over.or(end);
        standing.end.clone_from(&end);
        drop(standing);
        if let Some(end) = end {
            self.announce(&end, acknowledged);
        }
        outcome
    }

    /// Wakes those that wait for the end, counts it and warns of it.
    fn announce(&self, end: &End, acknowledged: Duration) {
        self.announce_phase();
        let held = || self.clock.elapsed().saturating_sub(self.granted);
        match end {
            End::Released => self.tally.released(held),
            End::Lost(reason) => self.tally.lost(reason, held),
        }
        match end {
            // In a fork there is nothing to lose: the parent holds the lock.
            End::Lost(LostReason::Forked) | End::Released => {}
            End::Lost(reason) => self.warn_lost(reason, acknowledged),
        }
    }

    /// Why a grant that was not ended explicitly is over, if it is.
    fn loss(&self, standing: &LeaseStatus) -> Option<LostReason> {
        if !self.process.is_current() {
            return Some(LostReason::Forked);
        }
        // Last, so that little time passes between the look at the clock and its use.
        let (now, lease) = (self.clock.elapsed(), standing.lease);
        let expired = || {
            let asked = standing.expiring.as_ref().and_then(ExpiringReason::loss);
            (lease.deadline(), asked.unwrap_or_else(|| self.expiry.clone()))
        };
        let lease_ended = (!lease.is_valid(now)).then(expired);
        let hold_ended = self.hold_ends().filter(|ends| now >= *ends);
        let hold_ended = hold_ended.map(|ends| (ends, LostReason::HoldLimit));
        let first = [lease_ended, hold_ended].into_iter().flatten().min_by_key(|(at, _)| *at);
        first.map(|(_, reason)| reason)
    }
}
