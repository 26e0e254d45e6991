//! What all connections share: the client of the library, the locks that are held, and what may be
//! done with them.

use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bakery_lock::admin::QueueError;
use bakery_lock::{
    CancellationToken, ContenderInfo, ContenderState, EnsureError, ExpiringReason, InvalidOption,
    LockClient, LockError, LockGuard, LockHandle, LostReason, TableError,
};
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use tokio::sync::Semaphore;

use super::boot::Boot;
use super::hub::{Hub, LOST};
use super::journal::Journal;
use super::latches::Latches;
use super::limits::Limits;
use super::locks::{ConnectionId, Held, Hold, Locks, Term};
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

/// How many adopted locks are released at once at most: many may end together.
pub(super) const RELEASES_AT_ONCE: usize = 64;

/// What all connections share.
#[derive(Debug)]
pub(super) struct Daemon {
    pub(super) client: LockClient,
    pub(super) locks: Locks,
    pub(super) journal: Journal,
    pub(super) releases: Arc<Semaphore>,
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
        if self.locks.counts().own() >= self.limits.locks {
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
        let Some(guard) = guard else { return Ok(None) };
        if self.is_ending.load(Ordering::Relaxed) {
            return Err(Refusal::no_lock("this daemon is about to end"));
        }
        let term = match term {
            WantedTerm::Bound { connection, grace } => Term::Bound { connection, grace },
            WantedTerm::For(time) => Term::Until(Boot::now().after(time)),
            WantedTerm::Process => Term::Process,
        };
        let is_alone = match mode {
            Mode::Exclusive => {
                // Otherwise this one would not have been granted.
                self.forget_adopted(name.in_table());
                true
            }
            Mode::Limited(_) => true,
            Mode::Shared => false,
        };
        // A lock that ends early leaves its place to others, and one that ends late keeps it.
        let is_plain = max_hold.is_none() && min_hold.is_zero();
        let place = guard.place();
        let is_own = place.client == self.client.id() && is_alone && is_plain;
        let held = Held::new(name, owner, guard, peer, term, is_own.then_some(place));
        self.counts.granted.fetch_add(1, Ordering::Relaxed);
        self.keep(&held);
        Ok(Some(held))
    }

    /// A lock is held from now on.
    fn keep(self: &Arc<Self>, held: &Arc<Held>) {
        self.locks.insert(held);
        self.note(held);
        tokio::spawn(Arc::clone(self).watch(Arc::clone(held)));
    }

    /// A lock is held from now on that a daemon has granted which has died.
    pub(super) fn adopt(self: &Arc<Self>, held: &Arc<Held>) {
        self.locks.insert(held);
        self.note(held);
        tokio::spawn(Arc::clone(self).watch_adopted(Arc::clone(held)));
    }

    /// Notes in the journal what is promised of a lock.
    pub(super) fn note(&self, held: &Held) {
        self.journal.note(held, &self.locks);
    }

    /// The adopted locks of a name are over.
    fn forget_adopted(&self, name: &str) {
        for held in self.locks.adopted(name) {
            self.take_out(&held);
        }
    }

    /// Takes a lock out, to release it, unless another one was faster. The journal says so before
    /// it is released: others may use its place then.
    fn take_out(&self, held: &Arc<Held>) -> Option<Hold> {
        let hold = self.locks.remove(held)?;
        self.note(held);
        Some(hold)
    }

    /// Ends an adopted lock when its time is over.
    async fn watch_adopted(self: Arc<Self>, held: Arc<Held>) {
        held.time_is_over().await;
        self.counts.expired.fetch_add(1, Ordering::Relaxed);
        self.drop_lock(&held);
    }

    /// Ends a lock when its time is over, and says so when it is lost.
    async fn watch(self: Arc<Self>, held: Arc<Held>) {
        let Some(handle) = held.handle() else { return };
        let mut expiring = pin!(handle.expiring());
        let mut is_expiring = false;
        // Opened at once: later, another process may have the id.
        let process = (held.term() == Term::Process).then(|| held.peer.process()).flatten();
        let mut has_ended = pin!(async {
            match process {
                Some(process) => process.ended().await,
                None => pending().await,
            }
        });
        let (mut lost, mut over) = (pin!(handle.lost()), pin!(held.time_is_over()));
        loop {
            tokio::select! {
                reason = &mut lost => {
                    if let Some(reason) = reason && self.take_out(&held).is_some() {
                        self.counts.lost.fetch_add(1, Ordering::Relaxed);
                        self.say_lost(&held, &reason);
                    }
                    // Without a reason it was released.
                    return;
                }
                reason = &mut expiring, if !is_expiring => {
                    is_expiring = true;
                    if let Some(reason) = reason {
                        self.say_unlocking(&held, handle.remaining(), &reason);
                    }
                }
                () = &mut over => {
                    self.counts.expired.fetch_add(1, Ordering::Relaxed);
                    return self.drop_lock(&held);
                }
                () = &mut has_ended => return self.drop_lock(&held),
                () = held.is_to_be_noted() => self.note(&held),
            }
        }
    }

