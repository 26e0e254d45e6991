//! `elect`.

mod seats;

use std::fs;
use std::process::Child;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::time::sleep;

use super::run::{file, holders_of, is_alive, line, observer, prepared};
use super::{client, ms, s};
use crate::command::{Tool, finish};

const NAME: &str = "scheduler";

/// A command that tells its token and its group, and stays in spite of HUP.
const STAY: &str = "trap '' HUP; echo $LOCK_TOKEN $PPID; while :; do sleep 0.1; done";

/// A candidate that stays while it leads.
fn candidate(tool: &Tool, options: &[&str]) -> Child {
    stand(tool, options, STAY)
}

/// A candidate that stands for election, with a shell's script as its command.
fn stand(tool: &Tool, options: &[&str], script: &str) -> Child {
    let terms = ["elect", "-v", "--ttl", "6s", "--kill-after", "500ms"];
    let arguments = [&terms[..], options, &[NAME, "--", "sh", "-c", script]].concat();
    let mut child = tool.lockctl_command(&arguments).spawn().expect("the tool starts");
    assert_eq!(line(child.stderr.as_mut()), "lockctl: this process stands for scheduler");
    child
}

/// Waits until a candidate leads, and tells its token and its command's group.
fn leads(child: &mut Child) -> (i64, u32) {
    let told = line(child.stdout.as_mut());
    let (token, group) = told.split_once(' ').expect("it tells two numbers");
    (token.parse().expect("it is a number"), group.parse().expect("it is a number"))
}

fn send(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).expect("it runs");
}

// Goal: of the candidates that are left the best one follows a leader that is killed, once nothing
// of the leader's command is left, and with a larger token; a leader that ends resigns. A signal
// ends a candidacy.
// Method: three candidates, the best one last; kill the leader, interrupt the others.
#[tokio::test]
async fn the_best_candidate_follows_a_leader_that_is_killed() {
    let tool = prepared("elect").await;
    let mut first = candidate(&tool, &["--priority", "1"]);
    let (first_token, first_group) = leads(&mut first);
    let mut third = candidate(&tool, &["--priority", "3"]);
    let mut second = candidate(&tool, &["--priority", "2"]);
    send(&first, Signal::KILL);
    first.wait().expect("it was started");
    let (second_token, second_group) = leads(&mut second);
    assert!(!is_alive(first_group), "two commands run at once");
    assert!(second_token > first_token, "{second_token} after {first_token}");

    send(&second, Signal::TERM);
    let (third_token, _) = leads(&mut third);
    assert!(!is_alive(second_group), "two commands run at once");
    assert!(third_token > second_token, "{third_token} after {second_token}");
    assert_eq!(finish(second).await.code, Some(143));

    let waiting = candidate(&tool, &[]);
    send(&waiting, Signal::INT);
    let answer = finish(waiting).await;
    assert_eq!((answer.code, answer.stdout.as_str()), (Some(130), ""), "{answer:?}");
    assert_eq!(holders_of(&observer(&tool).await, NAME).await, [third.id()]);
    send(&third, Signal::TERM);
    assert_eq!(finish(third).await.code, Some(143));
}

// Goal: a command whose leadership is lost is ended, and the exit code says so; with `--again` the
// candidate stands again, until it is asked to end.
// Method: revoke the leader.
#[tokio::test]
async fn a_leader_that_is_revoked_ends_its_command() {
    let tool = prepared("elect_lost").await;
    let mut once = candidate(&tool, &[]);
    let (_, group) = leads(&mut once);
    revoke(&tool).await;
    let answer = finish(once).await;
    assert_eq!(answer.code, Some(76), "{answer:?}");
    assert!(answer.stderr.contains("warning: scheduler is lost while the command runs: it was"));
    assert!(!is_alive(group), "the command is left");

    let mut again = candidate(&tool, &["--again"]);
    let (token, group) = leads(&mut again);
    revoke(&tool).await;
    let (next, _) = leads(&mut again);
    assert!(!is_alive(group), "two commands run at once");
    assert!(next > token, "{next} after {token}");
    send(&again, Signal::TERM);
    assert_eq!(finish(again).await.code, Some(143));
}

// Goal: with `--on-lost warn` the command of a leader that is lost goes on beside that of the next
// one; the exit code says that the leadership was lost, whatever that of the command.
// Method: revoke a leader while another candidate waits.
#[tokio::test]
async fn a_command_may_outlive_its_leadership() {
    let tool = prepared("elect_warn").await;
    let end = file("elect-warn");
    let path = end.to_str().expect("the path is text");
    let work = format!(
        "echo $LOCK_TOKEN $PPID; while [ ! -e {path} ]; do sleep 0.1; done; echo went on; exit 3"
    );
    let mut lenient = stand(&tool, &["--on-lost", "warn"], &work);
    let (token, group) = leads(&mut lenient);
    let mut waiting = candidate(&tool, &[]);
    revoke(&tool).await;
    let (next, _) = leads(&mut waiting);
    assert!(next > token, "{next} after {token}");
    // Time enough to be killed.
    sleep(s(2)).await;
    assert!(is_alive(group), "the command was ended");
    fs::write(&end, "").expect("the file can be written");
    let answer = finish(lenient).await;
    fs::remove_file(&end).expect("it was written");
    assert_eq!((answer.code, answer.stdout.as_str()), (Some(76), "went on\n"), "{answer:?}");
    assert!(answer.stderr.contains("warning: scheduler is lost while the command runs: it was"));
    assert_eq!(holders_of(&observer(&tool).await, NAME).await, [waiting.id()]);
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
async fn an_observer_sees_who_leads() {
    let tool = prepared("elect_observed").await;
    let observing = |options: &[&str]| {
        let arguments = [&["elect", "--observe"], options, &[NAME]].concat();
        tool.lockctl_command(&arguments).spawn().expect("the tool starts")
    };
    let mut told = observing(&[]);
    let mut json = observing(&["--json"]);
    let mut expect = |leader: Option<&str>| {
        let text = line(told.stdout.as_mut());
        let who = leader.map_or("none".to_owned(), |host| format!("{host} pid {}", super::pid()));
        assert!(text.ends_with(&format!(" scheduler: {who} leads")), "{text}");
        let line = line(json.stdout.as_mut());
        let seen: Value = serde_json::from_str(&line).expect("each line is JSON");
        assert_eq!(seen["leaders"][0]["host"].as_str(), leader, "{line}");
    };
    expect(None);
    let leader = client(&tool, "web1").await;
    let leadership = leader.election(NAME).priority(1).campaign().await.expect("it can lead");
    // It renews its rows before anything else is done here.
    while leader.contenders(NAME).await.expect("it is there")[0].held_since.is_none() {
        sleep(ms(20)).await;
    }
    expect(Some("web1"));
    leadership.resign().await.expect("it leads");
    expect(None);
    for observing in [told, json] {
        send(&observing, Signal::INT);
        assert_eq!(finish(observing).await.code, Some(130));
    }
}
