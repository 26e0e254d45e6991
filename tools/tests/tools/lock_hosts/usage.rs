//! Errors that are found without a database.

use std::fs;
use std::net::TcpListener;

use crate::command::{Answer, lock_hosts, run};

/// A listener that notices if anything is sent to it, and its address.
fn listener() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
    listener.set_nonblocking(true).expect("a listener can be told not to block");
    let address = listener.local_addr().expect("a listener has an address").to_string();
    (listener, address)
}

#[test]
fn wrong_usage_is_refused_before_anything_is_sent() {
    let (listener, node) = listener();
    let long = "x".repeat(256);
    let refused: &[(&[&str], &str)] = &[
        (&["--consistency", "one", "list"], "two clients could hold one lock"),
        (&["--consistency", "all", "list"], "one dead node would stop all locks"),
        (&["--consistency", "local-quorum", "list"], "name the data centre"),
        (&["--keyspace", "a\"b", "list"], "can't be the name of a keyspace"),
        (&["--keyspace", "", "list"], "can't be the name of a keyspace"),
        (&["--nodes", "db1,,db2", "list"], "the address of a node is empty"),
        (&["--nodes", "[::1]:", "list"], "or with a port as in [fd00::1]:9042"),
        (&["--lock-table", "a;b", "list"], "can't be the name of a table"),
        (&["--lock-table", "lock_hosts", "list"], "registry of hosts"),
        (&["--lock-table", "lock_peers", "list"], "table of peers"),
        (&["--timeout", "0", "list"], "no time to do anything"),
        (&["--timeout", "soon", "list"], "use a number of seconds"),
        (&["--user", "admin", "list"], "a user without a password"),
        (&["--password-file", "/nonexistent", "list"], "can't be used: no such file"),
        (&["--tls-cert", "c.pem", "list"], "need --tls-ca"),
        (&["--tls-ca", "/dev/null", "list"], "holds no such item in PEM format"),
        (&["--tls-ca", "/nonexistent", "list"], "can't be used: no such file"),
        (&["--password", "secret", "list"], "unexpected argument"),
        (&["init", "--replication", "dc1:3"], "use a number, or one for each data centre"),
        (&["init", "--max-ttl", "1h"], "use a number of seconds"),
        (&["init", "--max-clock-skew", "1.5s"], "use a number of seconds"),
        (&["add", "a,b"], "contains ','"),
        (&["add", "a b"], "contains ' '"),
        (&["add", ""], "is empty"),
        (&["add", &long], "has 256 bytes"),
        (&["add", "fine", "a\tb"], "contains '\\t'"),
        (&["remove"], "required arguments were not provided"),
        (&["remove", "--inactive-for", "30"], "use a number with a unit: 30d, 48h, 4w"),
        (&["remove", "--inactive-for", "1d"], "seen once a day"),
        (&["remove", "--inactive-for", "30d", "web1"], "cannot be used with"),
        (&["remove", "--dry-run"], "required arguments were not provided"),
        (&["remove", "--dry-run", "web1"], "cannot be used with"),
        (&["remove", "--yes", "web1"], "cannot be used with"),
        (&["list", "extra"], "unexpected argument"),
        (&[], "Usage: lock-hosts"),
    ];
    for (arguments, reason) in refused {
        let arguments = [&["--nodes", &node], *arguments].concat();
        let answer = run(&arguments);
        assert_eq!(answer.code, Some(2), "{arguments:?}: {answer:?}");
        assert!(answer.stderr.contains(reason), "{arguments:?}: {}", answer.stderr);
        assert_eq!(answer.stdout, "", "{arguments:?}");
    }
    assert!(listener.accept().is_err(), "something was sent");
}

#[test]
fn password_needs_a_user() {
    let answer = lock_hosts(&["list"]).env("BAKERY_LOCK_PASSWORD", "secret").output();
    let answer = answer.expect("the tool starts");
    assert_eq!(answer.status.code(), Some(2));
    let stderr = String::from_utf8_lossy(&answer.stderr);
    assert!(stderr.contains("a password without a user"), "{stderr}");
    assert!(!stderr.contains("secret"), "{stderr}");
}

#[test]
fn nodes_that_do_not_answer_are_unreachable() {
    // A port that was free a moment ago refuses; a listener that accepts no connection is silent.
    let (free, refusing) = listener();
    drop(free);
    let (_silent, silent) = listener();
    let nodes = [
        (refusing.as_str(), "connection refused"),
        (&silent, "it accepts connections, but does not answer"),
        ("no-such-host.invalid", "its address can't be found"),
    ];
    let commands = [&["list"][..], &["add", "a"], &["init", "--replication", "1"], &["doctor"]];
    let mut running = Vec::new();
    for (node, reason) in nodes {
        for command in commands {
            let arguments = [&["--timeout", "2s", "--nodes", node], command].concat();
            let child = lock_hosts(&arguments).spawn().expect("the tool starts");
            running.push((child, node, reason));
        }
    }
    for (child, node, reason) in running {
        let answer = Answer::from(child.wait_with_output().expect("it was started here"));
        assert_eq!(answer.code, Some(3), "{node}: {answer:?}");
        assert!(answer.stderr.starts_with("lock-hosts: no node "), "{}", answer.stderr);
        assert!(answer.stderr.contains("check --nodes"), "{}", answer.stderr);
        // On a slow machine the time may be over before a node has refused.
        let reasons = [reason, "no answer within 2s"];
        assert!(reasons.iter().any(|reason| answer.stderr.contains(reason)), "{}", answer.stderr);
    }
}

#[test]
fn help_has_examples_and_exit_codes() {
    let help = run(&["--help"]);
    assert_eq!(help.code, Some(0));
    for part in ["Examples:", "Exit codes:", "BAKERY_LOCK_PASSWORD", "add", "remove", "doctor"] {
        assert!(help.stdout.contains(part), "{part}");
    }
    for command in ["init", "add", "remove", "list", "doctor"] {
        let help = run(&[command, "--help"]);
        assert_eq!(help.code, Some(0), "{command}");
        assert!(help.stdout.contains(&format!("lock-hosts {command}")), "{}", help.stdout);
        assert!(help.stdout.contains("Example"), "{command}");
    }
    assert!(run(&["--version"]).stdout.starts_with("lock-hosts "));
}

#[test]
fn file_without_a_certificate_is_named() {
    let directory = std::env::temp_dir().join(format!("lock-hosts-{}", std::process::id()));
    fs::create_dir_all(&directory).expect("the directory can be made");
    let file = directory.join("not-pem.pem");
    fs::write(&file, "nothing\n").expect("the file can be written");
    let file = file.to_str().expect("the path is text");
    let answer = run(&["--tls-ca", file, "list"]);
    fs::remove_dir_all(&directory).expect("the directory can be removed");
    assert_eq!(answer.code, Some(2), "{answer:?}");
    assert!(answer.stderr.contains("not-pem.pem can't be used"), "{}", answer.stderr);
}
