//! A node that requires a login, and offers TLS to clients that show a certificate.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use cassandra_cluster::{Authentication, Cluster, ClusterOptions, Compiler};

use crate::command::{Answer, lock_hosts};

const NODE: &str = "127.0.0.31";

/// A node of this test's own, with the key in `keystore`, which trusts the clients in `truststore`.
/// It takes clients without TLS as well, because the cluster's supervisor is one.
fn options(keystore: &Path, truststore: &Path) -> ClusterOptions {
    let (keystore, truststore) = (keystore.display(), truststore.display());
    let tls = format!(
        "{{enabled: true, optional: true, store_type: PKCS12, keystore: '{keystore}', \
         keystore_password: {STORE_PASSWORD}, require_client_auth: true, \
         truststore: '{truststore}', truststore_password: {STORE_PASSWORD}}}"
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
    let [store, pem] = ["p12", "pem"].map(|kind| in_target(name, kind));
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

/// Creates a client's certificate; returns a file with it, and one with its key.
fn client_certificate(name: &str) -> [PathBuf; 2] {
    let made = rcgen::generate_simple_self_signed([name.to_owned()]).expect("the name is one");
    let files = ["crt", "key"].map(|kind| in_target(name, kind));
    for (file, text) in files.iter().zip([made.cert.pem(), made.signing_key.serialize_pem()]) {
        fs::write(file, text).expect("the file can be written");
    }
    files
}

/// A store that trusts a client's certificate.
fn trusting(certificate: &Path) -> PathBuf {
    let store = in_target("lock-hosts-trusted", "p12");
    let _ = fs::remove_file(&store);
    let file = certificate.to_str().expect("the path is text");
    keytool(&["-importcert", "-noprompt", "-file", file], "client", &store);
    store
}

fn in_target(name: &str, kind: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.{kind}"))
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
    let client = client_certificate("lock-hosts-client");
    let stranger = client_certificate("lock-hosts-other-client");
    let cluster = Cluster::lease(options(&keystore, &trusting(&client[0])));
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

    let list = |authority: &Path, certificate: Option<&[PathBuf; 2]>| {
        let mut arguments: Vec<_> = ["--user", "cassandra", "--tls-ca"].map(OsStr::new).into();
        arguments.push(authority.as_os_str());
        for (option, file) in
            ["--tls-cert", "--tls-key"].iter().zip(certificate.into_iter().flatten())
        {
            arguments.extend([OsStr::new(option), file.as_os_str()]);
        }
        arguments.push(OsStr::new("list"));
        let mut command = lock_hosts(&["--nodes", &node]);
        let answer = command.args(arguments).env("BAKERY_LOCK_PASSWORD", "cassandra").output();
        Answer::from(answer.expect("the tool starts"))
    };
    let answer = list(&authority, Some(&client));
    assert_eq!((answer.code, answer.stderr.as_str()), (Some(0), ""), "{answer:?}");
    for (authority, certificate, advice) in [
        (&wrong_authority, Some(&client), "its certificate is not of the authority in --tls-ca"),
        (&authority, None, "it asks for a certificate: give --tls-cert and --tls-key"),
        (&authority, Some(&stranger), "not trust the certificate in --tls-cert"),
    ] {
        let answer = list(authority, certificate);
        assert_eq!(answer.code, Some(3), "{answer:?}");
        assert!(answer.stderr.contains(advice), "{}", answer.stderr);
    }
}
