//! Counts the calls of a client for rows of locks, for its statistics and for the recorder of
//! metrics, and limits how many are under way.
//!
//! Each contender repeats a call that fails, twice a second in the end. Without a limit, a database
//! that is too slow for tens of thousands of held locks would get more and more calls, answer ever
//! fewer of them in time, and all would be lost. With it, the others wait here in the order in
//! which they came, and the database does as much as it can.

mod metrics;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::{Semaphore, SemaphorePermit};

use self::metrics::{Begun, CallMetrics};
use super::{Cursor, Exchanges, LockRows, Page, Part, RowStamp, StoreFuture, StoredMark, TimedRow};
use crate::core::bakery::{Change, ContenderId, Read, Seen, StoredRow, Write};
use crate::store::{DatabaseError, Outcome};

/// How many calls of a client are under way at most. On a database that answers within 10 ms, that
/// is 100,000 a second.
const UNDER_WAY_MAX: usize = 1024;

/// How many calls were made, including failed and repeated ones. `Statistics` says what each count
/// means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Calls {
    pub(crate) writes: u64,
    pub(crate) deletes: u64,
    pub(crate) object_reads: u64,
    pub(crate) one_replica_reads: u64,
    pub(crate) page_reads: u64,
    pub(crate) contender_reads: u64,
    pub(crate) fence_reads: u64,
    pub(crate) fence_writes: u64,
    pub(crate) unknown_outcomes: u64,
    pub(crate) failures: u64,
}

/// A kind of calls.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Write,
    Delete,
    FenceWrite,
    ObjectRead,
    OneReplicaRead,
    PageRead,
    ContenderRead,
    FenceRead,
}

impl Kind {
    const COUNT: usize = Kind::FenceRead as usize + 1;

    fn of_write(write: &Write) -> Self {
        match write.change {
            Change::Put { .. } | Change::Revoke { .. } | Change::Mark => Kind::Write,
            Change::Delete { .. } | Change::Sweep { .. } => Kind::Delete,
        }
    }

    fn of_read(read: Read) -> Self {
        match read {
            Read::Object => Kind::ObjectRead,
            Read::Contender(_) | Read::Entering(_) | Read::Front { .. } => Kind::ContenderRead,
        }
    }
}

/// Counts calls, and passes them on as soon as few enough are under way.
#[derive(Debug)]
pub(crate) struct Counted {
    rows: Arc<dyn LockRows>,
    counters: Counters,
}

impl Counted {
    /// Counts the calls to `rows` from now on.
    pub(crate) fn new(rows: Arc<dyn LockRows>) -> Self {
        Counted { rows, counters: Counters::default() }
    }

    /// The counts so far. Calls in progress may be in only some of them.
    pub(crate) fn calls(&self) -> Calls {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let of = |kind: Kind| read(&self.counters.calls[kind as usize]);
        Calls {
            writes: of(Kind::Write),
            deletes: of(Kind::Delete),
            object_reads: of(Kind::ObjectRead),
            one_replica_reads: of(Kind::OneReplicaRead),
            page_reads: of(Kind::PageRead),
            contender_reads: of(Kind::ContenderRead),
            fence_reads: of(Kind::FenceRead),
            fence_writes: of(Kind::FenceWrite),
            unknown_outcomes: read(&self.counters.unknown_outcomes),
            failures: read(&self.counters.failures),
        }
    }
}

