//! What is found without a database.

use std::ffi::OsStr;
use std::net::TcpListener;
use std::os::unix::ffi::OsStrExt;

use crate::command::{Answer, lockctl};

fn run(arguments: &[&str]) -> Answer {
    lockctl(arguments).output().expect("the tool starts").into()
}

#[test]
fn wrong_usage_is_refused_before_anything_is_sent() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
    listener.set_nonblocking(true).expect("a listener can be told not to block");
    let node = listener.local_addr().expect("a listener has an address").to_string();
    let long = "x".repeat(65_536);
    let refused: &[(&[&str], &str)] = &[
        (&[], "Usage: lockctl"),
        (&["show"], "required arguments were not provided"),
        (&["show", ""], "must not be empty"),
        (&["show", &long], "65535 bytes at most"),
        (&["list", "extra"], "unexpected argument"),
        (&["revoke", "a"], "--why <TEXT>"),
        (&["revoke", "a", "--why", "b", "--yes"], "--force"),
        (&["selftest", "--for", "61m"], "use 60m or less"),
        (&["selftest", "--processes", "0"], "0 is not in 1..=64"),
        (&["bench", "--clients", "4,0"], "0 is not in 1..=256"),
        (&["--consistency", "one", "list"], "two clients could hold one lock"),
        (&["--user", "ops", "list"], "a user without a password"),
        (&["--password", "secret", "list"], "unexpected argument"),
    ];
    for (arguments, reason) in refused {
        let answer = run(&[&["--nodes", &node], *arguments].concat());
        assert_eq!((answer.code, answer.stdout.as_str()), (Some(2), ""), "{answer:?}");
        assert!(answer.stderr.contains(reason), "{reason}: {}", answer.stderr);
        assert!(answer.stderr.len() < 1_000, "it repeats what is long: {}", answer.stderr);
    }
    // A command may exit with 2 itself.
    let refused: &[(&[&str], &str)] = &[
        (&["run"], "required arguments were not provided"),
        (&["run", "a"], "<COMMAND>..."),
        (&["run", "", "true"], "must not be empty"),
        (&["run", &long, "true"], "65535 bytes at most"),
        (&["run", "--no-such-option", "a", "true"], "unexpected argument"),
        (&["--no-such-option", "run", "a", "true"], "unexpected argument"),
        (&["--nodes", "[::1", "run", "a", "true"], "is not the address of a node"),
        (&["--user", "ops", "run", "a", "true"], "a user without a password"),
        (&["elect", "a"], "<COMMAND>..."),
        (&["elect", "--priority", "15", "a", "true"], "15 is not in 1..=14"),
        (&["elect", "--observe", "a", "true"], "cannot be used with"),
    ];
    for (arguments, reason) in refused {
        let answer = run(&[&["--nodes", &node], *arguments].concat());
        assert_eq!((answer.code, answer.stdout.as_str()), (Some(125), ""), "{answer:?}");
        assert!(answer.stderr.contains(reason), "{reason}: {}", answer.stderr);
        assert!(answer.stderr.len() < 1_000, "it repeats what is long: {}", answer.stderr);
    }
    assert!(listener.accept().is_err(), "something was sent");
}

#[test]
fn argument_that_is_not_utf8_is_named() {
    let odd = OsStr::from_bytes(b"caf\xe9");
    let commands: [(&[&str], &[&str], i32); 4] = [
        (&["show"], &[], 2),
        (&["--user"], &["list"], 2),
        (&["run"], &["true"], 125),
        (&["elect", "--label"], &["a", "true"], 125),
    ];
    for (before, after, code) in commands {
        let answer = lockctl(before).arg(odd).args(after).output().expect("the tool starts");
        let answer = Answer::from(answer);
        assert_eq!((answer.code, answer.stdout.as_str()), (Some(code), ""), "{answer:?}");
        assert!(answer.stderr.contains(r#""caf\xE9" is not UTF-8"#), "{}", answer.stderr);
    }
}

#[test]
fn node_that_refuses_is_named() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
    let node = listener.local_addr().expect("a listener has an address").to_string();
    drop(listener);
    for command in [&["list"][..], &["show", "a"], &["revoke", "a", "--why", "b"]] {
        let answer = run(&[&["--timeout", "2s", "--nodes", &node], command].concat());
        assert_eq!(answer.code, Some(3), "{answer:?}");
        assert!(answer.stderr.starts_with("lockctl: no node can be reached"), "{answer:?}");
        assert!(answer.stderr.contains(&node), "{answer:?}");
    }
}

#[test]
fn help_has_examples_and_exit_codes() {
    let help = run(&["--help"]);
    assert_eq!(help.code, Some(0));
    for part in [
        "Examples:",
        "Exit codes:",
        "BAKERY_LOCK_PASSWORD",
        "show",
        "list",
        "revoke",
        "run",
        "elect",
        "selftest",
        "bench",
    ] {
        assert!(help.stdout.contains(part), "{part}");
    }
    for command in
        ["show", "watch", "list", "revoke", "status", "run", "elect", "selftest", "bench"]
    {
        let help = run(&[command, "--help"]);
        assert_eq!(help.code, Some(0), "{command}");
        assert!(help.stdout.contains(&format!("lockctl {command}")), "{}", help.stdout);
        assert!(help.stdout.contains("Example"), "{command}");
    }
    assert!(run(&["--version"]).stdout.starts_with("lockctl "));
}
