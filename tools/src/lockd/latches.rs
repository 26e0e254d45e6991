//! Results of unlocks that a client may ask for again because its connection broke.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;

use super::boot::Boot;
use super::locked::locked;

/// The maximum number of results that are remembered. Beyond, those that are over make room, and
/// else the next ones are not remembered: a client that asks again learns that it holds nothing.
const REMEMBERED_MAX: usize = 10_000;

/// The longest time for which one is remembered.
const TIME_MAX: Duration = Duration::from_secs(60);

/// Results by the latch that a client names, of the users with a prefix.
#[derive(Debug, Default)]
pub(super) struct Latches(Mutex<HashMap<(String, Bytes), (i64, Boot)>>);

impl Latches {
    /// The result of an unlock that was asked for before.
    pub(super) fn result(&self, prefix: &str, latch: &Bytes) -> Option<i64> {
        let results = self.results();
        let (result, until) = results.get(&(prefix.to_owned(), latch.clone()))?;
        (!until.left().is_zero()).then_some(*result)
    }

    /// Notes a result, for a time.
    pub(super) fn note(&self, prefix: &str, latch: Bytes, result: i64, time: Duration) {
        let mut results = self.results();
        if results.len() >= REMEMBERED_MAX {
            results.retain(|_, (_, until)| !until.left().is_zero());
        }
        if results.len() < REMEMBERED_MAX {
            let until = Boot::now().after(time.min(TIME_MAX));
            results.insert((prefix.to_owned(), latch), (result, until));
        }
    }

    /// A client needs one no more.
    pub(super) fn forget(&self, prefix: &str, latch: &Bytes) {
        self.results().remove(&(prefix.to_owned(), latch.clone()));
    }

    fn results(&self) -> MutexGuard<'_, HashMap<(String, Bytes), (i64, Boot)>> {
        locked(&self.0)
    }
}
