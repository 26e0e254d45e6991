//! The registry of hosts as clients and operators use it.

use std::time::Duration;

use bakery_lock::hosts::{Host, RegistryError};
use bakery_lock::testing::{Fault, FaultyStore};
use bakery_lock::{BuildError, HealthWarning, LockClient, LockError};
use tokio::time::{Instant, sleep};

use super::{OBJECT, SOON, client, ms, s, store};

/// How long a registration counts without being read again.
const LIFE: Duration = s(60);

/// How long callers wait for the registry at most.
const CHANCE: Duration = s(2);

const HOUR: Duration = s(60 * 60);

const DAY: Duration = s(24 * 60 * 60);

/// More than one page of the registry.
const HOSTS: usize = 1_200;

/// The most hosts that one read may bring.
const PAGE: usize = 1_000;

// Goal: however many hosts are registered, a client reads its own row only, when it is built and
// later; a host is added without a look at the others, and a list is read page by page.
// Method: register more hosts than one page holds, and see how many rows one read brings.
#[tokio::test(start_paused = true)]
async fn client_reads_its_own_host_only() {
    let store = store();
    let registry = store.host_registry();
    for number in 0..HOSTS {
        registry.add(&format!("pod-{number:04}")).await.expect("the store answers");
    }
    assert!(store.most_hosts_read() <= 1, "an addition reads the others");
    let builder = store.client_builder().host("pod-0700");
    let client = builder.build().await.expect("the host is registered");
    for _ in 0..3 {
        sleep(s(61)).await;
        let guard = client.lock(OBJECT).await.expect("the lock is free");
        guard.unlock().await.expect("the lock was held");
    }
    assert_eq!(store.most_hosts_read(), 1, "a client reads the others");

    let hosts = registry.list().await.expect("the store answers");
    let names: Vec<_> = (0..HOSTS).map(|number| format!("pod-{number:04}")).collect();
    assert_eq!(hosts.iter().map(Host::name).collect::<Vec<_>>(), names);
    assert_eq!(store.most_hosts_read(), PAGE);
    registry.close().await;
}

// Goal: a host that was removed while its client was idle gets no lock, not even the first one; all
// callers at that moment are told, and nothing is written. Once the host is added again, the client
// continues.
// Method: remove the host of an idle client, and let several callers ask at once after minutes.
#[tokio::test(start_paused = true)]
async fn host_removed_while_idle_gets_no_lock() {
    let store = store();
    let client = client(&store, "idle").await;
    lock_once(&client).await.expect("the host is registered");
    let before = client.statistics();
    remove(&store, "idle").await;
    sleep(s(600)).await;
    let asking: Vec<_> = (0..5).map(|_| tokio::spawn(client.request(OBJECT).acquire())).collect();
    let trying = client.try_lock("another").await;
    assert!(matches!(trying, Err(LockError::HostRemoved { .. })), "{trying:?}");
    for asked in asking {
        let error = asked.await.expect("no task panics").expect_err("the host is removed");
        assert!(matches!(error, LockError::HostRemoved { .. }), "{error:?}");
        assert!(error.to_string().contains("run `lock-hosts add idle`"), "{error}");
    }
    assert_eq!(client.statistics(), before, "something was asked of the lock table");

    add(&store, "idle").await;
    sleep(LIFE).await;
    lock_once(&client).await.expect("the host is registered again");
}

// Goal: an overdue look at the registration keeps callers in their order.
// Method: let several callers ask after minutes, one after the other, while the store is slow.
#[tokio::test(start_paused = true)]
async fn caller_that_waits_for_the_registration_keeps_its_place() {
    let store = store();
    let client = client(&store, "a").await;
    sleep(s(600)).await;
    store.delay_calls(ms(20));
    let order = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let mut callers = Vec::new();
    for number in 0..5 {
        let (client, order) = (client.clone(), std::sync::Arc::clone(&order));
        callers.push(tokio::spawn(async move {
            let guard = client.lock(OBJECT).await.expect("the host is registered");
            order.lock().expect("no task panics").push(number);
            guard.unlock().await.expect("the lock was held");
        }));
        sleep(ms(1)).await;
    }
    for caller in callers {
        caller.await.expect("no task panics");
    }
    assert_eq!(*order.lock().expect("no task panics"), [0, 1, 2, 3, 4]);
}

