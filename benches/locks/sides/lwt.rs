//! A lock on lightweight transactions, given its best.
//!
//! `INSERT IF NOT EXISTS` with a TTL takes it and `DELETE IF owner` gives it back, as the best
//! known ones do. A contender that finds it taken only reads until it is free, because reads don't
//! disturb the holder's transaction as another transaction does, and pauses in between: longer each
//! time, and jittered. An unknown outcome is settled by a read at SERIAL, which finishes what was
//! begun, instead of leaving the name locked until its TTL is over.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};
use scylla::client::session::Session;
use scylla::errors::ExecutionError;
use scylla::policies::load_balancing::DefaultPolicy;
use scylla::response::query_result::QueryResult;
use scylla::serialize::row::SerializeRow;
use scylla::statement::Consistency;
use scylla::statement::prepared::PreparedStatement;
use scylla::value::{CqlValue, Row};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::sides::backoff::Backoff;
use crate::sides::{Operations, Setup, Side, Tuning};
use common::cluster::KEYSPACE;

/// How a contender behaves; the best set of these is looked for before measuring.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Parameters {
    /// What it does before the first transaction.
    pub(crate) opening: Opening,
    /// How it looks whether the lock is free.
    pub(crate) look: Look,
    /// Which node coordinates.
    pub(crate) coordinator: Coordinator,
    pub(crate) backoff: Backoff,
}

/// What a contender does before its first transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Opening {
    /// Nothing: best where no other contender is expected.
    Try,
    /// Looks whether the lock is free.
    Look,
}

/// How a contender looks whether the lock is free. Only the transaction decides which contender
/// gets it, so even a read of one replica is safe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Look {
    One,
    Quorum,
    Serial,
}

/// Which node coordinates the transactions on one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Coordinator {
    /// Any replica, as the driver does by itself.
    Any,
    /// Always the same replica, as the driver does on ScyllaDB, so that fewer proposers collide.
    Fixed,
}

impl Parameters {
    /// The best where no other contender is expected.
    pub(crate) const ALONE: Parameters = Parameters {
        opening: Opening::Try,
        look: Look::Quorum,
        coordinator: Coordinator::Any,
        backoff: Backoff::of(5, 100),
    };
}

const fn looking(look: Look, coordinator: Coordinator, first: u64, longest: u64) -> Parameters {
    let backoff = Backoff::of(first, longest);
    Parameters { opening: Opening::Look, look, coordinator, backoff }
}

/// What is tried where several want one name.
pub(crate) const CANDIDATES: &[Parameters] = &[
    looking(Look::Quorum, Coordinator::Any, 5, 100),
    looking(Look::Serial, Coordinator::Fixed, 5, 100),
    looking(Look::Quorum, Coordinator::Fixed, 5, 100),
    looking(Look::Quorum, Coordinator::Fixed, 20, 500),
    looking(Look::One, Coordinator::Any, 5, 100),
    looking(Look::One, Coordinator::Fixed, 5, 100),
    looking(Look::One, Coordinator::Fixed, 20, 500),
    looking(Look::One, Coordinator::Fixed, 100, 1000),
];

impl fmt::Display for Parameters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Parameters { opening, look, coordinator, backoff } = self;
        let opening = match opening {
            Opening::Try => "try first",
            Opening::Look => "look first",
        };
        write!(f, "{opening}, look at {look:?}, {coordinator:?} coordinator, {backoff}")
    }
}

/// One client of the lock.
#[derive(Debug)]
pub(crate) struct LwtLock {
    session: Arc<Session>,
    statements: Statements,
    parameters: Parameters,
    patience: Duration,
    sent: AtomicU64,
    failed: AtomicU64,
}

#[derive(Debug)]
struct Statements {
    take: PreparedStatement,
    give: PreparedStatement,
    look: PreparedStatement,
    settle: PreparedStatement,
}

/// A held lock.
#[derive(Debug)]
pub(crate) struct LwtHeld {
    name: String,
    owner: Uuid,
}

impl LwtLock {
    /// Creates the table.
    pub(crate) async fn create_table(session: &Session) -> Result<()> {
        let table = format!("CREATE TABLE {KEYSPACE}.lwt (name text PRIMARY KEY, owner uuid)");
        session.query_unpaged(table, ()).await?;
        Ok(())
    }

    /// Prepares a client.
    pub(crate) async fn prepare(session: &Arc<Session>, setup: &Setup) -> Result<Self> {
        let parameters = match setup.tuning {
            Tuning::Lwt(parameters) => parameters,
            Tuning::None | Tuning::Polling(_) => Parameters::ALONE,
        };
        let ttl = setup.ttl.as_secs();
        let take = format!(
            "INSERT INTO {KEYSPACE}.lwt (name, owner) VALUES (?, ?) IF NOT EXISTS USING TTL {ttl}"
        );
        let give = format!("DELETE FROM {KEYSPACE}.lwt WHERE name = ? IF owner = ?");
        let look = format!("SELECT owner FROM {KEYSPACE}.lwt WHERE name = ?");
        let mut statements = Statements {
            take: session.prepare(take).await?,
            give: session.prepare(give).await?,
            look: session.prepare(look.as_str()).await?,
            settle: session.prepare(look).await?,
        };
        statements.apply(session, parameters);
        Ok(LwtLock {
            session: Arc::clone(session),
            statements,
            parameters,
            patience: setup.patience,
            sent: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        })
    }