impl LockRows for Counted {
    fn write<'a>(&'a self, object: &'a str, write: &'a Write) -> StoreFuture<'a, ()> {
        self.counters.write(Kind::of_write(write), self.rows.write(object, write))
    }

    fn read<'a>(&'a self, object: &'a str, read: Read) -> StoreFuture<'a, Seen> {
        self.counters.read(Kind::of_read(read), self.rows.read(object, read))
    }

    fn exchanges(&self) -> Option<&dyn Exchanges> {
        self.rows.exchanges().map(|_| self as &dyn Exchanges)
    }

    fn read_with_times<'a>(&'a self, object: &'a str) -> StoreFuture<'a, Vec<TimedRow>> {
        self.counters.read(Kind::ObjectRead, self.rows.read_with_times(object))
    }

    fn parts(&self) -> Vec<Part> {
        self.rows.parts()
    }

    fn read_page<'a>(&'a self, part: Part, from: Option<&'a Cursor>) -> StoreFuture<'a, Page> {
        self.counters.read(Kind::PageRead, self.rows.read_page(part, from))
    }

    fn read_one_replica<'a>(&'a self, object: &'a str) -> StoreFuture<'a, Vec<StoredRow>> {
        self.counters.read(Kind::OneReplicaRead, self.rows.read_one_replica(object))
    }

    fn read_one_replica_of_each<'a>(
        &'a self,
        objects: &'a [Arc<str>],
    ) -> StoreFuture<'a, Vec<(String, StoredRow)>> {
        self.counters.read(Kind::OneReplicaRead, self.rows.read_one_replica_of_each(objects))
    }

    fn read_stamps<'a>(
        &'a self,
        object: &'a str,
        contender: ContenderId,
    ) -> StoreFuture<'a, Vec<RowStamp>> {
        self.counters.read(Kind::ContenderRead, self.rows.read_stamps(object, contender))
    }

    /// No kind of its own: only repairs make it.
    fn read_mark<'a>(&'a self, object: &'a str) -> StoreFuture<'a, Option<StoredMark>> {
        self.rows.read_mark(object)
    }

    fn read_fence<'a>(&'a self, object: &'a str) -> StoreFuture<'a, Option<i64>> {
        self.counters.read(Kind::FenceRead, self.rows.read_fence(object))
    }

    fn write_fence<'a>(&'a self, object: &'a str, value: i64) -> StoreFuture<'a, ()> {
        self.counters.write(Kind::FenceWrite, self.rows.write_fence(object, value))
    }
}

impl Exchanges for Counted {
    /// It counts as its write: it is one request.
    fn exchange<'a>(
        &'a self,
        object: &'a str,
        write: &'a Write,
        read: Read,
    ) -> StoreFuture<'a, Seen> {
        let rows = self.rows.exchanges().expect("the rows are asked for what they can");
        self.counters.write(Kind::of_write(write), rows.exchange(object, write, read))
    }
}

#[derive(Debug)]
struct Counters {
    calls: [AtomicU64; Kind::COUNT],
    unknown_outcomes: AtomicU64,
    failures: AtomicU64,
    metrics: CallMetrics,
    /// For calls that are under way. Never closed.
    places: Semaphore,
}

impl Default for Counters {
    fn default() -> Self {
        Counters {
            calls: Default::default(),
            unknown_outcomes: AtomicU64::default(),
            failures: AtomicU64::default(),
            metrics: CallMetrics::default(),
            places: Semaphore::new(UNDER_WAY_MAX),
        }
    }
}

