//! Three servers, and clients on them.

use std::time::Duration;

use bakery_lock::masters::{self, InitOptions};
use bakery_lock::{LockClient, LockClientBuilder, Masters};

use support::masters::{MasterServers, WITHOUT_PERSISTENCE};
use support::pace;

/// The shortest that a lock table may have, so that a server that lost its data is back soon.
pub(crate) const MAX_TTL: Duration = Duration::from_secs(30);

/// For how long a server that lost its data takes no part: [`MAX_TTL`], writes that may be under
/// way, and the clock skew.
pub(crate) const QUARANTINE: Duration = Duration::from_secs(30 + 15 + 1);

/// Servers with a lock table.
pub(crate) struct Scene {
    pub(crate) servers: MasterServers,
    pub(crate) masters: Masters,
}

impl Scene {
    /// Three servers without persistence.
    pub(crate) async fn new() -> Self {
        Self::on(MasterServers::start_with(3, WITHOUT_PERSISTENCE)).await
    }

    /// Servers that have no lock table yet.
    pub(crate) async fn on(servers: MasterServers) -> Self {
        let masters = connect(&servers.urls()).await;
        masters::init(&masters, &options().fresh(true)).await.expect("the servers can be used");
        Scene { servers, masters }
    }

    /// A builder of clients whose callers have the time limit of tests.
    pub(crate) fn builder(&self) -> LockClientBuilder {
        builder(&self.masters)
    }

    /// A client.
    pub(crate) async fn client(&self) -> LockClient {
        built(self.builder()).await
    }
}

/// The options of the lock table.
pub(crate) fn options() -> InitOptions {
    InitOptions::new().max_ttl(MAX_TTL)
}

/// Connects to servers.
pub(crate) async fn connect(urls: &[String]) -> Masters {
    Masters::connect(urls).await.expect("these are addresses")
}

/// A builder of clients whose callers have the time limit of tests.
pub(crate) fn builder(masters: &Masters) -> LockClientBuilder {
    let builder = LockClient::builder_on_masters(masters).host("test-host");
    builder.ttl(MAX_TTL).acquire_timeout(pace::limit())
}

/// Builds a client. Servers that do not answer in time are asked again.
pub(crate) async fn built(builder: LockClientBuilder) -> LockClient {
    let built = async {
        loop {
            match Box::pin(builder.clone().build()).await {
                Ok(client) => return client,
                Err(error) if error.is_retryable() => {
                    println!("built again: {error}");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                Err(error) => panic!("the servers are ready: {error:?}"),
            }
        }
    };
    pace::within_limit("a client", built).await
}

/// Waits until a check of the masters shows something.
pub(crate) async fn wait_for_finding(masters: &Masters, what: &str) {
    let found = async {
        loop {
            let report = masters::check(masters, "lock_table").await;
            let findings = report.map(|report| report.findings).unwrap_or_default();
            if findings.iter().any(|finding| finding.to_string().contains(what)) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    pace::within_limit(what, found).await;
}
