//! Elections of one leader and of several.

use std::time::Duration;

use bakery_lock::testing::{Fault, FaultyStore};
use bakery_lock::{
    ContenderInfo, Election, FencingError, GuardState, InvalidOption, Leaders, Leadership,
    LockClient, LockError, LockHandle, TableError,
};
use rand::Rng;
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{sleep, timeout};

use super::chance::chance;
use super::{OBJECT, SOON, client, expect_rows, ms, s, store};

/// The default.
const WATCH: Duration = ms(400);

/// How long a candidate waits longer than the one before it.
const STEP: Duration = ms(500);

/// Clients of one host each, the best candidate first.
async fn candidates(store: &FaultyStore, number: u8) -> Vec<Election> {
    let mut elections = Vec::new();
    for priority in 1..=number {
        let client = client(store, &format!("host-{priority}")).await;
        let label = format!("candidate {priority}");
        elections.push(client.election(OBJECT).priority(priority).label(label));
    }
    elections
}

fn campaign(election: &Election) -> JoinHandle<Leadership> {
    let election = election.clone();
    tokio::spawn(async move { election.campaign().await.expect("one leads in the end") })
}

/// The candidates among these contenders, by their numbers.
fn numbers(leaders: &[ContenderInfo]) -> Vec<u8> {
    let number = |leader: &ContenderInfo| {
        let label = leader.owner.label().expect("each has a label");
        label.trim_start_matches("candidate ").parse().expect("it is a number")
    };
    let mut numbers: Vec<_> = leaders.iter().map(number).collect();
    numbers.sort_unstable();
    numbers
}

async fn next(leaders: &mut Leaders) -> Vec<u8> {
    let seen = timeout(s(60), leaders.try_next()).await.expect("others lead");
    numbers(&seen.expect("it is answered").expect("the client lives"))
}

// Goal: of five candidates the best one wins, whoever began first, in at least 95 of 100 elections;
// no two lead, tokens grow from leader to leader, and nothing is left.
// Method: candidates begin at random within two watch intervals while the seat is taken; then it is
// given up. Observe what the table shows.
#[tokio::test(start_paused = true)]
async fn best_candidate_wins() {
    const ELECTIONS: usize = 100;
    let (store, mut chance) = (store(), chance());
    let elections = candidates(&store, 5).await;
    let mut observer = client(&store, "observer").await.election(OBJECT).observe();
    assert!(next(&mut observer).await.is_empty(), "none leads yet");
    let (mut best, mut last_token) = (0, 0);
    let mut sitting = campaign(&elections[4]).await.expect("it does not panic");
    assert_eq!(next(&mut observer).await, [5]);
    for _ in 0..ELECTIONS {
        let mut campaigns = JoinSet::new();
        for (election, number) in elections.clone().into_iter().zip(1..) {
            let pause = WATCH.mul_f64(2.0 * chance.random::<f64>());
            campaigns.spawn(async move {
                sleep(pause).await;
                (number, election.campaign().await.expect("one leads in the end"))
            });
        }
        sleep(WATCH * 2).await;
        let token = sitting.fencing_token().await.expect("it leads").value();
        assert!(token > last_token, "{token} after {last_token}");
        last_token = token;
        sitting.resign().await.expect("it led");
        let won = campaigns.join_next().await.expect("there are five").expect("it does not panic");
        campaigns.shutdown().await;
        best += usize::from(won.0 == 1);
        // It may have seen that none led for a moment.
        while next(&mut observer).await != [won.0] {}
        sitting = won.1;
    }
    println!("the best candidate won {best} of {ELECTIONS} elections");
    assert!(best >= 95, "{best}");
    sitting.resign().await.expect("it led");
    expect_rows(&store, 0).await;
}

// Goal: who leads is not displaced by a better candidate, and is replaced within a watch interval
// and the steps of the best candidate that is left.
// Method: let the third best of three lead, then all campaign; give the seat up twice.
#[tokio::test(start_paused = true)]
async fn leader_stays_and_is_replaced() {
    let store = store();
    let elections = candidates(&store, 3).await;
    let third = campaign(&elections[2]).await.expect("it does not panic");
    let [first, second] = [campaign(&elections[0]), campaign(&elections[1])];
    sleep(s(600)).await;
    assert!(third.state().is_held() && !first.is_finished() && !second.is_finished());

    third.resign().await.expect("it led");
    let first = timeout(WATCH + SOON, first).await.expect("it looks once per interval");
    let first = first.expect("it does not panic");
    sleep(s(10)).await;
    assert!(!second.is_finished());
    drop(first);
    let second = timeout(WATCH + STEP + SOON, second).await.expect("it waits for one step");
    second.expect("it does not panic").resign().await.expect("it led");
    expect_rows(&store, 0).await;
}

