//! Runs clients of a simulated cluster in its time.
//!
//! Tokio's timers count whole milliseconds from the start of a runtime, in virtual time too, so
//! they can't tell when a message arrives that takes a tenth of that. Hence tokio never moves the
//! clock here: whenever all tasks wait, it is moved to the next event of the cluster, or to the
//! next whole millisecond, when a timer may end.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::sync::Notify;
use tokio::time::{Instant, advance};

use super::simulated::SimulatedCluster;

const MILLISECOND: Duration = Duration::from_millis(1);

/// Runs a future, and what it spawns, until it is done. Clients connect to the cluster in there, at
/// the time [`Duration::ZERO`] if nothing has waited before.
///
/// # Panics
///
/// When the work panics.
pub fn run<T: Send + 'static>(
    cluster: &SimulatedCluster,
    work: impl Future<Output = T> + Send + 'static,
) -> T {
    let all_wait = Arc::new(Notify::new());
    let noticed = Arc::clone(&all_wait);
    let runtime = Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .on_thread_park(move || noticed.notify_one())
        .build()
        .expect("a runtime without threads and I/O needs nothing");
    let conductor = runtime.spawn(conduct(cluster.clone(), all_wait));
    runtime.block_on(async move {
        let done = tokio::spawn(work).await;
        conductor.abort();
        done.expect("the work does not panic")
    })
}

/// Moves the clock whenever all tasks wait, and lets happen what happens then.
async fn conduct(cluster: SimulatedCluster, all_wait: Arc<Notify>) {
    let begun = Instant::now();
    let now = || begun.elapsed();
    loop {
        all_wait.notified().await;
        if cluster.next_event().is_some_and(|at| at <= now()) {
            cluster.process_next();
            continue;
        }
        let millis = u64::try_from(now().as_millis()).expect("no run takes so long");
        let timers = MILLISECOND * u32::try_from(millis + 1).expect("no run takes so long");
        let next = cluster.next_event().map_or(timers, |event| event.min(timers));
        advance(next - now()).await;
    }
}

#[cfg(test)]
mod tests {
    use crate::LockClient;
    use crate::testing::{Counted, Geography, Routing, Spread, Work};
    use tokio::time::sleep;

    use super::*;

    fn rack(seed: u64, jitter: f64) -> SimulatedCluster {
        let work = Spread::fixed(Duration::from_micros(40));
        let geography = Geography {
            datacenters: vec![0],
            replicas: vec![0; 3],
            delays: vec![vec![Duration::from_micros(70)]],
            jitter,
            work: Work { write: work, row_read: work, object_read: work, message: work },
            counted: Counted::All,
            routing: Routing::Anywhere,
        };
        SimulatedCluster::with_geography(seed, geography, &["host".to_owned()])
    }

    async fn client(cluster: &SimulatedCluster, seed: u64) -> LockClient {
        let client = cluster.connect(Duration::ZERO, 0, seed).client_builder().host("host");
        client.local_handoff(false).build().await.expect("the host is registered")
    }

    // Goal: messages of a tenth of a millisecond take that long, and timers continue as usual.
    // Method: lock and unlock without contention: two operations and one, of 4 x 70 + 40 µs each.
    #[test]
    fn times_are_exact_to_the_microsecond() {
        let cluster = rack(1, 0.0);
        let times = run(&cluster.clone(), async move {
            let client = client(&cluster, 1).await;
            sleep(Duration::from_micros(2_500)).await;
            let begun = Instant::now();
            let guard = client.lock("a").await.expect("nothing fails");
            let locked = begun.elapsed();
            guard.unlock().await.expect("nothing fails");
            let unlocked = begun.elapsed();
            sleep(Duration::from_secs(5)).await;
            [locked, unlocked, begun.elapsed()]
        });
        let us = Duration::from_micros;
        // The sleep began within a millisecond and ends with one.
        assert_eq!(times, [us(640), us(960), us(5_001_000)]);
    }

    // Goal: the seed alone decides all that happens.
    // Method: five contenders take a lock in turn, on delays that vary; runs with one seed are told
    // apart from runs with another one by the times of all grants.
    #[test]
    fn seed_gives_the_same_times() {
        let grants = |seed| {
            let cluster = rack(seed, 0.3);
            run(&cluster.clone(), async move {
                let mut contenders = Vec::new();
                for number in 0..5 {
                    let client = client(&cluster, seed + number).await;
                    contenders.push(tokio::spawn(async move {
                        let mut times = Vec::new();
                        for _ in 0..20 {
                            let guard = client.lock("a").await.expect("all are served");
                            times.push(Instant::now());
                            guard.unlock().await.expect("nothing fails");
                        }
                        times
                    }));
                }
                let mut times = Vec::new();
                for contender in contenders {
                    times.extend(contender.await.expect("no contender panics"));
                }
                times.sort_unstable();
                times.windows(2).map(|pair| pair[1] - pair[0]).collect::<Vec<_>>()
            })
        };
        let first = grants(1);
        assert_eq!(first.len(), 99);
        assert_eq!(first, grants(1));
        assert_ne!(first, grants(2));
    }
}
