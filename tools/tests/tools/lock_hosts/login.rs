//! A node that requires a login, and offers TLS.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use cassandra_cluster::{Authentication, Cluster, ClusterOptions, Compiler};

use crate::command::{Answer, lock_hosts};

const NODE: &str = "127.0.0.31";

/// A node of this test's own, with the key in `keystore`. It takes clients without TLS as well,
/// because the cluster's supervisor is one.
fn options(keystore: &Path) -> ClusterOptions {
    let keystore = keystore.display();
    let tls = format!(
        "{{enabled: true, optional: true, store_type: PKCS12, keystore: '{keystore}', \
         keystore_password: {STORE_PASSWORD}}}"
    );
    ClusterOptions {
        name: "login".to_owned(),
        first_host: 31,
        compiler: Compiler::Quick,
        authentication: Authentication::Password,
        settings: BTreeMap::from([("client_encryption_options".to_owned(), tls)]),
        ..ClusterOptions::default()
    }
}

const STORE_PASSWORD: &str = "not-a-secret";

/// Creates a key with a certificate for the node's address; returns a file with the key, and one
/// with the certificate, which is its own authority.
fn certificate(name: &str) -> (PathBuf, PathBuf) {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let [store, pem] = ["p12", "pem"].map(|kind| directory.join(format!("{name}.{kind}")));
    for file in [&store, &pem] {
        // A file of an earlier run may be there, with a certificate that is too old.
        let _ = fs::remove_file(file);
    }
    let distinguished = format!("CN={name}");
    let address = format!("san=ip:{NODE}");
    let make = ["-keyalg", "EC", "-dname", &distinguished, "-ext", &address, "-validity", "7"];
    keytool(&[&["-genkeypair"][..], &make].concat(), name, &store);
    let export = ["-exportcert", "-rfc", "-file", pem.to_str().expect("the path is text")];
    keytool(&export, name, &store);
    (store, pem)
}

/// Runs Java's keytool, which is there because the node needs Java.
fn keytool(arguments: &[&str], alias: &str, store: &Path) {
    let java = std::env::var_os("JAVA_HOME").map(|home| Path::new(&home).join("bin"));
    let output = Command::new(java.unwrap_or_default().join("keytool"))
        .args(arguments)
        .args(["-alias", alias, "-storetype", "PKCS12", "-storepass", STORE_PASSWORD, "-keystore"])
        .arg(store)
        .output();
    let output = output.unwrap_or_else(|error| panic!("keytool of Java 17 is missing: {error}"));
    assert!(output.status.success(), "keytool {arguments:?}: {output:?}");
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
fn only_the_right_password_and_certificate_let_in() {
    let (keystore, authority) = certificate("lock-hosts-node");
    let (_, wrong_authority) = certificate("lock-hosts-stranger");
    let cluster = Cluster::lease(options(&keystore));
    let cluster = cluster.unwrap_or_else(|error| panic!("no cluster: {error}"));
    let node = cluster.nodes()[0].to_string();

    let answer = run(&node, &["list"], None);
    assert_eq!(answer.code, Some(3), "{answer:?}");
    assert!(answer.stderr.contains("the nodes require a login: give --user"), "{}", answer.stderr);

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

    for (authority, code) in [(authority, 0), (wrong_authority, 3)] {
        let authority = authority.to_str().expect("the path is text");
        let list = [&login[..], &["--tls-ca", authority, "list"]].concat();
        let answer = run(&node, &list, Some("cassandra"));
        assert_eq!(answer.code, Some(code), "{answer:?}");
        assert_eq!(answer.stderr.contains("UnknownIssuer"), code == 3, "{}", answer.stderr);
    }
}
