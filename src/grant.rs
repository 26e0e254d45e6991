//! One grant of a lock: what its guard and its runner both know of it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::error::{LostReason, UnlockError};
use crate::guard::GuardState;
use crate::hold::HoldLimit;
use crate::process::Process;
use crate::protocol::Lease;

/// What the runner and the guard of one grant share.
#[derive(Debug)]
pub(crate) struct Grant {
    id: u64,
    clock: Arc<dyn Clock>,
    process: Process,
    hold_limit: Option<HoldLimit>,
    /// Locked for moments only. It orders renewals and ends, so that what is lost stays lost.
    lease: Mutex<Lease>,
    /// Leases may be worth less than they say: clocks differ by too much.
    clocks_differ: AtomicBool,
    ended: watch::Sender<Option<End>>,
    token: CancellationToken,
}

/// How a grant ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The lock was lost.
    Lost(LostReason),
    /// It was given back.
    Released,
}

impl End {
    /// What a guard answers that is to be unlocked after this.
    pub(crate) fn into_unlock_error(self) -> UnlockError {
        match self {
            End::Lost(reason) => UnlockError::Lost(reason),
            // Only a guard gives back, and it is consumed by that.
            End::Released => UnlockError::Closed,
        }
    }
}

impl Grant {
    /// A grant with its first lease.
    pub(crate) fn new(
        id: u64,
        clock: Arc<dyn Clock>,
        lease: Lease,
        hold_limit: Option<HoldLimit>,
    ) -> Self {
        Grant {
            id,
            clock,
            process: Process::current(),
            hold_limit,
            lease: Mutex::new(lease),
            clocks_differ: AtomicBool::new(false),
            ended: watch::Sender::new(None),
            token: CancellationToken::new(),
        }
    }

    /// Tells this grant from later ones of the same object.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// When the lock is taken from its holder, if it may not be held for ever.
    pub(crate) fn hold_ends(&self) -> Option<Duration> {
        self.hold_limit.map(|limit| limit.ends)
    }

    /// Puts a renewed lease in place; `Err` says how the grant had ended before.
    pub(crate) fn renew(&self, renewed: Lease) -> Result<(), End> {
        let mut lease = self.lease.lock().unwrap_or_else(PoisonError::into_inner);
        match self.end_if_over(*lease) {
            Some(before) => Err(before),
            None => {
                *lease = renewed;
                Ok(())
            }
        }
    }

    /// Notes whether clocks differ by too much for leases.
    pub(crate) fn set_clocks_differ(&self, differ: bool) {
        // Nothing else is ordered by it.
        self.clocks_differ.store(differ, Ordering::Relaxed);
    }

    /// Ends the grant, once; `Err` says how it had ended before.
    pub(crate) fn end(&self, end: End) -> Result<(), End> {
        let lease = self.lease.lock().unwrap_or_else(PoisonError::into_inner);
        match self.end_if_over(*lease) {
            Some(before) => Err(before),
            None => {
                self.set_end(end);
                Ok(())
            }
        }
    }

    /// How the grant ended, if it did.
    pub(crate) fn ended(&self) -> Option<End> {
        let lease = self.lease.lock().unwrap_or_else(PoisonError::into_inner);
        self.end_if_over(*lease)
    }

    /// What is known of the lock by the clock.
    pub(crate) fn state(&self) -> GuardState {
        let lease = self.lease.lock().unwrap_or_else(PoisonError::into_inner);
        match self.end_if_over(*lease) {
            Some(End::Lost(reason)) => GuardState::Lost(reason),
            Some(End::Released) => GuardState::Released,
            None => {
                let now = self.clock.elapsed();
                let ends = self.hold_ends().map_or(lease.deadline(), |e| e.min(lease.deadline()));
                let remaining = ends.saturating_sub(now);
                let is_expiring = self.hold_limit.is_some_and(|limit| now >= limit.expiring_from);
                let clocks_differ = self.clocks_differ.load(Ordering::Relaxed);
                if clocks_differ || now >= lease.at_risk_from() {
                    GuardState::AtRisk { remaining }
                } else if is_expiring {
                    GuardState::Expiring { remaining }
                } else {
                    GuardState::Held { remaining }
                }
            }
        }
    }

    /// Follows the end of the grant.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Option<End>> {
        self.ended.subscribe()
    }

    /// A token that is cancelled when the grant ends.
    pub(crate) fn token(&self) -> CancellationToken {
        self.token.child_token()
    }

    /// How the grant ended; an end by time alone that nobody noticed yet is noticed here.
    fn end_if_over(&self, lease: Lease) -> Option<End> {
        let ended = self.ended.borrow().clone();
        ended.or_else(|| {
            let end = End::Lost(self.loss(lease)?);
            self.set_end(end.clone());
            Some(end)
        })
    }

    /// Why a grant that nobody ended is over, if it is.
    fn loss(&self, lease: Lease) -> Option<LostReason> {
        if !self.process.is_current() {
            return Some(LostReason::Forked);
        }
        // Last, so that little time passes from the look at the clock to what is done by it.
        let now = self.clock.elapsed();
        let lease_ended = (!lease.is_valid(now)).then(|| (lease.deadline(), LostReason::Expired));
        let hold_ended = self.hold_ends().filter(|ends| now >= *ends);
        let hold_ended = hold_ended.map(|ends| (ends, LostReason::HoldLimit));
        let first = [lease_ended, hold_ended].into_iter().flatten().min_by_key(|(at, _)| *at);
        first.map(|(_, reason)| reason)
    }

    fn set_end(&self, end: End) {
        self.ended.send_replace(Some(end));
        self.token.cancel();
    }
}
