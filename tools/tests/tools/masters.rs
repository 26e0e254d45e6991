//! The tools on Redis servers.

use support::masters::MasterServers;

use crate::command::{Answer, lock_hosts, lockctl};

/// Three servers without a lock table, and how the tools are led to them.
struct Scene {
    servers: MasterServers,
    masters: String,
}

impl Scene {
    fn new() -> Self {
        let servers = MasterServers::start(3);
        let addresses: Vec<_> = (0..3).map(|index| servers.address(index).to_string()).collect();
        Scene { servers, masters: addresses.join(",") }
    }

    fn run(&self, tool: fn(&[&str]) -> std::process::Command, arguments: &[&str]) -> Answer {
        let options = ["--masters", &self.masters];
        let arguments = [&options[..], arguments].concat();
        tool(&arguments).output().expect("the tool starts").into()
    }

    fn done(&self, tool: fn(&[&str]) -> std::process::Command, arguments: &[&str]) -> String {
        let answer = self.run(tool, arguments);
        assert_eq!(answer.code, Some(0), "{arguments:?}: {answer:?}");
        answer.stdout
    }
}

// Goal: from empty servers to a lock from a shell, each step as the one before says.
#[tokio::test]
async fn locks_from_a_shell_need_a_table_and_nothing_else() {
    let scene = Scene::new();
    let early = scene.run(lockctl, &["run", "job", "--", "echo", "done"]);
    assert!(early.stderr.contains("run `lock-hosts init`"), "{early:?}");

    let made = scene.done(lock_hosts, &["init", "--max-ttl", "60s", "--fresh"]);
    assert_eq!(made, "made lock table lock_table on 3 masters\nthey take part at once\n");
    let again = scene.done(lock_hosts, &["init", "--max-ttl", "60s"]);
    assert_eq!(again, "all masters have lock table lock_table\n");
    let checked = scene.done(lock_hosts, &["doctor"]);
    assert!(checked.contains("3 of 3 masters take part"), "{checked}");

    let ran = scene.done(lockctl, &["run", "job", "--", "echo", "done"]);
    assert_eq!(ran, "done\n");
    let hosts = scene.done(lock_hosts, &["list"]);
    assert_eq!(hosts.lines().count(), 2, "{hosts}");
    assert!(scene.done(lockctl, &["status"]).starts_with("LOCKREADY"));
    assert_eq!(scene.done(lockctl, &["list"]), "");
}

// Goal: a server that lost its data, and a majority that is down, are named with what to do.
#[tokio::test]
async fn servers_that_fail_are_named() {
    let mut scene = Scene::new();
    let waits = scene.done(lock_hosts, &["init", "--max-ttl", "60s"]);
    assert!(waits.contains("they take part in 76s"), "{waits}");
    let checked = scene.run(lock_hosts, &["doctor"]);
    assert_eq!(checked.code, Some(1), "{checked:?}");
    assert!(checked.stdout.contains("it lost its data, and takes part in"), "{checked:?}");

    scene.servers.flush(0);
    let restored = scene.done(lock_hosts, &["init", "--max-ttl", "60s"]);
    let expected = format!("master {} has a place again\n", scene.servers.address(0));
    assert!(restored.starts_with(&expected), "{restored}");

    scene.servers.kill(0);
    scene.servers.kill(1);
    let down = scene.run(lockctl, &["status"]);
    assert_eq!(down.code, Some(1), "{down:?}");
    let names_it = format!("master {}: it is not connected", scene.servers.address(1));
    assert!(down.stdout.contains(&names_it), "{down:?}");
}

#[tokio::test]
async fn options_of_clusters_and_of_masters_do_not_mix() {
    for (tool, arguments) in [
        (lock_hosts as fn(&[&str]) -> _, &["--masters", "a,b,c", "--nodes", "d", "list"][..]),
        (lock_hosts, &["--masters", "a,b", "list"]),
        (lock_hosts, &["--masters", "a,b,c", "init", "--replication", "3"]),
        (lock_hosts, &["--masters", "a,b,c", "--tls-ca", "/dev/null", "list"]),
        (lock_hosts, &["init", "--fresh"]),
        (lockctl, &["--masters", "a,,b", "list"]),
    ] {
        let answer: Answer = tool(arguments).output().expect("the tool starts").into();
        assert_eq!(answer.code, Some(2), "{arguments:?}: {answer:?}");
    }
}
