//! A request for a lock.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::oneshot;
use tracing::field::Empty;
use tracing::{Span, debug_span};

use super::Inner;
use super::at_least::{lasting, terms_lasting};
use crate::context::ClientContext;
use crate::core::bakery::{Acquire, LeaseTerms, Mode, Patience};
use crate::core::object::io;
use crate::core::turns::HoldTerms;
use crate::driver::caller::{Caller, Reply, ReplyTo};
use crate::driver::client_task::Call;
use crate::driver::host::REGISTRAR;
use crate::error::{LockError, LostReason};
use crate::guard::LockGuard;
use crate::guard::grant::{GuardState, Trace};
use crate::options::{
    InvalidOption, REGISTRY_LOCK, check_label, check_name, check_note, check_timeout, lease_terms,
    shown,
};

/// A request for a lock, with options of its own.
///
/// # Example
///
/// ```
/// use std::time::Duration;
///
/// # use bakery_lock::{LockClient, MemoryStore};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let store = MemoryStore::new();
/// # let client = LockClient::builder_in_memory(&store).build().await?;
/// let guard = client
///     .request("reports::daily")
///     .timeout(Duration::from_secs(2))
///     .ttl(Duration::from_secs(10))
///     .max_hold(Duration::from_secs(60))
///     .label("nightly job")
///     .acquire()
///     .await?;
/// guard.unlock().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use = "a request does nothing until `acquire` or `try_acquire`"]
pub struct LockRequest {
    inner: Arc<Inner>,
    name: Arc<str>,
    timeout: Duration,
    ttl: Duration,
    shared: bool,
    max_holders: Option<u32>,
    yield_limit: Option<Duration>,
    auto_renew: bool,
    max_hold: Option<Duration>,
    grace: Option<Duration>,
    min_hold: Duration,
    at_least: Duration,
    label: Option<Arc<str>>,
    note: Option<String>,
}

impl LockRequest {
    /// A request with the client's options.
    pub(super) fn new(inner: Arc<Inner>, name: Arc<str>) -> Self {
        LockRequest {
            name,
            timeout: inner.shared.acquire_timeout,
            ttl: inner.ttl,
            shared: false,
            max_holders: None,
            yield_limit: None,
            auto_renew: true,
            max_hold: None,
            grace: None,
            min_hold: Duration::ZERO,
            at_least: Duration::ZERO,
            label: None,
            note: None,
            inner,
        }
    }

