//! `elect`.

mod seats;

use std::fs;

use rustix::process::Signal;
use serde_json::Value;
use tokio::process::Child;
use tokio::time::sleep;

use super::run::{file, holders_of, is_alive, observer, prepared};
use super::{client, s, until_observed};
use crate::command::{Tool, finish, id, line, paced, send};

const NAME: &str = "scheduler";

/// A command that tells its token and its deadline, and stays in spite of HUP.
const STAY: &str = "trap '' HUP; echo $LOCK_TOKEN $LOCK_DEADLINE; while :; do sleep 0.1; done";

/// A candidate that stays while it leads.
async fn candidate(tool: &Tool, options: &[&str]) -> Child {
    stand(tool, options, STAY).await
}

/// A candidate that stands for election, with a shell's script as its command.
async fn stand(tool: &Tool, options: &[&str], script: &str) -> Child {
    let terms = ["elect", "-v", "--kill-after", "500ms"];
    let arguments = [&terms[..], options, &[NAME, "--", "sh", "-c", script]].concat();
    let mut child = tool.lockctl_command(&arguments).spawn().expect("the tool starts");
    let connected = line(child.stderr.as_mut()).await;
    assert!(connected.starts_with("lockctl: connected to "), "{connected}");
    assert_eq!(line(child.stderr.as_mut()).await, "lockctl: this process stands for scheduler");
    child
}

/// The TTL of a leader that is killed, which is waited for.
fn short_ttl() -> String {
    format!("{:?}", paced(8))
}

/// The TTL of a leader that is revoked, and learns of that after a third of it.
fn revoked_ttl() -> String {
    format!("{:?}", paced(12))
}

/// Waits until a candidate leads, and tells its token and its command's deadline.
async fn leads(child: &mut Child) -> (i64, u64) {
    let told = line(child.stdout.as_mut()).await;
    let (token, deadline) = told.split_once(' ').expect("it tells two numbers");
    (token.parse().expect("it is a number"), deadline.parse().expect("it is a number"))
}

// Goal: of the candidates that are left the best one follows a leader that is killed, once nothing
// of the leader's command is left, and with a larger token; a leader that ends resigns. A signal
// ends a candidacy.
// Method: three candidates, the best one last; kill the leader, interrupt the others. One that is
// not the best leaves the others more time than a slow machine takes for a look.
#[tokio::test]
async fn best_candidate_follows_a_leader_that_is_killed() {
    let tool = prepared("elect").await;
    let (ttl, interval) = (short_ttl(), format!("{:?}", paced(1)));
    let mut first = candidate(&tool, &["--priority", "1", "--ttl", &ttl]).await;
    let (first_token, first_deadline) = leads(&mut first).await;
    let watching = ["--watch-interval", &interval, "--priority"];
    let mut third = candidate(&tool, &[&watching[..], &["4"]].concat()).await;
    let mut second = candidate(&tool, &[&watching[..], &["2"]].concat()).await;
    send(&first, Signal::KILL);
    first.wait().await.expect("it was started");
    let (second_token, second_deadline) = leads(&mut second).await;
    assert!(!is_alive(NAME, first_deadline), "two commands run at once");
    assert!(second_token > first_token, "{second_token} after {first_token}");

    send(&second, Signal::TERM);
    let (third_token, _) = leads(&mut third).await;
    assert!(!is_alive(NAME, second_deadline), "two commands run at once");
    assert!(third_token > second_token, "{third_token} after {second_token}");
    assert_eq!(finish(second).await.code, Some(143));

    let waiting = candidate(&tool, &[]).await;
    send(&waiting, Signal::INT);
    let answer = finish(waiting).await;
    assert_eq!((answer.code, answer.stdout.as_str()), (Some(130), ""), "{answer:?}");
    assert_eq!(holders_of(&observer(&tool).await, NAME).await, [id(&third)]);
    send(&third, Signal::TERM);
    assert_eq!(finish(third).await.code, Some(143));
}

