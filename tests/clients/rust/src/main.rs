//! The crate `rslock` as a client of `bakery-lockd`.
//!
//! With `LOCKD_TURNS`, it takes the locks `LOCKD_NAMES` in turn with other programs for that many
//! seconds, and writes to `LOCKD_LOG` from when to when it held which. The checks of this client
//! are among the tests of the tools.

use std::env;
use std::fs::File;
use std::io::Write;
use std::time::Duration;

use rand::Rng;
use rslock::LockManager;
use rustix::time::{ClockId, clock_gettime};
use tokio::time::sleep;

/// For how long a lock is asked for.
const TTL: Duration = Duration::from_secs(2);

#[tokio::main(flavor = "current_thread")]
async fn main() {
    match env::var("LOCKD_TURNS") {
        Ok(seconds) => {
            let seconds = seconds.parse().expect("LOCKD_TURNS is a number of seconds");
            take_turns(Duration::from_secs(seconds)).await;
        }
        Err(_) => println!("skip rslock all: tools/tests/tools/lockd/redis.rs has its checks"),
    }
}

async fn take_turns(limit: Duration) {
    let names = variable("LOCKD_NAMES");
    let names: Vec<_> = names.split_whitespace().collect();
    let mut log = File::create(variable("LOCKD_LOG")).expect("the log can be created");
    let mut manager =
        LockManager::new(vec![format!("redis://127.0.0.1:{}/", variable("LOCKD_PORT"))]);
    // A call tries once, so that the time before it is the time before the try.
    manager.set_retry(1, Duration::ZERO);
    let mut random = rand::rng();
    let end = now() + limit;
    while now() < end {
        let name = names[random.random_range(..names.len())];
        let until = now() + TTL;
        let taken = manager.lock(name, TTL).await;
        let begun = now();
        let Ok(lock) = taken else {
            sleep(Duration::from_micros(random.random_range(1_000..20_000))).await;
            continue;
        };
        // Some use all of their time, until whose end no other owner may have the lock.
        if random.random_ratio(1, 300) {
            sleep(until.saturating_sub(begun)).await;
        }
        let ended = now().min(until);
        if begun < ended {
            let (begun, ended) = (begun.as_nanos(), ended.as_nanos());
            // In one write: the program may be killed between two.
            let turn = format!("{begun} {ended} rslock {name}\n");
            log.write_all(turn.as_bytes()).expect("the log can be written");
        }
        manager.unlock(&lock).await;
        sleep(Duration::from_micros(random.random_range(..5_000))).await;
    }
}

/// The clock that programs in other languages read too.
fn now() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    now.try_into().expect("the machine did not start in the future")
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("{name} is not set"))
}