impl Counters {
    /// Counts a read and its outcome. One that is given up has none.
    fn read<'a, T: 'a>(&'a self, kind: Kind, read: StoreFuture<'a, T>) -> StoreFuture<'a, T> {
        count(&self.calls[kind as usize]);
        Box::pin(async move {
            let _place = self.place().await;
            let begun = self.metrics.begun();
            let result = read.await;
            self.metrics.read(kind, begun, result.is_ok());
            result.inspect_err(|_| count(&self.failures))
        })
    }

    /// Counts a write and its outcome.
    fn write<'a, T: Send + 'a>(
        &'a self,
        kind: Kind,
        write: StoreFuture<'a, T>,
    ) -> StoreFuture<'a, T> {
        count(&self.calls[kind as usize]);
        Box::pin(async move {
            let _place = self.place().await;
            let begun = self.metrics.begun();
            let mut outstanding = Outstanding { counters: self, kind, begun, is_answered: false };
            let result = write.await;
            outstanding.is_answered = true;
            let outcome = result.as_ref().map_or_else(DatabaseError::outcome, |_| Outcome::Applied);
            self.metrics.written(kind, begun, outcome);
            result.inspect_err(|error| count(self.failed_write(error)))
        })
    }

    /// Waits until few enough calls are under way.
    async fn place(&self) -> Option<SemaphorePermit<'_>> {
        if let Ok(place) = self.places.try_acquire() {
            return Some(place);
        }
        let _waiting = self.metrics.waits();
        // It is never closed.
        self.places.acquire().await.ok()
    }

    fn failed_write(&self, error: &DatabaseError) -> &AtomicU64 {
        match error.outcome() {
            Outcome::Unknown => &self.unknown_outcomes,
            Outcome::Applied | Outcome::NotApplied => &self.failures,
        }
    }
}

/// Counts a write that is dropped before it is answered.
struct Outstanding<'a> {
    counters: &'a Counters,
    kind: Kind,
    begun: Begun,
    is_answered: bool,
}

impl Drop for Outstanding<'_> {
    fn drop(&mut self) {
        if !self.is_answered {
            count(&self.counters.unknown_outcomes);
            self.counters.metrics.given_up(self.kind, self.begun);
        }
    }
}

