//! What all connections share: the client of the library, the locks that are held, and what may be
//! done with them.

use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bakery_lock::{
    CancellationToken, ContenderInfo, ContenderState, EnsureError, ExpiringReason, InvalidOption,
    LockClient, LockError, LockGuard, LockHandle, LostReason,
};
use bytes::Bytes;
use futures_util::{StreamExt, stream};

use super::boot::Boot;
use super::hub::{Hub, LOST};
use super::latches::Latches;
use super::limits::Limits;
use super::locks::{ConnectionId, Held, Locks, Term};
use super::peer::Peer;
use super::refusal::Refusal;
use super::resp::Reply;
use super::scripts::Scripts;
use super::tally::{Commands, Refusals};
use super::users::{LockName, Users};
use crate::output::chain;

/// The shortest TTL of the library.
const TTL_MIN: Duration = Duration::from_secs(5);

/// Why a daemon grants no lock after TERM.
const ENDING: &str = "this daemon is about to end";

/// How many locks of a client that has gone are released at a time.
const UNLOCKS_MAX: usize = 512;

/// A TTL that no table allows.
const ABSURD: Duration = Duration::from_secs(u32::MAX as u64);

/// What all connections share.
#[derive(Debug)]
pub(super) struct Daemon {
    pub(super) client: LockClient,
    pub(super) locks: Locks,
    pub(super) hub: Hub,
    pub(super) latches: Latches,
    pub(super) scripts: Scripts,
    pub(super) users: Users,
    pub(super) limits: Limits,
    pub(super) terms: PromiseTerms,
    pub(super) counts: Counts,
    pub(super) started: Boot,
    /// It ends: no lock is granted any more.
    pub(super) is_ending: AtomicBool,
}

/// How long a lock may be promised for.
#[derive(Clone, Copy, Debug)]
pub(super) struct PromiseTerms {
    /// How long rows live of which less is asked.
    pub(super) ttl: Duration,
    /// The longest TTL that the table allows.
    pub(super) ttl_max: Duration,
    /// The longest lease that the table allows.
    pub(super) longest: Duration,
    /// Whether a longer time is granted all the same, and the lock renewed meanwhile: it ends with
    /// the daemon then.
    pub(super) renews_longer: bool,
}

/// What has happened since the daemon started.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) connections: AtomicU64,
    /// Connections that were refused because there were too many.
    pub(super) turned_away: AtomicU64,
    /// Connections that did not read the messages that were sent to them.
    pub(super) slow_readers: AtomicU64,
    pub(super) commands: Commands,
    pub(super) refused: Refusals,
    pub(super) unknown_scripts: AtomicU64,
    pub(super) granted: AtomicU64,
    pub(super) expired: AtomicU64,
    pub(super) lost: AtomicU64,
}

/// A lock that is wanted.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub(super) name: LockName,
    pub(super) owner: Bytes,
    pub(super) peer: Peer,
    pub(super) mode: Mode,
    /// How long to wait; `None`: not at all.
    pub(super) wait: Option<Duration>,
    pub(super) term: WantedTerm,
    pub(super) max_hold: Option<Duration>,
    pub(super) min_hold: Duration,
    pub(super) label: Option<String>,
    /// Cancelled when its client has gone: it wants it no more then.
    pub(super) closed: CancellationToken,
}

/// How a lock is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Exclusive,
    Shared,
    Limited(u32),
}

/// When a wanted lock is to end by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WantedTerm {
    /// With this connection, or this much later.
    Bound { connection: ConnectionId, grace: Duration },
    /// This long after its grant.
    For(Duration),
    /// With the process that took it.
    Process,
}

impl PromiseTerms {
    /// What the table of a client allows.
    pub(super) async fn of(
        client: &LockClient,
        ttl: Duration,
        renews_longer: bool,
    ) -> Result<Self, LockError> {
        // Refused before anything is written.
        let longest = match client.request("lockd").at_least(Duration::MAX).acquire().await {
            Err(LockError::Option(InvalidOption::AtLeastTooLong { longest, .. })) => longest,
            Err(error) => return Err(error),
            Ok(_) => return Err(LockError::Closed),
        };
        let ttl_max = match client.request("lockd").ttl(ABSURD).acquire().await {
            Err(LockError::Option(InvalidOption::TtlTooLong { max_ttl, .. })) => max_ttl,
            Err(error) => return Err(error),
            Ok(_) => return Err(LockError::Closed),
        };
        Ok(PromiseTerms { ttl, ttl_max, longest, renews_longer })
    }

