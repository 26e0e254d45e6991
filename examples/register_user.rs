//! Many want to create one user; one succeeds, the others are told that it exists.
//!
//! Cassandra has no unique constraint: "read, and write if it is not there" lets two of them in,
//! unless a lock makes one thing of the two steps.
//!
//!     cargo run --example register_user
//!     cargo run --example register_user -- --nodes 127.0.0.1,127.0.0.2,127.0.0.3
//!
//! Without arguments eight tasks race, on a store in memory. With `--nodes` three processes of
//! eight tasks each race on a cluster; the example makes the keyspace and the tables. With
//! `--peers 127.0.0.1:0` too, the processes pass the lock on by message.

use std::collections::HashMap;
use std::error::Error;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use bakery_lock::schema::{self, CreateOptions, Replication};
use bakery_lock::{LockClient, MemoryStore, PeerOptions};
use clap::Parser;
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::statement::Consistency;
use scylla::statement::unprepared::Statement;
use tokio::task::JoinSet;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const KEYSPACE: &str = "bakery_lock_example";
const PROCESSES: usize = 3;
const TASKS: usize = 8;

#[derive(Parser)]
struct Options {
    /// Nodes of a cluster, with commas in between; without them, a store in memory is used.
    #[arg(long, value_delimiter = ',')]
    nodes: Vec<String>,
    /// The user to create.
    #[arg(long, default_value = "snap")]
    user: String,
    /// Let the processes be peers: where each of them listens, and what it advertises if that
    /// differs. They share a machine, so let the system choose the ports.
    #[arg(long, value_name = "auto|BIND[,ADVERTISED]", requires = "nodes")]
    peers: Option<PeerOptions>,
    /// Only race: one of the processes that the example starts.
    #[arg(long, hide = true, requires = "nodes")]
    race: bool,
}

#[tokio::main]
async fn main() -> Result<()> {
    let options = Options::parse();
    if options.nodes.is_empty() {
        let client = LockClient::builder_in_memory(&MemoryStore::new()).build().await?;
        return race(&client, &Users::Memory(Arc::default()), &options.user).await;
    }
    let session = SessionBuilder::new().known_nodes(&options.nodes).build().await?;
    let session = Arc::new(session);
    if options.race {
        // In production a host is registered once, by `lock-hosts add`.
        let mut client = LockClient::builder(Arc::clone(&session), KEYSPACE).register_host(true);
        if let Some(peers) = options.peers {
            client = client.peers(peers);
        }
        return race(&client.build().await?, &Users::Cluster(session), &options.user).await;
    }
    prepare(&session, &options.user).await?;
    let race = || {
        let nodes = options.nodes.join(",");
        let mut process = Command::new(std::env::current_exe()?);
        process.args(["--race", "--user", &options.user, "--nodes", &nodes]);
        if let Some(peers) = &options.peers {
            process.args(["--peers", &peers.to_string()]);
        }
        process.stdin(Stdio::null()).spawn()
    };
    let processes = (0..PROCESSES).map(|_| race()).collect::<std::io::Result<Vec<_>>>()?;
    for mut process in processes {
        let status = tokio::task::spawn_blocking(move || process.wait()).await??;
        if !status.success() {
            return Err("a process failed".into());
        }
    }
    Ok(())
}

/// Lets some tasks create the same user at the same moment.
async fn race(client: &LockClient, users: &Users, name: &str) -> Result<()> {
    let mut tasks = JoinSet::new();
    for task in 1..=TASKS {
        let (client, users, name) = (client.clone(), users.clone(), name.to_owned());
        let caller = format!("process {}, task {task}", std::process::id());
        tasks.spawn(async move { register(&client, &users, &name, &caller).await });
    }
    for outcome in tasks.join_all().await {
        println!("{}", outcome?);
    }
    // Gives back what is held, and waits until that is done.
    client.shutdown().await?;
    Ok(())
}

/// Creates a user unless it exists: one caller at a time does what is between `lock` and `unlock`.
async fn register(client: &LockClient, users: &Users, name: &str, caller: &str) -> Result<String> {
    let guard = client.lock(&format!("users::{name}")).await?;
    let outcome = match users.creator(name).await? {
        None => {
            users.create(name, caller).await?;
            format!("{caller}: created user {name:?}")
        }
        Some(creator) => format!("{caller}: user {name:?} exists, by {creator}"),
    };
    guard.unlock().await?;
    Ok(outcome)
}

/// The users and their creators, by name.
#[derive(Clone)]
enum Users {
    Memory(Arc<Mutex<HashMap<String, String>>>),
    Cluster(Arc<Session>),
}

impl Users {
    async fn creator(&self, name: &str) -> Result<Option<String>> {
        match self {
            Users::Memory(users) => {
                // Give others the chance to come in between: they can't, because of the lock.
                tokio::task::yield_now().await;
                Ok(users.lock().expect("the mutex is not poisoned").get(name).cloned())
            }
            Users::Cluster(session) => {
                let select = format!("SELECT creator FROM {KEYSPACE}.users WHERE name = ?");
                let rows = session.query_unpaged(at_quorum(select), (name,)).await?;
                let row = rows.into_rows_result()?.maybe_first_row::<(String,)>()?;
                Ok(row.map(|(creator,)| creator))
            }
        }
    }

    async fn create(&self, name: &str, creator: &str) -> Result<()> {
        match self {
            Users::Memory(users) => {
                let mut users = users.lock().expect("the mutex is not poisoned");
                users.insert(name.to_owned(), creator.to_owned());
            }
            Users::Cluster(session) => {
                let insert = format!("INSERT INTO {KEYSPACE}.users (name, creator) VALUES (?, ?)");
                session.query_unpaged(at_quorum(insert), (name, creator)).await?;
            }
        }
        Ok(())
    }
}

/// The data must be read and written at QUORUM like the lock, or the next holder may not see it.
fn at_quorum(text: String) -> Statement {
    let mut statement = Statement::new(text);
    statement.set_consistency(Consistency::Quorum);
    statement
}

/// Makes the keyspace and the tables, and forgets the user of an earlier run.
async fn prepare(session: &Session, user: &str) -> Result<()> {
    let nodes = session.get_cluster_state().get_nodes_info().len();
    let replicas = u32::try_from(nodes.min(3))?;
    let options = CreateOptions::new().replication(Replication::Factor(replicas));
    schema::create(session, KEYSPACE, &options).await?;
    let columns = "name text PRIMARY KEY, creator text";
    let create = format!("CREATE TABLE IF NOT EXISTS {KEYSPACE}.users ({columns})");
    session.query_unpaged(create, ()).await?;
    let delete = format!("DELETE FROM {KEYSPACE}.users WHERE name = ?");
    session.query_unpaged(at_quorum(delete), (user,)).await?;
    Ok(())
}
