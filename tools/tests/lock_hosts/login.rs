//! A cluster with a login.

use std::fs;
use std::path::PathBuf;

use cassandra_cluster::{Authentication, Cluster, ClusterOptions};

use super::command::{Answer, lock_hosts};

/// A node of this test's own.
fn options() -> ClusterOptions {
    ClusterOptions {
        name: "login".to_owned(),
        first_host: 31,
        authentication: Authentication::Password,
        ..ClusterOptions::default()
    }
}

fn run(node: &str, arguments: &[&str], password: Option<&str>) -> Answer {
    let mut command = lock_hosts(&["--nodes", node]);
    command.args(arguments);
    if let Some(password) = password {
        command.env("BAKERY_LOCK_PASSWORD", password);
    }
    command.output().expect("the tool starts").into()
}

fn password_file(text: &str) -> PathBuf {
    let file = std::env::temp_dir().join(format!("lock-hosts-password-{}", std::process::id()));
    fs::write(&file, text).expect("the file can be written");
    file
}

#[test]
fn only_the_right_password_lets_in() {
    let cluster = Cluster::lease(options()).unwrap_or_else(|error| panic!("no cluster: {error}"));
    let node = cluster.nodes()[0].to_string();

    let answer = run(&node, &["list"], None);
    assert_eq!(answer.code, Some(3), "{answer:?}");
    assert!(answer.stderr.contains("the nodes want a login: give --user"), "{}", answer.stderr);

    let answer = run(&node, &["--user", "cassandra", "list"], Some("wrong-secret"));
    assert_eq!(answer.code, Some(3), "{answer:?}");
    let refused = "the login of user \"cassandra\" was refused, check user and password";
    assert!(answer.stderr.contains(refused), "{}", answer.stderr);
    assert!(!answer.stderr.contains("wrong-secret"), "{}", answer.stderr);

    let login = ["--user", "cassandra"];
    let init = [&login[..], &["init", "--replication", "1"]].concat();
    let answer = run(&node, &init, Some("cassandra"));
    assert_eq!((answer.code, answer.stderr.as_str()), (Some(0), ""));

    let file = password_file("cassandra\nand more\n");
    let file_path = file.to_str().expect("the path is text");
    let add = [&login[..], &["--password-file", file_path, "add", "web1"]].concat();
    let answer = run(&node, &add, None);
    fs::remove_file(&file).expect("the file can be removed");
    assert_eq!(answer.stdout, "host web1 has number 1\n", "{answer:?}");
}