    /// How much of the lease must be left as a time is promised.
    fn covered(&self, time: Duration) -> Result<Duration, Refusal> {
        if time <= self.longest {
            Ok(time)
        } else if self.renews_longer {
            // As it is renewed in any case, the answer need not wait for the last second.
            Ok(self.longest / 2)
        } else {
            let longest = self.longest.as_millis();
            Err(Refusal::limit(&format!(
                "the lock table allows at most {longest} ms that outlast this daemon; start it \
                 with --long-ttl renew to renew locks beyond"
            )))
        }
    }

    /// How long rows live for it: by half as much longer, so that the lock passes from owner to
    /// owner without a renewal each time.
    fn ttl_for(&self, time: Duration) -> Duration {
        let wanted = self.ttl.max(time + time / 2 + Duration::from_secs(3));
        Duration::from_secs(wanted.as_secs()).clamp(TTL_MIN, self.ttl_max)
    }
}

/// Releases many locks, not all at once: the database has other work as well.
async fn unlock_all(guards: Vec<LockGuard>) {
    let unlocking = guards.into_iter().map(async |guard| {
        // Whatever becomes of it, no one is here to learn it.
        let _ = guard.unlock().await;
    });
    stream::iter(unlocking).buffer_unordered(UNLOCKS_MAX).collect::<()>().await;
}

fn withdrawn() -> Refusal {
    Refusal::of("LOCKFAILED", "withdrawn")
}

impl Daemon {
    /// Takes a lock; `None` if it is taken and the caller does not wait.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future withdraws the request.
    pub(super) async fn take(
        self: &Arc<Self>,
        wanted: Wanted,
    ) -> Result<Option<Arc<Held>>, Refusal> {
        if self.is_ending.load(Ordering::Relaxed) {
            return Err(Refusal::no_lock(ENDING));
        }
        if self.locks.count() >= self.limits.locks {
            return Err(Refusal::limit("this daemon holds as many locks as it may"));
        }
        let Wanted { name, owner, peer, mode, wait, term, max_hold, min_hold, label, closed } =
            wanted;
        if self.locks.find(name.in_table(), &owner).is_some() {
            return match wait {
                Some(_) => Err(Refusal::error("this owner has the lock already")),
                None => Ok(None),
            };
        }
        let mut request = self.client.request(name.in_table()).min_hold(min_hold);
        request = match mode {
            Mode::Exclusive => request,
            Mode::Shared => request.shared(),
            Mode::Limited(most) => request.max_holders(most),
        };
        if let WantedTerm::For(time) = term {
            request = request.at_least(self.terms.covered(time)?).ttl(self.terms.ttl_for(time));
        }
        if let Some(max_hold) = max_hold {
            request = request.max_hold(max_hold);
        }
        if let Some(label) = label {
            request = request.label(label);
        }
        let request_pending = self.locks.pend(name.shared(), owner.clone());
        let acquired = async {
            match wait {
                Some(wait) => request.timeout(wait).acquire().await.map(Some),
                None => request.try_acquire().await,
            }
        };
        let guard = tokio::select! {
            biased;
            () = closed.cancelled() => return Err(withdrawn()),
            () = request_pending.withdrawn() => return Err(withdrawn()),
            acquired = acquired => acquired?,
        };
        Ok(guard.map(|guard| self.granted(name, owner, guard, peer, term)))
    }

    fn granted(
        self: &Arc<Self>,
        name: LockName,
        owner: Bytes,
        guard: LockGuard,
        peer: Peer,
        term: WantedTerm,
    ) -> Arc<Held> {
        self.counts.granted.fetch_add(1, Ordering::Relaxed);
        let term = match term {
            WantedTerm::Bound { connection, grace } => Term::Bound { connection, grace },
            WantedTerm::For(time) => Term::Until(Boot::now().after(time)),
            WantedTerm::Process => Term::Process,
        };
        let held = Held::new(name, owner, guard, peer, term);
        self.locks.insert(&held);
        tokio::spawn(Arc::clone(self).watch(Arc::clone(&held)));
        held
    }

