//! What is known of a held lock, for its guard and for work under it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::{ExpiringFuture, GuardStates, LostFuture};
use crate::admin::types::HeldPlace;
use crate::context::with_timers;
use crate::core::object::io::Need;
use crate::error::EnsureError;
use crate::fencing::{FencingError, FencingToken};
use crate::guard::grant::{Grant, GuardRequest, GuardState, Requests};
use crate::guard::token_issuer::TokenIssuer;

/// Where the fencing tokens of a lock come from.
#[derive(Clone, Debug)]
pub(crate) enum Tokens {
    /// Each one is issued by itself.
    Own(Arc<TokenIssuer>),
    /// The keeper of the place reserves them for all turns.
    OfKeeper {
        /// How long the guard waits for one.
        limit: Duration,
        /// The client's runtime.
        runtime: Handle,
    },
}

/// What is known of a held lock. The lock is released by its [`LockGuard`](crate::LockGuard) alone.
///
/// # What decides
///
/// [`state`](Self::state) reads the clock at each call, so it alone decides whether the lock is
/// held. [`expiring`](Self::expiring), [`lost`](Self::lost), [`states`](Self::states) and the
/// tokens only wake a task, and a task can't be woken while its runtime does not run: while the
/// runtime is blocked, or the whole process or machine is paused. The futures and the stream have
/// their own timer, so they need only the runtime on which they are polled; the tokens need the
/// runtime on which the client was built, or anything else that looks at the lock's clock. After
/// such a pause all are late, so check `state` before each step that must not be taken twice.
#[derive(Clone)]
pub struct LockHandle {
    grant: Arc<Grant>,
    tokens: Tokens,
    requests: Requests,
}

impl LockHandle {
    pub(crate) fn new(grant: Arc<Grant>, tokens: Tokens, requests: Requests) -> Self {
        LockHandle { grant, tokens, requests }
    }

    pub(super) fn grant(&self) -> &Arc<Grant> {
        &self.grant
    }

    pub(super) fn requests(&self) -> &Requests {
        &self.requests
    }

    /// The client whose place is used.
    #[cfg(feature = "test-util")]
    #[doc(hidden)]
    #[must_use]
    pub fn keeper(&self) -> uuid::Uuid {
        self.requests.keeper()
    }

    /// The slot of that place.
    #[cfg(feature = "test-util")]
    #[doc(hidden)]
    #[must_use]
    pub fn slot(&self) -> i16 {
        self.requests.slot()
    }

    /// The name of the locked object, as it was requested: without the client's
    /// [prefix](crate::LockClientBuilder::prefix).
    #[must_use]
    pub fn name(&self) -> &str {
        self.grant.requested_name()
    }

    /// The place in the table that the lock uses: that of its own client or, for a turn at the
    /// place of another client, that one. It stays the same until the lock is released.
    ///
    /// A process that is to survive crashes can note it, and release the lock by it when it has
    /// started again: see [`release_for_dead`](crate::LockClient::release_for_dead).
    #[must_use]
    pub fn place(&self) -> HeldPlace {
        self.requests.place()
    }

    /// The name in the table, for errors.
    pub(crate) fn table_name(&self) -> &str {
        self.grant.name()
    }

