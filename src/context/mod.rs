//! What the tasks and guards of a client share.

pub(crate) mod idle_looks;
mod pace;
pub(crate) mod retry;
pub(crate) mod tally;

use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::mpsc;

use self::idle_looks::IdleLooks;
use self::pace::Pace;
use self::tally::Tally;
use crate::clock::{Clock, Moment, Stamps, WallClockBound};
use crate::core::bakery::{ContenderId, LeaseTerms};
use crate::core::object::io::{CheckReason, Now};
use crate::core::turns;
use crate::entropy::Entropy;
use crate::owner::Owner;
use crate::peers::Network;
use crate::store::Store;

/// What the tasks of a client share.
#[derive(Debug)]
pub(crate) struct ClientContext {
    /// Where the rows live.
    pub(crate) store: Store,
    /// The client's clock.
    pub(crate) clock: Arc<dyn Clock>,
    /// The client's randomness.
    pub(crate) entropy: Arc<dyn Entropy>,
    /// The client's stamps.
    pub(crate) stamps: Stamps,
    /// The bound on the client's wall clock.
    pub(crate) wall_clock_bound: WallClockBound,
    /// The client as a contender.
    pub(crate) id: ContenderId,
    /// What all names begin with in the table, and not for callers.
    pub(crate) prefix: Arc<str>,
    /// Host name and process id, for people.
    pub(crate) owner: Owner,
    /// How long acquisitions wait unless they say otherwise, and guards wait for acknowledgements.
    pub(crate) acquire_timeout: Duration,
    /// Whether several callers may use one place in turn.
    pub(crate) local_handoff: bool,
    /// How long an idle place is kept at most; zero: not at all.
    pub(crate) keep_idle: Duration,
    /// The idle places that are to be checked for contenders in the table.
    pub(crate) idle_looks: IdleLooks,
    /// The terms of the rows that live longest in the table.
    pub(crate) longest_terms: LeaseTerms,
    /// How messages go to its peers, if it has any.
    pub(crate) network: Option<Arc<dyn Network>>,
    /// Where reasons go to check health.
    pub(crate) checks: mpsc::UnboundedSender<CheckReason>,
    /// The locks of the client so far.
    pub(crate) tally: Arc<Tally>,
    /// The process that built the client.
    pub(crate) process: Process,
}

impl ClientContext {
    /// The name in the table of what callers of this client call `name`. An empty name stays one,
    /// and is refused.
    pub(crate) fn table_name(&self, name: &str) -> Arc<str> {
        if self.prefix.is_empty() || name.is_empty() {
            Arc::from(name)
        } else {
            Arc::from(format!("{}{name}", self.prefix))
        }
    }

    /// The present moment, for timers.
    pub(crate) fn moment(&self) -> turns::Now {
        let Moment { elapsed, since_boot: boot, .. } = self.clock.now();
        turns::Now { elapsed, boot }
    }

    /// The client's wall clock, in µs since the Unix epoch, as far as the nodes' clocks confirm it:
    /// for what other clients compare with theirs.
    pub(crate) fn wall_clock(&self) -> i64 {
        self.wall_clock_at(self.clock.now())
    }

    fn wall_clock_at(&self, now: Moment) -> i64 {
        let max_clock_skew = self.longest_terms.max_clock_skew();
        let bound = self.wall_clock_bound.at_most(now.since_boot, max_clock_skew);
        now.unix_micros.min(bound)
    }

    /// The present moment, for an object. Its stamp is above all earlier ones of this client, and
    /// not above what the nodes' clocks confirm unless earlier ones are: a wall clock that was
    /// wrong for a moment would otherwise leave stamps ahead for as long as it was.
    pub(crate) fn now(&self) -> Now {
        let now = self.clock.now();
        let (wall, elapsed, boot) = (self.wall_clock_at(now), now.elapsed, now.since_boot);
        self.next(Now { elapsed, boot, wall, stamp: wall, jitter: 0.0, chance: 0.0 })
    }

    /// The same moment for another input, with a stamp and random numbers of its own.
    pub(crate) fn next(&self, now: Now) -> Now {
        Now {
            stamp: self.stamps.draw_at(now.wall),
            jitter: self.entropy.jitter(),
            chance: self.entropy.jitter(),
            ..now
        }
    }
}

/// A process. A fork copies clients and guards into a child, which must not use them: it would
/// renew and release the parent's rows, on the parent's connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process(u32);

impl Process {
    /// The current process.
    pub(crate) fn current() -> Self {
        Process(std::process::id())
    }

    /// Whether this is the current process.
    pub(crate) fn is_current(self) -> bool {
        self == Process::current()
    }
}

/// Polls `work` in the context of `runtime` where it is polled outside any runtime. Inside one its
/// timers belong to the runtime that polls it, which may run while `runtime` is blocked.
///
/// A timer panics on a runtime that has ended, so what outlives a client must look first whether
/// its task has ended.
pub(crate) fn with_timers<T>(
    runtime: &Handle,
    work: impl Future<Output = T>,
) -> impl Future<Output = T> {
    // On the heap: every lock would carry what few wait for.
    let mut work = Box::pin(work);
    poll_fn(move |cx| {
        let _context = Handle::try_current().is_err().then(|| runtime.enter());
        work.as_mut().poll(cx)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_process_is_not_this_one() {
        assert!(Process::current().is_current());
        assert!(!Process(std::process::id() + 1).is_current());
    }
}