// Goal: a registry that does not answer stops no name. The first callers wait for it for a bounded
// time, later ones not at all, and the client says so: it is ready, with a warning. It reads the
// registry again at a slow pace, and all is as before once it answers.
// Method: only the registry is silent, for hours, while names are locked with short timeouts.
#[tokio::test(start_paused = true)]
async fn locks_continue_while_the_registry_is_silent() {
    let store = store();
    let client = client(&store, "a").await;
    store.silence_registry(true);
    sleep(LIFE - s(1)).await;
    lock_once(&client).await.expect("the registration was read less than a minute ago");
    sleep(s(1)).await;
    let silent = Instant::now();
    lock_once(&client).await.expect("the last known registration counts");
    let waited = silent.elapsed();
    assert!((CHANCE..CHANCE + SOON).contains(&waited), "it waited for {waited:?}");

    let before = store.registry_reads();
    while silent.elapsed() < 6 * HOUR {
        let name = format!("name {}", silent.elapsed().as_secs());
        let guard = client.request(name).timeout(SOON).acquire().await;
        guard.expect("the lock is free").unlock().await.expect("the lock was held");
        sleep(s(30)).await;
    }
    let reads = store.registry_reads() - before;
    assert!((10_700..=10_900).contains(&reads), "{reads} reads in six hours, one each two seconds");
    let health = client.health().await;
    let [HealthWarning::RegistryUnread { host, unread_for, cause: Some(_), .. }] =
        &health.warnings[..]
    else {
        panic!("the registry is silent: {health}");
    };
    assert!(health.is_ready() && host == "a" && *unread_for > 6 * HOUR, "{health}");
    let text = health.to_string();
    assert!(text.starts_with("ready: ") && text.contains("run `lock-hosts doctor`"), "{text}");

    store.silence_registry(false);
    sleep(s(3)).await;
    let health = client.health().await;
    assert_eq!(health.to_string(), "ready", "the registry answers");
    let answered = store.registry_reads();
    sleep(LIFE / 2).await;
    lock_once(&client).await.expect("the host is registered");
    assert_eq!(store.registry_reads(), answered, "the registration was read a moment ago");
}

// Goal: a caller is answered at its own timeout while the registry still has time to answer, with
// the reason; one that leaves is forgotten. Nothing is asked of the lock table for them.
// Method: callers with timeouts shorter and longer than that time come when the registration is
// overdue; one of them is dropped.
#[tokio::test(start_paused = true)]
async fn short_callers_time_out_before_registry_answers() {
    let store = store();
    let client = client(&store, "a").await;
    store.silence_registry(true);
    sleep(s(600)).await;
    let before = client.statistics();
    let asked = Instant::now();
    let longer = tokio::spawn(client.request(OBJECT).timeout(s(60)).acquire());
    let dropped = tokio::spawn(client.request(OBJECT).timeout(s(60)).acquire());
    let trying = tokio::spawn(client.request(OBJECT).timeout(ms(300)).try_acquire());
    let patience = ms(1_500);
    let error = client.request(OBJECT).timeout(patience).acquire().await.expect_err("it is late");
    let waited = asked.elapsed();
    assert!((patience..patience + ms(10)).contains(&waited), "told after {waited:?}");
    let LockError::TimedOut { cause: Some(_), waited, ahead, .. } = &error else {
        panic!("another error came: {error:?}");
    };
    assert!(*waited >= patience && ahead.is_empty(), "{error:?}");
    dropped.abort();
    let trying = trying.await.expect("no task panics");
    assert!(matches!(trying, Err(LockError::TimedOut { .. })), "{trying:?}");
    let now = client.statistics();
    assert_eq!(now.operations(), before.operations(), "something was asked of the lock table");
    assert_eq!((now.timeouts, now.grants), (before.timeouts + 2, before.grants));

    let guard = longer.await.expect("no task panics").expect("the last known registration counts");
    assert!(asked.elapsed() < CHANCE + SOON, "it waited for {:?}", asked.elapsed());
    guard.unlock().await.expect("the lock was held");
    assert_eq!(client.statistics().grants, before.grants + 1, "one of them has left");
}