    /// Ends a lock when its time is over, and says so when it is lost.
    async fn watch(self: Arc<Self>, held: Arc<Held>) {
        let mut expiring = pin!(held.handle.expiring());
        let mut is_expiring = false;
        // Opened at once: later, another process may have the id.
        let process = (held.term() == Term::Process).then(|| held.peer.process());
        let mut has_ended = pin!(async {
            match process {
                Some(process) => process.ended().await,
                None => pending().await,
            }
        });
        let (mut lost, mut over) = (pin!(held.handle.lost()), pin!(held.time_is_over()));
        loop {
            tokio::select! {
                reason = &mut lost => {
                    if let Some(reason) = reason && self.locks.remove(&held).is_some() {
                        self.counts.lost.fetch_add(1, Ordering::Relaxed);
                        self.say_lost(&held, &reason);
                    }
                    // Without a reason it was released.
                    return;
                }
                reason = &mut expiring, if !is_expiring => {
                    is_expiring = true;
                    if let Some(reason) = reason {
                        self.say_unlocking(&held, &reason);
                    }
                }
                () = &mut over => {
                    self.counts.expired.fetch_add(1, Ordering::Relaxed);
                    return self.drop_lock(&held);
                }
                () = &mut has_ended => return self.drop_lock(&held),
            }
        }
    }

    /// Releases a lock in the background.
    pub(super) fn drop_lock(&self, held: &Arc<Held>) {
        drop(self.take_out(held));
    }

    /// Takes out a lock to release it: its guard, unless another one was faster.
    fn take_out(&self, held: &Held) -> Option<LockGuard> {
        let guard = self.locks.remove(held)?;
        self.wake_waiters(held);
        Some(guard)
    }

    /// Releases many locks, as far as they are still held.
    pub(super) async fn release_all(&self, held: impl Iterator<Item = Arc<Held>>) {
        unlock_all(held.filter_map(|held| self.take_out(&held)).collect()).await;
    }

    /// Releases the lock of an owner, or withdraws what it has requested and not been granted yet:
    /// a client that gave up waiting releases what it may have got. Whether there was one.
    ///
    /// # Errors
    ///
    /// As for [`release`](Self::release).
    ///
    /// # Cancel safety
    ///
    /// Once begun, the release continues.
    pub(super) async fn release_of(&self, name: &LockName, owner: &[u8]) -> Result<bool, Refusal> {
        let find = || self.locks.find(name.in_table(), owner);
        if let Some(held) = find() {
            return self.release(&held).await;
        }
        let is_withdrawn = self.locks.withdraw(name.in_table(), owner);
        // It may have been granted in between.
        match find() {
            Some(held) => self.release(&held).await,
            None => Ok(is_withdrawn),
        }
    }

