//! A holder that is stopped for longer than its lease has lost the lock and does not know yet: what
//! it was about to write, it writes. Fencing tokens make such a write lose.
//!
//!     cargo run --example fencing
//!     cargo run --example fencing -- --nodes 127.0.0.1,127.0.0.2,127.0.0.3
//!
//! Without arguments the resource is no database, but something that keeps a gate; the locks are in
//! memory. With `--nodes` it is a table of a cluster, and Cassandra itself lets the stale write
//! lose: a process takes the lock and is stopped by `SIGSTOP` just before it writes. Both are done
//! with tokens and, to compare, without.

use std::error::Error;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use bakery_lock::schema::{self, CreateOptions, Replication};
use bakery_lock::{FenceGate, FencingToken, LockClient, MemoryStore, StaleToken};
use clap::Parser;
use rustix::process::{Pid, Signal, kill_process};
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::statement::Consistency;
use scylla::statement::unprepared::Statement;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::sleep;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const KEYSPACE: &str = "bakery_lock_example";

/// The shortest TTL there is, so that the example does not take long.
const TTL: Duration = Duration::from_secs(5);

#[derive(Parser)]
struct Options {
    /// Nodes of a cluster, with commas in between; without them, a store in memory is used.
    #[arg(long, value_delimiter = ',')]
    nodes: Vec<String>,
    /// Only hold the lock of this account and write to it: the process that is stopped.
    #[arg(long, hide = true, requires = "nodes")]
    withdraw_from: Option<String>,
    /// Whether that process uses a token.
    #[arg(long, hide = true)]
    fenced: bool,
}

#[tokio::main]
async fn main() -> Result<()> {
    let options = Options::parse();
    if options.nodes.is_empty() {
        return at_a_gate().await;
    }
    let session = Arc::new(SessionBuilder::new().known_nodes(&options.nodes).build().await?);
    if let Some(account) = options.withdraw_from {
        return withdraw(session, &account, options.fenced).await;
    }
    prepare(&session).await?;
    let nodes = options.nodes.join(",");
    let (plain, fenced) = tokio::try_join!(
        in_cassandra(&session, &nodes, "plain", false),
        in_cassandra(&session, &nodes, "fenced", true),
    )?;
    println!("without tokens the balance is {plain}: the stale holder's write won");
    println!("with tokens the balance is {fenced}: the stale holder's write lost");
    if (plain, fenced) == (90, 50) { Ok(()) } else { Err("it should be 90 and 50".into()) }
}

// A resource elsewhere.

/// Something outside of the database: what is written to it is what it gets.
#[derive(Default)]
struct Display {
    gate: FenceGate,
    shows: String,
}

impl Display {
    fn show(&mut self, text: &str) {
        text.clone_into(&mut self.shows);
    }

    /// Asking the gate and showing is one step here, because no other caller has the display
    /// meanwhile. A display that is switched off would keep `gate.high_water()` with what it shows.
    fn show_fenced(
        &mut self,
        token: FencingToken,
        text: &str,
    ) -> std::result::Result<(), StaleToken> {
        self.gate.admit(token)?;
        self.show(text);
        Ok(())
    }
}

async fn at_a_gate() -> Result<()> {
    let client = LockClient::builder_in_memory(&MemoryStore::new());
    let client = client.ttl(TTL).build().await?;
    let (mut plain, mut fenced) = (Display::default(), Display::default());

    // A lease that is not renewed ends as that of a stopped process does.
    let stale = client.request("display").auto_renew(false).acquire().await?;
    let old_token = stale.fencing_token().await?;
    println!("a holder has token {old_token}, and does nothing for longer than its lease");
    let guard = client.lock("display").await?;
    let token = guard.fencing_token().await?;
    println!("the next holder has token {token}, and shows 'new'");
    plain.show("new");
    fenced.show_fenced(token, "new")?;

    // A careful program would look at `stale.state()`. But however late it looks, it can be stopped
    // right after.
    plain.show("old");
    println!("the first one goes on; without tokens the display shows {:?}", plain.shows);
    let refused = fenced.show_fenced(old_token, "old").expect_err("a larger token was here");
    println!("with tokens it shows {:?}: {refused}", fenced.shows);
    guard.unlock().await?;
    client.shutdown().await?;
    Ok(())
}

// A table.

