//! Looks at idle places.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;

use super::shared;
use crate::core::bakery::{Change, Claim, Mode, Write};
use crate::store::{Counted, LockRows};
use crate::testing::FaultyStore;

// Goal: thousands of idle places cost few reads, each look shows the rows of its own place, and
// reads are made again after a time in which none was needed.
// Method: look at many places of which two are wanted, twice, and count the reads.
#[tokio::test(start_paused = true)]
async fn looks_at_many_idle_places_share_reads() {
    const PLACES: usize = 2_000;
    const WANTED: [usize; 2] = [7, 1_999];
    let memory = FaultyStore::new();
    let mut shared = Arc::into_inner(shared(&memory)).expect("no one else has it");
    let counted = Arc::new(Counted::new(Arc::new(memory)));
    shared.store.rows = Arc::<Counted>::clone(&counted);
    let shared = Arc::new(shared);
    for number in WANTED {
        let claim = Claim {
            contender: shared.id,
            round: 1,
            mode: Mode::Exclusive,
            ticket: None,
            owner: "snap".into(),
            held_since: None,
        };
        let write = Write { stamp: 1, change: Change::Put { claim, ttl_seconds: 60 } };
        counted.write(&number.to_string(), &write).await.expect("memory does not fail");
    }
    for round in 1..=2 {
        let begins = Instant::now();
        let mut looks = JoinSet::new();
        for number in 0..PLACES {
            let shared = Arc::clone(&shared);
            looks.spawn(async move {
                let place = Arc::from(number.to_string());
                (number, shared.look_at_idle(&place).await.len())
            });
        }
        while let Some(look) = looks.join_next().await {
            let (number, rows) = look.expect("no look panics");
            assert_eq!(rows, usize::from(WANTED.contains(&number)), "place {number}");
        }
        // 32 places are read together, 20 times at once and then every 20 ms.
        assert_eq!(counted.calls().one_replica_reads, round * 63);
        assert_eq!(begins.elapsed(), Duration::from_millis(860));
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}