    /// Releases a lock in the background.
    pub(super) fn drop_lock(&self, held: &Arc<Held>) {
        match self.take_out(held) {
            Some(Hold::Guard(guard)) => {
                self.wake_waiters(held);
                drop(guard);
            }
            Some(Hold::OfTheDead) => {
                if let Some(deleting) = self.deletion(held) {
                    // If no quorum answers, the rows expire.
                    tokio::spawn(deleting);
                }
            }
            None => {}
        }
    }

    /// Releases many locks that are not adopted, as far as they are still held.
    pub(super) async fn release_all(&self, held: impl Iterator<Item = Arc<Held>>) {
        unlock_all(held.filter_map(|held| self.take_guard(&held)).collect()).await;
    }

    /// Takes out a lock that is not adopted, to release it.
    fn take_guard(&self, held: &Arc<Held>) -> Option<LockGuard> {
        let Some(Hold::Guard(guard)) = self.take_out(held) else { return None };
        self.wake_waiters(held);
        Some(guard)
    }

    /// Deletes the rows of an adopted lock, if they are its own alone; whether they were there.
    fn deletion(
        &self,
        held: &Held,
    ) -> Option<impl Future<Output = Result<bool, TableError>> + Send + use<>> {
        let place = held.place?;
        let (client, name) = (self.client.clone(), held.name.clone());
        let releases = Arc::clone(&self.releases);
        Some(async move {
            // It is never closed.
            let _permit = releases.acquire().await;
            client.release_for_dead(name.in_table(), &place).await
        })
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
        let guard = match self.take_out(held) {
            Some(Hold::Guard(guard)) => guard,
            Some(Hold::OfTheDead) => return self.release_adopted(held).await,
            None => return Ok(false),
        };
        let released = guard.unlock().await;
        self.wake_waiters(held);
        match released {
            Ok(()) => Ok(true),
            Err(bakery_lock::UnlockError::Lost { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Releases an adopted lock that was taken out; whether it was held. One whose rows are not its
    /// own alone stays taken until they are over.
    async fn release_adopted(&self, held: &Arc<Held>) -> Result<bool, Refusal> {
        let Some(deleting) = self.deletion(held) else { return Ok(true) };
        match tokio::spawn(deleting).await {
            Ok(Ok(was_there)) => {
                self.wake_waiters(held);
                Ok(was_there)
            }
            Ok(Err(error)) => {
                // Its owner may try again, until its rows are left to expire.
                if !held.left().is_zero() {
                    self.locks.put_back(held);
                    self.note(held);
                }
                Err(error.into())
            }
            Err(_) => Err(Refusal::no_lock("this daemon is about to end")),
        }
    }

    /// Lets a lock end later, or sooner. Returns whether it is still held: a lock that has ended
    /// stays so, and an adopted one ends when it was promised to.
    pub(super) async fn extend(&self, held: &Arc<Held>, time: Duration) -> Result<bool, Refusal> {
        let Some(handle) = held.handle() else { return Ok(false) };
        let covered = self.terms.covered(time)?;
        match self.cover(handle, covered).await {
            Ok(()) => {}
            Err(EnsureError::Lost { .. } | EnsureError::Released { .. }) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
        Ok(self.set_term(held, Term::Until(Boot::now().after(time))))
    }

    /// Lets a lock end at another time. Returns whether it is still held.
    pub(super) fn set_term(&self, held: &Arc<Held>, term: Term) -> bool {
        let is_held = self.locks.set_term(held, term);
        self.note(held);
        is_held
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
        let Some(Hold::Guard(guard)) = self.take_out(held) else { return false };
        let next = Held::new(held.name.clone(), owner, guard, held.peer, term, held.place);
        self.keep(&next);
        true
    }

    /// Who holds a lock at another daemon, or without one, and for how long at least.
    pub(super) async fn holder_elsewhere(
        &self,
        name: &LockName,
    ) -> Result<Option<(String, Duration)>, Refusal> {
        let Some(holder) = self.look(name.in_table()).await? else { return Ok(None) };
        let left = holder.remaining.unwrap_or_default();
        let own = self.client.id();
        if holder.client != own {
            return Ok(Some((holder.owner.as_str().to_owned(), left)));
        }
        // It was released just now, or is kept for the next one; or another client has its turn.
        let user = match self.client.queue(name.in_table()).await {
            Ok(queue) => queue.user.filter(|user| user.client != own),
            Err(QueueError::Table(error)) => return Err(error.into()),
            // It has no place any more.
            Err(_) => None,
        };
        Ok(user.map(|user| (user.owner.as_str().to_owned(), left)))
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
                    self.set_term(&held, Term::Until(Boot::now().after(grace)));
                }
                Term::Bound { .. } => guards.extend(self.take_guard(&held)),
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

    fn say_unlocking(&self, held: &Held, remaining: Duration, reason: &ExpiringReason) {
        let Term::Bound { connection, .. } = held.term() else { return };
        self.hub.send(
            connection,
            Reply::Push(vec![
                Reply::text("unlocking"),
                Reply::text(held.name.shown()),
                Reply::Bulk(held.owner.clone()),
                Reply::milliseconds(remaining),
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
