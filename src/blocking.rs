//! The lock for synchronous programs, behind the feature `blocking`.
//!
//! A [`Runtime`] has a thread of its own, which does all I/O and renews the locks that are held, so
//! the program may block for as long as it likes.
//!
//! ```
//! use bakery_lock::{LockClient, MemoryStore, blocking};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let runtime = blocking::Runtime::new()?;
//! // On a cluster, the session is made in the runtime as well:
//! // let session = runtime.block_on(SessionBuilder::new().known_node("db1").build())?;
//! // let client = runtime.build(LockClient::builder(session, "bakery_lock"))?;
//! let client = runtime.build(LockClient::builder_in_memory(&MemoryStore::new()))?;
//!
//! let guard = client.lock("users::snap")?;
//! // Blocking work. Before a step that must not be taken twice:
//! assert!(guard.state().is_held());
//! guard.unlock()?;
//! # Ok(())
//! # }
//! ```
//!
//! Inside an async runtime, calls that may wait for a lock would stop all its other tasks. They are
//! refused there: [`LockError::InsideRuntime`]. Use [`bakery_lock::LockClient`](crate::LockClient)
//! in async code; [`LockClient::asynchronous`] is the same client.

mod guard;

use std::fmt;
use std::future::Future;
use std::io;
use std::sync::Arc;

use futures_executor::block_on;
use tokio::runtime::{Builder, Handle};

pub use self::guard::LockGuard;
use crate::builder::{BuildError, LockClientBuilder};
use crate::error::{LockError, ShutdownError};

/// The thread on which clients do their I/O. Cheap to clone; clones are the same thread. It ends
/// with the last clone, client and guard.
#[derive(Clone, Debug)]
pub struct Runtime {
    inner: Arc<RuntimeThread>,
}

#[derive(Debug)]
struct RuntimeThread {
    /// `None` once it is dropped.
    runtime: Option<tokio::runtime::Runtime>,
}

impl Runtime {
    /// Starts the thread.
    ///
    /// # Errors
    ///
    /// The thread can't be started; or, of the kind [`Unsupported`](io::ErrorKind::Unsupported),
    /// this is called inside an async runtime.
    pub fn new() -> io::Result<Self> {
        if is_inside_runtime() {
            let text = LockError::InsideRuntime.to_string();
            return Err(io::Error::new(io::ErrorKind::Unsupported, text));
        }
        let mut builder = Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).thread_name("bakery-lock").enable_all().build()?;
        Ok(Runtime { inner: Arc::new(RuntimeThread { runtime: Some(runtime) }) })
    }

    /// Waits for a future, such as that of the driver's `SessionBuilder::build`. Tasks and
    /// connections that it begins belong to this runtime.
    ///
    /// # Panics
    ///
    /// Inside an async runtime.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.inner.runtime().block_on(future)
    }

    /// Builds a client that works on this thread.
    ///
    /// # Errors
    ///
    /// As for [`LockClientBuilder::build`]; and [`BuildError::InsideRuntime`].
    pub fn build(&self, builder: LockClientBuilder) -> Result<LockClient, BuildError> {
        if is_inside_runtime() {
            return Err(BuildError::InsideRuntime);
        }
        let client = self.block_on(builder.build())?;
        Ok(LockClient { inner: Arc::new(Inner { client, _runtime: self.clone() }) })
    }
}

impl RuntimeThread {
    fn runtime(&self) -> &tokio::runtime::Runtime {
        self.runtime.as_ref().expect("it is there until it is dropped")
    }
}

impl Drop for RuntimeThread {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // Waiting for it is not allowed inside another runtime.
            runtime.shutdown_background();
        }
    }
}

/// Acquires locks in a synchronous program. Cheap to clone; clones are the same client.
///
/// With the last clone, and the last guard, the client is [shut down](Self::shutdown), for which
/// the drop waits, except inside an async runtime.
#[derive(Clone)]
pub struct LockClient {
    inner: Arc<Inner>,
}

struct Inner {
    client: crate::LockClient,
    /// It ends after the client.
    _runtime: Runtime,
}

impl LockClient {
    /// Acquires the lock of `name`: [`bakery_lock::LockClient::lock`](crate::LockClient::lock).
    ///
    /// # Errors
    ///
    /// See [`LockError`]. In every case nothing is held.
    pub fn lock(&self, name: impl AsRef<str>) -> Result<LockGuard, LockError> {
        self.request(name).acquire()
    }

    /// Acquires the lock of `name` if it is free:
    /// [`bakery_lock::LockClient::try_lock`](crate::LockClient::try_lock).
    ///
    /// # Errors
    ///
    /// See [`LockError`]. A lock that is taken is not an error but `None`.
    pub fn try_lock(&self, name: impl AsRef<str>) -> Result<Option<LockGuard>, LockError> {
        self.request(name).try_acquire()
    }

