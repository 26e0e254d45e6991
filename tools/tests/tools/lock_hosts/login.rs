//! Logins and certificates that a node takes, and those that it does not.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use crate::command::{Answer, lock_hosts, patient};
use crate::secured::{SecuredNode, client_certificate, node_certificate};

fn run(node: &str, arguments: &[&str], password: Option<&str>) -> Answer {
    let mut command = patient(lock_hosts(&["--nodes", node]));
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

/// Runs `list` with TLS.
fn list(node: &str, authority: &Path, identity: Option<&[PathBuf; 2]>) -> Answer {
    let mut arguments: Vec<_> = ["--user", "cassandra", "--tls-ca"].map(OsStr::new).into();
    arguments.push(authority.as_os_str());
    for (option, file) in ["--tls-cert", "--tls-key"].iter().zip(identity.into_iter().flatten()) {
        arguments.extend([OsStr::new(option), file.as_os_str()]);
    }
    arguments.push(OsStr::new("list"));
    let mut command = patient(lock_hosts(&["--nodes", node]));
    let answer = command.args(arguments).env("BAKERY_LOCK_PASSWORD", "cassandra").output();
    answer.expect("the tool starts").into()
}

#[test]
fn only_the_right_password_and_certificate_let_in() {
    let SecuredNode { address: node, authority, identity, .. } = SecuredNode::shared();
    let stranger = node_certificate("stranger-node", "127.0.0.31", &["-validity", "7"]);
    let strange_client = client_certificate("stranger-client");

    let answer = run(node, &["list"], None);
    assert_eq!(answer.code, Some(3), "{answer:?}");
    assert!(answer.stderr.contains("the nodes require a login: give --user"), "{}", answer.stderr);

    let answer = run(node, &["--user", "cassandra", "list"], Some("wrong-secret"));
    assert_eq!(answer.code, Some(3), "{answer:?}");
    let refused = "the login of user \"cassandra\" was refused, check user and password";
    assert!(answer.stderr.contains(refused), "{}", answer.stderr);

    let login = ["--user", "cassandra"];
    let init = [&login[..], &["init", "--replication", "1"]].concat();
    let answer = run(node, &init, Some("cassandra"));
    assert_eq!((answer.code, answer.stderr.as_str()), (Some(0), ""));

    let file = password_file("cassandra\nand more\n");
    let file_path = file.to_str().expect("the path is text");
    let add = [&login[..], &["--password-file", file_path, "add", "web1"]].concat();
    let answer = run(node, &add, None);
    fs::remove_file(&file).expect("the file can be removed");
    assert_eq!(answer.stdout, "host web1 has number 1\n", "{answer:?}");

    let answer = list(node, authority, Some(identity));
    assert_eq!((answer.code, answer.stderr.as_str()), (Some(0), ""), "{answer:?}");
    for (authority, identity, advice) in [
        (
            &stranger.authority,
            Some(identity),
            "its certificate is not of the authority in --tls-ca",
        ),
        (authority, None, "it asks for a certificate: give --tls-cert and --tls-key"),
        (authority, Some(&strange_client), "not trust the certificate in --tls-cert"),
    ] {
        let answer = list(node, authority, identity);
        assert_eq!(answer.code, Some(3), "{answer:?}");
        assert!(answer.stderr.contains(advice), "{}", answer.stderr);
    }
}

// Goal: a node whose certificate has expired is told from one that can't be reached, with what to
// do.
// Method: a node with a certificate that expired a week ago, and is signed by the right authority.
#[test]
fn expired_certificate_is_told() {
    let node = SecuredNode::with_an_expired_certificate();
    let answer = list(&node.address, &node.authority, Some(&node.identity));
    assert_eq!((answer.code, answer.stdout.as_str()), (Some(3), ""), "{answer:?}");
    let advice = "its certificate has expired: give it a new one; or this machine's clock is \
                  wrong (";
    assert!(answer.stderr.contains(advice), "{}", answer.stderr);
}
