//! A guest that has its turn after a lock with `min_hold`.

use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};

use super::network::TestNetwork;
use super::{OBJECT, caller, client, ms, s, store};
use crate::guard::LockGuard;
use crate::store::Embedded;
use crate::testing::{Fault, FaultyStore, Weather};

const MIN_HOLD: Duration = s(10);

/// When the lock is released, what happens to the database then, and whether the guest wants a long
/// lease at once.
struct History {
    latency: Duration,
    released: Duration,
    down_until: Option<Duration>,
    ensures: bool,
}

// Goal: a guest never takes a lease that outlasts the rows, or others would be let in together with
// it if its keeper died; and it has the usual lease, not what is left of `min_hold`.
// Method: a guest waits behind a lock with `min_hold` that is released early: while the database
// does not answer, or so late that the rows for the rest of the time are still being written when
// the guest has its turn.
#[tokio::test(start_paused = true)]
async fn lease_of_guest_ends_before_rows_do() {
    let early = History { latency: ms(5), released: s(5), down_until: None, ensures: false };
    for (name, history) in [
        ("released early", History { ..early }),
        ("database down", History { down_until: Some(MIN_HOLD + ms(300)), ..early }),
        (
            "rows being written",
            History { latency: ms(40), released: MIN_HOLD - ms(10), ensures: true, ..early },
        ),
        ("long lease at once", History { released: MIN_HOLD - ms(2), ensures: true, ..early }),
    ] {
        println!("{name}");
        play(history).await;
    }
}

async fn play(history: History) {
    let (store, network) = (store(), TestNetwork::new(1, Weather::CALM));
    store.delay_calls(history.latency);
    let (keeper, guest) = (client(&store, &network), client(&store, &network));
    let request = keeper.request(OBJECT).min_hold(MIN_HOLD).ttl(s(60));
    let held = request.acquire().await.expect("the lock is free");
    let granted = Instant::now();
    let waiting = caller(&guest);
    sleep_until(granted + history.released).await;
    if let Some(until) = history.down_until {
        store.fail_next(usize::MAX, Fault::UnknownNotApplied);
        tokio::spawn({
            let store = store.clone();
            async move {
                sleep_until(granted + until).await;
                store.fail_next(0, Fault::UnknownNotApplied);
            }
        });
    }
    drop(held);
    let turn = waiting.await.expect("it does not panic");
    assert!(granted.elapsed() >= MIN_HOLD, "{:?}", granted.elapsed());
    expect_lease_within_rows(&store, &turn).await;
    if history.ensures {
        turn.ensure(s(40)).await.expect("the usual lease is long enough");
    }
    for _ in 0..60 {
        expect_lease_within_rows(&store, &turn).await;
        sleep(s(1)).await;
    }
    assert!(turn.remaining() > s(6), "{turn:?}");
    turn.unlock().await.expect("the lock was held");
}

/// The lease is not longer than the rows would last if nothing wrote them again.
async fn expect_lease_within_rows(store: &FaultyStore, turn: &LockGuard) {
    let Embedded { store, .. } = store.embedded();
    let remaining = turn.remaining();
    let rows = store.rows.read_with_times(OBJECT).await.expect("the store answers");
    let ttl = rows.iter().filter_map(|row| row.ttl_seconds).min().expect("the place has rows");
    let ttl = Duration::from_secs(u64::try_from(ttl).expect("it is not negative"));
    assert!(remaining < ttl + s(1), "a lease of {remaining:?}, rows live for {ttl:?}: {rows:?}");
}