// Goal: callers that wait for a silent registry cost no reads of it, however many they are, and all
// of them are served.
// Method: very many callers come at once when the registration is overdue.
#[tokio::test(start_paused = true)]
async fn very_many_callers_wait_for_one_read() {
    const CALLERS: u64 = 32_000;
    let store = store();
    let client = client(&store, "a").await;
    store.silence_registry(true);
    sleep(LIFE).await;
    let (before, asked) = (store.registry_reads(), Instant::now());
    let callers: Vec<_> = (0..CALLERS)
        .map(|_| {
            let request = client.request(OBJECT).timeout(s(60));
            tokio::spawn(async move { request.acquire().await.map(drop) })
        })
        .collect();
    for caller in callers {
        caller.await.expect("no task panics").expect("the last known registration counts");
    }
    assert!(asked.elapsed() < CHANCE + s(10), "it took {:?}", asked.elapsed());
    assert_eq!(client.statistics().grants, CALLERS);
    let (reads, limit) = (store.registry_reads() - before, 2 + asked.elapsed().as_secs());
    assert!(reads as u64 <= limit, "{reads} reads, of which each takes a second");
}

// Goal: a shutdown does not wait for the registration, nor do the callers that waited for it.
// Method: shut a client down while callers wait for a silent registry.
#[tokio::test(start_paused = true)]
async fn shutdown_refuses_callers_waiting_for_registration() {
    let store = store();
    let client = client(&store, "a").await;
    sleep(s(600)).await;
    store.silence_registry(true);
    let waiting = tokio::spawn(client.request(OBJECT).timeout(s(60)).acquire());
    sleep(s(1)).await;
    let began = Instant::now();
    client.shutdown().await.expect("nothing is held");
    let waited = waiting.await.expect("no task panics");
    assert!(matches!(waited, Err(LockError::Closed)), "{waited:?}");
    assert!(began.elapsed() < SOON, "it took {:?}", began.elapsed());
}

// Goal: a removal lasts until an operator adds the host again: no client of it is built, not even
// one that registers missing hosts, and the error says what to do.
// Method: build clients of a removed host, and of the same one after it was added.
#[tokio::test(start_paused = true)]
async fn client_does_not_undo_a_removal() {
    let store = store();
    client(&store, "gone").await;
    remove(&store, "gone").await;
    for register in [true, false] {
        let builder = store.client_builder().host("gone").register_host(register);
        let error = builder.build().await.expect_err("the host was removed");
        let message = error.to_string();
        assert!(message.contains("host \"gone\" was removed"), "{message}");
        assert!(message.contains("add gone`"), "{message}");
        assert!(matches!(error, BuildError::HostRemoved { .. }), "{error:?}");
    }
    let hosts = store.host_registry().list().await.expect("the store answers");
    assert!(hosts[0].removed_at().is_some(), "a client undid the removal");
    add(&store, "gone").await;
    lock_once(&client(&store, "gone").await).await.expect("an operator added it");
}

// Goal: a client leaves word that its host is in use, when it is built and then once a day, also
// while it is idle; that costs no operation on locks. It undoes nothing: a removed host stays so.
// Method: look at the registry while days pass, before and after the host is removed.
#[tokio::test(start_paused = true)]
async fn client_is_seen_once_a_day() {
    let store = store();
    let registry = store.host_registry();
    let client = client(&store, "a").await;
    sleep(SOON).await;
    let host = async || registry.get("a").await.expect("it answers").expect("it was added");
    let first = host().await.seen_at().expect("it is seen when a client is built");
    assert!(first + s(1) > host().await.added_at(), "it was seen when {first:?}");
    let statistics = client.statistics();
    let mut last = first;
    for _ in 0..5 {
        sleep(DAY - s(60)).await;
        assert_eq!(host().await.seen_at(), Some(last), "it is seen more often than once a day");
        sleep(s(61)).await;
        let next = host().await.seen_at().expect("it was seen");
        let pause = next.duration_since(last).expect("time goes on");
        assert!((DAY..DAY + s(1)).contains(&pause), "it was seen after {pause:?}");
        last = next;
    }
    assert_eq!(client.statistics(), statistics, "it costs operations on locks");

    remove(&store, "a").await;
    sleep(3 * DAY).await;
    assert_eq!(host().await.seen_at(), Some(last));
    assert!(host().await.removed_at().is_some(), "to be seen undoes a removal");
    add(&store, "a").await;
    sleep(2 * DAY).await;
    assert!(host().await.seen_at() > Some(last), "it is not seen any more");
    registry.close().await;
}