    /// A request for the lock of `name` with options of its own.
    pub fn request(&self, name: impl AsRef<str>) -> LockRequest {
        LockRequest { client: self.clone(), request: self.inner.client.request(name) }
    }

    /// Acquires the lock of `name`, runs `body` under it, and releases it.
    ///
    /// A body that blocks can't be stopped: it looks at the guard before each step that must not be
    /// taken twice.
    ///
    /// # Errors
    ///
    /// [`LockError::WorkStopped`]: the lock was lost before the body had returned; its output was
    /// dropped. Any other [`LockError`]: the lock was not obtained; nothing was done.
    pub fn with_lock<T>(
        &self,
        name: impl AsRef<str>,
        body: impl FnOnce(&LockGuard) -> T,
    ) -> Result<T, LockError> {
        self.request(name).with_lock(body)
    }

    /// Runs `body` under the lock of `name` if it is free; `None` if it is not.
    ///
    /// # Errors
    ///
    /// As for [`with_lock`](Self::with_lock).
    pub fn try_with_lock<T>(
        &self,
        name: impl AsRef<str>,
        body: impl FnOnce(&LockGuard) -> T,
    ) -> Result<Option<T>, LockError> {
        self.request(name).try_with_lock(body)
    }

    /// Shuts the client down: [`bakery_lock::LockClient::shutdown`](crate::LockClient::shutdown).
    ///
    /// # Errors
    ///
    /// [`ShutdownError`] if that took longer than the acquire timeout.
    pub fn shutdown(&self) -> Result<(), ShutdownError> {
        block_on(self.inner.client.shutdown())
    }

    /// The underlying async client: for async code, and with [`Runtime::block_on`] for anything
    /// this module does not cover.
    #[must_use]
    pub fn asynchronous(&self) -> &crate::LockClient {
        &self.inner.client
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if !is_inside_runtime() {
            // What is not acknowledged in time expires.
            let _ = block_on(self.client.shutdown());
        }
    }
}

impl fmt::Debug for LockClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LockClient").field(&self.inner.client).finish()
    }
}

/// A request for a lock, with options of its own.
///
/// # Example
///
/// ```
/// use std::time::Duration;
///
/// use bakery_lock::{LockClient, MemoryStore, blocking};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let runtime = blocking::Runtime::new()?;
/// # let client = runtime.build(LockClient::builder_in_memory(&MemoryStore::new()))?;
/// let request = client.request("reports::daily");
/// let request = request.options(|it| it.timeout(Duration::from_secs(2)).label("nightly job"));
/// let guard = request.acquire()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a request does nothing until it is acquired"]
pub struct LockRequest {
    client: LockClient,
    request: crate::LockRequest,
}

impl LockRequest {
    /// Sets options, with the methods of
    /// [`bakery_lock::LockRequest`](crate::LockRequest).
    pub fn options(self, set: impl FnOnce(crate::LockRequest) -> crate::LockRequest) -> Self {
        LockRequest { request: set(self.request), ..self }
    }

    /// Acquires the lock: [`LockClient::lock`] with this request's options.
    ///
    /// # Errors
    ///
    /// See [`LockError`]. In every case nothing is held.
    pub fn acquire(self) -> Result<LockGuard, LockError> {
        let guard = wait(self.request.acquire())?;
        Ok(LockGuard::new(guard, self.client))
    }

    /// Acquires the lock if it is free: [`LockClient::try_lock`] with this request's options.
    ///
    /// # Errors
    ///
    /// See [`LockError`]. A lock that is taken is not an error but `None`.
    pub fn try_acquire(self) -> Result<Option<LockGuard>, LockError> {
        let guard = wait(self.request.try_acquire())?;
        Ok(guard.map(|guard| LockGuard::new(guard, self.client)))
    }

    /// Runs `body` under the lock: [`LockClient::with_lock`] with this request's options.
    ///
    /// # Errors
    ///
    /// As for [`LockClient::with_lock`].
    pub fn with_lock<T>(self, body: impl FnOnce(&LockGuard) -> T) -> Result<T, LockError> {
        self.acquire()?.finish(body)
    }

    /// Runs `body` under the lock if it is free: [`LockClient::try_with_lock`] with this request's
    /// options.
    ///
    /// # Errors
    ///
    /// As for [`LockClient::with_lock`].
    pub fn try_with_lock<T>(
        self,
        body: impl FnOnce(&LockGuard) -> T,
    ) -> Result<Option<T>, LockError> {
        self.try_acquire()?.map(|guard| guard.finish(body)).transpose()
    }
}

/// Waits for what may take as long as others hold a lock.
fn wait<T>(lock: impl Future<Output = Result<T, LockError>>) -> Result<T, LockError> {
    if is_inside_runtime() { Err(LockError::InsideRuntime) } else { block_on(lock) }
}

fn is_inside_runtime() -> bool {
    Handle::try_current().is_ok()
}