    /// One try: `INSERT IF NOT EXISTS`, settled if its outcome is unknown.
    async fn try_take(&self, name: &str, owner: Uuid) -> Result<bool> {
        match self.execute(&self.statements.take, (name, owner)).await {
            // An earlier try whose outcome was unknown may have taken it.
            Ok(answer) => Ok(match Applied::of(answer)? {
                Applied::Yes => true,
                Applied::No { owner: holder } => holder == Some(owner),
            }),
            Err(_) => Ok(self.owner(&self.statements.settle, name).await? == Some(owner)),
        }
    }

    async fn owner(&self, read: &PreparedStatement, name: &str) -> Result<Option<Uuid>> {
        let answer = self.execute(read, (name,)).await?.into_rows_result()?;
        Ok(answer.maybe_first_row::<(Uuid,)>()?.map(|(owner,)| owner))
    }

    async fn execute(
        &self,
        statement: &PreparedStatement,
        values: impl SerializeRow,
    ) -> Result<QueryResult, ExecutionError> {
        self.sent.fetch_add(1, Ordering::Relaxed);
        let answer = self.session.execute_unpaged(statement, values).await;
        if answer.is_err() {
            self.failed.fetch_add(1, Ordering::Relaxed);
        }
        answer
    }
}

impl Side for LwtLock {
    type Held = LwtHeld;

    async fn lock(&self, name: &str) -> Result<LwtHeld> {
        let deadline = Instant::now() + self.patience;
        let owner = Uuid::new_v4();
        let looks_free = async || match self.owner(&self.statements.look, name).await {
            Ok(holder) => holder.is_none_or(|holder| holder == owner),
            Err(_) => false,
        };
        let mut pauses = self.parameters.backoff.pauses();
        let mut free = match self.parameters.opening {
            Opening::Try => true,
            Opening::Look => looks_free().await,
        };
        loop {
            // A try whose outcome could not even be settled counts as failed; should it have taken
            // the lock, the next try finds that.
            if free && self.try_take(name, owner).await.unwrap_or(false) {
                return Ok(LwtHeld { name: name.to_owned(), owner });
            }
            if Instant::now() >= deadline {
                bail!("not obtained within {:?}", self.patience);
            }
            pauses.pause().await;
            free = looks_free().await;
        }
    }

    async fn unlock(&self, LwtHeld { name, owner }: LwtHeld) -> Result<()> {
        let deadline = Instant::now() + self.patience;
        let mut settled = None;
        while settled != Some(true) {
            if Instant::now() >= deadline {
                bail!("not released within {:?}", self.patience);
            }
            settled = match self.execute(&self.statements.give, (&name, owner)).await {
                Ok(_) => Some(true),
                Err(_) => {
                    let holder = self.owner(&self.statements.settle, &name).await;
                    holder.ok().map(|holder| holder != Some(owner))
                }
            };
        }
        Ok(())
    }

    fn operations(&self) -> Operations {
        Operations {
            sent: self.sent.load(Ordering::Relaxed),
            whole_reads: 0,
            failed: self.failed.load(Ordering::Relaxed),
        }
    }
}

impl Statements {
    fn apply(&mut self, session: &Session, parameters: Parameters) {
        let shuffle = match parameters.coordinator {
            Coordinator::Any => true,
            Coordinator::Fixed => false,
        };
        let routing = DefaultPolicy::builder().enable_shuffling_replicas(shuffle).build();
        let default = session.get_default_execution_profile_handle();
        let profile = default.pointee_to_builder().load_balancing_policy(routing).build();
        let handle = profile.into_handle();
        let Statements { take, give, look, settle } = self;
        for statement in [take, give, &mut *look, &mut *settle] {
            statement.set_execution_profile_handle(Some(handle.clone()));
            // Longer than the database's own limits, so that it says what happened.
            statement.set_request_timeout(Some(Duration::from_secs(3)));
        }
        look.set_consistency(match parameters.look {
            Look::One => Consistency::One,
            Look::Quorum => Consistency::Quorum,
            Look::Serial => Consistency::Serial,
        });
        settle.set_consistency(Consistency::Serial);
    }
}

/// What a transaction did.
enum Applied {
    Yes,
    No {
        /// The owner of the lock instead.
        owner: Option<Uuid>,
    },
}

impl Applied {
    fn of(answer: QueryResult) -> Result<Applied> {
        // Cassandra adds the columns of the row only where it is not applied, ScyllaDB always.
        let row = answer.into_rows_result()?.first_row::<Row>()?;
        let mut columns = row.columns.into_iter().flatten();
        match columns.next() {
            Some(CqlValue::Boolean(true)) => Ok(Applied::Yes),
            Some(CqlValue::Boolean(false)) => {
                let owner = columns.find_map(|column| column.as_uuid());
                Ok(Applied::No { owner })
            }
            other => Err(anyhow!("a transaction answered {other:?}")),
        }
    }
}