    /// How long to wait, instead of the client's acquire timeout.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// How long rows live without renewal, instead of the client's TTL: whole seconds, from 5 to
    /// the longest TTL that the lock table allows.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// Holds the lock together with all others that share it, such as the readers of something that
    /// a writer changes under the same lock alone.
    ///
    /// The callers of one client that share a lock have one place in the database, for which all
    /// wait and which the last one gives back. Once one that wants the lock alone waits as well,
    /// others join for 100 ms more; then it has its turn when those inside have left. In one line,
    /// callers are served in their order, alone or together. A
    /// [fencing token](crate::LockHandle::fencing_token) of one that shares is that of the last
    /// one that held the lock alone.
    ///
    /// A place in use is shared on its terms: the TTL of a caller that joins counts again when the
    /// place is acquired again.
    ///
    /// # Example
    ///
    /// ```
    /// # use bakery_lock::{LockClient, MemoryStore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let store = MemoryStore::new();
    /// # let client = LockClient::builder_in_memory(&store).build().await?;
    /// let reader = client.request("settings").shared().acquire().await?;
    /// let another = client.request("settings").shared().acquire().await?;
    /// assert!(client.request("settings").try_acquire().await?.is_none(), "a writer must wait");
    /// reader.unlock().await?;
    /// another.unlock().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn shared(mut self) -> Self {
        self.shared = true;
        self
    }

    /// Lets this many hold the lock at once, such as the workers that may use a service together;
    /// by default one.
    ///
    /// All that limit a lock must name the same number. Those that do not limit it wait until
    /// all of these have left, as these wait for them. Each has a place of its own in the database:
    /// 64 of one client at most, behind which its further callers wait. The order among holders is
    /// open, so there are no [fencing tokens](crate::FencingToken).
    ///
    /// # Example
    ///
    /// ```
    /// # use bakery_lock::{LockClient, MemoryStore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let store = MemoryStore::new();
    /// # let client = LockClient::builder_in_memory(&store).build().await?;
    /// let first = client.request("printers").max_holders(2).acquire().await?;
    /// let second = client.request("printers").max_holders(2).acquire().await?;
    /// assert!(client.request("printers").max_holders(2).try_acquire().await?.is_none());
    /// first.unlock().await?;
    /// second.unlock().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn max_holders(mut self, max_holders: u32) -> Self {
        self.max_holders = Some(max_holders);
        self
    }

    /// Lets those go first that [share](Self::shared) the lock, for this long at most: only then,
    /// or once none shares it any more, this request waits in line like all others. By default it
    /// does so at once, and those that come later to share the lock wait behind it. `Duration::MAX`
    /// lets them go first for ever.
    ///
    /// Meanwhile it reads the whole object from time to time: after 20 ms at first, every second at
    /// most. It counts towards the timeout. A try gives up if it sees one that shares.
    pub fn yield_to_shared(mut self, limit: Duration) -> Self {
        self.yield_limit = Some(limit);
        self
    }

    /// Whether to renew the lease while the lock is held; `true` by default. With `false` the lock
    /// is held for at most one lease: the TTL less a second and the clock skew. Up to half of it
    /// may have passed when another caller of the client passes the lock on.
    pub fn auto_renew(mut self, auto_renew: bool) -> Self {
        self.auto_renew = auto_renew;
        self
    }

    /// How long the lock should be held at most; by default there is no limit, and a task that
    /// hangs while its process lives holds it forever.
    ///
    /// When the time has passed the guard reports [`Expiring`](crate::GuardState::Expiring). When
    /// the [grace](Self::max_hold_grace) has passed too, the lock is lost and goes to the next
    /// contender.
    pub fn max_hold(mut self, max_hold: Duration) -> Self {
        self.max_hold = Some(max_hold);
        self
    }

    /// How long a holder that exceeds [`max_hold`](Self::max_hold) may take to finish; by default
    /// as long again, and at least a minute.
    pub fn max_hold_grace(mut self, grace: Duration) -> Self {
        self.grace = Some(grace);
        self
    }

    /// How long the lock stays taken from its grant on, even if it is released before; by default
    /// not at all. At most the table's longest TTL less 1.5 seconds and the clock skew.
    ///
    /// For jobs that several machines start at the same time by their own clocks: one that is done
    /// before another machine has started must not run again there. No other caller gets the lock
    /// before that time is over, whatever happens to the process or the database: the rows have a
    /// TTL that covers it, a longer one than [`ttl`](Self::ttl) if need be. Only a wall clock that
    /// is set ahead on this machine ends it sooner, by as much: the machine may have slept.
    ///
    /// While the process lives, it deletes the rows in time. An early release writes them once
    /// more, with a TTL that ends then, so that a process that exits blocks the lock for three
    /// seconds and the clock skew longer at most, and for five seconds at least. Without a release,
    /// or if that write fails, it blocks the lock for the whole TTL.
    ///
    /// # Errors
    ///
    /// When it is acquired: [`MinHoldTooLong`](crate::InvalidOption::MinHoldTooLong),
    /// [`SharedWithMinHold`](crate::InvalidOption::SharedWithMinHold), and
    /// [`MinHoldWithoutRenewal`](crate::InvalidOption::MinHoldWithoutRenewal) if it is not
    /// [renewed](Self::auto_renew) and its TTL ends before.
    ///
    /// # Example
    ///
    /// ```
    /// use std::time::Duration;
    /// # use bakery_lock::{LockClient, MemoryStore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let store = MemoryStore::new();
    /// # let client = LockClient::builder_in_memory(&store).build().await?;
    /// let request = client.request("reports::hourly").min_hold(Duration::from_secs(10));
    /// if let Some(guard) = request.try_acquire().await? {
    ///     // The job.
    ///     guard.unlock().await?;
    /// }
    /// assert!(client.try_lock("reports::hourly").await?.is_none(), "it has just run");
    /// # Ok(())
    /// # }
    /// ```
    pub fn min_hold(mut self, min_hold: Duration) -> Self {
        self.min_hold = min_hold;
        self
    }

    /// How much of the lease is left at least when the lock is granted, so that no other client
    /// gets the lock sooner, whatever happens to this process or the database; by default, what
    /// there is. At most the table's longest TTL less 1.5 seconds and the clock skew; the
    /// [TTL](Self::ttl) is raised to what it needs.
    ///
    /// For work that can't be stopped once it has begun, and for locks that are promised to others
    /// for a time. [`LockHandle::ensure`](crate::LockHandle::ensure) asks for as much later. A lock
    /// that passes between callers of a client, or between clients, is renewed first if too little
    /// is left; a TTL of twice the time avoids that. If others share the lock already, its rows are
    /// written once more on these terms.
    ///
    /// # Errors
    ///
    /// When it is acquired: [`AtLeastTooLong`](crate::InvalidOption::AtLeastTooLong). If the lease
    /// can't be made as long, the lock is given back: [`LockError::TimedOut`] if the database did
    /// not answer within the client's acquire timeout, which then counts from the grant, and
    /// [`LockError::Lost`] if the lock was revoked.
    ///
    /// # Example
    ///
    /// ```
    /// use std::time::Duration;
    /// # use bakery_lock::{LockClient, MemoryStore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let store = MemoryStore::new();
    /// # let client = LockClient::builder_in_memory(&store).build().await?;
    /// // The transfer takes up to 20 s and can't be called back.
    /// let transfer = client.request("accounts::7").at_least(Duration::from_secs(20));
    /// let guard = transfer.acquire().await?;
    /// assert!(guard.remaining() > Duration::from_secs(19));
    /// guard.unlock().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn at_least(mut self, at_least: Duration) -> Self {
        self.at_least = at_least;
        self
    }

    /// What others see of this client besides host name and process id: 1,024 bytes at most.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(Arc::from(label.into()));
        self
    }

    /// What others see of the work under the lock, and the holder can
    /// [change](crate::LockHandle::set_note): 1,024 bytes at most.
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.note = Some(note.into());
        self
    }

    /// Acquires the lock: [`LockClient::lock`](crate::LockClient::lock) with this request's
    /// options.
    ///
    /// # Errors
    ///
    /// See [`LockError`]. In every case nothing is held.
    ///
    /// # Cancel safety
    ///
    /// As for [`LockClient::lock`](crate::LockClient::lock).
    #[expect(clippy::missing_panics_doc, reason = "only a bug gets there")]
    pub async fn acquire(self) -> Result<LockGuard, LockError> {
        let guard = self.send(Patience::Wait).await?;
        Ok(guard.expect("only a try comes back without a guard"))
    }

    /// Acquires the lock if no client holds it or waits for it:
    /// [`LockClient::try_lock`](crate::LockClient::try_lock) with this request's options. The
    /// timeout bounds the wait for the database.
    ///
    /// # Errors
    ///
    /// See [`LockError`]. A lock that is taken is not an error but `None`.
    ///
    /// # Cancel safety
    ///
    /// As for [`LockClient::lock`](crate::LockClient::lock).
    pub async fn try_acquire(self) -> Result<Option<LockGuard>, LockError> {
        self.send(Patience::Try).await
    }

    /// The name of the object in the table.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Whether the request can be made, and its terms.
    pub(crate) fn check(&self) -> Result<(Mode, LeaseTerms, Option<HoldTerms>), InvalidOption> {
        check_name(&self.name)?;
        if self.inner.read_only {
            return Err(InvalidOption::ReadOnly);
        }
        if *self.name == *REGISTRY_LOCK && self.inner.shared.id.host != REGISTRAR {
            return Err(InvalidOption::ReservedName);
        }
        check_label(self.label.as_deref())?;
        check_note(self.note.as_deref())?;
        let mode = self.mode()?;
        if self.yield_limit.is_some() && mode != Mode::Exclusive {
            return Err(InvalidOption::YieldsWithOthers);
        }
        check_timeout(self.timeout)?;
        let Inner { max_ttl, max_clock_skew, .. } = *self.inner;
        let terms = lease_terms(self.ttl, max_ttl, max_clock_skew)?;
        let terms = self.outlasting_min_hold(terms, max_ttl)?;
        let terms = terms_lasting(self.at_least, terms, max_ttl)?;
        Ok((mode, terms, HoldTerms::new(self.max_hold, self.grace)?))
    }

    fn mode(&self) -> Result<Mode, InvalidOption> {
        match (self.shared, self.max_holders) {
            (false, None) => Ok(Mode::Exclusive),
            (true, None) => Ok(Mode::Shared),
            (false, Some(max_holders)) => limited(max_holders),
            (true, Some(_)) => Err(InvalidOption::SharedAndLimited),
        }
    }

    /// Terms on which the rows outlast the minimum hold from the grant on, so that nothing needs to
    /// be written at its release. All that share a lock are renewed together, so none can end its
    /// rows by a time of its own.
    fn outlasting_min_hold(
        &self,
        terms: LeaseTerms,
        max_ttl: Duration,
    ) -> Result<LeaseTerms, InvalidOption> {
        let (min_hold, max_clock_skew) = (self.min_hold, terms.max_clock_skew());
        if min_hold.is_zero() {
            return Ok(terms);
        }
        if self.shared {
            return Err(InvalidOption::SharedWithMinHold);
        }
        let longest = LeaseTerms::longest_min_hold(max_ttl, max_clock_skew);
        if min_hold > longest {
            return Err(InvalidOption::MinHoldTooLong { min_hold, longest });
        }
        let needed = LeaseTerms::for_min_hold(min_hold, max_clock_skew);
        if needed.ttl() <= terms.ttl() {
            Ok(terms)
        } else if self.auto_renew {
            Ok(needed)
        } else {
            Err(InvalidOption::MinHoldWithoutRenewal { min_hold, least: needed.ttl() })
        }
    }

    async fn send(self, patience: Patience) -> Result<Option<LockGuard>, LockError> {
        let (mode, terms, hold_terms) = self.check()?;
        if !self.inner.shared.process.is_current() {
            return Err(LockError::Forked);
        }
        let owner = self.inner.shared.owner.of_caller(self.label.as_deref(), self.note.as_deref());
        let asked = self.inner.shared.clock.elapsed();
        let deadline = asked.saturating_add(self.timeout);
        let (renew, gives_up, owner) = (self.auto_renew, Some(deadline), owner.into());
        let acquire = Acquire { mode, terms, patience, renew, gives_up, owner };
        let number = self.inner.callers.fetch_add(1, Ordering::Relaxed);
        let (yields, min_hold, at_least) = (self.yield_limit, self.min_hold, self.at_least);
        let wants =
            io::Caller { number, acquire, hold_terms, yields, min_hold, at_least, asked, deadline };
        let counted = CountedWait::begin(Arc::clone(&self.inner.shared));
        let answer = self.join(Box::new(wants)).await;
        match counted.end(answer)?.map(if_held).transpose()? {
            Some(guard) if !at_least.is_zero() => lasting(guard, at_least, terms).await.map(Some),
            guard => Ok(guard),
        }
    }

    /// Joins the line of the object.
    async fn join(self, wants: Box<io::Caller>) -> Reply {
        let (number, patience) = (wants.number, wants.acquire.patience);
        let (object, label) = (shown(&self.name), self.label);
        let span = debug_span!(
            parent: None, "lock", object, label = label.as_deref(), ?patience, token = Empty
        );
        span.follows_from(Span::current());
        let (reply, answer) = oneshot::channel();
        let caller = Caller { wants, reply_to: ReplyTo { reply, trace: Trace { span, label } } };
        let object = self.name;
        let unregistered = self.inner.objects.acquire((Arc::clone(&object), caller));
        let by_task = unregistered.is_some();
        if let Some(asking) = unregistered {
            let call = Call::Acquire(Box::new(asking));
            self.inner.calls.send(call).map_err(|_| LockError::Closed)?;
        }
        let inner = self.inner;
        let waiting = PendingAcquire { inner, object, number, by_task, answer, answered: false };
        waiting.answer().await
    }
}

