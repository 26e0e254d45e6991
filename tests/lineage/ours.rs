//! bakery-lock as it is used, on the store in memory.

use std::time::Duration;

use bakery_lock::testing::{Fault, FaultyStore};
use bakery_lock::{GuardState, LockClient, LockError, LockGuard};

use super::{CALL, OBJECT, Party, Terms, World};

/// A database, and processes that lock with bakery-lock.
pub(crate) struct Ours {
    store: FaultyStore,
    hosts: u32,
}

impl World for Ours {
    type Party = Caller;

    fn new() -> Self {
        let store = FaultyStore::new();
        store.delay_calls(CALL);
        Ours { store, hosts: 0 }
    }

    async fn process(&mut self) -> Caller {
        self.hosts += 1;
        self.process_of(format!("host-{}", self.hosts)).await
    }

    async fn namesake(&mut self, other: &Caller) -> Caller {
        self.process_of(other.host.clone()).await
    }

    fn delay_calls(&self, delay: Duration) {
        self.store.delay_calls(delay);
    }

    fn cut_off(&self) {
        self.store.fail_next(usize::MAX, Fault::UnknownNotApplied);
    }

    fn set_clocks_back(&self, by: Duration) {
        self.store.set_wall_clock_back(by);
    }

    fn rows(&self) -> usize {
        self.store.live_rows(OBJECT)
    }
}

impl Ours {
    /// A client: as all are built by this process, they have its id in common.
    async fn process_of(&self, host: String) -> Caller {
        let builder = self.store.client_builder().host(&host).register_host(true);
        let client = builder.build().await.expect("a client in memory is built");
        Caller { host, client, guard: None }
    }
}

/// A caller of a client.
pub(crate) struct Caller {
    host: String,
    client: LockClient,
    guard: Option<LockGuard>,
}

impl Party for Caller {
    fn thread(&self) -> Self {
        Caller { host: self.host.clone(), client: self.client.clone(), guard: None }
    }

    async fn lock(&mut self, terms: Terms) -> bool {
        let Terms { wait, ttl, renew } = terms;
        let request = self.client.request(OBJECT).timeout(wait).ttl(ttl).auto_renew(renew);
        match request.acquire().await {
            Ok(guard) => self.guard = Some(guard),
            Err(
                LockError::TimedOut { .. } | LockError::RowMissing { .. } | LockError::Lost { .. },
            ) => {}
            Err(error) => panic!("another error came: {error:?}"),
        }
        self.is_inside()
    }

    async fn unlock(&mut self) {
        let guard = self.guard.take().expect("a guard is there until it is given back");
        // Whether it was lost before is not what is looked at here.
        let _ = guard.unlock().await;
    }

    fn is_inside(&self) -> bool {
        let state = self.guard.as_ref().map(|guard| guard.state());
        state.is_some_and(|state| !matches!(state, GuardState::Lost(_) | GuardState::Released))
    }
}
