//! Nodes that require a login, and offer TLS to clients that show a certificate.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use cassandra_cluster::{Authentication, Cluster, ClusterOptions};

const STORE_PASSWORD: &str = "not-a-secret";

/// A node, and the files of clients that it lets in.
pub(crate) struct SecuredNode {
    /// It runs as long as this value, or the process.
    _cluster: Cluster,
    pub(crate) address: String,
    /// The authority of the node's certificate.
    pub(crate) authority: PathBuf,
    /// A client's certificate and its key.
    pub(crate) identity: [PathBuf; 2],
}

impl SecuredNode {
    /// The one that tests share.
    pub(crate) fn shared() -> &'static Self {
        static SHARED: LazyLock<SecuredNode> =
            LazyLock::new(|| SecuredNode::start("login", 31, &["-validity", "7"]));
        &SHARED
    }

    /// One whose certificate expired a week ago.
    pub(crate) fn with_an_expired_certificate() -> Self {
        SecuredNode::start("expired", 32, &["-startdate", "-10d", "-validity", "3"])
    }

    fn start(name: &str, host: u8, validity: &[&str]) -> Self {
        let made = node_certificate(&format!("{name}-node"), &format!("127.0.0.{host}"), validity);
        let identity = client_certificate(&format!("{name}-client"));
        let truststore = trusting(&format!("{name}-trusted"), &identity[0]);
        let cluster = Cluster::lease(options(name, host, &made.keystore, &truststore));
        let cluster = cluster.unwrap_or_else(|error| panic!("no cluster: {error}"));
        let address = cluster.nodes()[0].to_string();
        SecuredNode { _cluster: cluster, address, authority: made.authority, identity }
    }
}

/// A node with the key in `keystore`, which trusts the clients in `truststore`. It takes clients
/// without TLS as well, because the cluster's supervisor is one.
fn options(name: &str, host: u8, keystore: &Path, truststore: &Path) -> ClusterOptions {
    let (keystore, truststore) = (keystore.display(), truststore.display());
    let tls = format!(
        "{{enabled: true, optional: true, store_type: PKCS12, keystore: '{keystore}', \
         keystore_password: {STORE_PASSWORD}, require_client_auth: true, \
         truststore: '{truststore}', truststore_password: {STORE_PASSWORD}}}"
    );
    ClusterOptions {
        name: name.to_owned(),
        first_host: host,
        authentication: Authentication::Password,
        settings: BTreeMap::from([("client_encryption_options".to_owned(), tls)]),
        ..ClusterOptions::default()
    }
}

/// A key with a certificate, and the certificate, which is its own authority.
pub(crate) struct NodeCertificate {
    keystore: PathBuf,
    pub(crate) authority: PathBuf,
}

/// Creates a key with a certificate for a node's address.
pub(crate) fn node_certificate(name: &str, address: &str, validity: &[&str]) -> NodeCertificate {
    let [keystore, authority] = ["p12", "pem"].map(|kind| in_target(name, kind));
    for file in [&keystore, &authority] {
        // A file of an earlier run may be there, with a certificate that is too old.
        let _ = fs::remove_file(file);
    }
    let distinguished = format!("CN={name}");
    let address = format!("san=ip:{address}");
    let make = ["-genkeypair", "-keyalg", "EC", "-dname", &distinguished, "-ext", &address];
    keytool(&[&make, validity].concat(), name, &keystore);
    let export = ["-exportcert", "-rfc", "-file", authority.to_str().expect("the path is text")];
    keytool(&export, name, &keystore);
    NodeCertificate { keystore, authority }
}

/// Creates a client's certificate; returns a file with it, and one with its key.
pub(crate) fn client_certificate(name: &str) -> [PathBuf; 2] {
    let made = rcgen::generate_simple_self_signed([name.to_owned()]).expect("the name is one");
    let files = ["crt", "key"].map(|kind| in_target(name, kind));
    for (file, text) in files.iter().zip([made.cert.pem(), made.signing_key.serialize_pem()]) {
        fs::write(file, text).expect("the file can be written");
    }
    files
}

/// A store that trusts a client's certificate.
fn trusting(name: &str, certificate: &Path) -> PathBuf {
    let store = in_target(name, "p12");
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