// Goal: as many lead as there are seats, the best ones; they have no tokens, each is replaced
// when it leaves, and observers see every change.
// Method: three seats, ten candidates; the second one resigns, and campaigns again.
#[tokio::test(start_paused = true)]
async fn three_of_ten_lead() {
    let store = store();
    let elections = candidates(&store, 10).await;
    let elections: Vec<_> = elections.into_iter().map(|election| election.seats(3)).collect();
    let mut observer = elections[9].observe();
    assert!(next(&mut observer).await.is_empty());
    let campaigns: Vec<_> = elections.iter().map(campaign).collect();
    let mut seen = Vec::new();
    while seen != [1, 2, 3] {
        seen = next(&mut observer).await;
        assert!(seen.len() <= 3, "{seen:?}");
    }
    sleep(s(60)).await;
    let finished: Vec<_> = campaigns.iter().map(JoinHandle::is_finished).collect();
    assert_eq!(finished.iter().filter(|finished| **finished).count(), 3, "{finished:?}");

    let mut leaders = Vec::new();
    let mut waiting = Vec::new();
    for campaign in campaigns {
        if campaign.is_finished() {
            leaders.push(campaign.await.expect("it does not panic"));
        } else {
            waiting.push(campaign);
        }
    }
    let error = leaders[0].fencing_token().await.expect_err("they lead together");
    assert!(matches!(error, FencingError::Limited { .. }), "{error:?}");
    leaders.remove(1).resign().await.expect("it led");
    assert_eq!(next(&mut observer).await, [1, 3]);
    assert_eq!(next(&mut observer).await, [1, 3, 4]);
    for campaign in waiting {
        campaign.abort();
    }
    drop(leaders);
    assert!(next(&mut observer).await.len() < 3);
}

// Goal: a candidate outlives an outage of the database, and one that leaves does so without a row.
// Method: fail what a candidate asks for a while; drop a candidacy.
#[tokio::test(start_paused = true)]
async fn candidate_outlives_an_outage() {
    let store = store();
    let elections = candidates(&store, 2).await;
    let held = campaign(&elections[1]).await.expect("it does not panic");
    let waiting = campaign(&elections[0]);
    sleep(s(1)).await;
    store.fail_next(1_000, Fault::NotApplied);
    sleep(s(3)).await;
    store.fail_next(0, Fault::NotApplied);
    assert!(held.state().is_held() && !waiting.is_finished());
    waiting.abort();
    held.resign().await.expect("it led");
    expect_rows(&store, 0).await;
}

// Goal: a candidate outlives clocks that differ, and leads once they agree.
// Method: begin a candidacy once its client knows that they differ; let them agree later.
#[tokio::test(start_paused = true)]
async fn candidate_outlives_clocks_that_differ() {
    let store = store();
    let client = client(&store, "host").await;
    store.set_clocks_apart(s(3));
    while client.lock("another").await.is_ok() {
        sleep(s(1)).await;
    }
    let waiting = campaign(&client.election(OBJECT));
    sleep(s(120)).await;
    assert!(!waiting.is_finished(), "no lock is granted while clocks differ");
    store.set_clocks_apart(s(0));
    let leads = timeout(s(120), waiting).await.expect("clocks agree").expect("no panic");
    leads.resign().await.expect("it led");
}

// Goal: invalid options are refused before anything is written, and so is another number of seats.
// Method: campaign with each of them.
#[tokio::test(start_paused = true)]
async fn invalid_elections_are_refused() {
    let store = store();
    let client = client(&store, "host").await;
    let refused = |election: Election| async move {
        let error = election.campaign().await.expect_err("it is invalid");
        let LockError::Option(invalid) = error else { panic!("{error:?}") };
        invalid
    };
    let election = || client.election(OBJECT);
    for priority in [0, 15] {
        let error = refused(election().priority(priority)).await;
        assert_eq!(error, InvalidOption::Priority { priority });
        assert_eq!(error.to_string(), format!("a priority of {priority} is not between 1 and 14"));
    }
    assert_eq!(refused(election().watch(Duration::ZERO)).await, InvalidOption::ZeroWatch);
    let max_holders = 0;
    assert_eq!(refused(election().seats(0)).await, InvalidOption::MaxHolders { max_holders });
    assert_eq!(refused(client.election("")).await, InvalidOption::EmptyName);
    assert_eq!(store.live_rows(OBJECT), 0);

    let leads = election().seats(2).campaign().await.expect("a seat is free");
    // The others have two seats.
    let operations = || client.statistics().object_reads + client.statistics().writes;
    let before = operations();
    let candidate = election().seats(3);
    let waiting = tokio::spawn(async move { candidate.campaign().await });
    sleep(s(60)).await;
    assert!(!waiting.is_finished());
    let used = operations() - before;
    assert!(used < 250, "{used} operations in a minute");
    leads.resign().await.expect("it led");
    let leads = timeout(s(2), waiting).await.expect("a seat is free");
    leads.expect("it does not panic").expect("it leads").resign().await.expect("it led");
}

