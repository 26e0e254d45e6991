//! Several locks at once.

mod guard;

use std::time::Duration;

pub use self::guard::{MultiGuard, MultiLostFuture};
use super::{LockClient, LockRequest};
use crate::error::LockError;
use crate::guard::LockGuard;
use crate::options::InvalidOption;

impl LockClient {
    /// Acquires the locks of all `names`, or none of them, within the client's acquire timeout.
    ///
    /// They are acquired one after the other in the order of their bytes, so callers of `lock_all`
    /// can't wait for each other in a circle, whatever sets of names they want, and in whatever
    /// order they give them. That does not hold for a caller that holds another lock meanwhile, by
    /// [`lock`](Self::lock) or an earlier `lock_all`: two of these may wait for each other until
    /// one of them times out. Such callers acquire all that they need at once, or in the order of
    /// the names as well.
    ///
    /// The first locks are held while the others are waited for, so long lists of names make others
    /// wait. Each lock has its own lease and its own [tokens](crate::FencingToken).
    ///
    /// # Errors
    ///
    /// See [`LockError`]. No names, or a name that is given twice, is an [`InvalidOption`]. In any
    /// case nothing is held: locks that were acquired are released in the background, the last one
    /// first. [`LockError::Lost`]: one of them was lost while others were waited for.
    ///
    /// # Cancel safety
    ///
    /// As for [`lock`](Self::lock), for each of the locks.
    ///
    /// # Example
    ///
    /// ```
    /// # use bakery_lock::{LockClient, MemoryStore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let store = MemoryStore::new();
    /// # let client = LockClient::builder_in_memory(&store).build().await?;
    /// let accounts = client.lock_all(["accounts::7", "accounts::3"]).await?;
    /// // Move money from one to the other.
    /// for account in accounts.guards() {
    ///     println!("{} with {:?}", account.name(), account.fencing_token().await?);
    /// }
    /// accounts.unlock().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn lock_all<N: AsRef<str>>(
        &self,
        names: impl IntoIterator<Item = N>,
    ) -> Result<MultiGuard, LockError> {
        self.request_all(names).acquire().await
    }

    /// A request for the locks of all `names` with options of its own.
    pub fn request_all<N: AsRef<str>>(
        &self,
        names: impl IntoIterator<Item = N>,
    ) -> MultiLockRequest {
        let requests = names.into_iter().map(|name| self.request(name)).collect();
        MultiLockRequest { client: self.clone(), requests, timeout: self.shared().acquire_timeout }
    }
}

/// A request for several locks at once, with options of its own: see [`LockClient::lock_all`].
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
/// let request = client.request_all(["accounts::3", "accounts::7"]).label("transfer 42");
/// let accounts = request.timeout(Duration::from_secs(2)).acquire().await?;
/// accounts.unlock().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a request does nothing until `acquire`, `try_acquire` or `with_lock`"]
pub struct MultiLockRequest {
    client: LockClient,
    requests: Vec<LockRequest>,
    timeout: Duration,
}

impl MultiLockRequest {
    /// How long to wait for all of them together, instead of the client's acquire timeout.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// As [`LockRequest::ttl`], for each lock.
    pub fn ttl(self, ttl: Duration) -> Self {
        self.each(|request| request.ttl(ttl))
    }

    /// Requests further locks, each of which this caller [shares](LockRequest::shared) with others.
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
    /// let request = client.request_all(["accounts::3"]).and_shared(["settings"]);
    /// let both = request.acquire().await?;
    /// assert_eq!(both.guards().len(), 2);
    /// # both.unlock().await?;
    /// # reader.unlock().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn and_shared<N: AsRef<str>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        let shared = names.into_iter().map(|name| self.client.request(name).shared());
        self.requests.extend(shared);
        self
    }

    /// As [`LockRequest::auto_renew`], for each lock.
    pub fn auto_renew(self, auto_renew: bool) -> Self {
        self.each(|request| request.auto_renew(auto_renew))
    }

    /// As [`LockRequest::max_hold`], for each lock from its own grant on.
    pub fn max_hold(self, max_hold: Duration) -> Self {
        self.each(|request| request.max_hold(max_hold))
    }

    /// As [`LockRequest::max_hold_grace`], for each lock.
    pub fn max_hold_grace(self, grace: Duration) -> Self {
        self.each(|request| request.max_hold_grace(grace))
    }

    /// As [`LockRequest::label`], for each lock.
    pub fn label(self, label: impl Into<String>) -> Self {
        let label = label.into();
        self.each(|request| request.label(label.as_str()))
    }

    /// Acquires the locks: [`LockClient::lock_all`] with this request's options.
    ///
    /// # Errors
    ///
    /// As for [`LockClient::lock_all`].
    ///
    /// # Cancel safety
    ///
    /// As for [`LockClient::lock_all`].
    #[expect(clippy::missing_panics_doc, reason = "only a bug gets there")]
    pub async fn acquire(self) -> Result<MultiGuard, LockError> {
        let guard = self.acquire_each(async |request| request.acquire().await.map(Some)).await?;
        Ok(guard.expect("only a try comes back without a guard"))
    }

    /// Acquires the locks if no client holds any of them or waits for it; `None`, and none of them
    /// held, if one does.
    ///
    /// # Errors
    ///
    /// As for [`LockClient::lock_all`]. A lock that is taken is not an error but `None`.
    ///
    /// # Cancel safety
    ///
    /// As for [`LockClient::lock_all`].
    pub async fn try_acquire(self) -> Result<Option<MultiGuard>, LockError> {
        self.acquire_each(LockRequest::try_acquire).await
    }

    /// Acquires the locks one after the other, each by `get`, until that comes back without one.
    async fn acquire_each(
        self,
        get: impl AsyncFn(LockRequest) -> Result<Option<LockGuard>, LockError>,
    ) -> Result<Option<MultiGuard>, LockError> {
        let requests = self.checked()?;
        let clock = &self.client.shared().clock;
        let asked = clock.elapsed();
        let waited = || clock.elapsed().saturating_sub(asked);
        let mut acquired = MultiGuard::new();
        for request in requests {
            // The one before it may have come with the last of the time.
            let left = self.timeout.saturating_sub(waited()).max(Duration::from_nanos(1));
            let guard = acquired.unless_lost(get(request.timeout(left))).await;
            match guard.map_err(|error| after(waited(), error))? {
                Some(guard) => acquired.push(guard),
                None => return Ok(None),
            }
        }
        // Last: any time may have passed since one of them was acquired.
        acquired.check_held()?;
        Ok(Some(acquired))
    }

    fn each(mut self, set: impl Fn(LockRequest) -> LockRequest) -> Self {
        self.requests = self.requests.into_iter().map(set).collect();
        self
    }

    /// The requests in the order of their names, if all of them can be made.
    fn checked(&self) -> Result<Vec<LockRequest>, InvalidOption> {
        let mut requests = self.requests.clone();
        requests.sort_unstable_by(|one, other| one.name().cmp(other.name()));
        for request in &requests {
            request.clone().timeout(self.timeout).check()?;
        }
        let mut pairs = requests.windows(2);
        if let Some(pair) = pairs.find(|pair| pair[0].name() == pair[1].name()) {
            return Err(InvalidOption::NameTwice { name: pair[0].name().to_owned() });
        }
        if requests.is_empty() { Err(InvalidOption::NoNames) } else { Ok(requests) }
    }
}

/// The error of one request, for a caller that has waited for all of them.
fn after(waited_for_all: Duration, mut error: LockError) -> LockError {
    if let LockError::TimedOut { waited, .. } = &mut error {
        *waited = waited_for_all;
    }
    error
}
