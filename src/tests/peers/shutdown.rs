//! A keeper that shuts down with a long line.

use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::network::TestNetwork;
use super::{OBJECT, caller, client, ms, s, store};
use crate::testing::Weather;

const WAITING: usize = 31;

/// Many answers come later than a client waits for the first one of a keeper.
const BUSY: Weather = Weather { latency: 15, ..Weather::CALM };

// Goal: a long line of a keeper that shuts down is served elsewhere soon: most of it has turns of
// the next keepers, and few wait until it is their turn in the table.
// Method: shut the keeper down with a guest inside and 31 in line; the guest unlocks.
#[tokio::test(start_paused = true)]
async fn long_line_is_served_elsewhere() {
    for (weather, limit) in [(Weather::CALM, ms(400)), (BUSY, ms(1_200))] {
        let mut times = Vec::new();
        for seed in 0..20 {
            times.push(time_of_a_line(seed, weather).await);
        }
        times.sort_unstable();
        let (median, longest) = (times[times.len() / 2], times[times.len() - 1]);
        println!("{WAITING} in a line: {median:?}, {longest:?} at most; {weather:?}");
        assert!(longest < limit, "{longest:?}");
    }
}

/// How long it takes from the end of the present turn until each in the line was served.
async fn time_of_a_line(seed: u64, weather: Weather) -> Duration {
    let (store, network) = (store(), TestNetwork::new(seed, Weather::CALM));
    let keeper = client(&store, &network);
    let first = keeper.lock(OBJECT).await.expect("the lock is free");
    let mut line = Vec::new();
    for _ in 0..=WAITING {
        let guest = client(&store, &network);
        line.push((caller(&guest), guest));
        sleep(ms(100)).await;
    }
    assert_eq!(store.live_rows(OBJECT), 1, "all wait in the line");
    first.unlock().await.expect("the lock was held");
    let (inside, guest) = line.remove(0);
    let turn = inside.await.expect("it does not panic");
    let closing = tokio::spawn(async move { keeper.shutdown().await });
    sleep(ms(300)).await;
    network.set_weather(weather);
    store.delay_calls(ms(5 + weather.latency));
    let began = Instant::now();
    turn.unlock().await.expect("the lock was held");
    let mut served = JoinSet::new();
    for (asking, _client) in line {
        served.spawn(async move {
            let guard = asking.await.expect("it does not panic");
            guard.unlock().await.expect("the lock was held");
        });
    }
    served.join_all().await;
    let all = began.elapsed();
    closing.await.expect("it does not panic").expect("nothing is left");
    drop(guest);
    sleep(s(2)).await;
    assert_eq!(store.live_rows(OBJECT), 0);
    all
}