/// The mode of a limited request.
fn limited(max_holders: u32) -> Result<Mode, InvalidOption> {
    match i32::try_from(max_holders) {
        Ok(most) if most > 0 => Ok(Mode::Limited(most)),
        Ok(_) | Err(_) => Err(InvalidOption::MaxHolders { max_holders }),
    }
}

/// A caller that the statistics count as waiting while this lives.
struct CountedWait(Arc<ClientContext>);

impl CountedWait {
    fn begin(shared: Arc<ClientContext>) -> Self {
        shared.tally.waits();
        CountedWait(shared)
    }

    /// Counts the answer too.
    fn end(self, answer: Reply) -> Reply {
        self.0.tally.answered(answer.as_ref().map(Option::is_some));
        answer
    }
}

impl Drop for CountedWait {
    fn drop(&mut self) {
        self.0.tally.waited();
    }
}

/// A caller that waits for its answer. If dropped before the answer, it says so to the task that
/// has its request, which then need not check whether each caller is still there.
struct PendingAcquire {
    inner: Arc<Inner>,
    object: Arc<str>,
    number: u64,
    /// Whether its request went to the client's task.
    by_task: bool,
    answer: oneshot::Receiver<Reply>,
    answered: bool,
}

impl PendingAcquire {
    async fn answer(mut self) -> Reply {
        let answer = (&mut self.answer).await;
        self.answered = true;
        answer.unwrap_or(Err(LockError::Closed))
    }
}

