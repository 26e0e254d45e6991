//! The order of a connection's commands about one lock: each begins when those before it are done,
//! as in Redis. Only those that wait for a lock are passed: what stands behind them may be what
//! they wait for.

use std::collections::HashMap;
use std::future::pending;
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use tokio::sync::Notify;

use super::locked::locked;
use super::resp::Request;

/// What the commands of a connection are about that are under way; nothing until there is one, so
/// that an idle connection takes no memory for it.
#[derive(Debug, Default)]
pub(super) struct Order(Option<Arc<Shared>>);

#[derive(Debug, Default)]
struct Shared {
    busy: Mutex<HashMap<Bytes, usize>>,
    changed: Notify,
}

/// Names that a command is about, until it is dropped.
#[derive(Debug)]
pub(super) struct Busy {
    shared: Arc<Shared>,
    names: Vec<Bytes>,
}

impl Order {
    /// Whether a command must wait for one that is under way.
    pub(super) fn stops(&self, request: &Request) -> bool {
        let Some(shared) = &self.0 else { return false };
        let busy = shared.busy();
        !busy.is_empty() && names(request).iter().any(|name| busy.contains_key(name))
    }

    /// Notes what a command is about that is under way; `None` if others need not wait for it.
    pub(super) fn begin(&mut self, request: &Request) -> Option<Busy> {
        let names = names(request).to_vec();
        if names.is_empty() || waits(request) {
            return None;
        }
        let shared = Arc::clone(self.0.get_or_insert_default());
        let mut busy = shared.busy();
        for name in &names {
            *busy.entry(name.clone()).or_default() += 1;
        }
        drop(busy);
        Some(Busy { shared, names })
    }

    /// Waits until a command is done.
    pub(super) async fn changed(&self) {
        match &self.0 {
            Some(shared) => shared.changed.notified().await,
            None => pending().await,
        }
    }
}

impl Shared {
    fn busy(&self) -> MutexGuard<'_, HashMap<Bytes, usize>> {
        locked(&self.busy)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let mut busy = self.shared.busy();
        for name in &self.names {
            if let Some(count) = busy.get_mut(name) {
                *count -= 1;
                if *count == 0 {
                    busy.remove(name);
                }
            }
        }
        drop(busy);
        self.shared.changed.notify_one();
    }
}

/// The names that a command is about.
fn names(request: &Request) -> &[Bytes] {
    let (command, arguments) = request.split_first().expect("a request is not empty");
    let is =
        |names: &[&str]| names.iter().any(|name| command.eq_ignore_ascii_case(name.as_bytes()));
    if is(&["del", "unlink", "exists"]) {
        return arguments;
    }
    if is(&["eval", "evalsha"]) {
        let count = arguments.get(1).and_then(|count| str::from_utf8(count).ok()?.parse().ok());
        let end = count.and_then(|count: usize| count.checked_add(2));
        return end.and_then(|end| arguments.get(2..end)).unwrap_or_default();
    }
    let is_about_one = is(&[
        "lock", "unlock", "renew", "token", "held", "attach", "who", "set", "setnx", "get", "pttl",
        "ttl", "hexists", "hget", "delex",
    ]);
    if is_about_one { arguments.get(..1).unwrap_or_default() } else { &[] }
}

/// Whether a command waits for a lock.
fn waits(request: &Request) -> bool {
    let is_lock = request[0].eq_ignore_ascii_case(b"lock");
    is_lock && !request.iter().any(|word| word.eq_ignore_ascii_case(b"nowait"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(text: &str) -> Request {
        text.split(' ').map(|word| Bytes::copy_from_slice(word.as_bytes())).collect()
    }

    #[test]
    fn commands_about_one_lock_follow_each_other() {
        let mut order = Order::default();
        let under_way = order.begin(&request("SET a one NX PX 5"));
        for (next, waits) in [
            ("GET a", true),
            ("get b", false),
            ("DEL b a", true),
            ("EVALSHA abc 1 a one", true),
            ("EVALSHA abc 1 b a", false),
            ("EVAL abc 9 a", false),
            ("LOCK a", true),
            ("PING a", false),
        ] {
            assert_eq!(order.stops(&request(next)), waits, "{next}");
        }
        drop(under_way);
        assert!(!order.stops(&request("GET a")));
    }

    #[test]
    fn commands_pass_those_that_wait() {
        let mut order = Order::default();
        assert!(order.begin(&request("LOCK a WAIT 5000")).is_none());
        assert!(!order.stops(&request("UNLOCK a one")));
        let under_way = order.begin(&request("LOCK a NOWAIT"));
        assert!(under_way.is_some() && order.stops(&request("UNLOCK a one")));
    }
}
