//! What the daemon holds: locks by their names in the table and by their owners.
//!
//! An owner is a value that the client chose, or random. Whoever knows it may extend and release
//! the lock, over any connection.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bakery_lock::{FencingError, LockGuard, LockHandle};
use bytes::Bytes;
use tokio::sync::Notify;

use super::boot::Boot;
use super::locked::locked;
use super::peer::Peer;
use super::users::LockName;

/// The number of a connection.
pub(super) type ConnectionId = u64;

/// The locks that are held. All operations are short and without I/O.
#[derive(Debug, Default)]
pub(super) struct Locks(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    by_name: HashMap<Arc<str>, Vec<Arc<Held>>>,
    /// Those that end with a connection, by their addresses: there may be very many.
    bound: HashMap<ConnectionId, HashMap<usize, Arc<Held>>>,
    counts: Counts,
    /// What is requested and not granted yet.
    pending: HashMap<(Arc<str>, Bytes), Vec<Arc<Notify>>>,
    pending_count: usize,
}

/// How many locks are held, by what ends them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    bound: usize,
    timed: usize,
    of_processes: usize,
}

impl Counts {
    fn of(&mut self, term: Term) -> &mut usize {
        match term {
            Term::Bound { .. } => &mut self.bound,
            Term::Until(_) => &mut self.timed,
            Term::Process => &mut self.of_processes,
        }
    }

    /// How many there are of each kind, and what it is called.
    pub(super) fn by_kind(self) -> [(&'static str, usize); 3] {
        [("connection", self.bound), ("time", self.timed), ("process", self.of_processes)]
    }

    fn total(self) -> usize {
        self.by_kind().into_iter().map(|(_, count)| count).sum()
    }
}

/// A request that is not granted yet.
#[derive(Debug)]
pub(super) struct Pending<'a> {
    locks: &'a Locks,
    key: (Arc<str>, Bytes),
    withdrawn: Arc<Notify>,
}

impl Pending<'_> {
    /// Waits until its owner wants it no more.
    pub(super) async fn withdrawn(&self) {
        self.withdrawn.notified().await;
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        let mut state = self.locks.state();
        state.pending_count -= 1;
        if let Some(requests) = state.pending.get_mut(&self.key) {
            requests.retain(|other| !Arc::ptr_eq(other, &self.withdrawn));
            if requests.is_empty() {
                state.pending.remove(&self.key);
            }
        }
    }
}

/// A lock that is held for a client of the daemon.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) name: LockName,
    pub(super) owner: Bytes,
    pub(super) handle: LockHandle,
    /// Who took it.
    pub(super) peer: Peer,
    /// Taken out once, to release it.
    guard: Mutex<Option<LockGuard>>,
    term: Mutex<Term>,
    term_changed: Notify,
    /// How often its owner has it, if it may have it more than once.
    uses: AtomicU32,
    /// The last fencing token; zero: none was issued.
    token: AtomicI64,
}

/// When a lock ends that is not released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Term {
    /// With its connection, or this much later.
    Bound { connection: ConnectionId, grace: Duration },
    /// At a moment.
    Until(Boot),
    /// With the process that took it.
    Process,
}

impl Held {
    pub(super) fn new(
        name: LockName,
        owner: Bytes,
        guard: LockGuard,
        peer: Peer,
        term: Term,
    ) -> Arc<Self> {
        Arc::new(Held {
            name,
            owner,
            handle: guard.handle(),
            peer,
            guard: Mutex::new(Some(guard)),
            term: Mutex::new(term),
            term_changed: Notify::new(),
            uses: AtomicU32::new(1),
            token: AtomicI64::new(0),
        })
    }

    /// When it ends.
    pub(super) fn term(&self) -> Term {
        *locked(&self.term)
    }

    /// How long it is held if nothing happens: until its term ends, or else its lease.
    pub(super) fn left(&self) -> Duration {
        match self.term() {
            Term::Until(end) => end.left(),
            Term::Bound { .. } | Term::Process => self.handle.remaining(),
        }
    }

    /// Waits until its time is over, if it has one.
    pub(super) async fn time_is_over(&self) {
        // A machine that slept is noticed within this time.
        const SLEEP_MAX: Duration = Duration::from_secs(5);
        loop {
            let changed = self.term_changed.notified();
            match self.term() {
                Term::Until(end) if end.left().is_zero() => return,
                Term::Until(end) => {
                    let sleep = tokio::time::sleep(end.left().min(SLEEP_MAX));
                    tokio::select! { () = sleep => {} () = changed => {} }
                }
                Term::Bound { .. } | Term::Process => changed.await,
            }
        }
    }

    /// Issues a fencing token.
    pub(super) async fn token(&self) -> Result<i64, FencingError> {
        let token = self.handle.fencing_token().await?.value();
        self.token.fetch_max(token, Ordering::Relaxed);
        Ok(token)
    }

    /// The last token that was issued.
    pub(super) fn last_token(&self) -> Option<i64> {
        Some(self.token.load(Ordering::Relaxed)).filter(|token| *token > 0)
    }

    /// Leaves its rows to expire, as after a crash.
    pub(super) fn abandon(&self) {
        std::mem::forget(locked(&self.guard).take());
    }

