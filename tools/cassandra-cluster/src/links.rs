//! Which links between nodes are cut, and how long messages take on them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The path of messages from one node to another, by their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Link {
    /// The node that sends.
    pub from: u8,
    /// The node that receives.
    pub to: u8,
}

/// The links of a cluster, shared by the requests that cut and delay them and the connections that
/// use them.
#[derive(Debug, Default)]
pub(crate) struct Links {
    cut: Mutex<BTreeSet<Link>>,
    joined: Condvar,
    delays: Mutex<BTreeMap<Link, Duration>>,
}

impl Link {
    /// The links between two nodes.
    pub(crate) fn both(one: u8, other: u8) -> [Self; 2] {
        [Self { from: one, to: other }, Self { from: other, to: one }]
    }
}

impl Links {
    pub(crate) fn cut(&self, link: Link) {
        self.lock().insert(link);
    }

    /// Joins all links.
    pub(crate) fn join(&self) {
        self.lock().clear();
        self.joined.notify_all();
    }

    pub(crate) fn is_cut(&self, link: Link) -> bool {
        self.lock().contains(&link)
    }

    pub(crate) fn all_cut(&self) -> Vec<Link> {
        self.lock().iter().copied().collect()
    }

    /// Delays what is sent on a link from now on.
    pub(crate) fn set_delay(&self, link: Link, delay: Duration) {
        self.delays.lock().expect(NO_PANIC).insert(link, delay);
    }

    /// Ends all delays.
    pub(crate) fn end_delays(&self) {
        self.delays.lock().expect(NO_PANIC).clear();
    }

    pub(crate) fn delay(&self, link: Link) -> Duration {
        self.delays.lock().expect(NO_PANIC).get(&link).copied().unwrap_or_default()
    }

    /// Returns at once if the link works, otherwise when it works again.
    pub(crate) fn wait_while_cut(&self, link: Link) {
        let waited = self.joined.wait_while(self.lock(), |cut| cut.contains(&link));
        drop(waited.expect(NO_PANIC));
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<Link>> {
        self.cut.lock().expect(NO_PANIC)
    }
}

const NO_PANIC: &str = "no thread panics while it looks at the links";

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{self, RecvTimeoutError};
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_cut_link_holds_its_users_until_it_is_joined() {
        let links = Links::default();
        let (there, back) = (Link { from: 1, to: 2 }, Link { from: 2, to: 1 });
        links.cut(there);
        assert_eq!(links.all_cut(), [there]);
        links.wait_while_cut(back);

        let (passed, passes) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(|| {
                links.wait_while_cut(there);
                passed.send(()).unwrap();
            });
            let held = passes.recv_timeout(Duration::from_millis(100));
            assert_eq!(held, Err(RecvTimeoutError::Timeout));
            links.join();
            // After this time something hangs.
            passes.recv_timeout(Duration::from_secs(120)).unwrap();
        });
        assert_eq!(links.all_cut(), []);
    }
}