/// Stops a process that is about to withdraw, withdraws in its place, and lets it continue. What
/// the balance is then.
async fn in_cassandra(
    session: &Arc<Session>,
    nodes: &str,
    account: &str,
    fenced: bool,
) -> Result<i32> {
    let mut holder = start(nodes, account, fenced)?;
    let mut lines = BufReader::new(holder.stdout.take().ok_or("it is piped")?).lines();
    let Some(line) = lines.next_line().await? else {
        return Err("the holder ended too early".into());
    };
    println!("{account}: {line}");
    signal(&holder, Signal::STOP)?;
    println!("{account}: the holder is stopped");

    let client = client(session).await?;
    let patience = Duration::from_secs(30);
    let guard = client.request(account).timeout(patience).acquire().await?;
    let token = if fenced { Some(guard.fencing_token().await?) } else { None };
    let balance = balance(session, account).await? - 50;
    write(session, account, balance, token).await?;
    println!("{account}: its lease is over; the next holder took 50, the balance is {balance}");
    guard.unlock().await?;

    signal(&holder, Signal::CONT)?;
    while let Some(line) = lines.next_line().await? {
        println!("{account}: {line}");
    }
    if !holder.wait().await?.success() {
        return Err("the holder failed".into());
    }
    client.shutdown().await?;
    self::balance(session, account).await
}

/// The process that is stopped: it takes 10, a while after it has read the balance.
async fn withdraw(session: Arc<Session>, account: &str, fenced: bool) -> Result<()> {
    let client = client(&session).await?;
    let guard = client.lock(account).await?;
    let token = if fenced { Some(guard.fencing_token().await?) } else { None };
    let balance = balance(&session, account).await? - 10;
    println!("a holder is about to take 10");
    // Here it is stopped, and looks at its guard no more.
    sleep(Duration::from_secs(1)).await;
    write(&session, account, balance, token).await?;
    println!("the first holder goes on, takes 10 and writes {balance}: {:?}", guard.state());
    client.shutdown().await?;
    Ok(())
}

async fn client(session: &Arc<Session>) -> Result<LockClient> {
    let builder = LockClient::builder(Arc::clone(session), KEYSPACE).register_host(true);
    Ok(builder.ttl(TTL).build().await?)
}

async fn balance(session: &Session, account: &str) -> Result<i32> {
    let select = format!("SELECT balance FROM {KEYSPACE}.accounts WHERE name = ?");
    let rows = session.query_unpaged(at_quorum(select), (account,)).await?;
    Ok(rows.into_rows_result()?.single_row::<(i32,)>()?.0)
}

/// Writes with the token's timestamp. A write without a token has the time of day.
async fn write(
    session: &Session,
    account: &str,
    balance: i32,
    token: Option<FencingToken>,
) -> Result<()> {
    let update = format!("UPDATE {KEYSPACE}.accounts");
    match token {
        Some(token) => {
            // The second write of a row would be number 1, and so on.
            let stamp = token.write_timestamp(0).ok_or("a token has room for 1000 writes")?;
            let update = format!("{update} USING TIMESTAMP ? SET balance = ? WHERE name = ?");
            session.query_unpaged(at_quorum(update), (stamp, balance, account)).await?;
        }
        None => {
            let update = format!("{update} SET balance = ? WHERE name = ?");
            session.query_unpaged(at_quorum(update), (balance, account)).await?;
        }
    }
    Ok(())
}

/// The data must be read and written at QUORUM like the lock, or the next holder may not see it.
fn at_quorum(text: String) -> Statement {
    let mut statement = Statement::new(text);
    statement.set_consistency(Consistency::Quorum);
    statement
}

/// Makes the keyspace and the tables, and puts 100 into each account.
async fn prepare(session: &Arc<Session>) -> Result<()> {
    let nodes = session.get_cluster_state().get_nodes_info().len();
    let replicas = u32::try_from(nodes.min(3))?;
    let options = CreateOptions::new().replication(Replication::Factor(replicas));
    schema::create(session, KEYSPACE, &options).await?;
    let columns = "name text PRIMARY KEY, balance int";
    let create = format!("CREATE TABLE IF NOT EXISTS {KEYSPACE}.accounts ({columns})");
    session.query_unpaged(create, ()).await?;
    write(session, "plain", 100, None).await?;
    // All writers of the cells of the fenced account use tokens, also the one that makes it.
    let client = client(session).await?;
    let guard = client.lock("fenced").await?;
    write(session, "fenced", 100, Some(guard.fencing_token().await?)).await?;
    guard.unlock().await?;
    client.shutdown().await?;
    Ok(())
}

fn start(nodes: &str, account: &str, fenced: bool) -> Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--nodes", nodes, "--withdraw-from", account]);
    if fenced {
        command.arg("--fenced");
    }
    Ok(command.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true).spawn()?)
}

fn signal(process: &Child, signal: Signal) -> Result<()> {
    let pid = process.id().ok_or("the process has ended")?;
    let pid = Pid::from_raw(i32::try_from(pid)?).ok_or("a process has a number")?;
    Ok(kill_process(pid, signal)?)
}
