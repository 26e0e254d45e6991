//! Several seats.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::process::Signal;
use serde_json::Value;
use tokio::process::Child;
use tokio::time::sleep;

use super::{NAME, short_ttl, stand};
use crate::command::{Tool, finish, id, line, send};
use crate::lockctl::run::{holders_of, is_alive, observer, prepared};
use crate::lockctl::s;

/// Several looks of a candidate.
const LOOKS: Duration = s(3);

/// A leader's command.
struct Working {
    deadline: u64,
    began: u128,
}

/// A candidate for one of two seats, whose command tells its token, its deadline and when it began.
async fn candidate(tool: &Tool, options: &[&str]) -> Child {
    const STAY: &str = "trap '' HUP; echo ${LOCK_TOKEN-none} $LOCK_DEADLINE $(date +%s%N); \
                        while :; do sleep 0.1; done";
    stand(tool, &[&["--seats", "2", "--priority", "1"], options].concat(), STAY).await
}

/// Waits until a candidate leads.
async fn leads(child: &mut Child) -> Working {
    let told = line(child.stdout.as_mut()).await;
    let words: Vec<_> = told.split(' ').collect();
    let ["none", deadline, began] = words[..] else { panic!("it has a token: {told}") };
    let deadline = deadline.parse().expect("it is a number");
    Working { deadline, began: began.parse().expect("it is a number") }
}

fn now() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later than 1970").as_nanos()
}

/// The pids of leaders that an observer prints in its next line.
async fn observed(observing: &mut Child) -> Vec<u32> {
    let line = line(observing.stdout.as_mut()).await;
    let seen: Value = serde_json::from_str(&line).expect("each line is JSON");
    let leaders = seen["leaders"].as_array().expect("it is a list");
    let pids = leaders.iter().map(|leader| leader["pid"].as_u64().expect("it is a number"));
    let mut pids: Vec<_> = pids.map(|pid| u32::try_from(pid).expect("it is a pid")).collect();
    pids.sort_unstable();
    pids
}

fn pids<const N: usize>(candidates: [&Child; N]) -> Vec<u32> {
    let mut pids = candidates.map(id);
    pids.sort_unstable();
    pids.into()
}

// Goal: as many commands run at once as there are seats, without tokens; one more candidate waits,
// and follows a leader that ends or is killed, once nothing of that one's command is left.
// Observers see all leaders.
// Method: two seats. Two candidates take them, a third and a fourth come; end one leader, then kill
// the other.
#[tokio::test]
async fn as_many_lead_as_there_are_seats() {
    let tool = prepared("elect_seats").await;
    let table = observer(&tool).await;
    let mut first = candidate(&tool, &[]).await;
    let first_works = leads(&mut first).await;
    // It is killed, and its rows must expire then.
    let mut second = candidate(&tool, &["--ttl", &short_ttl()]).await;
    let second_works = leads(&mut second).await;
    assert!(is_alive(NAME, first_works.deadline), "they do not lead together");
    let mut watching = tool.lockctl_command(&["elect", "--observe", "--json", NAME]);
    let mut watching = watching.spawn().expect("the tool starts");
    while observed(&mut watching).await != pids([&first, &second]) {}

    let mut third = candidate(&tool, &[]).await;
    sleep(LOOKS).await;
    let mut seated = holders_of(&table, NAME).await;
    seated.sort_unstable();
    assert_eq!(seated, pids([&first, &second]), "others have the seats");

    let asked = now();
    send(&first, Signal::TERM);
    let third_works = leads(&mut third).await;
    assert!(third_works.began > asked, "three commands ran at once");
    assert!(!is_alive(NAME, first_works.deadline), "three commands run at once");
    assert!(is_alive(NAME, second_works.deadline), "the other leader is gone");
    assert_eq!(finish(first).await.code, Some(143));
    while observed(&mut watching).await != pids([&second, &third]) {}

    let mut fourth = candidate(&tool, &[]).await;
    sleep(LOOKS).await;
    let killed = now();
    send(&second, Signal::KILL);
    second.wait().await.expect("it was started");
    let fourth_works = leads(&mut fourth).await;
    assert!(fourth_works.began > killed, "three commands ran at once");
    assert!(!is_alive(NAME, second_works.deadline), "three commands run at once");
    assert!(is_alive(NAME, third_works.deadline), "the other leader is gone");
    while observed(&mut watching).await != pids([&third, &fourth]) {}
    for (child, code) in [(third, 143), (fourth, 143), (watching, 143)] {
        send(&child, Signal::TERM);
        assert_eq!(finish(child).await.code, Some(code));
    }
}

// Goal: a candidate that names another number of seats waits until none of the others leads.
// Method: one that stands for three seats beside a leader of two.
#[tokio::test]
async fn candidate_for_other_number_of_seats_waits() {
    let tool = prepared("elect_disagree").await;
    let mut two = candidate(&tool, &[]).await;
    leads(&mut two).await;
    let mut three = stand(&tool, &["--seats", "3", "--priority", "1"], "echo ran").await;
    sleep(LOOKS).await;
    let ended = three.try_wait().expect("it was started");
    assert_eq!(ended, None, "it does not wait");
    send(&two, Signal::TERM);
    assert_eq!(finish(two).await.code, Some(143));
    let three = finish(three).await;
    assert_eq!((three.code, three.stdout.as_str()), (Some(0), "ran\n"), "{three:?}");
}
