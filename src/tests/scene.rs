//! A store, and what is written there past all clients.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::admin::types::ContenderInfo;
use crate::client::LockClient;
use crate::clock::Clock;
use crate::core::bakery::{Change, ContenderId, Read, Write, sweep};
use crate::store::{Embedded, Store};
use crate::testing::FaultyStore;

pub(super) const OBJECT: &str = "users::snap";

/// The TTL of all rows.
pub(super) const TTL: Duration = s(60);

/// Longer than a lock takes that nothing delays.
pub(super) const SOON: Duration = ms(500);

/// A contender of no client.
pub(super) const FOREIGN: ContenderId = ContenderId { host: 9, client: 99, slot: 0 };

/// More dead rows than a read meets without a warning.
pub(super) const DEAD: u128 = 1_100;

pub(super) const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(super) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A store, and what is written there past all clients.
pub(super) struct Scene {
    pub(super) faulty: FaultyStore,
    pub(super) store: Store,
    pub(super) clock: Arc<dyn Clock>,
}

impl Scene {
    pub(super) fn new() -> Self {
        let faulty = FaultyStore::seeded(7);
        faulty.delay_calls(ms(2));
        let Embedded { store, clock, .. } = faulty.embedded();
        Scene { faulty, store, clock }
    }

    pub(super) async fn client(&self, host: &str) -> LockClient {
        let builder = self.faulty.client_builder().host(host).ttl(TTL);
        builder.build().await.expect("a client in memory is built")
    }

    /// The time, off by some µs.
    pub(super) fn now(&self, off: i64) -> i64 {
        self.clock.unix_micros().saturating_add(off)
    }

    pub(super) async fn write(&self, stamp: i64, change: Change) {
        let write = Write { stamp, change };
        self.store.rows.write(OBJECT, &write).await.expect("the store answers");
    }

    /// The rows of a number of contenders that have left.
    pub(super) async fn leave_dead_rows(&self, contenders: u128) {
        for client in 0..contenders {
            let contender = ContenderId { client, ..FOREIGN };
            let (revoked, last_release) = (false, None);
            let delete = Change::Delete { contender, revoked, last_release };
            self.write(self.now(0), delete).await;
        }
    }

    /// Sweeps what was written up to the horizon, as a client does.
    pub(super) async fn sweep(&self, horizon: i64) {
        self.write(horizon, Change::Mark).await;
        let seen = self.store.rows.read(OBJECT, Read::Object).await.expect("the store answers");
        let spared = sweep::spared(&seen.rows, seen.statics.mark, horizon);
        let spared = spared.expect("there are few contenders");
        self.write(horizon, Change::Sweep { spared }).await;
    }

    pub(super) async fn mark(&self) -> Option<i64> {
        let seen = self.store.rows.read(OBJECT, Read::Object).await.expect("the store answers");
        seen.statics.mark
    }

    /// The only contender that the table shows.
    pub(super) async fn only_contender(&self, client: &LockClient) -> ContenderInfo {
        let mut seen = client.contenders(OBJECT).await.expect("the store answers");
        assert_eq!(seen.len(), 1, "{seen:?}");
        seen.pop().expect("there is one")
    }
}

/// Locks and unlocks, and returns how long that took.
pub(super) async fn lock_once(client: &LockClient) -> Duration {
    let began = Instant::now();
    let guard = client.request(OBJECT).timeout(TTL * 2).acquire().await;
    guard.expect("the lock gets free").unlock().await.expect("it was held");
    began.elapsed()
}
