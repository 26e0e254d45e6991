//! The registry on a store whose calls fail as planned.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use crate::admin::types::{HealthWarning, UnreadyReason};
use crate::builder::{BuildError, LockClientBuilder};
use crate::client::LockClient;
use crate::core::bakery::{ContenderId, Read, Seen, StoredRow, Write};
use crate::driver::host::{Lookup, lookup};
use crate::error::LockError;
use crate::setup::hosts::{Host, HostRegistry, RegistryError, system_time};
use crate::store::{
    Cursor, DatabaseError, Embedded, HostRow, HostTable, LockRows, Outcome, Page, Part, RowStamp,
    Store, StoreFuture, StoredMark, TimedRow,
};
use crate::testing::FaultyStore;

/// What happens to a call of the registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It is answered.
    Answered,
    /// It is applied, but the caller does not learn of it.
    AppliedUnknown,
    /// It is lost, but the caller does not learn of it.
    LostUnknown,
    /// It is refused for good.
    Refused,
    /// It is answered after a minute in which all writes of lock rows are lost.
    AfterTheLease,
}

/// A memory store whose calls of the registry fail as planned, and succeed afterwards.
#[derive(Debug)]
struct Planned {
    memory: FaultyStore,
    fates: Mutex<VecDeque<Fate>>,
    writes: Mutex<Vec<String>>,
    rows_are_lost: AtomicBool,
}

impl Planned {
    fn new(fates: &[Fate]) -> Arc<Self> {
        Arc::new(Planned {
            memory: FaultyStore::new(),
            fates: Mutex::new(fates.iter().copied().collect()),
            writes: Mutex::default(),
            rows_are_lost: AtomicBool::new(false),
        })
    }

    fn embedded(self: &Arc<Self>) -> Embedded {
        let memory = self.memory.embedded();
        let (rows, hosts) = (Arc::clone(self), Arc::clone(self));
        Embedded { store: Store { rows, hosts, ..memory.store }, ..memory }
    }

    fn registry(self: &Arc<Self>) -> HostRegistry {
        HostRegistry::embedded(self.embedded())
    }

    /// Plans the next calls, and no others.
    fn plan(&self, fates: &[Fate]) {
        *self.fates.lock().expect("no test failed before") = fates.iter().copied().collect();
    }

    fn writes(&self) -> Vec<String> {
        std::mem::take(&mut *self.writes.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn written(&self, what: String) {
        self.writes.lock().unwrap_or_else(PoisonError::into_inner).push(what);
    }

    async fn meet<T>(&self, call: StoreFuture<'_, T>) -> Result<T, DatabaseError> {
        let fates = self.fates.lock().map(|mut fates| fates.pop_front());
        let unknown = || DatabaseError::new(Outcome::Unknown, "it is unknown");
        match fates.unwrap_or_else(|_| panic!("a test failed before")) {
            None | Some(Fate::Answered) => call.await,
            Some(Fate::AppliedUnknown) => call.await.and(Err(unknown())),
            Some(Fate::LostUnknown) => Err(unknown()),
            Some(Fate::Refused) => Err(DatabaseError::permanent("no such table")),
            Some(Fate::AfterTheLease) => {
                self.rows_are_lost.store(true, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_secs(60)).await;
                self.rows_are_lost.store(false, Ordering::Relaxed);
                call.await
            }
        }
    }
}

impl LockRows for Planned {
    fn write<'a>(&'a self, object: &'a str, write: &'a Write) -> StoreFuture<'a, ()> {
        if self.rows_are_lost.load(Ordering::Relaxed) {
            return Box::pin(async { Err(DatabaseError::new(Outcome::Unknown, "cut off")) });
        }
        self.memory.write(object, write)
    }

    fn read<'a>(&'a self, object: &'a str, read: Read) -> StoreFuture<'a, Seen> {
        self.memory.read(object, read)
    }

    fn read_with_times<'a>(&'a self, object: &'a str) -> StoreFuture<'a, Vec<TimedRow>> {
        self.memory.read_with_times(object)
    }

    fn parts(&self) -> Vec<Part> {
        self.memory.parts()
    }