/// The counters order nothing, so relaxed ordering is enough.
fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::task::Poll;
    use std::time::Duration;

    use metrics_util::debugging::{DebugValue, DebuggingRecorder};
    use tokio::task::{JoinSet, yield_now};
    use tokio::time::Instant;

    use super::*;
    use crate::core::bakery::{Claim, Mode, Revocation, RevokeKind};
    use crate::metrics::CALLS_WAITING;
    use crate::testing::{Fault, FaultyStore};

    const ME: ContenderId = ContenderId { host: 1, client: 2, slot: 0 };

    fn put() -> Write {
        let claim = Claim {
            contender: ME,
            round: 1,
            mode: Mode::Exclusive,
            ticket: None,
            owner: "".into(),
            held_since: None,
        };
        Write { stamp: 1, change: Change::Put { claim, ttl_seconds: 60 } }
    }

    #[tokio::test]
    async fn every_call_counts_once() {
        let memory = FaultyStore::new();
        let store = Counted::new(Arc::new(memory.clone()));
        let delete = Change::Delete { contender: ME, revoked: false, last_release: None };
        let delete = Write { stamp: 2, change: delete };
        let (by, why, kind) = (String::new(), String::new(), RevokeKind::Request);
        let revocation = Revocation { contender: ME, round: 1, by, why, kind };
        let revoke = Write { stamp: 3, change: Change::Revoke { revocation, ttl_seconds: 60 } };
        store.write("a", &put()).await.expect("memory does not fail");
        store.write("a", &delete).await.expect("memory does not fail");
        store.read("a", Read::Object).await.expect("memory does not fail");
        store.read_one_replica("a").await.expect("memory does not fail");
        store.read_with_times("a").await.expect("memory does not fail");
        store.read_page(Part::WHOLE, None).await.expect("memory does not fail");
        store.read("a", Read::Contender(ME)).await.expect("memory does not fail");
        store.read("a", Read::Entering(ME)).await.expect("memory does not fail");
        store.write("a", &revoke).await.expect("memory does not fail");
        store.read_stamps("a", ME).await.expect("memory does not fail");
        store.write_fence("a", 1).await.expect("memory does not fail");
        assert_eq!(store.read_fence("a").await.expect("memory does not fail"), Some(1));
        memory.fail_next(2, Fault::UnknownApplied);
        store.write("a", &put()).await.expect_err("this call fails");
        store.read("a", Read::Object).await.expect_err("this call fails");
        memory.fail_next(1, Fault::NotApplied);
        store.write("a", &put()).await.expect_err("this call fails");
        memory.fail_next(2, Fault::UnknownNotApplied);
        store.write_fence("a", 2).await.expect_err("this call fails");
        store.read_fence("a").await.expect_err("this call fails");
        let expected = Calls {
            writes: 4,
            deletes: 1,
            object_reads: 3,
            one_replica_reads: 1,
            page_reads: 1,
            contender_reads: 3,
            fence_reads: 2,
            fence_writes: 2,
            unknown_outcomes: 2,
            failures: 3,
        };
        assert_eq!(store.calls(), expected);
    }

    // Goal: a write given up before it is answered has an unknown outcome; a read has none, and
    // neither has a call that never began.
    // Method: drop each kind of call before its first poll, and after it.
    #[tokio::test(start_paused = true)]
    async fn write_that_is_given_up_has_an_unknown_outcome() {
        let memory = FaultyStore::new();
        memory.delay_calls(Duration::from_millis(1));
        let store = Counted::new(Arc::new(memory));
        for (polled, unknown_outcomes) in [(false, 0), (true, 2)] {
            let put = put();
            given_up(store.write("a", &put), polled).await;
            given_up(store.write_fence("a", 1), polled).await;
            given_up(store.read("a", Read::Object), polled).await;
            given_up(store.read_fence("a"), polled).await;
            let statistics = store.calls();
            assert_eq!((statistics.unknown_outcomes, statistics.failures), (unknown_outcomes, 0));
        }
        store.write("a", &put()).await.expect("memory does not fail");
        assert_eq!(store.calls().unknown_outcomes, 2);
    }

    // Goal: calls beyond the limit wait until others are answered, and have no outcome before.
    // Method: each call takes a tenth of a second. Begin as many as may be under way, and two more.
    #[tokio::test(start_paused = true)]
    async fn calls_beyond_the_limit_wait() {
        const TIME: Duration = Duration::from_millis(100);
        let memory = FaultyStore::new();
        memory.delay_calls(TIME);
        let recorder = DebuggingRecorder::new();
        let recording = ::metrics::set_default_local_recorder(&recorder);
        let store = Arc::new(Counted::new(Arc::new(memory)));
        drop(recording);
        // Each snapshot starts the gauge over.
        let waiting = || {
            let recorded = recorder.snapshotter().snapshot().into_vec();
            let found = recorded.into_iter().find(|(key, ..)| key.key().name() == CALLS_WAITING);
            found.map(|(.., value)| value)
        };
        let begun = Instant::now();
        let mut reading = JoinSet::new();
        for _ in 0..=UNDER_WAY_MAX {
            let store = Arc::clone(&store);
            reading.spawn(async move { store.read("a", Read::Object).await.map(|_| ()) });
        }
        while store.counters.places.available_permits() > 0 {
            yield_now().await;
        }
        given_up(store.write("a", &put()), true).await;
        assert_eq!(waiting(), Some(DebugValue::Gauge(1.0.into())), "one read, and no write");

        let mut times = Vec::new();
        while let Some(read) = reading.join_next().await {
            read.expect("reads don't panic").expect("memory does not fail");
            times.push(begun.elapsed());
        }
        let last = times.split_off(UNDER_WAY_MAX);
        assert!(times.iter().all(|time| *time < 2 * TIME), "{:?}", times.last());
        assert_eq!(last.len(), 1);
        assert!(last[0] >= 2 * TIME, "the last one waited: {last:?}");
        assert_eq!(store.calls().unknown_outcomes, 0, "the write never began");
        assert_eq!(waiting(), Some(DebugValue::Gauge((-1.0).into())), "that read waits no more");
    }

    async fn given_up<T>(mut call: StoreFuture<'_, T>, polled: bool) {
        if polled {
            let is_pending = poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx).is_pending())).await;
            assert!(is_pending, "it takes a millisecond");
        }
    }
}
