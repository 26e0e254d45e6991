//! Whether a client gets locks now.

use std::time::Duration;

use tokio::sync::oneshot;

use crate::admin::types::{Health, UnreadyReason};
use crate::client::{Interruption, LockClient};
use crate::context::retry::until_answered;
use crate::core::bakery::Read;
use crate::driver::client_task::Call;
use crate::driver::registration::HostReport;

impl LockClient {
    /// Whether this client gets locks now, for readiness probes.
    ///
    /// It is not ready if it was shut down or forked, if a quorum does not answer a read, if its
    /// host was removed from the registry, if clocks certainly differ by too much, or if the lock
    /// table is not the one that it was built on; each reason says what to do, so a request for a
    /// free lock that is made now succeeds, as far as reading can show: a right to write that is
    /// missing shows at the first lock. [`Health::warnings`] has what should be seen to although
    /// locks are granted: a registry of hosts that does not answer.
    ///
    /// The call costs one read of an object that does not exist, at the consistency of locks
    /// ([`Statistics::object_reads`](crate::Statistics::object_reads) counts it). Its name is
    /// random, so each call asks the replicas of another range; where only some ranges have no
    /// quorum, some calls say so. The rest is what the client knows anyway, and reads again when it
    /// is more than a minute old: one row of the registry, and a look at the clock and the table of
    /// each node, so a probe may call it every few seconds; a client that holds no lock then makes
    /// these reads once a minute, and every 5 s while clocks differ.
    ///
    /// It waits for a quorum, with retries, until the client's acquire timeout. A probe that must
    /// answer sooner can drop the future. A [read-only](crate::LockClientBuilder::read_only) client
    /// has no host, and is ready if it could see locks and all else is as it must be.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    ///
    /// # Example
    ///
    /// A readiness probe: the status and the text of its response.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use bakery_lock::LockClient;
    /// use tokio::time::timeout;
    ///
    /// async fn ready(client: &LockClient) -> (u16, String) {
    ///     match timeout(Duration::from_secs(1), client.health()).await {
    ///         Ok(health) if health.is_ready() => (200, health.to_string()),
    ///         Ok(health) => (503, health.to_string()),
    ///         Err(_) => (503, "not ready: no answer within a second".to_owned()),
    ///     }
    /// }
    ///
    /// # use bakery_lock::MemoryStore;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let store = MemoryStore::new();
    /// # let client = LockClient::builder_in_memory(&store).build().await?;
    /// assert_eq!(ready(&client).await, (200, "ready".to_owned()));
    /// client.shutdown().await?;
    /// assert_eq!(ready(&client).await.0, 503);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn health(&self) -> Health {
        let found = tokio::try_join!(self.table(), self.host(), self.problem());
        match found {
            // It may have been shut down meanwhile.
            Ok(_) if self.inner.calls.is_closed() => Health::ended(UnreadyReason::Closed),
            Ok((table, host, problem)) => Health {
                reasons: [table, host.reason, problem].into_iter().flatten().collect(),
                warnings: host.warning.into_iter().collect(),
            },
            Err(Ended::Closed) => Health::ended(UnreadyReason::Closed),
            Err(Ended::Forked) => Health::ended(UnreadyReason::Forked),
        }
    }

    /// What keeps the lock table from being read.
    async fn table(&self) -> Found {
        let object = self.shared().entropy.client().to_string();
        let mut last_error = None;
        let rows = until_answered(
            || self.shared().store.rows.read(&object, Read::Object),
            &mut last_error,
        );
        match self.unless_interrupted(rows).await {
            Ok(Ok(_)) => Ok(None),
            Ok(Err(cause)) => Ok(Some(UnreadyReason::refused(cause))),
            Err(interruption) => {
                let waited = interruption.time()?;
                Ok(Some(UnreadyReason::Unanswered { waited, cause: last_error }))
            }
        }
    }

    /// What the client's task knows of the host.
    async fn host(&self) -> Result<HostReport, Ended> {
        match self.unless_interrupted(self.ask(Call::QueryHost)).await {
            Ok(Some(report)) => Ok(report),
            Ok(None) => Err(Ended::Closed),
            // The registry still has time to answer.
            Err(interruption) => interruption.time().map(|_| HostReport::default()),
        }
    }

    /// What the client's task has found that keeps it from granting locks.
    async fn problem(&self) -> Found {
        match self.unless_interrupted(self.ask(Call::QueryHealth)).await {
            Ok(Some(problem)) => Ok(problem.map(UnreadyReason::from)),
            Ok(None) => Err(Ended::Closed),
            // A check that takes so long has found nothing yet.
            Err(interruption) => interruption.time().map(|_| None),
        }
    }

    /// The answer of the client's task; `None` if that has ended.
    async fn ask<T>(&self, call: impl FnOnce(oneshot::Sender<T>) -> Call) -> Option<T> {
        let (reply, answer) = oneshot::channel();
        self.inner.calls.send(call(reply)).ok()?;
        answer.await.ok()
    }
}

/// What was found, unless the client has ended.
type Found = Result<Option<UnreadyReason>, Ended>;

/// Why a client is of no use any more.
enum Ended {
    Closed,
    Forked,
}

impl Interruption {
    /// How long the database was waited for.
    fn time(self) -> Result<Duration, Ended> {
        match self {
            Interruption::TimedOut { waited } => Ok(waited),
            Interruption::Closed => Err(Ended::Closed),
            Interruption::Forked => Err(Ended::Forked),
        }
    }
}