impl Drop for PendingAcquire {
    fn drop(&mut self) {
        if self.answered {
            return;
        }
        // First: if the message overtakes its caller, the closed channel shows that it has left.
        self.answer.close();
        if self.by_task {
            let call = Call::Leave { object: Arc::clone(&self.object), caller: self.number };
            // If the task has ended, there is nothing to leave.
            let _ = self.inner.calls.send(call);
        } else {
            self.inner.objects.leave(&self.object, self.number);
        }
    }
}

/// The guard, if its lock is still held. Checked last: any time may have passed since the answer
/// was sent. A guard that is not returned is dropped, which releases its rows.
fn if_held(guard: LockGuard) -> Result<LockGuard, LockError> {
    match guard.state() {
        GuardState::Held { .. } | GuardState::AtRisk { .. } | GuardState::Expiring { .. } => {
            guard.collect();
            Ok(guard)
        }
        GuardState::Lost(LostReason::Forked) => Err(LockError::Forked),
        // Only its owner releases a guard, so it can't be released here.
        GuardState::Lost(LostReason::ClientClosed) | GuardState::Released => Err(LockError::Closed),
        GuardState::Lost(reason) => {
            Err(LockError::Lost { name: guard.table_name().to_owned(), reason })
        }
    }
}

impl fmt::Debug for LockRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockRequest")
            .field("name", &self.name)
            .field("timeout", &self.timeout)
            .field("ttl", &self.ttl)
            .field("shared", &self.shared)
            .field("max_holders", &self.max_holders)
            .field("yield_to_shared", &self.yield_limit)
            .field("renew", &self.auto_renew)
            .field("max_hold", &self.max_hold)
            .field("grace", &self.grace)
            .field("min_hold", &self.min_hold)
            .field("at_least", &self.at_least)
            .field("label", &self.label)
            .field("note", &self.note)
            .finish_non_exhaustive()
    }
}