// Goal: a command whose leadership is lost is ended, and the exit code says so; with `--restart`
// the candidate stands again, until it is asked to end.
// Method: revoke the leader.
#[tokio::test]
async fn leader_that_is_revoked_ends_its_command() {
    let tool = prepared("elect_lost").await;
    let ttl = revoked_ttl();
    let mut once = candidate(&tool, &["--priority", "1", "--ttl", &ttl]).await;
    let (_, deadline) = leads(&mut once).await;
    revoke(&tool).await;
    let answer = finish(once).await;
    assert_eq!(answer.code, Some(76), "{answer:?}");
    let warning = "warning: scheduler must be released while the command runs: it was revoked by ";
    assert!(answer.stderr.contains(warning), "{}", answer.stderr);
    assert!(!is_alive(NAME, deadline), "the command is left");

    let mut again = candidate(&tool, &["--restart", "--priority", "2", "--ttl", &ttl]).await;
    let (token, deadline) = leads(&mut again).await;
    revoke(&tool).await;
    let (next, _) = leads(&mut again).await;
    assert!(!is_alive(NAME, deadline), "two commands run at once");
    assert!(next > token, "{next} after {token}");
    send(&again, Signal::TERM);
    assert_eq!(finish(again).await.code, Some(143));
}

// Goal: with `--on-lost warn` the command of a leader that is lost continues beside that of the
// next one; the exit code says that the leadership was lost, whatever that of the command.
// Method: revoke a leader while another candidate waits.
#[tokio::test]
async fn command_may_outlive_its_leadership() {
    let tool = prepared("elect_warn").await;
    let end = file("elect-warn");
    let path = end.to_str().expect("the path is text");
    let work = format!(
        "echo $LOCK_TOKEN $LOCK_DEADLINE; while [ ! -e {path} ]; do sleep 0.1; done; \
         echo went on; exit 3"
    );
    let options = ["--on-lost", "warn", "--priority", "1", "--ttl", &revoked_ttl()];
    let mut lenient = stand(&tool, &options, &work).await;
    let (token, deadline) = leads(&mut lenient).await;
    let mut waiting = candidate(&tool, &["--priority", "1"]).await;
    revoke(&tool).await;
    let (next, _) = leads(&mut waiting).await;
    assert!(next > token, "{next} after {token}");
    // Time enough to be killed.
    sleep(s(2)).await;
    assert!(is_alive(NAME, deadline), "the command was ended");
    fs::write(&end, "").expect("the file can be written");
    let answer = finish(lenient).await;
    fs::remove_file(&end).expect("it was written");
    assert_eq!((answer.code, answer.stdout.as_str()), (Some(76), "went on\n"), "{answer:?}");
    assert!(answer.stderr.contains("warning: scheduler is lost while the command runs: it was"));
    assert_eq!(holders_of(&observer(&tool).await, NAME).await, [id(&waiting)]);
    send(&waiting, Signal::TERM);
    assert_eq!(finish(waiting).await.code, Some(143));
}

async fn revoke(tool: &Tool) {
    let revoked = tool.lockctl(&["revoke", NAME, "--why", "a test"]).await;
    assert_eq!(revoked.code, Some(0), "{revoked:?}");
}

// Goal: an observer prints each change of those who lead, as text and as JSON.
// Method: a leader in this process that comes and goes.
#[tokio::test]
async fn observer_sees_who_leads() {
    let tool = prepared("elect_observed").await;
    let observing = |options: &[&str]| {
        let arguments = [&["elect", "--observe"], options, &[NAME]].concat();
        tool.lockctl_command(&arguments).spawn().expect("the tool starts")
    };
    let mut told = observing(&[]);
    let mut json = observing(&["--json"]);
    let mut expect = async |leader: Option<&str>| {
        let text = line(told.stdout.as_mut()).await;
        let who = leader.map_or("none".to_owned(), |host| format!("{host} pid {}", super::pid()));
        assert!(text.ends_with(&format!(" scheduler: {who} leads")), "{text}");
        let line = line(json.stdout.as_mut()).await;
        let seen: Value = serde_json::from_str(&line).expect("each line is JSON");
        assert_eq!(seen["leaders"][0]["host"].as_str(), leader, "{line}");
    };
    expect(None).await;
    let leader = client(&tool, "web1").await;
    let leadership = leader.election(NAME).priority(1).campaign().await.expect("it can lead");
    // It renews its rows before anything else is done here.
    until_observed(&leader, NAME).await;
    expect(Some("web1")).await;
    leadership.resign().await.expect("it leads");
    expect(None).await;
    for observing in [told, json] {
        send(&observing, Signal::INT);
        assert_eq!(finish(observing).await.code, Some(130));
    }
}
