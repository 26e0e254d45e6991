//! The links between nodes: which are cut, and their delays.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// One direction of messages between two nodes, identified by node numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Link {
    /// The sending node.
    pub from: u8,
    /// The receiving node.
    pub to: u8,
}

/// The state of a cluster's links. Requests change it; relayed connections read it.
#[derive(Debug, Default)]
pub(crate) struct Links {
    cut: Mutex<BTreeSet<Link>>,
    joined: Condvar,
    delays: Mutex<BTreeMap<Link, Duration>>,
}

impl Link {
    /// Both links between two nodes.
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

    /// Delays messages sent on a link from now on.
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

    /// Returns at once if the link is not cut, otherwise when it is joined.
    pub(crate) fn wait_while_cut(&self, link: Link) {
        let guard = self.joined.wait_while(self.lock(), |cut| cut.contains(&link));
        drop(guard.expect(NO_PANIC));
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<Link>> {
        self.cut.lock().expect(NO_PANIC)
    }
}

const NO_PANIC: &str = "no thread panics while it holds this lock";

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{self, RecvTimeoutError};
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn cut_link_blocks_until_joined() {
        let links = Links::default();
        let (link, reverse) = (Link { from: 1, to: 2 }, Link { from: 2, to: 1 });
        links.cut(link);
        assert_eq!(links.all_cut(), [link]);
        links.wait_while_cut(reverse);

        let (sender, receiver) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(|| {
                links.wait_while_cut(link);
                sender.send(()).unwrap();
            });
            let result = receiver.recv_timeout(Duration::from_millis(100));
            assert_eq!(result, Err(RecvTimeoutError::Timeout));
            links.join();
            // A longer wait means a hang.
            receiver.recv_timeout(Duration::from_secs(120)).unwrap();
        });
        assert_eq!(links.all_cut(), []);
    }
}