    fn read_page<'a>(&'a self, part: Part, from: Option<&'a Cursor>) -> StoreFuture<'a, Page> {
        self.memory.read_page(part, from)
    }

    fn read_one_replica<'a>(&'a self, object: &'a str) -> StoreFuture<'a, Vec<StoredRow>> {
        self.memory.read_one_replica(object)
    }

    fn read_stamps<'a>(
        &'a self,
        object: &'a str,
        contender: ContenderId,
    ) -> StoreFuture<'a, Vec<RowStamp>> {
        self.memory.read_stamps(object, contender)
    }

    fn read_mark<'a>(&'a self, object: &'a str) -> StoreFuture<'a, Option<StoredMark>> {
        self.memory.read_mark(object)
    }

    fn read_fence<'a>(&'a self, object: &'a str) -> StoreFuture<'a, Option<i64>> {
        self.memory.read_fence(object)
    }

    fn write_fence<'a>(&'a self, object: &'a str, value: i64) -> StoreFuture<'a, ()> {
        self.memory.write_fence(object, value)
    }
}

impl HostTable for Planned {
    fn read_host<'a>(&'a self, name: &'a str) -> StoreFuture<'a, Option<HostRow>> {
        Box::pin(self.meet(self.memory.read_host(name)))
    }

    fn read_host_nearby<'a>(&'a self, name: &'a str) -> StoreFuture<'a, Option<HostRow>> {
        self.memory.read_host(name)
    }

    fn read_hosts<'a>(&'a self, after: &'a str) -> StoreFuture<'a, Vec<HostRow>> {
        Box::pin(self.meet(self.memory.read_hosts(after)))
    }

    fn read_next(&self) -> StoreFuture<'_, i32> {
        Box::pin(self.meet(self.memory.read_next()))
    }

    fn raise_next(&self, next: i32) -> StoreFuture<'_, ()> {
        self.written(format!("next {next}"));
        Box::pin(self.meet(self.memory.raise_next(next)))
    }

    fn write_host<'a>(&'a self, host: &'a HostRow) -> StoreFuture<'a, ()> {
        self.written(format!("{} {}", host.name, host.number));
        Box::pin(self.meet(self.memory.write_host(host)))
    }

    fn read_seen_since(&self) -> StoreFuture<'_, Option<i64>> {
        self.memory.read_seen_since()
    }

    fn write_last_seen<'a>(&'a self, name: &'a str, at_micros: i64) -> StoreFuture<'a, ()> {
        self.memory.write_last_seen(name, at_micros)
    }
}

/// Polls a future whenever it is woken, at most `polls` times, and drops it; whether it was ready.
async fn poll_at_most(polls: usize, future: impl Future) -> bool {
    let mut future = Box::pin(future);
    let mut left = polls;
    poll_fn(|cx| {
        let ready = left > 0 && future.as_mut().poll(cx).is_ready();
        left = left.saturating_sub(1);
        if ready || left == 0 { Poll::Ready(ready) } else { Poll::Pending }
    })
    .await
}

async fn add(registry: &HostRegistry, name: &str) -> i32 {
    registry.add(name).await.expect("the host is added").number()
}

#[tokio::test(start_paused = true)]
async fn number_belongs_to_one_name_for_ever() {
    let store = Planned::new(&[]);
    let registry = store.registry();
    assert_eq!(add(&registry, "a").await, 1);
    assert_eq!(add(&registry, "b").await, 2);
    let removed = registry.remove("a").await.expect("the host is removed");
    assert_eq!(removed.as_ref().map(Host::number), Some(1));
    assert!(removed.is_some_and(|host| host.removed_at().is_some()));
    assert_eq!(add(&registry, "c").await, 3);
    assert_eq!(add(&registry, "a").await, 1);
    let list = registry.list().await.expect("the registry is listed");
    let list: Vec<_> = list.iter().map(|h| (h.name(), h.number(), h.removed_at())).collect();
    assert_eq!(list, [("a", 1, None), ("b", 2, None), ("c", 3, None)]);
}

