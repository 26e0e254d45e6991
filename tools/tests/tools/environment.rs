//! What the tools read from the environment, and the addresses of nodes.

use std::process::Command;

use bakery_lock::LockClient;
use support::pace;
use support::scene::built;

use crate::command::{Answer, Tool, finish, lock_hosts, lockctl};
use crate::lockctl::run::prepared;

type Program = fn(&[&str]) -> Command;

const TOOLS: [Program; 2] = [lock_hosts, lockctl];

fn run(tool: Program, arguments: &[&str], variables: &[(&str, &str)]) -> Answer {
    let mut command = tool(arguments);
    command.envs(variables.iter().copied()).output().expect("the tool starts").into()
}

/// Waits for a lock as a script does, with one more variable.
async fn try_lock(tool: &Tool, arguments: &[&str], variable: (&str, &str)) -> Answer {
    let mut command = tool.lockctl_command(arguments);
    command.env(variable.0, variable.1);
    finish(command.spawn().expect("the tool starts")).await
}

// Goal: a program and `lockctl` that read the same environment exclude each other.
// Method: a client holds a lock in the table that a variable names. `lockctl` finds it taken with
// that variable, and free where an option names the other table or the variable is empty.
#[tokio::test]
async fn lockctl_and_programs_use_the_table_of_the_environment() {
    let tool = prepared("environ").await;
    tool.done(&["--lock-table", "jobs", "init", "--another-lock-table"]).await;
    let builder = LockClient::builder(support::session().await, tool.keyspace.clone());
    let builder = builder.host("holder").register_host(true).lock_table("jobs");
    let holder = built(builder.acquire_timeout(pace::limit())).await;
    let guard = holder.lock("nightly").await.expect("it is free");
    for (options, table, code) in [
        (&[][..], "jobs", 75),
        (&["--lock-table", "lock_table"], "jobs", 0),
        (&["--lock-table", "jobs"], "lock_table", 75),
        (&[], "", 0),
    ] {
        let arguments = [options, &["run", "-n", "nightly", "--", "true"]].concat();
        let answer = try_lock(&tool, &arguments, ("BAKERY_LOCK_LOCK_TABLE", table)).await;
        assert_eq!(answer.code, Some(code), "{options:?} {table}: {answer:?}");
    }
    let show = try_lock(&tool, &["show", "nightly"], ("BAKERY_LOCK_LOCK_TABLE", "jobs")).await;
    assert!(show.stdout.contains("holder"), "{show:?}");
    guard.unlock().await.expect("it is held");
}

// Goal: options of clients come from the environment, and options of the command line come first.
// Method: a host that is not registered, a wait that ends, and a TTL that is too short.
#[tokio::test]
async fn options_of_clients_come_from_the_environment() {
    let tool = prepared("settings").await;
    for (options, variable, code, part) in [
        (&[][..], ("BAKERY_LOCK_HOST", "other"), 125, "host \"other\" is not registered"),
        (&["--register-host"], ("BAKERY_LOCK_HOST", "other"), 0, ""),
        (&[], ("BAKERY_LOCK_TTL", "4s"), 125, "a ttl of 4s is too short"),
        (&["--ttl", "30s"], ("BAKERY_LOCK_TTL", "4s"), 0, ""),
        (&["--host", "third"], ("BAKERY_LOCK_REGISTER_HOST", "true"), 0, ""),
        (
            &["--host", "fourth", "--register-host=false"],
            ("BAKERY_LOCK_REGISTER_HOST", "true"),
            125,
            "host \"fourth\" is not registered",
        ),
    ] {
        let arguments = [&["run"], options, &["free", "--", "true"]].concat();
        let answer = try_lock(&tool, &arguments, variable).await;
        assert_eq!(answer.code, Some(code), "{options:?} {variable:?}: {answer:?}");
        assert!(answer.stderr.contains(part), "{options:?} {variable:?}: {answer:?}");
    }
    let holder = crate::lockctl::client(&tool, "holder").await;
    let guard = holder.lock("taken").await.expect("it is free");
    let wait = ("BAKERY_LOCK_ACQUIRE_TIMEOUT", "500ms");
    let answer = try_lock(&tool, &["run", "taken", "--", "true"], wait).await;
    assert_eq!(answer.code, Some(75), "{answer:?}");
    guard.unlock().await.expect("it is held");

    let added = tool.run_with(&["add"], ("BAKERY_LOCK_HOST", "fifth")).await;
    assert!(added.stdout.starts_with("host fifth has number"), "{added:?}");
}