// Goal: a registry that is silent for some time makes a host be seen later, but it is seen.
// Method: silence the registry when the host is to be seen next.
#[tokio::test(start_paused = true)]
async fn write_of_last_seen_is_retried() {
    let store = store();
    let registry = store.host_registry();
    let _client = client(&store, "a").await;
    sleep(SOON).await;
    let host = async || registry.get("a").await.expect("it answers").expect("it was added");
    let first = host().await.seen_at();
    store.silence_registry(true);
    sleep(DAY + s(3_600)).await;
    store.silence_registry(false);
    assert_eq!(host().await.seen_at(), first);
    sleep(s(900)).await;
    assert!(host().await.seen_at() > first, "it was not seen again");
    registry.close().await;
}

// Goal: a failed write of when the host was seen is retried ten minutes later, and until it
// succeeds.
// Method: let sightings fail for the first half hour of a client, and count them.
#[tokio::test(start_paused = true)]
async fn failed_write_of_last_seen_is_retried_after_ten_minutes() {
    let store = store();
    let registry = store.host_registry();
    store.fail_last_seen(Some(Fault::NotApplied));
    let _client = client(&store, "a").await;
    sleep(s(590)).await;
    assert_eq!(store.last_seen_writes(), 1, "it is tried again too soon");
    for tries in 2..=4 {
        sleep(s(600)).await;
        assert_eq!(store.last_seen_writes(), tries);
    }
    store.fail_last_seen(None);
    sleep(s(600)).await;
    let host = registry.get("a").await.expect("it answers").expect("it was added");
    assert!(host.seen_at().is_some(), "it was not tried again");
    sleep(DAY / 2).await;
    assert_eq!(store.last_seen_writes(), 5, "it is tried again although it succeeded");
    registry.close().await;
}

// Goal: a client that may not write the registry tries that once, and takes locks.
// Method: refuse sightings, and lock once a minute, so that the registration is read each time.
#[tokio::test(start_paused = true)]
async fn refused_write_of_last_seen_is_not_retried() {
    let store = store();
    store.fail_last_seen(Some(Fault::Refused));
    let client = client(&store, "a").await;
    for _ in 0..5 {
        sleep(LIFE + s(1)).await;
        lock_once(&client).await.expect("the host is registered");
    }
    sleep(3 * DAY).await;
    assert_eq!(store.last_seen_writes(), 1);
}

// Goal: hosts that no client used for a time are found and removed, and no others: neither one in
// use, nor one that was added, or added again, since.
// Method: let days pass with and without clients.
#[tokio::test(start_paused = true)]
async fn hosts_that_are_not_in_use_can_be_removed() {
    let store = store();
    let registry = store.host_registry();
    for host in ["idle", "left", "back", "removed"] {
        add(&store, host).await;
    }
    drop(client(&store, "left").await);
    let _client = client(&store, "used").await;
    remove(&store, "back").await;
    remove(&store, "removed").await;
    sleep(10 * DAY).await;
    add(&store, "new").await;
    add(&store, "back").await;
    let names = async |days| -> Vec<String> {
        let hosts = registry.inactive_for(days * DAY).await.expect("the store answers");
        hosts.iter().map(|host| host.name().to_owned()).collect()
    };
    assert_eq!(names(11).await, [""; 0]);
    assert_eq!(names(9).await, ["idle", "left"]);
    assert_eq!(names(2).await, ["idle", "left"], "two days are enough");
    let short = registry.inactive_for(2 * DAY - s(1)).await;
    assert!(matches!(short, Err(RegistryError::UnseenTooShort { .. })), "{short:?}");

    // One comes back between the look and the removal.
    let _returned = client(&store, "left").await;
    sleep(SOON).await;
    for (host, number) in [("idle", Some(1)), ("left", None), ("used", None), ("none", None)] {
        let removed = registry.remove_inactive(host, 9 * DAY).await.expect("the store answers");
        assert_eq!(removed.map(|host| host.number()), number, "{host}");
    }
    assert_eq!(names(9).await, [""; 0]);
    let idle = registry.get("idle").await.expect("the store answers").expect("it was added");
    assert!(idle.removed_at().is_some());
    registry.close().await;
}

async fn lock_once(client: &LockClient) -> Result<(), LockError> {
    let guard = client.lock(OBJECT).await?;
    guard.unlock().await.expect("the lock was held");
    Ok(())
}

async fn remove(store: &FaultyStore, host: &str) {
    let registry = store.host_registry();
    registry.remove(host).await.expect("the store answers").expect("the host is registered");
    registry.close().await;
}

async fn add(store: &FaultyStore, host: &str) {
    let registry = store.host_registry();
    registry.add(host).await.expect("the store answers");
    registry.close().await;
}
