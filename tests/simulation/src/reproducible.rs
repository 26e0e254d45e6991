//! A seed is all there is to a run.

use super::plan::{Disks, Plan};
use super::world::run;

// Goal: the same seed gives the same history, to the last write and the last millisecond.
// Method: some seeds are run twice, the second time on another thread.
#[test]
fn seed_gives_the_same_history_each_time() {
    for seed in 0..20 {
        let first = run(&Plan::new(seed, Disks::Synced));
        let again = std::thread::spawn(move || run(&Plan::new(seed, Disks::Synced)));
        let again = again.join().expect("a run does not panic");
        assert_eq!(first.log.to_string(), again.log.to_string(), "seed {seed}");
        assert_eq!(first, again, "seed {seed}");
    }
}

// Goal: different seeds give different histories.
// Method: two of them.
#[test]
fn another_seed_gives_another_history() {
    let [one, other] = [1, 2].map(|seed| run(&Plan::new(seed, Disks::Synced)));
    assert_ne!(one.log, other.log);
}
