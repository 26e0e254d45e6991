//! `init` and `check` on a cluster.

use crate::command::{Tool, replicas};

#[tokio::test]
async fn tables_are_created_once() {
    let tool = Tool::new("init").await;
    let keyspace = &tool.keyspace;
    let answer = tool.run(&["init"]).await;
    assert_eq!(answer.code, Some(1), "{answer:?}");
    assert!(answer.stderr.contains("does not exist"), "{}", answer.stderr);

    let replicas = replicas().await;
    let made = tool.done(&["init", "--replication", &replicas, "--max-ttl", "60s"]).await;
    let expected = format!(
        "made keyspace {keyspace}\nmade table {keyspace}.lock_table\n\
         made table {keyspace}.lock_hosts\nmade table {keyspace}.lock_peers\n"
    );
    assert!(made.starts_with(&expected), "{made}");
    let again = tool.done(&["init", "--replication", &replicas, "--max-ttl", "60s"]).await;
    assert!(!again.contains("made") && again.contains("is ready"), "{again}");
}

// Goal: a keyspace gets no second lock table by a mistake in its name or in a variable, because
// clients of two tables do not exclude each other; nor do the settings of the registry's own lock
// table get recorded, with which clients could use it.
// Method: ask for another table by option and by variable, then with the flag for it; and for the
// default one where `jobs` is used.
#[tokio::test]
async fn second_lock_table_needs_a_flag() {
    let tool = Tool::initialized("second").await;
    let keyspace = &tool.keyspace;
    let init = ["--lock-table", "jobs", "init"];
    let refused = tool.run(&init).await;
    assert_eq!((refused.code, refused.stdout.as_str()), (Some(1), ""), "{refused:?}");
    for part in ["has lock table \"lock_table\"", "use --lock-table lock_table", "nothing was"] {
        assert!(refused.stderr.contains(part), "{part}: {}", refused.stderr);
    }
    let made = tool.done(&[&init[..], &["--another-lock-table"]].concat()).await;
    assert!(made.starts_with(&format!("made table {keyspace}.jobs\n")), "{made}");
    for table in ["jobs", "lock_table"] {
        let again = tool.done(&["--lock-table", table, "init"]).await;
        assert!(!again.contains("made") && again.contains("is ready"), "{again}");
    }

    let tool = Tool::new("first").await;
    let init = ["--lock-table", "jobs", "init", "--replication", &replicas().await];
    tool.done(&init).await;
    let refused = tool.run(&["init"]).await;
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.stderr.contains("has lock table \"jobs\""), "{}", refused.stderr);
    tool.done(&init).await;
}

#[tokio::test]
async fn settings_are_recorded_once_and_reported() {
    let tool = Tool::new("settings").await;
    let keyspace = &tool.keyspace;
    let init = ["init", "--replication", &replicas().await, "--max-clock-skew"];
    let init = |skew| [&init[..], &[skew]].concat();
    let made = tool.done(&init("250ms")).await;
    let line = format!("recorded for {keyspace}.lock_table: QUORUM, max_clock_skew 250ms\n");
    assert!(made.contains(&line), "{made}");
    let again = tool.done(&init("250ms")).await;
    assert!(!again.contains("recorded"), "{again}");

    let other = tool.run(&init("1s")).await;
    assert_eq!(other.code, Some(1), "{other:?}");
    let told = "QUORUM and a max_clock_skew of 250ms are recorded, not QUORUM and a max_clock_skew \
                of 1s; use what is recorded, or stop all clients, run DELETE FROM";
    assert!(other.stderr.contains(told), "{}", other.stderr);

    let json = tool.run(&["doctor", "--json"]).await.stdout;
    let report: serde_json::Value = serde_json::from_str(&json).expect("the tool prints JSON");
    let findings = report["findings"].as_array().expect("there are findings");
    let finding = findings.iter().find(|it| it["subject"] == "settings of lock_table");
    let finding = finding.expect("the settings are reported");
    assert_eq!(finding["severity"], "ok", "{finding}");
    let found = "QUORUM and a max_clock_skew of 250ms are recorded, for clients of protocol 2";
    assert_eq!(finding["found"], found);

    let session = support::session().await;
    let datacenter = session.get_cluster_state().get_nodes_info()[0].datacenter.clone();
    let local = format!("local-quorum:{}", datacenter.expect("a node has a data centre"));
    let answer = tool.run(&["--consistency", &local, "doctor"]).await;
    assert_eq!(answer.code, Some(1), "{answer:?}");
    let line =
        "error    settings of lock_table: lock table \"lock_table\" is used with QUORUM, but";
    assert!(answer.stdout.contains(line), "{}", answer.stdout);
    let made = tool
        .done(&["--consistency", &local, "--lock-table", "local", "init", "--another-lock-table"])
        .await;
    assert!(made.contains(&format!("recorded for {keyspace}.local: LOCAL_QUORUM of")), "{made}");
}

#[tokio::test]
async fn registry_has_its_own_lock_table() {
    let tool = Tool::new("own").await;
    let init = ["--lock-table", "other", "init", "--replication", &replicas().await];
    let made = tool.done(&init).await;
    for table in ["other", "lock_table", "lock_hosts", "lock_peers"] {
        assert!(made.contains(&format!("made table {}.{table}\n", tool.keyspace)), "{made}");
    }
    let added = tool.done(&["--lock-table", "other", "add", "web1"]).await;
    assert_eq!(added, "host web1 has number 1\n");
}

