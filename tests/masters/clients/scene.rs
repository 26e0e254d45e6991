//! Three Redis servers of a test's own, with the interface of a keyspace, `support::scene`.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use bakery_lock::masters::{self, InitOptions};
use bakery_lock::{LockClient, LockClientBuilder, Masters};
use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands, AsyncConnectionConfig, Client};

pub(crate) use crate::scene::built;
use support::masters::MasterServers;
use support::pace;
use support::program::Program;
use support::rows::{self, RowAndLife};

/// How many reads an uncontended lock costs besides its write, which reads as well.
pub(crate) const READS_OF_A_LOCK: u64 = 0;

/// Servers with a lock table, and a look at its rows.
#[derive(Clone)]
pub(crate) struct Scene {
    urls: Vec<String>,
    masters: Masters,
    /// A connection to each server; clients have their own.
    pub(crate) connections: Vec<MultiplexedConnection>,
    /// They end with the last clone. A program uses those of the test that started it.
    _servers: Option<Arc<MasterServers>>,
}

impl Scene {
    /// A scene on servers that this call starts.
    pub(crate) async fn new() -> Self {
        let servers = MasterServers::start(3);
        let scene = Scene::on(servers.urls(), Some(Arc::new(servers))).await;
        let options = InitOptions::new().fresh(true);
        masters::init(&scene.masters, &options).await.expect("the servers can be used");
        scene
    }

    /// The scene of a program that [`Scene::start`] started, and its order.
    pub(crate) async fn of(order: &str) -> (Self, &str) {
        let (urls, order) = order.split_once(' ').expect("an order begins with the servers");
        let urls = urls.split(',').map(str::to_owned).collect();
        (Scene::on(urls, None).await, order)
    }

    async fn on(urls: Vec<String>, servers: Option<Arc<MasterServers>>) -> Self {
        let masters = crate::scene::connect(&urls).await;
        let config = AsyncConnectionConfig::new().set_response_timeout(Some(pace::limit()));
        let mut connections = Vec::new();
        for url in &urls {
            let client = Client::open(url.as_str()).expect("it is an address");
            let opened = client.get_multiplexed_async_connection_with_config(&config).await;
            connections.push(opened.expect("the server runs"));
        }
        Scene { urls, masters, connections, _servers: servers }
    }

    /// Starts a test of a neighbouring module as a program that has the same scene.
    pub(crate) fn start(&self, test: &str, order: &str) -> Program {
        let order = format!("{} {order}", self.urls.join(","));
        Program::start(&format!("clients::{test}"), &order, &[])
    }

    /// A builder of clients with the defaults, but that callers wait as long as tests do.
    pub(crate) fn builder(&self) -> LockClientBuilder {
        self.builder_on(&self.masters)
    }

    /// The same by other connections to the servers.
    pub(crate) fn builder_on(&self, masters: &Masters) -> LockClientBuilder {
        let builder = LockClient::builder_on_masters(masters).host("test-host");
        builder.acquire_timeout(pace::limit())
    }

    /// The addresses of the servers.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        let address = |url: &String| url.strip_prefix("redis://")?.parse().ok();
        self.urls.iter().map(|url| address(url).expect("it is an address")).collect()
    }

    /// A client of [`Scene::builder`].
    pub(crate) async fn client(&self) -> LockClient {
        built(self.builder()).await
    }

    /// The names of the live rows of an object.
    pub(crate) async fn rows(&self, object: &str) -> Vec<String> {
        self.rows_and_lives(object).await.into_iter().map(|(name, _)| name).collect()
    }

    /// What all servers together show: the newest write or deletion of each row.
    async fn rows_and_lives(&self, object: &str) -> Vec<RowAndLife> {
        let mut newest = BTreeMap::<String, Cell>::new();
        for mut connection in self.connections.iter().cloned() {
            let fields: Vec<(String, String)> =
                connection.hgetall(key(object)).await.expect("the server answers");
            // The others belong to the object.
            for (field, value) in fields.into_iter().filter(|(field, _)| field.contains('/')) {
                let cell = Cell::of(&value);
                let known = newest.entry(field).or_insert_with(|| cell.clone());
                *known = cell.max(known.clone());
            }
        }
        let live = newest.iter().filter_map(|(field, cell)| Some((row_name(field), cell.life()?)));
        live.map(|(name, life)| (name.to_owned(), Some(life))).collect()
    }

    /// Waits until an object has `count` rows, whatever ends the others.
    pub(crate) async fn wait_for_rows(&self, object: &str, count: usize) {
        rows::wait_for(object, count, || self.rows_and_lives(object)).await;
    }

    /// Waits until all rows of an object are deleted.
    ///
    /// # Panics
    ///
    /// If one is about to expire instead.
    pub(crate) async fn wait_until_deleted(&self, object: &str) {
        rows::wait_until_deleted(|| self.rows_and_lives(object)).await;
    }

    /// Deletes all rows of an object, as a person may do by hand.
    pub(crate) async fn delete_rows(&self, object: &str) {
        for mut connection in self.connections.iter().cloned() {
            let _: () = connection.del(key(object)).await.expect("the server answers");
        }
    }
}

/// The key that has the rows of an object.
fn key(object: &str) -> String {
    format!("bl:lock_table:o:{object}")
}

/// The name in other databases of the row that is in a field.
fn row_name(field: &str) -> &'static str {
    match field.split_once('/') {
        Some(("e", _)) => "entering::",
        Some(("r", _)) => "revoked::",
        Some(_) | None => panic!("{field} is no row"),
    }
}

/// What a server has in a field. Of two, the larger one is the newer one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Cell {
    stamp: String,
    is_deleted: bool,
    /// By the clock of this machine, which the servers share.
    ends_millis: i64,
}

impl Cell {
    /// Reads a value: 20 digits of stamp, L (lives) or D (deleted), 15 digits of expiry in ms.
    fn of(value: &str) -> Self {
        let ends_millis = value[21..36].parse().expect("a cell has an end");
        Cell { stamp: value[..20].to_owned(), is_deleted: &value[20..21] == "D", ends_millis }
    }

    /// For how many seconds it lives; `None` if it is dead.
    fn life(&self) -> Option<i32> {
        let now = UNIX_EPOCH.elapsed().expect("it is later");
        let ends = Duration::from_millis(self.ends_millis.unsigned_abs());
        let left = ends.checked_sub(now).filter(|left| !self.is_deleted && !left.is_zero())?;
        Some(i32::try_from(left.as_secs()).expect("a row lives for minutes at most"))
    }
}