    /// The state of the lock now, by the clock: no I/O. This alone [decides](Self#what-decides)
    /// whether the lock is held.
    ///
    /// # Example
    ///
    /// ```
    /// use bakery_lock::GuardState;
    /// # use bakery_lock::{LockClient, MemoryStore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let store = MemoryStore::new();
    /// # let client = LockClient::builder_in_memory(&store).build().await?;
    /// # let guard = client.lock("users::snap").await?;
    /// match guard.state() {
    ///     GuardState::Held { remaining } => println!("held for {remaining:?} at least"),
    ///     GuardState::AtRisk { .. } | GuardState::Expiring { .. } => println!("come to an end"),
    ///     state => println!("stop: {state:?}"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn state(&self) -> GuardState {
        self.grant.state()
    }

    /// How long the lock is still held without renewal; zero once it is not held.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.state().remaining()
    }

    /// Resolves when the holder is to finish: with the reason if the lock is
    /// [expiring](GuardState::Expiring), with `None` if it was lost or released without that. It
    /// does not borrow the guard.
    ///
    /// What runs under a lock should end then, and release it: the next client waits for that, or
    /// for the end of the lease. [`lost`](Self::lost) only says that it is too late. It wakes as
    /// `lost` does.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    ///
    /// # Panics
    ///
    /// The future panics when polled on a tokio runtime without timers.
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
    /// tokio::select! {
    ///     () = async { /* the work */ } => println!("done"),
    ///     Some(reason) = guard.expiring() => println!("to be continued: {reason}"),
    /// }
    /// guard.unlock().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use = "futures do nothing unless polled"]
    pub fn expiring(&self) -> ExpiringFuture {
        ExpiringFuture::new(Arc::clone(&self.grant))
    }

    /// Resolves when the lock is no longer held: with the reason if it was lost, with `None` if it
    /// was released. It does not borrow the guard.
    ///
    /// It resolves at the end of the lease even while the client's runtime is blocked, as long as
    /// the runtime on which it is polled runs. Polled outside tokio it has no timer: then it
    /// resolves when the client's task, or a look at the guard, notices the end. After a suspend it
    /// may be up to a second late. Only `state` [decides](Self#what-decides).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    ///
    /// # Panics
    ///
    /// The future panics when polled on a tokio runtime without timers.
    ///
    /// # Example
    ///
    /// ```
    /// # use bakery_lock::{LockClient, MemoryStore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let store = MemoryStore::new();
    /// # let client = LockClient::builder_in_memory(&store).build().await?;
    /// # let guard = client.lock("users::snap").await?;
    /// let lost = guard.lost();
    /// tokio::spawn(async move {
    ///     if let Some(reason) = lost.await {
    ///         eprintln!("users::snap is lost: {reason}");
    ///     }
    /// });
    /// # Ok(())
    /// # }
    /// ```
    #[must_use = "futures do nothing unless polled"]
    pub fn lost(&self) -> LostFuture {
        LostFuture::new(Arc::clone(&self.grant))
    }

    /// The states that the lock goes through: first the present one, then each other one as it
    /// begins. It ends after [`Lost`](GuardState::Lost) and [`Released`](GuardState::Released). It
    /// does not borrow the lock.
    ///
    /// It is for reports and for work that must wind up; only [`state`](Self::state)
    /// [decides](Self#what-decides). A risk that a renewal ends is over up to a second before the
    /// stream says so, and one that is over sooner may be left out. It wakes as
    /// [`lost`](Self::lost) does.
    ///
    /// # Example
    ///
    /// ```
    /// use bakery_lock::GuardState;
    /// # use bakery_lock::{LockClient, MemoryStore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let store = MemoryStore::new();
    /// # let client = LockClient::builder_in_memory(&store).build().await?;
    /// # let guard = client.lock("users::snap").await?;
    /// let mut states = guard.states();
    /// let watch = tokio::spawn(async move {
    ///     while let Some(state) = states.changed().await {
    ///         println!("users::snap: {state:?}");
    ///     }
    /// });
    /// guard.unlock().await?;
    /// watch.await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn states(&self) -> GuardStates {
        GuardStates::new(Arc::clone(&self.grant))
    }

    /// A token that is cancelled when the lock is no longer held, be it lost or released.
    /// Cancelling it does not affect the lock.
    ///
    /// It has no timer: the client's task cancels it, or a look at the guard if that comes first,
    /// such as [`state`](Self::state) or a polled future of [`lost`](Self::lost), so it stays
    /// silent while the client's runtime is blocked. Only `state` [decides](Self#what-decides).
    ///
    /// # Example
    ///
    /// ```
    /// # use bakery_lock::{LockClient, MemoryStore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let store = MemoryStore::new();
    /// # let client = LockClient::builder_in_memory(&store).build().await?;
    /// # let guard = client.lock("users::snap").await?;
    /// let token = guard.cancellation_token();
    /// let work = tokio::spawn(token.run_until_cancelled_owned(async { /* the work */ }));
    /// guard.unlock().await?;
    /// assert!(work.await.is_ok());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn cancellation_token(&self) -> CancellationToken {
        self.grant.token()
    }

    /// A token that is cancelled when the holder is to finish, as [`expiring`](Self::expiring)
    /// says, and when the lock is no longer held. It wakes as
    /// [`cancellation_token`](Self::cancellation_token) does.
    #[must_use]
    pub fn expiring_token(&self) -> CancellationToken {
        self.grant.expiring_token().child_token()
    }

    /// Ensures that at least `min` of the lease remains, renewing it if needed, so that the lock is
    /// held for that long whatever happens to the database. Returns how much remains.
    ///
    /// Call it before a step that takes up to `min`. If enough is left it costs nothing, else a
    /// renewal: a read and a write, and another read in the background.
    ///
    /// # Errors
    ///
    /// - [`EnsureError::Lost`], [`EnsureError::Released`]: the lock is no longer held.
    /// - [`EnsureError::TooLong`]: no lease of this TTL lasts as long as `min`, or the lock is
    ///   [expiring](GuardState::Expiring) and what is left is shorter.
    /// - [`EnsureError::Unconfirmed`]: no quorum acknowledged the renewal within the client's
    ///   acquire timeout. The lock is held for as long as [`remaining`](Self::remaining) says, and
    ///   renewal continues.
    /// - [`EnsureError::Closed`]: the client's runtime ended.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing; the renewal may continue in the background.
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
    /// # let guard = client.lock("users::snap").await?;
    /// // Sending the file takes up to 20 s.
    /// guard.ensure(Duration::from_secs(20)).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn ensure(&self, min: Duration) -> Result<Duration, EnsureError> {
        match self.held_for() {
            Ok(remaining) if remaining >= min => Ok(remaining),
            Ok(_) => self.ask(Need::Lease(min)).await,
            Err(error) => Err(error),
        }
    }

    /// Confirms by a quorum read, begun after this call, that the rows of the lock are still there.
    /// Returns how long the lock is held.
    ///
    /// The lease alone shows what the clock knows. This shows at once what the next renewal would
    /// find: that rows are missing, or that another client revoked the lock, which is
    /// [expiring](GuardState::Expiring) then.
    ///
    /// # Errors
    ///
    /// As for [`ensure`](Self::ensure), except [`EnsureError::TooLong`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    ///
    /// # Example
    ///
    /// ```
    /// # use bakery_lock::{LockClient, MemoryStore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let store = MemoryStore::new();
    /// # let client = LockClient::builder_in_memory(&store).build().await?;
    /// # let guard = client.lock("users::snap").await?;
    /// let remaining = guard.check().await?;
    /// println!("the rows are there, and the lease lasts {remaining:?}");
    /// # Ok(())
    /// # }
    /// ```
    pub async fn check(&self) -> Result<Duration, EnsureError> {
        self.held_for()?;
        self.ask(Need::Rows).await
    }

    /// Lets the rows of the lock live for `ttl` from now on, if that is longer than the TTL of the
    /// request, and waits until they are written. Returns how long the lock is held without another
    /// renewal.
    ///
    /// For a step that takes longer than the lease of most requests should last, before
    /// [`ensure`](Self::ensure). It counts until the lock is released; a shorter TTL has no effect.
    ///
    /// # Errors
    ///
    /// As for [`ensure`](Self::ensure), and:
    ///
    /// - [`EnsureError::Option`]: no TTL as [`LockRequest::ttl`](crate::LockRequest::ttl) takes it.
    /// - [`EnsureError::Unchangeable`]: the lock is held without renewal, is
    ///   [expiring](GuardState::Expiring), or is a turn at the place of another client.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing; the rows may be written in the background.
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
    /// let guard = client.request("imports").ttl(Duration::from_secs(10)).acquire().await?;
    /// // The last step can't be interrupted for a minute and a half.
    /// let held = guard.raise_ttl(Duration::from_secs(120)).await?;
    /// assert!(held > Duration::from_secs(90));
    /// # guard.unlock().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn raise_ttl(&self, ttl: Duration) -> Result<Duration, EnsureError> {
        self.revise(Some(ttl), None).await
    }

    /// Says of the work under the lock what others should know, in 1,024 bytes at most, instead of
    /// the [note](crate::LockRequest::note) before; waits until it is written. Others see it as
    /// [`Owner::note`](crate::Owner::note) of a contender, and in `lockctl show`: how far a job is,
    /// at which address a leader serves.
    ///
    /// It costs what a renewal does. Of several callers of a client that share a lock, the note of
    /// the last one is seen.
    ///
    /// # Errors
    ///
    /// As for [`raise_ttl`](Self::raise_ttl).
    ///
    /// # Cancel safety
    ///
    /// As for [`raise_ttl`](Self::raise_ttl).
    ///
    /// # Example
    ///
    /// ```
    /// # use bakery_lock::{LockClient, MemoryStore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let store = MemoryStore::new();
    /// # let client = LockClient::builder_in_memory(&store).build().await?;
    /// let guard = client.request("imports").note("0 of 3 files").acquire().await?;
    /// guard.set_note("1 of 3 files").await?;
    /// let contenders = client.contenders("imports").await?;
    /// assert_eq!(contenders[0].owner.note(), Some("1 of 3 files"));
    /// # guard.unlock().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn set_note(&self, note: impl Into<String>) -> Result<(), EnsureError> {
        self.revise(None, Some(note.into())).await.map(drop)
    }

    /// Shares the lock from now on.
    pub(super) async fn share(&self) -> Result<(), EnsureError> {
        self.held_for()?;
        self.grant.set_shares(true);
        let answer = self.answered(|reply| GuardRequest::Share { reply }).await;
        if let Err(EnsureError::Unchangeable { .. }) = answer {
            self.grant.set_shares(false);
        }
        answer.map(drop)
    }

    async fn revise(
        &self,
        ttl: Option<Duration>,
        note: Option<String>,
    ) -> Result<Duration, EnsureError> {
        self.held_for()?;
        self.answered(|reply| GuardRequest::Revise { ttl, note, reply }).await
    }

    /// Renews the lease at once, in the background.
    pub(crate) fn renew_now(&self) {
        let (reply, _) = oneshot::channel();
        let need = Need::Lease(Duration::ZERO);
        self.requests.send(GuardRequest::Confirm { need, reply });
    }

    async fn ask(&self, need: Need) -> Result<Duration, EnsureError> {
        self.answered(|reply| GuardRequest::Confirm { need, reply }).await
    }

    async fn answered(
        &self,
        request: impl FnOnce(oneshot::Sender<Result<Duration, EnsureError>>) -> GuardRequest,
    ) -> Result<Duration, EnsureError> {
        let (reply, answer) = oneshot::channel();
        // If the lock ends meanwhile, the request gets no answer, and the grant knows why.
        self.requests.send(request(reply));
        let answer = answer.await.unwrap_or(Err(EnsureError::Closed));
        self.held_for().and(answer)
    }

    async fn ask_keeper(
        &self,
        limit: Duration,
        runtime: &Handle,
    ) -> Result<FencingToken, FencingError> {
        self.grant.check_held()?;
        let (reply, answer) = oneshot::channel();
        self.requests.send(GuardRequest::IssueToken { reply });
        let answered = async { tokio::time::timeout(limit, answer).await };
        let answer = with_timers(runtime, answered).await;
        self.grant.check_held()?;
        let name = self.table_name().to_owned();
        match answer {
            Ok(answer) => answer.unwrap_or(Err(FencingError::Closed)),
            Err(_) => Err(FencingError::TimedOut { name, waited: limit, cause: None }),
        }
    }

    /// How long the lock is still held, by the clock.
    fn held_for(&self) -> Result<Duration, EnsureError> {
        match self.state() {
            GuardState::Lost(reason) => {
                Err(EnsureError::Lost { name: self.table_name().to_owned(), reason })
            }
            GuardState::Released => {
                Err(EnsureError::Released { name: self.table_name().to_owned() })
            }
            state @ (GuardState::Held { .. }
            | GuardState::AtRisk { .. }
            | GuardState::Expiring { .. }) => Ok(state.remaining()),
        }
    }

    /// Issues a fencing token: a number above those of all earlier holders, by which the protected
    /// data can tell this holder from one that lost the lock. [`FencingToken`] says how to use it.
    ///
    /// A token costs two reads and a write. Each call issues a new token, above the last one, with
    /// room for as many writes again; concurrent calls of one guard wait for each other. Ask for a
    /// token before reading what is to be changed under the lock, not for each write: more than a
    /// thousand tokens a second would run ahead of the clock, and be refused in the end.
    ///
    /// The token is returned only if the lock is still held, by its lease and by its rows, once a
    /// quorum has acknowledged the token, so all clients admitted later get larger ones, even if
    /// this lock was [taken away by force](crate::LockClient::revoke_by_force): the call then
    /// fails, and the guard is lost.
    ///
    /// # Errors
    ///
    /// See [`FencingError`]. Failed requests are repeated until the client's acquire timeout. The
    /// call changes nothing about whether the lock is held. With a turn of another client, what
    /// keeps that client from getting one is not known here: the error is
    /// [`FencingError::TimedOut`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future is harmless: an issued value may reach no caller, and the next token is
    /// above it.
    ///
    /// # Example
    ///
    /// ```
    /// # use bakery_lock::{LockClient, MemoryStore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let store = MemoryStore::new();
    /// # let client = LockClient::builder_in_memory(&store).build().await?;
    /// # let guard = client.lock("users::snap").await?;
    /// let token = guard.fencing_token().await?;
    /// assert!(guard.fencing_token().await? > token);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn fencing_token(&self) -> Result<FencingToken, FencingError> {
        self.check_alone()?;
        let token = match &self.tokens {
            Tokens::Own(issuer) => issuer.issue().await?,
            Tokens::OfKeeper { limit, runtime } => self.ask_keeper(*limit, runtime).await?,
        };
        self.check_alone()?;
        self.grant.trace_token(token);
        Ok(token)
    }

    /// Whether the lock was not downgraded.
    fn check_alone(&self) -> Result<(), FencingError> {
        let downgraded = || FencingError::Downgraded { name: self.table_name().to_owned() };
        if self.grant.shares() { Err(downgraded()) } else { Ok(()) }
    }
}

impl fmt::Debug for LockHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockHandle")
            .field("name", &self.name())
            .field("state", &self.state())
            .field("keeper", &self.requests.keeper())
            .finish_non_exhaustive()
    }
}
