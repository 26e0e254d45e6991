//! `show`.

use bakery_lock::{LockError, LockGuard, PeerOptions};
use serde_json::Value;
use support::pace;
use support::scene::built;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use super::{builder, client, json, pid, until_waits};
use crate::command::{Tool, paced};

const NAME: &str = "users::snap";

// Goal: the holder and those that wait are shown, with host, process and label in columns of their
// own, as text and as JSON.
// Method: look at a free lock, and at one with a holder and a waiter.
#[tokio::test]
async fn holder_and_waiters_are_shown() {
    let tool = Tool::initialized("show").await;
    let free = tool.lockctl(&["show", NAME]).await;
    assert_eq!((free.code, free.stdout.as_str()), (Some(0), "users::snap is free\n"));
    let free = json(&tool.lockctl(&["show", NAME, "--json"]).await);
    assert_eq!(
        (&free["name"], free["contenders"].as_array().map(Vec::len)),
        (&NAME.into(), Some(0))
    );

    let [holder, waiter] = [client(&tool, "web1").await, client(&tool, "web2").await];
    let began = Instant::now();
    let guard = holder.request(NAME).label("nightly job").acquire().await.expect("it is free");
    let waiting = tokio::spawn(waiter.request(NAME).acquire());
    until_waits(&holder, NAME).await;
    let shown = tool.lockctl(&["show", NAME]).await;
    assert_eq!((shown.code, shown.stderr.as_str()), (Some(0), ""), "{shown:?}");
    let lines: Vec<_> = shown.stdout.lines().map(|line| line.split_whitespace()).collect();
    let line =
        |index: usize, words: usize| -> Vec<_> { lines[index].clone().take(words).collect() };
    let pid_text = pid().to_string();
    assert_eq!(line(0, 5), ["STATE", "HOST", "PID", "LABEL", "MODE"]);
    assert_eq!(line(1, 6), ["holds", "web1", &pid_text, "nightly", "job", "exclusive"]);
    assert_eq!(line(2, 4), ["waits", "web2", &pid_text, "exclusive"]);
    assert!(shown.stdout.lines().all(|line| line == line.trim_end()), "{}", shown.stdout);

    let shown = json(&tool.lockctl(&["show", NAME, "--json"]).await);
    let (first, second) = (&shown["contenders"][0], &shown["contenders"][1]);
    assert_eq!((&first["state"], &second["state"]), (&"holding".into(), &"waiting".into()));
    assert_eq!((&first["host"], &first["pid"]), (&"web1".into(), &pid().into()));
    assert_eq!((&first["label"], &second["label"]), (&"nightly job".into(), &None::<&str>.into()));
    assert_eq!(
        (&first["mode"], &first["overdue_seconds"]),
        (&"exclusive".into(), &None::<u8>.into())
    );
    let remaining = first["remaining_seconds"].as_u64().expect("it is a number");
    // Of the default TTL, rounded down.
    let least = 59_u64.saturating_sub(began.elapsed().as_secs());
    assert!((least..=60).contains(&remaining), "{first}");
    assert!(first["renewed_at"].as_str().is_some_and(|time| time.ends_with('Z')), "{first}");
    assert!(shown["line"].is_null(), "it lets no other client take turns");
    guard.unlock().await.expect("it is held");
    let next = waiting.await.expect("it does not panic").expect("it is let in");
    next.unlock().await.expect("it is held");
}

// Goal: of a holder that does not renew its rows any more, `show` says so, and when they expire.
// Method: a holder for one lease only, whose rows look like those of a dead one.
#[tokio::test]
async fn holder_that_does_not_renew_is_shown() {
    let tool = Tool::initialized("dead").await;
    let holder = client(&tool, "web1").await;
    let request = holder.request(NAME).ttl(paced(45)).auto_renew(false);
    let _guard = request.acquire().await.expect("it is free");
    let (mut told, mut looks) = (String::new(), 0);
    pace::until("it is told", async || {
        let shown = tool.lockctl(&["show", NAME]).await;
        assert_eq!(shown.code, Some(0), "{shown:?}");
        assert!(shown.stdout.contains("holds"), "its rows have expired: {shown:?}");
        looks += 1;
        told = shown.stderr;
        !told.is_empty()
    })
    .await;
    assert!(looks > 1, "it looks dead while a renewal is not due: {told}");
    let owner = format!("warning: web1 pid {} should have renewed its rows ", pid());
    assert!(told.starts_with(&owner), "{told}");
    assert!(told.contains("its rows expire in "), "{told}");
}

/// A guest that stands in the line of the client that holds the lock.
struct InLine {
    inside: LockGuard,
    asking: JoinHandle<Result<LockGuard, LockError>>,
    /// As it is shown.
    line: Value,
}

impl InLine {
    /// Sends a guest to a keeper. `None` if the keeper was too busy to answer at once, so that the
    /// guest waits in the table, or too busy to reach itself, so that it has no line.
    async fn stand(tool: &Tool) -> Option<Self> {
        let peer = async |host| {
            let peers = PeerOptions::new(([127, 0, 0, 1], 0).into());
            built(builder(tool, host).await.peers(peers)).await
        };
        let (keeper, guest) = (peer("keeper").await, peer("guest").await);
        let inside = keeper.lock(NAME).await.expect("it is free");
        let asking = tokio::spawn(guest.request(NAME).acquire());
        let shown = async {
            loop {
                let line = json(&tool.lockctl(&["show", NAME, "--json"]).await)["line"].take();
                if line["waiting"] == 1 {
                    break line;
                }
            }
        };
        let stands = async { while !keeper.queue(NAME).await.is_ok_and(|it| it.waiting == 1) {} };
        let seen = match timeout(paced(2), stands).await {
            Ok(()) => timeout(paced(20), shown).await.ok(),
            Err(_) => None,
        };
        if let Some(line) = seen {
            return Some(InLine { inside, asking, line });
        }
        asking.abort();
        inside.unlock().await.expect("it is held");
        None
    }
}

// Goal: while a guest has its turn, `show` names it and those that wait in line.
// Method: two clients that take turns of each other, one inside as a guest of the other.
#[tokio::test]
async fn guest_inside_is_shown() {
    let tool = Tool::initialized("guest").await;
    let mut in_line = None;
    pace::until("a guest stands in line", async || {
        in_line = Box::pin(InLine::stand(&tool)).await;
        in_line.is_some()
    })
    .await;
    let InLine { inside, asking, line } = in_line.expect("it stands there");
    assert_eq!(
        (&line["user"]["host"], &line["keeper"]["host"]),
        (&"keeper".into(), &"keeper".into())
    );
    assert_eq!(line["first"][0]["host"], "guest");

    inside.unlock().await.expect("it is held");
    let turn = asking.await.expect("it does not panic").expect("it has its turn");
    let expected = format!(
        "guest pid {0} uses it now, in turn; 0 wait in the line of keeper pid {0}\n",
        pid()
    );
    // A keeper that answers late is not waited for.
    pace::until("the guest is shown", async || {
        tool.lockctl(&["show", NAME]).await.stdout.ends_with(&expected)
    })
    .await;
    turn.unlock().await.expect("it is held");
}
