//! A request for a lock.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::oneshot;
use tracing::debug_span;

use super::Inner;
use crate::engine::dispatch::Call;
use crate::engine::grant::GuardState;
use crate::engine::guard::LockGuard;
use crate::engine::hold_limit::HoldTerms;
use crate::engine::waiters::{Caller, Reply};
use crate::error::{LockError, LostReason};
use crate::options::{InvalidOption, check_name, check_timeout, lease_terms, shown};
use crate::protocol::{Acquire, LeaseTerms, Mode, Patience};

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
/// # let client = LockClient::builder_in_memory(&store).register_host(true).build().await?;
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
    name: String,
    timeout: Duration,
    ttl: Duration,
    max_holders: Option<u32>,
    renew: bool,
    max_hold: Option<Duration>,
    grace: Option<Duration>,
    label: Option<String>,
}

impl LockRequest {
    /// A request with the client's options.
    pub(super) fn new(inner: Arc<Inner>, name: String) -> Self {
        LockRequest {
            name,
            timeout: inner.shared.acquire_timeout,
            ttl: inner.ttl,
            max_holders: None,
            renew: true,
            max_hold: None,
            grace: None,
            label: None,
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

    /// Lets this many hold the lock at once, such as the workers that may use a service together; by
    /// default one.
    ///
    /// All that limit a lock have to name the same number. Those that do not limit it wait until
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
    /// # let client = LockClient::builder_in_memory(&store).register_host(true).build().await?;
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

    /// Whether to renew the lease while the lock is held; `true` by default. With `false` the lock
    /// is held for at most one lease: the TTL less a second and the clock skew. Up to half of it
    /// may have passed when another caller of the client passes the lock on.
    pub fn renew(mut self, renew: bool) -> Self {
        self.renew = renew;
        self
    }

    /// How long the lock should be held at most; by default there is no limit, and a task that
    /// hangs while its process lives holds it forever.
    ///
    /// When the time has passed the guard reports [`Expiring`](crate::GuardState::Expiring). When
    /// the [grace](Self::grace) has passed too, the lock is lost and goes to the next contender.
    pub fn max_hold(mut self, max_hold: Duration) -> Self {
        self.max_hold = Some(max_hold);
        self
    }

    /// How long a holder that exceeds [`max_hold`](Self::max_hold) may take to finish; by default
    /// as long again, and at least a minute.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = Some(grace);
        self
    }

    /// What others see of this client besides host name and process id.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into());
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
    #[expect(clippy::missing_panics_doc, reason = "only a bug of the runner gets there")]
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

    /// The name of the object.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Whether the request can be made, and its terms.
    pub(super) fn check(&self) -> Result<(Mode, LeaseTerms, Option<HoldTerms>), InvalidOption> {
        check_name(&self.name)?;
        let mode = self.max_holders.map_or(Ok(Mode::Exclusive), limited)?;
        check_timeout(self.timeout)?;
        let terms = lease_terms(self.ttl, self.inner.max_ttl, self.inner.max_clock_skew)?;
        Ok((mode, terms, HoldTerms::new(self.max_hold, self.grace)?))
    }

    async fn send(self, patience: Patience) -> Result<Option<LockGuard>, LockError> {
        let (mode, terms, hold_terms) = self.check()?;
        if !self.inner.shared.process.is_current() {
            return Err(LockError::Forked);
        }
        let owner = match &self.label {
            Some(label) => format!("{} {label}", self.inner.shared.owner),
            None => self.inner.shared.owner.clone(),
        };
        let acquire = Acquire { mode, terms, patience, renew: self.renew, owner };
        let asked = self.inner.shared.clock.elapsed();
        let deadline = asked.saturating_add(self.timeout);
        let span = debug_span!(parent: None, "lock", object = shown(&self.name), ?patience);
        let (reply, answer) = oneshot::channel();
        let number = self.inner.callers.fetch_add(1, Ordering::Relaxed);
        let caller = Caller { number, acquire, hold_terms, asked, deadline, reply, span };
        let object = Arc::from(self.name);
        let call = Call::Acquire(Arc::clone(&object), caller);
        self.inner.calls.send(call).map_err(|_| LockError::Closed)?;
        let waiting = Waiting { inner: self.inner, object, number, answer, answered: false };
        waiting.answer().await.and_then(|guard| guard.map(if_held).transpose())
    }
}

/// The mode of a limited request.
fn limited(max_holders: u32) -> Result<Mode, InvalidOption> {
    match i32::try_from(max_holders) {
        Ok(most) if most > 0 => Ok(Mode::Limited(most)),
        Ok(_) | Err(_) => Err(InvalidOption::MaxHolders { max_holders }),
    }
}

/// A caller that waits for its answer. If dropped before the answer, it tells the client's task,
/// which then need not check whether each caller is still there.
struct Waiting {
    inner: Arc<Inner>,
    object: Arc<str>,
    number: u64,
    answer: oneshot::Receiver<Reply>,
    answered: bool,
}

impl Waiting {
    async fn answer(mut self) -> Reply {
        let answer = (&mut self.answer).await;
        self.answered = true;
        answer.unwrap_or(Err(LockError::Closed))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if self.answered {
            return;
        }
        // First: if the message overtakes its caller, the closed channel shows that it has left.
        self.answer.close();
        let call = Call::Leave { object: Arc::clone(&self.object), caller: self.number };
        // If the task has ended, there is nothing to leave.
        let _ = self.inner.calls.send(call);
    }
}

/// The guard, if its lock is still held. Checked last: any time may have passed since the answer
/// was sent. A guard that is not returned is dropped, which releases its rows.
fn if_held(guard: LockGuard) -> Result<LockGuard, LockError> {
    match guard.state() {
        GuardState::Held { .. } | GuardState::AtRisk { .. } | GuardState::Expiring { .. } => {
            Ok(guard)
        }
        GuardState::Lost(LostReason::Forked) => Err(LockError::Forked),
        // Only its owner releases a guard, so it can't be released here.
        GuardState::Lost(LostReason::ClientClosed) | GuardState::Released => Err(LockError::Closed),
        GuardState::Lost(reason) => Err(LockError::Lost { name: guard.name().to_owned(), reason }),
    }
}

impl fmt::Debug for LockRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockRequest")
            .field("name", &self.name)
            .field("timeout", &self.timeout)
            .field("ttl", &self.ttl)
            .field("max_holders", &self.max_holders)
            .field("renew", &self.renew)
            .field("max_hold", &self.max_hold)
            .field("grace", &self.grace)
            .field("label", &self.label)
            .finish_non_exhaustive()
    }
}
