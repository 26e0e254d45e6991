//! Commands of `run` that end in all ways, each while the next one waits for its lock.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use bakery_lock::LockClient;
use procfs::process::all_processes;
use rand::Rng;
use rustix::process::{Pid, Signal, kill_process};
use support::environment::{chance, number};
use support::pace;
use tokio::process::Child;
use tokio::task::{JoinSet, LocalSet};
use tokio::time::{Instant, sleep};

use super::processes::guardian;
use super::run::{holders_of, observer, prepared, processes_of, run_on};
use super::{ms, s};
use crate::command::{Answer, Tool, finish, id, line, line_unless_ended, paced, send};

/// How often a command ends in each way; a thousand times takes two hours.
const TIMES: &str = "BAKERY_LOCK_OVERLAPS";
const TIMES_DEFAULT: usize = 12;

/// How many locks are in use at once.
const LANES: &str = "BAKERY_LOCK_LANES";
const LANES_DEFAULT: usize = 12;

/// How long a command of these has after TERM.
const KILL_AFTER: &str = "--kill-after=500ms";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Revoked,
    Term,
    LockctlKilled,
    GuardianKilled,
    LeaseOver,
    HoldLimit,
}

const ENDINGS: [Ending; 6] = [
    Ending::Revoked,
    Ending::Term,
    Ending::LockctlKilled,
    Ending::GuardianKilled,
    Ending::LeaseOver,
    Ending::HoldLimit,
];

/// What a command does when it is asked to end, and where its processes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// It takes a while to end.
    Traps,
    /// So does a process in the background.
    Forks,
    /// It has a process that left its group and session.
    Daemonizes,
    /// All of its processes ignore it.
    Ignores,
}

const KINDS: [Kind; 4] = [Kind::Traps, Kind::Forks, Kind::Daemonizes, Kind::Ignores];

/// How many descriptors a shell's child has.
const DESCRIPTORS: &str = "$(echo /proc/self/fd/* | wc -w)";

impl Kind {
    /// A script that tells its deadline and its descriptors once all of its processes are there.
    fn script(self) -> String {
        let tell = format!("echo $LOCK_DEADLINE {DESCRIPTORS}");
        match self {
            Kind::Traps => format!(
                "trap 'echo asked; sleep 0.2; exit 9' TERM; {tell}; sleep 1000 & wait; wait"
            ),
            Kind::Forks => {
                let forked = "trap \"echo asked; sleep 0.2; exit\" TERM; echo there >&2; \
                              sleep 1000 & wait; wait";
                format!("sh -c '{forked}' & {tell}; wait")
            }
            Kind::Daemonizes => {
                format!("setsid sh -c 'sleep 1000 & exit'; {tell}; exec sleep 1000")
            }
            Kind::Ignores => {
                format!("trap '' TERM INT HUP; setsid sleep 1000 & {tell}; exec sleep 1000")
            }
        }
    }

    /// Its exit code when TERM ends it.
    fn code(self) -> i32 {
        if self == Kind::Traps { 9 } else { 143 }
    }
}

/// A command that ends in some way.
#[derive(Clone, Debug)]
struct Case {
    name: String,
    ending: Ending,
    kind: Kind,
    /// For how long it runs before.
    pause: Duration,
}

// Goal: whatever ends a command, the next one begins when no process of it is left. No signal is
// lost, no zombie stays, and no descriptor is inherited.
// Method: many commands of each kind that end in each way at random moments, some side by side.
#[tokio::test]
#[ignore = "takes long; scripts/nightly runs it"]
async fn no_command_begins_before_the_last_one_has_ended() {
    let tool = prepared("overlaps").await;
    let observer = observer(&tool).await;
    let alone = Command::new("sh").args(["-c", &format!("echo {DESCRIPTORS}")]).output();
    let alone = Answer::from(alone.expect("a shell starts")).stdout.trim().to_owned();
    let times = number(TIMES).unwrap_or(TIMES_DEFAULT);
    let mut chance = chance();
    let cases = (0..times)
        .flat_map(|round| ENDINGS.map(|ending| (round, ending)))
        .map(|(round, ending)| Case {
            name: format!("{ending:?}-{round}"),
            ending,
            kind: KINDS[round % KINDS.len()],
            pause: ms(chance.random_range(0..1_000)),
        })
        .collect();
    for (ending, (count, slowest)) in
        LocalSet::new().run_until(all(tool, observer, cases, alone)).await
    {
        println!("{ending}: {count} runs, the next one began within {slowest:.1?}");
    }
}

/// Runs all cases, a few at once. How many runs ended in each way, and the longest time until the
/// next one began.
async fn all(
    tool: Tool,
    observer: LockClient,
    mut cases: Vec<Case>,
    alone: String,
) -> BTreeMap<String, (usize, Duration)> {
    let lanes = number(LANES).unwrap_or(LANES_DEFAULT);
    let mut running = JoinSet::new();
    let mut longest = BTreeMap::<_, (usize, Duration)>::new();
    loop {
        while running.len() < lanes
            && let Some(case) = cases.pop()
        {
            let (tool, observer, alone) = (tool.clone(), observer.clone(), alone.clone());
            running.spawn_local(async move {
                let ending = case.ending;
                (ending, Box::pin(end(tool, observer, case, alone)).await)
            });
        }
        let Some(ended) = running.join_next().await else { return longest };
        let (ending, took) = ended.expect("no command begins too early");
        let (count, slowest) = longest.entry(format!("{ending:?}")).or_default();
        (*count, *slowest) = (*count + 1, took.max(*slowest));
        if cases.len().is_multiple_of(100) {
            println!("{} runs to begin", cases.len());
        }
    }
}