#[tokio::test(start_paused = true)]
async fn repeated_change_writes_nothing() {
    let store = Planned::new(&[]);
    let registry = store.registry();
    add(&registry, "a").await;
    assert_eq!(store.writes(), ["next 1", "a 1"]);
    assert_eq!(add(&registry, "a").await, 1);
    assert!(registry.remove("b").await.expect("no host is removed").is_none());
    assert_eq!(store.writes(), [""; 0]);
    let first = registry.remove("a").await.expect("the host is removed");
    assert_eq!(store.writes(), ["a 1"]);
    assert_eq!(registry.remove("a").await.expect("it was removed before"), first);
    assert_eq!(store.writes(), [""; 0]);
}

#[test]
fn times_before_1970_are_times() {
    let ms = Duration::from_millis(1_500);
    assert_eq!(system_time(1_500), SystemTime::UNIX_EPOCH + ms);
    assert_eq!(system_time(-1_500), SystemTime::UNIX_EPOCH - ms);
}

#[tokio::test(start_paused = true)]
async fn host_says_when_it_was_added_and_removed() {
    let store = FaultyStore::new();
    let registry = store.host_registry();
    let clock = store.embedded().clock;
    let now = || system_time(clock.unix_micros() / 1000);
    tokio::time::sleep(Duration::from_secs(7)).await;
    let added = registry.add("a").await.expect("the store answers");
    assert_eq!((added.added_at(), added.removed_at()), (now(), None));
    tokio::time::sleep(Duration::from_secs(7)).await;
    let removed = registry.remove("a").await.expect("the store answers").expect("it was added");
    assert_eq!((removed.added_at(), removed.removed_at()), (added.added_at(), Some(now())));
}

#[tokio::test(start_paused = true)]
async fn registry_that_is_closed_has_no_task() {
    let store = Planned::new(&[]);
    let registry = store.registry();
    add(&registry, "a").await;
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    assert!(tasks() > 0, "its client has one");
    registry.close().await;
    tokio::task::yield_now().await;
    assert_eq!(tasks(), 0);
}

#[tokio::test(start_paused = true)]
async fn lookup_tells_removed_hosts_from_missing_ones() {
    let store = Planned::new(&[]);
    let registry = store.registry();
    let lookup = async |name| lookup(&*store, name).await.expect("the store answers");
    assert!(matches!(lookup("a").await, Lookup::Missing));
    add(&registry, "a").await;
    let found = lookup("a").await;
    assert!(matches!(&found, Lookup::Registered(host) if host.number == 1), "{found:?}");
    registry.remove("a").await.expect("the host is removed");
    assert!(matches!(lookup("a").await, Lookup::Removed));
}

#[tokio::test(start_paused = true)]
async fn lookup_without_a_quorum_counts_what_is_seen_nearby() {
    let store = Planned::new(&[]);
    let registry = store.registry();
    add(&registry, "a").await;
    add(&registry, "b").await;
    registry.remove("b").await.expect("the host is removed");
    let unanswered = async |name| {
        store.fates.lock().expect("no test failed before").push_back(Fate::LostUnknown);
        lookup(&*store, name).await
    };
    assert!(matches!(unanswered("a").await, Ok(Lookup::Registered(host)) if host.number == 1));
    assert!(matches!(unanswered("b").await, Ok(Lookup::Removed)));
    // It may have been added where it is not seen from here.
    let error = unanswered("c").await.expect_err("it is not missing for certain");
    assert_eq!((error.outcome(), error.is_permanent()), (Outcome::Unknown, false));
}