// Goal: a client that is shut down leads no more, and its campaigns end.
// Method: shut down a client that leads, with a candidate.
#[tokio::test(start_paused = true)]
async fn shutdown_ends_campaigns() {
    let store = store();
    let client: LockClient = client(&store, "host").await;
    let leads = client.election(OBJECT).campaign().await.expect("the seat is free");
    let candidate = client.election(OBJECT).priority(1);
    let campaign = tokio::spawn(async move { candidate.campaign().await });
    sleep(s(1)).await;
    client.shutdown().await.expect("nothing is left");
    assert!(!leads.state().is_held());
    let error = campaign.await.expect("it does not panic").expect_err("it can't lead any more");
    assert!(matches!(error, LockError::Closed), "{error:?}");
    expect_rows(&store, 0).await;
}

// Goal: an interval of any length is one, and an observer without one reads nothing.
// Method: the longest interval and none.
#[tokio::test(start_paused = true)]
async fn watch_interval_may_be_of_any_length_but_zero() {
    let store = store();
    let client = client(&store, "host").await;
    let leads = client.election(OBJECT).watch(Duration::MAX).campaign().await;
    let leads = leads.expect("the seat is free");
    let late = client.election("other").watch(Duration::MAX).priority(14);
    assert!(timeout(s(3_600), late.campaign()).await.is_err(), "its step is never over");
    let mut leaders = client.election(OBJECT).watch(Duration::MAX).observe();
    let seen = leaders.try_next().await.expect("the store answers").expect("the client lives");
    assert_eq!(seen.len(), 1, "{seen:?}");
    leads.resign().await.expect("it led");

    let before = client.statistics().object_reads;
    let mut unwatched = client.election(OBJECT).watch(Duration::ZERO).observe();
    let error = unwatched.try_next().await.expect_err("it would look without a pause");
    assert!(matches!(error, TableError::Option(InvalidOption::ZeroWatch)), "{error:?}");
    assert_eq!(unwatched.try_next().await.expect("it has ended"), None);
    assert_eq!(client.statistics().object_reads, before);
}

// Goal: the stream of leaders ends with its client, after one error that says why; an outage does
// not end it.
// Method: no answers for a while, then a shutdown.
#[tokio::test(start_paused = true)]
async fn stream_of_leaders_ends_with_its_client() {
    let store = store();
    let client = client(&store, "host").await;
    let mut leaders = client.election(OBJECT).observe();
    assert!(next(&mut leaders).await.is_empty(), "none leads");
    store.fail_next(usize::MAX, Fault::NotApplied);
    for _ in 0..2 {
        let error = leaders.try_next().await.expect_err("the store fails");
        assert!(matches!(error, TableError::TimedOut { .. }), "{error:?}");
    }
    store.fail_next(0, Fault::NotApplied);
    client.shutdown().await.expect("nothing is held");
    let error = leaders.try_next().await.expect_err("the client is shut down");
    assert!(matches!(error, TableError::Closed), "{error:?}");
    for _ in 0..2 {
        assert_eq!(leaders.try_next().await.expect("it has ended"), None);
    }
}

// Goal: work of a leader runs while it leads, is dropped when leadership ends, begins again when it
// leads again, and its output comes back.
// Method: an operator revokes the leader; another candidate leads meanwhile.
#[tokio::test(start_paused = true)]
async fn work_of_a_leader_begins_again() {
    let store = store();
    let (one, other) = (client(&store, "one").await, client(&store, "other").await);
    let (begun, mut begins) = mpsc::unbounded_channel();
    let leader = one.clone();
    let leading = tokio::spawn(async move {
        let mut terms = 0;
        let election = leader.election(OBJECT).priority(1);
        let work = |leadership: LockHandle| {
            terms += 1;
            begun.send(terms).expect("the test waits for it");
            let ends = terms == 2;
            async move {
                assert!(leadership.state().is_held());
                if !ends {
                    std::future::pending::<()>().await;
                }
                terms
            }
        };
        election.lead(work).await
    });
    assert_eq!(begins.recv().await, Some(1));
    let leaders = other.contenders(OBJECT).await.expect("the store answers");
    assert!(leaders[0].is_me(&one) && !leaders[0].is_me(&other), "{leaders:?}");
    assert_eq!(leaders[0].client, one.id());
    other.revoke(OBJECT, &leaders[0], "another one is to lead").await.expect("the store answers");
    let leadership = other.election(OBJECT).campaign().await;
    let leadership = leadership.expect("the store answers");
    let handle = leadership.handle();
    assert!(handle.state().is_held());
    assert!(begins.try_recv().is_err(), "two lead");
    leadership.resign().await.expect("it led");
    assert_eq!(handle.state(), GuardState::Released);
    assert_eq!(begins.recv().await, Some(2));
    let output = leading.await.expect("the task does not panic");
    assert_eq!(output.expect("the store answers"), 2);
    expect_rows(&store, 0).await;
}