/// Starts a command, and another one that waits for the same lock; ends the first in some way, and
/// returns how long it took until the second began.
async fn end(tool: Tool, observer: LockClient, case: Case, alone: String) -> Duration {
    let Case { name, ending, kind, .. } = &case;
    let ttl = format!("--ttl={:?}", paced(10));
    let limit = (*ending == Ending::HoldLimit).then_some("--max-hold=1s");
    let options: Vec<_> = [&*ttl, KILL_AFTER].into_iter().chain(limit).collect();
    let (mut first, told) = loop {
        let first = run_on(&tool, name, &options, &kind.script()).spawn();
        let mut first = first.expect("the tool starts");
        if let Some(told) = line_unless_ended(first.stdout.as_mut()).await {
            break (first, told);
        }
        let answer = finish(first).await;
        assert!([Some(69), Some(76)].contains(&answer.code), "{case:?}: {answer:?}");
        println!("the machine was too busy: once more");
    };
    let (deadline, descriptors) = told.split_once(' ').expect("it tells two numbers");
    assert_eq!(descriptors, alone, "{case:?}: it inherits a descriptor");
    let deadline = deadline.parse().expect("it is a number");
    if *kind == Kind::Forks {
        // Its child can be asked now.
        line_unless_ended(first.stderr.as_mut()).await;
    }
    let mut next = run_on(&tool, name, &[], "echo begins").spawn().expect("the tool starts");
    pace::until("the next one waits or runs", async || {
        holders_of(&observer, name).await.contains(&id(&next))
    })
    .await;
    sleep(case.pause).await;
    let began = Instant::now();
    bring_about(&tool, &mut first, &case).await;
    assert_eq!(line(next.stdout.as_mut()).await, "begins");
    let left = processes_of(name, deadline);
    assert!(left.is_empty(), "{case:?}: two commands run at once: {left:?}");
    let took = began.elapsed();
    if *ending == Ending::LeaseOver {
        send(&first, Signal::CONT);
    }
    assert_eq!(finish(next).await.code, Some(0), "{case:?}");
    let answer = finish(first).await;
    if answer.code == Some(76) && was_not_renewed(&answer) && *ending != Ending::LeaseOver {
        println!("{case:?}: the machine was too busy to renew its lease");
        return took;
    }
    let code = match ending {
        Ending::Revoked | Ending::LeaseOver | Ending::HoldLimit => Some(76),
        Ending::GuardianKilled => Some(137),
        Ending::Term if *kind != Kind::Ignores => Some(kind.code()),
        Ending::Term | Ending::LockctlKilled => None,
    };
    assert_eq!(answer.code, code, "{case:?}: {answer:?}");
    if *ending == Ending::Term && [Kind::Traps, Kind::Forks].contains(kind) {
        assert_eq!(answer.stdout, "asked\n", "{case:?}: a signal was lost, or sent twice");
    }
    took
}

/// Whether a lock was lost because it could not be renewed.
fn was_not_renewed(answer: &Answer) -> bool {
    ["was not renewed in time", "the lease ran out"].iter().any(|why| answer.stderr.contains(why))
}

async fn bring_about(tool: &Tool, first: &mut Child, case: &Case) {
    match case.ending {
        Ending::Revoked => {
            let revoked = tool.lockctl(&["revoke", &case.name, "--why", "a test"]).await;
            // It may be gone where the machine was too busy.
            assert!([Some(0), Some(1)].contains(&revoked.code), "{revoked:?}");
        }
        Ending::Term => {
            send(first, Signal::TERM);
            if case.kind == Kind::Ignores {
                sleep(s(1)).await;
                let ended = first.try_wait().expect("it was started");
                let lost = ended.is_some_and(|status| status.code() == Some(76));
                assert!(ended.is_none() || lost, "{case:?}: it ended before its command");
                if ended.is_none() {
                    send(first, Signal::KILL);
                }
            }
        }
        Ending::LockctlKilled => send(first, Signal::KILL),
        Ending::GuardianKilled => {
            let Some(guardian) = guardian(first) else { return };
            assert!(zombies_of(guardian.pid).await.is_empty(), "{case:?}: a zombie stays");
            let pid = Pid::from_raw(guardian.pid).expect("it is a pid");
            // It may have ended meanwhile where the machine was too busy.
            let _ = kill_process(pid, Signal::KILL);
        }
        Ending::LeaseOver => send(first, Signal::STOP),
        Ending::HoldLimit => {}
    }
}

/// The children of a process that have ended and are not removed within a second.
async fn zombies_of(parent: i32) -> Vec<i32> {
    let zombies = || {
        let stats = all_processes().expect("Linux has /proc").filter_map(|it| it.ok()?.stat().ok());
        let dead = stats.filter(|stat| stat.ppid == parent && stat.state == 'Z');
        dead.map(|stat| stat.pid).collect::<Vec<_>>()
    };
    let mut left = zombies();
    if !left.is_empty() {
        sleep(s(1)).await;
        let now = zombies();
        left.retain(|pid| now.contains(pid));
    }
    left
}