// Goal: `check` warns where an earlier version made no table of peers, with what to do; `init` adds
// it.
// Method: drop the table, and look before and after `init`.
#[tokio::test]
async fn keyspace_of_an_earlier_version_gets_its_table_of_peers() {
    let tool = Tool::initialized("peers").await;
    let drop = format!("DROP TABLE \"{}\".lock_peers", tool.keyspace);
    support::session().await.query_unpaged(drop, ()).await.expect("the table can be dropped");
    tool.done(&["add", "web1"]).await;
    let check = tool.done(&["doctor", "--host", "web1"]).await;
    let warning = format!(
        "warning  lock_peers: does not exist, as an earlier version made the keyspace; run \
         `lock-hosts init`, which adds it, or CREATE TABLE IF NOT EXISTS \"{}\".\"lock_peers\" (",
        tool.keyspace
    );
    assert!(check.contains(&warning), "{check}");
    for (strict, code, verdict) in [(&[][..], 0, "yes"), (&["--strict"], 1, "no")] {
        let check = [&["doctor", "--host", "web1", "--json"], strict].concat();
        let answer = tool.run(&check).await;
        assert_eq!(answer.code, Some(code), "{answer:?}");
        let report: serde_json::Value = serde_json::from_str(&answer.stdout).expect("it is JSON");
        assert_eq!(report["verdict"], verdict);
    }
    let made = tool.done(&["init"]).await;
    assert!(made.starts_with(&format!("made table {}.lock_peers\n", tool.keyspace)), "{made}");
    let check = tool.done(&["doctor", "--host", "web1"]).await;
    assert!(check.contains("ok       lock_peers: as it should be\n"), "{check}");
}

#[tokio::test]
async fn refused_commands_create_nothing() {
    let tool = Tool::new("refused").await;
    for (arguments, code, reason) in [
        (&["init", "--replication", "0"][..], 2, "a keyspace needs replicas"),
        (&["init", "--replication", "1", "--max-ttl", "29s"], 2, "from 30 to 600"),
        (&["init", "--replication", "1", "--max-ttl", "10m1s"], 2, "use a number of seconds"),
        (&["init", "--replication", "1", "--max-ttl", "30500ms"], 2, "whole seconds"),
        (&["init", "--replication", "1", "--max-clock-skew", "0"], 2, "from 1 to 1499"),
        (&["init", "--replication", "1", "--max-clock-skew", "2s"], 2, "from 1 to 1499"),
        (&["add", "web1"], 1, "lock-hosts init --keyspace"),
        (&["list"], 1, "lock-hosts init --keyspace"),
    ] {
        let answer = tool.run(arguments).await;
        assert_eq!(answer.code, Some(code), "{arguments:?}: {answer:?}");
        assert!(answer.stderr.contains(reason), "{arguments:?}: {}", answer.stderr);
    }
    let answer = tool.run(&["doctor"]).await;
    assert_eq!(answer.code, Some(1), "{answer:?}");
    assert!(answer.stdout.contains("error    keyspace"), "{}", answer.stdout);
}

#[tokio::test]
async fn tables_with_other_options_are_refused() {
    let tool = Tool::initialized("options").await;
    let alter = format!("ALTER TABLE \"{}\".lock_table WITH gc_grace_seconds = 60", tool.keyspace);
    support::session().await.query_unpaged(alter, ()).await.expect("the table can be altered");
    for arguments in [&["init"][..], &["add", "web1"], &["doctor"]] {
        let answer = tool.run(arguments).await;
        let said = answer.stdout + &answer.stderr;
        assert_eq!(answer.code, Some(1), "{arguments:?}: {said}");
        assert!(said.contains("gc_grace_seconds is 60, not 240"), "{arguments:?}: {said}");
        assert!(said.contains("ALTER TABLE"), "{arguments:?}: {said}");
    }
}

#[tokio::test]
async fn check_says_whether_this_host_can_lock() {
    let tool = Tool::initialized("doctor").await;
    let answer = tool.run(&["doctor", "--host", "web1"]).await;
    assert_eq!(answer.code, Some(1), "{answer:?}");
    let advice = format!("run `lock-hosts --keyspace {} add web1`", tool.keyspace);
    let line = format!("error    host web1: not registered; {advice}\n");
    assert!(answer.stdout.ends_with(&line), "{}", answer.stdout);
    assert!(answer.stderr.contains("host web1 can't take locks: 1 of "), "{}", answer.stderr);

    tool.done(&["add", "web1"]).await;
    let text = tool.done(&["doctor", "--host", "web1"]).await;
    assert!(text.ends_with("ok       host web1: registered with number 1\n"), "{text}");
    let json = tool.done(&["doctor", "--host", "web1", "--json"]).await;
    let report: serde_json::Value = serde_json::from_str(&json).expect("the tool prints JSON");
    assert_eq!(report["verdict"], "yes", "{json}");
    let findings = report["findings"].as_array().expect("there are findings");
    assert!(findings.len() >= 5, "{json}");
    for finding in findings {
        let fine = finding["severity"] == "ok";
        assert_eq!(finding["advice"].is_null(), fine, "each finding says what to do: {finding}");
    }

    tool.done(&["remove", "web1"]).await;
    let answer = tool.run(&["doctor", "--host", "web1", "--json"]).await;
    assert_eq!(answer.code, Some(1), "{answer:?}");
    let report: serde_json::Value = serde_json::from_str(&answer.stdout).expect("it is JSON");
    assert_eq!(report["verdict"], "no", "{report}");
}

#[tokio::test]
async fn replication_that_a_quorum_can_not_use_is_found() {
    let tool = Tool::initialized("datacenter").await;
    let answer = tool.run(&["--consistency", "local-quorum:nowhere", "doctor"]).await;
    assert_eq!(answer.code, Some(1), "{answer:?}");
    assert!(answer.stdout.contains("no data centre \"nowhere\""), "{}", answer.stdout);
}