#[tokio::test(start_paused = true)]
async fn to_register_a_host_does_not_undo_its_removal() {
    let store = Planned::new(&[]);
    let registry = store.registry();
    for _ in 0..2 {
        let host = registry.register("a").await.expect("the host is registered");
        assert_eq!(host.map(|host| host.number()), Some(1));
    }
    registry.remove("a").await.expect("the host is removed");
    store.writes();
    assert_eq!(registry.register("a").await.expect("the store answers"), None);
    assert_eq!(store.writes(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn silent_registry_counts_as_last_read() {
    let store = Planned::new(&[]);
    let registry = store.registry();
    for name in ["a", "removed"] {
        add(&registry, name).await;
    }
    registry.remove("removed").await.expect("the host is removed");
    store.rows_are_lost.store(true, Ordering::Relaxed);
    let host = registry.register("a").await.expect("the host is registered");
    assert_eq!(host.map(|host| host.number()), Some(1));
    assert_eq!(registry.register("removed").await.expect("the store answers"), None);
    let error = registry.register("missing").await;
    assert!(matches!(error, Err(RegistryError::Locked(_))), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn whatever_call_fails_the_change_is_made_in_the_end() {
    // Adding is: read the host, read next, raise it, write the row, read it back.
    for failing in 0..5 {
        for fate in [Fate::AppliedUnknown, Fate::LostUnknown] {
            let mut fates = [Fate::Answered; 6];
            fates[failing] = fate;
            let store = Planned::new(&fates);
            let registry = store.registry();
            let number = add(&registry, "a").await;
            let context = format!("call {failing} meets {fate:?}");
            assert!((1..=2).contains(&number), "{context}: number {number}");
            assert_eq!(registry.list().await.map(|hosts| hosts.len()).ok(), Some(1), "{context}");
            assert!(add(&registry, "b").await > number, "{context}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn number_reserved_by_a_client_that_died_is_spent() {
    let store = Planned::new(&[]);
    store.memory.raise_next(7).await.expect("the number is reserved");
    assert_eq!(add(&store.registry(), "a").await, 8);
}

#[tokio::test(start_paused = true)]
async fn late_reserved_number_is_spent() {
    let store = Planned::new(&[Fate::Answered, Fate::Answered, Fate::AfterTheLease]);
    let registry = store.registry().timeout(Duration::from_secs(120));
    assert_eq!(add(&registry, "a").await, 2);
    assert_eq!(store.writes(), ["next 1", "next 2", "a 2"]);
}

#[tokio::test(start_paused = true)]
async fn row_with_a_stamp_from_the_future_is_overwritten() {
    let store = Planned::new(&[]);
    let row = HostRow {
        name: "a".to_owned(),
        number: 4,
        added_at_millis: 0,
        removed_at_millis: None,
        seen_at_millis: None,
        stamp: store.memory.embedded().clock.unix_micros() + 3_600_000_000,
    };
    store.memory.write_host(&row).await.expect("the row is written");
    let registry = store.registry();
    assert!(registry.remove("a").await.is_ok_and(|host| host.is_some()));
    assert_eq!(add(&registry, "a").await, 4);
    assert_eq!(add(&registry, "b").await, 5, "above a number that was written by hand");
}

#[tokio::test(start_paused = true)]
async fn hand_written_number_is_reserved_on_add() {
    let store = Planned::new(&[]);
    let registry = store.registry();
    add(&registry, "a").await;
    let row = HostRow {
        name: "by-hand".to_owned(),
        number: 4,
        added_at_millis: 0,
        removed_at_millis: None,
        seen_at_millis: None,
        stamp: 1,
    };
    store.memory.write_host(&row).await.expect("the row is written");
    assert_eq!(add(&registry, "by-hand").await, 4);
    assert_eq!(store.writes(), ["next 1", "a 1", "next 4"]);
    assert_eq!(add(&registry, "b").await, 5);
}

// Goal: a host that was deleted by hand and added again with another number is another host: the
// client of the old one takes no locks, and does not note that it is in use.
// Method: give the row of a client's host another number, and let days pass.
#[tokio::test(start_paused = true)]
async fn renumbered_host_is_not_seen_by_its_old_client() {
    let store = FaultyStore::new();
    let client = store.client_builder().host("a");
    let client = client.build().await.expect("a client in memory is built");
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(store.last_seen_writes(), 1);
    let registered = store.read_host("a").await.expect("the store answers");
    let registered = registered.expect("the client registered it");
    let another = HostRow { number: 7, stamp: registered.stamp + 1, ..registered };
    store.write_host(&another).await.expect("the row is written");
    tokio::time::sleep(Duration::from_secs(3 * 24 * 60 * 60)).await;
    let error = client.lock("users::snap").await.expect_err("the host is another one");
    assert!(matches!(error, LockError::HostRemoved { .. }), "{error:?}");
    assert_eq!(store.last_seen_writes(), 1);
}

/// A client of a host that is removed behind its back, with a registration that is overdue.
async fn client_of_a_removed_host(store: &FaultyStore) -> LockClient {
    let client = store.client_builder().host("a");
    let client = client.build().await.expect("a client in memory is built");
    let registered = store.read_host("a").await.expect("the store answers");
    let registered = registered.expect("the client registered it");
    let (removed_at_millis, stamp) = (Some(0), registered.stamp + 1);
    let removed = HostRow { removed_at_millis, stamp, ..registered };
    store.write_host(&removed).await.expect("the row is written");
    tokio::time::sleep(Duration::from_secs(60)).await;
    client
}

// Goal: a removal stops a client as soon as the registry shows it, however long it was silent
// before. What is held stays held.
// Method: the registry is silent for hours after a removal, while locks are taken; then it answers.
#[tokio::test(start_paused = true)]
async fn removal_stops_a_client_once_a_silent_registry_answers() {
    let store = FaultyStore::new();
    let client = client_of_a_removed_host(&store).await;
    store.silence_registry(true);
    for _ in 0..100 {
        let guard = client.lock("users::snap").await.expect("no removal was seen");
        guard.unlock().await.expect("it was held");
        tokio::time::sleep(Duration::from_secs(100)).await;
    }
    let guard = client.lock("held").await.expect("no removal was seen");
    store.silence_registry(false);
    tokio::time::sleep(Duration::from_millis(2_100)).await;
    store.silence_registry(true);
    let expect_removed = async || {
        let error = client.lock("users::snap").await.expect_err("the host was removed");
        assert!(matches!(error, LockError::HostRemoved { .. }), "{error:?}");
    };
    expect_removed().await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    expect_removed().await;
    let health = client.health().await;
    assert!(matches!(health.reasons[..], [UnreadyReason::HostRemoved { .. }]), "{health}");
    assert!(matches!(health.warnings[..], [HealthWarning::RegistryUnread { .. }]), "{health}");
    assert!(guard.state().is_held(), "{:?}", guard.state());
    guard.unlock().await.expect("it was held");
}

// Goal: no caller is let through before a slow registry has had its time: a removal counts if it
// comes within two seconds.
// Method: a read that takes nearly so long, one that takes longer, and one that is lost before the
// next is answered.
#[tokio::test(start_paused = true)]
async fn slow_registry_is_waited_for() {
    for (ms, removed) in [(1_900, true), (2_100, false)] {
        let store = FaultyStore::new();
        let client = client_of_a_removed_host(&store).await;
        // Half of the delay passes before the call, and the other half is what it is by then.
        store.delay_calls(Duration::from_millis(2 * ms));
        let asking = tokio::spawn(client.request("users::snap").acquire());
        tokio::time::sleep(Duration::from_millis(1)).await;
        store.delay_calls(Duration::ZERO);
        let answer = asking.await.expect("no task panics");
        let is_removed = matches!(answer, Err(LockError::HostRemoved { .. }));
        assert_eq!((is_removed, answer.is_ok()), (removed, !removed), "{ms} ms: {answer:?}");
    }
    let store = FaultyStore::new();
    let client = client_of_a_removed_host(&store).await;
    store.silence_registry(true);
    let asking = tokio::spawn(client.request("users::snap").acquire());
    tokio::time::sleep(Duration::from_millis(1)).await;
    store.silence_registry(false);
    let error = asking.await.expect("no task panics").expect_err("the host was removed");
    assert!(matches!(error, LockError::HostRemoved { .. }), "{error:?}");
}

// Goal: a registry that refuses to be read stops no lock either, and no caller waits for it.
// Method: refuse reads of the registry, and nothing else.
#[tokio::test(start_paused = true)]
async fn refused_registry_stops_no_lock() {
    let store = Planned::new(&[]);
    let builder = LockClientBuilder::embedded(store.embedded());
    let client = builder.host("a").build().await;
    let client = client.expect("a client in memory is built");
    store.plan(&[Fate::Refused; 100]);
    tokio::time::sleep(Duration::from_secs(60)).await;
    let asked = Instant::now();
    let guard = client.lock("users::snap").await.expect("the last known registration counts");
    assert!(asked.elapsed() < Duration::from_secs(1), "it waited for {:?}", asked.elapsed());
    guard.unlock().await.expect("it was held");
    let health = client.health().await;
    assert!(health.is_ready() && health.to_string().contains("can't be read now"), "{health}");
}

#[tokio::test(start_paused = true)]
async fn many_who_add_at_once_get_different_numbers() {
    let store = Planned::new(&[]);
    let adding = (0..20).map(|i| {
        let registry = store.registry();
        tokio::spawn(async move { add(&registry, &format!("host{i}")).await })
    });
    let mut numbers = Vec::new();
    for added in adding.collect::<Vec<_>>() {
        numbers.push(added.await.expect("adding does not panic"));
    }
    numbers.sort_unstable();
    assert_eq!(numbers, Vec::from_iter(1..=20));
}

#[tokio::test(start_paused = true)]
async fn reads_are_repeated_for_some_seconds() {
    const SILENT: [Fate; 3] = [Fate::LostUnknown; 3];
    let store = Planned::new(&[]);
    let registry = store.registry();
    add(&registry, "a").await;
    store.plan(&SILENT);
    assert!(registry.get("a").await.expect("it is read in the end").is_some());
    store.plan(&SILENT);
    assert_eq!(registry.list().await.expect("they are read in the end").len(), 1);
    store.plan(&SILENT);
    let client = LockClientBuilder::embedded(store.embedded()).host("b");
    let client = client.register_host(false).build().await;
    assert!(matches!(client, Err(BuildError::UnknownHost { .. })), "{client:?}");

    store.plan(&[Fate::LostUnknown; 1000]);
    let asked = Instant::now();
    let error = registry.get("a").await;
    assert!(matches!(error, Err(RegistryError::Unanswered(_))), "{error:?}");
    assert!(asked.elapsed() < Duration::from_secs(6), "it waited for {:?}", asked.elapsed());
}

#[tokio::test(start_paused = true)]
async fn errors_say_what_may_be_left_behind() {
    let silent = [Fate::LostUnknown; 1000];
    let error = Planned::new(&silent).registry().add("a").await;
    assert!(matches!(error, Err(RegistryError::Unanswered(_))), "{error:?}");

    let mut unconfirmed = silent;
    unconfirmed[..3].fill(Fate::Answered);
    let error = Planned::new(&unconfirmed).registry().add("a").await;
    assert!(matches!(error, Err(RegistryError::Unconfirmed { .. })), "{error:?}");

    let error = Planned::new(&[Fate::Refused]).registry().add("a").await;
    assert!(matches!(error, Err(RegistryError::Refused(_))), "{error:?}");

    let store = Planned::new(&[]);
    store.memory.raise_next(i32::MAX).await.expect("the last number is reserved");
    let error = store.registry().add("a").await;
    assert!(matches!(error, Err(RegistryError::NoNumberLeft)), "{error:?}");

    let store = Planned::new(&[]);
    store.rows_are_lost.store(true, Ordering::Relaxed);
    let error = store.registry().add("a").await;
    assert!(matches!(error, Err(RegistryError::Locked(_))), "{error:?}");
    assert_eq!(store.writes(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn addition_may_be_dropped_at_any_poll() {
    let mut polls = 0;
    loop {
        let store = Planned::new(&[]);
        store.memory.delay_calls(Duration::from_millis(10));
        let registry = store.registry();
        let done = poll_at_most(polls, registry.add("a")).await;
        let number = add(&store.registry().timeout(Duration::from_secs(3)), "b").await;
        assert!(number <= 2, "dropped after {polls} polls");
        if done {
            break;
        }
        polls += 1;
    }
    assert!(polls > 1, "adding takes more than one poll");
}
