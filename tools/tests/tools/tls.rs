//! The library over TLS.

use std::collections::HashMap;
use std::sync::Arc;

use bakery_lock::schema::{self, CreateOptions, Replication};
use bakery_lock::{LockClient, LockError};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use scylla::client::SelfIdentity;
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use support::pace;

use crate::secured::SecuredNode;

/// By which the node knows the connections of a session.
const APPLICATION: &str = "bakery-lock-over-tls";

/// A session with a login, over TLS, as a program builds it.
async fn session(node: &SecuredNode) -> Arc<Session> {
    let [certificate, key] = &node.identity;
    let read = |file| CertificateDer::from_pem_file(file).expect("the file holds a certificate");
    let mut roots = RootCertStore::empty();
    roots.add(read(&node.authority)).expect("it is an authority's");
    let tls = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("the provider has them")
        .with_root_certificates(roots)
        .with_client_auth_cert(
            vec![read(certificate)],
            PrivateKeyDer::from_pem_file(key).expect("the file holds a key"),
        )
        .expect("key and certificate go together");
    let session = SessionBuilder::new()
        .known_node(&node.address)
        .user("cassandra", "cassandra")
        .custom_identity(SelfIdentity::new().with_application_name(APPLICATION))
        .tls_context(Some(Arc::new(tls)))
        .build()
        .await;
    Arc::new(session.expect("the node takes the certificate"))
}

/// How many connections of the session the node has, with and without TLS.
async fn connections(session: &Session) -> [usize; 2] {
    let select = "SELECT client_options, ssl_enabled FROM system_views.clients";
    let rows = session.query_unpaged(select, ()).await.expect("the node answers");
    let rows = rows.into_rows_result().expect("a select has rows");
    let rows = rows.rows::<(Option<HashMap<String, String>>, bool)>().expect("these are columns");
    let ours: Vec<_> = rows
        .map(|row| row.expect("this is a row"))
        .filter(|(options, _)| {
            let name = options.as_ref().and_then(|options| options.get("APPLICATION_NAME"));
            name.is_some_and(|name| name == APPLICATION)
        })
        .collect();
    [true, false].map(|tls| ours.iter().filter(|(_, enabled)| *enabled == tls).count())
}

// Goal: a client on a session with TLS locks, excludes another one, draws tokens and unlocks; all
// of it is encrypted.
// Method: two clients on a node that asks for certificates; the node's own list of connections.
#[tokio::test]
async fn client_locks_over_tls() {
    let session = session(SecuredNode::shared()).await;
    let keyspace = support::unique_keyspace("tls");
    let options = CreateOptions::new().replication(Replication::Factor(1));
    schema::create(&session, &keyspace, &options).await.expect("the schema can be made");
    let [holder, other] = ["web1", "web2"].map(|host| {
        let builder = LockClient::builder(Arc::clone(&session), &keyspace).host(host);
        builder.register_host(true).acquire_timeout(pace::limit())
    });
    let holder = holder.build().await.expect("the tables are there");
    let other = other.build().await.expect("the tables are there");

    let guard = holder.lock("users::snap").await.expect("it is free");
    let first = guard.fencing_token().await.expect("it is held");
    let tried = other.request("users::snap").try_acquire().await;
    assert!(matches!(tried, Ok(None)), "it is held twice: {tried:?}");
    let late = other.request("users::snap").timeout(std::time::Duration::from_millis(300));
    let late = late.acquire().await;
    assert!(matches!(late, Err(LockError::TimedOut { cause: None, .. })), "{late:?}");
    guard.unlock().await.expect("it is held");
    let guard = other.lock("users::snap").await.expect("it is free again");
    let second = guard.fencing_token().await.expect("it is held");
    assert!(second > first, "{second:?} after {first:?}");
    guard.unlock().await.expect("it is held");

    let [encrypted, plain] = connections(&session).await;
    assert!(encrypted > 0 && plain == 0, "{encrypted} with TLS and {plain} without");
    for client in [holder, other] {
        client.shutdown().await.expect("the node answers");
    }
}