    /// How often its owner has it.
    pub(super) fn uses(&self) -> u32 {
        self.uses.load(Ordering::Relaxed)
    }

    /// Its owner has it once more.
    pub(super) fn use_again(&self) {
        self.uses.fetch_add(1, Ordering::Relaxed);
    }

    /// Its owner has it once less; how often it still has it.
    pub(super) fn use_less(&self) -> u32 {
        let before = self
            .uses
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |uses| uses.checked_sub(1));
        before.map_or(0, |before| before - 1)
    }

    fn is_over(&self) -> bool {
        let is_out = matches!(self.term(), Term::Until(end) if end.left().is_zero());
        is_out || self.handle.remaining().is_zero()
    }
}

impl Locks {
    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.counts().total()
    }

    /// How many there are of each kind.
    pub(super) fn counts(&self) -> Counts {
        self.state().counts
    }

    /// How many requests are not granted yet.
    pub(super) fn pending(&self) -> usize {
        self.state().pending_count
    }

    /// All that are held.
    pub(super) fn all(&self) -> Vec<Arc<Held>> {
        self.state().by_name.values().flatten().cloned().collect()
    }

    /// The lock of this name and owner, while it is held.
    pub(super) fn find(&self, name: &str, owner: &[u8]) -> Option<Arc<Held>> {
        let state = self.state();
        let held = state.by_name.get(name)?.iter().find(|held| held.owner == owner)?;
        (!held.is_over()).then(|| Arc::clone(held))
    }

    /// All locks of this name that are held: several if they are shared.
    pub(super) fn holders(&self, name: &str) -> Vec<Arc<Held>> {
        let state = self.state();
        let held = state.by_name.get(name).into_iter().flatten();
        held.filter(|held| !held.is_over()).cloned().collect()
    }

    /// Notes a request, until it is dropped.
    pub(super) fn pend(&self, name: Arc<str>, owner: Bytes) -> Pending<'_> {
        let (key, withdrawn) = ((name, owner), Arc::new(Notify::new()));
        let mut state = self.state();
        state.pending_count += 1;
        state.pending.entry(key.clone()).or_default().push(Arc::clone(&withdrawn));
        drop(state);
        Pending { locks: self, key, withdrawn }
    }

    /// An owner wants no more what it has requested; whether there is a request.
    pub(super) fn withdraw(&self, name: &str, owner: &[u8]) -> bool {
        let key = (Arc::from(name), Bytes::copy_from_slice(owner));
        let requests = self.state().pending.remove(&key).unwrap_or_default();
        for withdrawn in &requests {
            withdrawn.notify_one();
        }
        !requests.is_empty()
    }

    /// Notes a lock that was granted.
    pub(super) fn insert(&self, held: &Arc<Held>) {
        let mut state = self.state();
        *state.counts.of(held.term()) += 1;
        state.by_name.entry(held.name.shared()).or_default().push(Arc::clone(held));
        state.bind(held, None, held.term());
    }

    /// Takes a lock out, to release it: its guard, unless another one was faster.
    pub(super) fn remove(&self, held: &Held) -> Option<LockGuard> {
        let guard = locked(&held.guard).take()?;
        let mut state = self.state();
        *state.counts.of(held.term()) -= 1;
        if let Some(holders) = state.by_name.get_mut(held.name.in_table()) {
            holders.retain(|other| !std::ptr::eq(&**other, held));
            if holders.is_empty() {
                state.by_name.remove(held.name.in_table());
            }
        }
        state.unbind(held, held.term());
        Some(guard)
    }

    /// Lets a lock end at another time. Returns whether it is still held.
    pub(super) fn set_term(&self, held: &Arc<Held>, term: Term) -> bool {
        let mut state = self.state();
        if held.is_over() || locked(&held.guard).is_none() {
            return false;
        }
        let before = std::mem::replace(&mut *locked(&held.term), term);
        *state.counts.of(before) -= 1;
        *state.counts.of(term) += 1;
        state.bind(held, Some(before), term);
        held.term_changed.notify_waiters();
        true
    }

    /// A connection has ended: the locks that were bound to it, which are bound to none now.
    pub(super) fn unbound(&self, connection: ConnectionId) -> Vec<Arc<Held>> {
        let bound = self.state().bound.remove(&connection).unwrap_or_default();
        bound.into_values().collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        locked(&self.0)
    }
}

impl State {
    fn bind(&mut self, held: &Arc<Held>, before: Option<Term>, now: Term) {
        if let Some(before) = before {
            self.unbind(held, before);
        }
        if let Term::Bound { connection, .. } = now {
            let bound = self.bound.entry(connection).or_default();
            bound.insert(Arc::as_ptr(held).addr(), Arc::clone(held));
        }
    }

    fn unbind(&mut self, held: &Held, term: Term) {
        if let Term::Bound { connection, .. } = term
            && let Some(bound) = self.bound.get_mut(&connection)
        {
            bound.remove(&std::ptr::from_ref(held).addr());
            if bound.is_empty() {
                self.bound.remove(&connection);
            }
        }
    }
}