    /// Releases a lock; whether it was held.
    ///
    /// # Errors
    ///
    /// The database did not acknowledge the release; it continues.
    ///
    /// # Cancel safety
    ///
    /// Once begun, the release continues.
    pub(super) async fn release(&self, held: &Arc<Held>) -> Result<bool, Refusal> {
        let Some(guard) = self.locks.remove(held) else { return Ok(false) };
        let released = guard.unlock().await;
        self.wake_waiters(held);
        match released {
            Ok(()) => Ok(true),
            Err(bakery_lock::UnlockError::Lost { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Lets a lock end later, or sooner. Returns whether it is still held: a lock that has ended
    /// stays so.
    pub(super) async fn extend(&self, held: &Arc<Held>, time: Duration) -> Result<bool, Refusal> {
        let covered = self.terms.covered(time)?;
        match self.cover(&held.handle, covered).await {
            Ok(()) => {}
            Err(EnsureError::Lost { .. } | EnsureError::Released { .. }) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
        Ok(self.locks.set_term(held, Term::Until(Boot::now().after(time))))
    }

    async fn cover(&self, handle: &LockHandle, time: Duration) -> Result<(), EnsureError> {
        match handle.ensure(time).await {
            Err(EnsureError::TooLong { .. }) => {
                handle.raise_ttl(self.terms.ttl_for(time)).await?;
                handle.ensure(time).await.map(drop)
            }
            ensured => ensured.map(drop),
        }
    }

    /// Lets another owner have a lock, for as long; whether it was still held.
    pub(super) fn pass_on(self: &Arc<Self>, held: &Arc<Held>, owner: Bytes) -> bool {
        let term = held.term();
        let Some(guard) = self.locks.remove(held) else { return false };
        let next = Held::new(held.name.clone(), owner, guard, held.peer, term);
        self.locks.insert(&next);
        tokio::spawn(Arc::clone(self).watch(next));
        true
    }

    /// Who holds a lock at another daemon, or without one, and for how long at least.
    pub(super) async fn holder_elsewhere(
        &self,
        name: &LockName,
    ) -> Result<Option<(String, Duration)>, Refusal> {
        let own = self.client.id();
        let holder = self.look(name.in_table()).await?;
        // Of this daemon, it was released just now, or is kept for the next one.
        Ok(holder
            .filter(|holder| holder.client != own)
            .map(|holder| (holder.owner.as_str().to_owned(), holder.remaining.unwrap_or_default())))
    }

    /// Who holds a lock, by one look in the table.
    pub(super) async fn look(&self, name: &str) -> Result<Option<ContenderInfo>, Refusal> {
        let contenders = self.client.contenders(name).await?;
        Ok(contenders.into_iter().find(|it| it.state == Some(ContenderState::Holding)))
    }

    /// A connection has ended.
    pub(super) fn connection_ended(self: &Arc<Self>, connection: ConnectionId) {
        self.hub.leave(connection);
        let mut guards = Vec::new();
        for held in self.locks.unbound(connection) {
            match held.term() {
                Term::Bound { grace, .. } if !grace.is_zero() => {
                    self.locks.set_term(&held, Term::Until(Boot::now().after(grace)));
                }
                Term::Bound { .. } => guards.extend(self.take_out(&held)),
                // Another one has it by now.
                Term::Until(_) | Term::Process => {}
            }
        }
        if !guards.is_empty() {
            tokio::spawn(unlock_all(guards));
        }
    }

    /// Why no lock can be had now; `None` if they can.
    pub(super) async fn unready(&self) -> Option<String> {
        if self.is_ending.load(Ordering::Relaxed) {
            return Some(ENDING.to_owned());
        }
        let reasons = self.client.health().await.reasons;
        let reasons: Vec<_> = reasons.iter().map(|reason| chain(reason)).collect();
        (!reasons.is_empty()).then(|| reasons.join("; "))
    }

    /// The daemon is about to end: no lock is granted any more.
    pub(super) fn refuse_all(&self) {
        self.is_ending.store(true, Ordering::Relaxed);
    }

    fn say_lost(&self, held: &Held, reason: &LostReason) {
        let text = |text: &str| Reply::text(text);
        let name = held.name.shown();
        if let Term::Bound { connection, .. } = held.term() {
            self.hub.send(
                connection,
                Reply::Push(vec![
                    text("lost"),
                    text(name),
                    Reply::Bulk(held.owner.clone()),
                    text(&reason.to_string()),
                ]),
            );
        }
        let owner = String::from_utf8_lossy(&held.owner);
        self.hub.publish(
            held.name.prefix(),
            LOST,
            &Bytes::from(format!("{name} {owner} {reason}")),
        );
    }

    fn say_unlocking(&self, held: &Held, reason: &ExpiringReason) {
        let Term::Bound { connection, .. } = held.term() else { return };
        self.hub.send(
            connection,
            Reply::Push(vec![
                Reply::text("unlocking"),
                Reply::text(held.name.shown()),
                Reply::Bulk(held.owner.clone()),
                Reply::milliseconds(held.handle.remaining()),
                Reply::text(reason.to_string()),
            ]),
        );
    }

    /// Clients of Redisson wait for a message when a lock is released.
    fn wake_waiters(&self, held: &Held) {
        if !self.hub.has_subscribers() {
            return;
        }
        let channel = format!("redisson_lock__channel:{{{}}}", held.name.shown());
        self.hub.publish(held.name.prefix(), channel.as_bytes(), &Bytes::from_static(b"0"));
    }
}