#[test]
fn unusable_variable_is_named() {
    for (variable, value) in [
        ("BAKERY_LOCK_NODES", "[::1"),
        ("BAKERY_LOCK_REGISTER_HOST", "yes"),
        ("BAKERY_LOCK_ACQUIRE_TIMEOUT", "soon"),
        ("BAKERY_LOCK_TTL", "soon"),
        ("BAKERY_LOCK_LOCAL_HANDOFF", "yes"),
        ("BAKERY_LOCK_CONSISTENCY", "one"),
        ("BAKERY_LOCK_PEERS", "here"),
    ] {
        for tool in TOOLS {
            let answer = run(tool, &["list"], &[(variable, value)]);
            assert_eq!(answer.code, Some(2), "{answer:?}");
            let named = format!("the variable {variable} can't be used: ");
            assert!(answer.stderr.contains(&named), "{answer:?}");
        }
        let answer = run(lockctl, &["run", "a", "true"], &[(variable, value)]);
        assert_eq!(answer.code, Some(125), "{answer:?}");
    }
    for (variable, value) in [("BAKERY_LOCK_KEYSPACE", "a'b"), ("BAKERY_LOCK_LOCK_TABLE", "a;b")] {
        for tool in TOOLS {
            let answer = run(tool, &["list"], &[(variable, value)]);
            assert_eq!(answer.code, Some(2), "{answer:?}");
            assert!(answer.stderr.contains("can't be the name of a"), "{answer:?}");
        }
    }
}

// Goal: an empty variable is as one that is unset, for all of them.
// Method: with all empty, the tools try the default node; with a valid one, that node.
#[test]
fn empty_variable_is_unset() {
    let names = [
        "NODES",
        "KEYSPACE",
        "LOCK_TABLE",
        "HOST",
        "REGISTER_HOST",
        "ACQUIRE_TIMEOUT",
        "TTL",
        "TURNS",
        "CONSISTENCY",
        "PEERS",
        "USER",
        "PASSWORD",
    ];
    let names = names.map(|name| format!("BAKERY_LOCK_{name}"));
    let empty: Vec<_> = names.iter().map(|name| (name.as_str(), "")).collect();
    // A port that nobody listens at, so that no cluster answers.
    let node = [("BAKERY_LOCK_NODES", "127.0.0.1:1,")];
    for tool in TOOLS {
        let answer = run(tool, &["--nodes=127.0.0.1:2", "--timeout=2s", "list"], &empty);
        assert_eq!(answer.code, Some(3), "{answer:?}");
        assert!(answer.stderr.contains(": 127.0.0.1:2: "), "{answer:?}");
        let answer = run(tool, &["--timeout=2s", "list"], &[&empty[..], &node].concat());
        assert_eq!(answer.code, Some(3), "{answer:?}");
        assert!(answer.stderr.contains(": 127.0.0.1:1: "), "{answer:?}");
    }
}

// Goal: an address of IPv6 is read as users of the driver expect, and the error shows what was
// connected to.
#[test]
fn error_shows_the_address_that_was_connected_to() {
    for (nodes, shown) in [
        ("[::1]", "[::1]:9042: "),
        ("[::1]:1", "[::1]:1: "),
        ("fd00::1:1", "[fd00::1:1]:9042 (for another port of an IPv6 address, use [ADDRESS]:PORT)"),
        ("127.0.0.1:1,", "check --nodes, and TLS if the nodes require it: 127.0.0.1:1: "),
    ] {
        for tool in TOOLS {
            let answer = run(tool, &["--timeout=1s", "--nodes", nodes, "list"], &[]);
            assert_eq!(answer.code, Some(3), "{answer:?}");
            assert!(answer.stderr.contains(shown), "{nodes}: {answer:?}");
            assert!(!answer.stderr.contains("can't be found"), "{nodes}: {answer:?}");
        }
    }
}

// Goal: packagers need no environment that suits a cluster.
#[test]
fn completions_and_pages_need_no_valid_environment() {
    let unusable = [
        ("BAKERY_LOCK_NODES", "[::1"),
        ("BAKERY_LOCK_KEYSPACE", "a'b"),
        ("BAKERY_LOCK_TTL", "soon"),
        ("BAKERY_LOCK_PASSWORD", "secret"),
    ];
    let directory = std::env::temp_dir().join(format!("bakery-lock-env-{}", std::process::id()));
    let path = directory.to_str().expect("the path is text");
    for tool in TOOLS {
        for arguments in [&["completions", "bash"][..], &["man", "--dir", path], &["--help"]] {
            let answer = run(tool, arguments, &unusable);
            assert_eq!((answer.code, answer.stderr.as_str()), (Some(0), ""), "{arguments:?}");
        }
    }
    std::fs::remove_dir_all(&directory).expect("the pages were written");
}
