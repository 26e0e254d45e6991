//! A web handler that registers users: no other request registers the same name while it reads and
//! writes.
//!
//!     cargo run --features bakery-lock-examples/axum --example web_handler
//!
//! It serves on a free port, and asks itself for the same name eight times at once.

use std::collections::BTreeSet;
use std::error::Error;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::put;
use bakery_lock::{LockClient, LockError, MemoryStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

/// What all handlers share: one client per process. A clone is the same client.
#[derive(Clone)]
struct App {
    locks: LockClient,
    users: Users,
}

async fn create_user(State(app): State<App>, Path(name): Path<String>) -> StatusCode {
    // Shorter than the timeout of the proxy in front, so that a busy name gets an answer.
    let request = app.locks.request(format!("users::{name}")).timeout(Duration::from_secs(2));
    let guard = match request.acquire().await {
        Ok(guard) => guard,
        Err(LockError::TimedOut { .. }) => return StatusCode::SERVICE_UNAVAILABLE,
        Err(_) => return StatusCode::INTERNAL_SERVER_ERROR,
    };
    // If the browser leaves, this future is dropped, and the guard releases the lock.
    if app.users.contains(&name).await {
        return StatusCode::CONFLICT;
    }
    app.users.insert(name).await;
    match guard.unlock().await {
        Ok(()) => StatusCode::CREATED,
        // The user is there, but the lock was lost before: two may have written.
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let store = MemoryStore::new();
    // On a cluster: LockClient::builder(session, "bakery_lock").build().await?
    let locks = LockClient::builder_in_memory(&store).build().await?;
    let app = App { locks: locks.clone(), users: Users::default() };
    let router = Router::new().route("/users/{name}", put(create_user)).with_state(app);
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let (stop, stopped) = oneshot::channel::<()>();
    let served = axum::serve(listener, router).with_graceful_shutdown(async {
        // Sent or dropped, it is time to stop.
        let _ = stopped.await;
    });
    let server = tokio::spawn(served.into_future());

    let mut asking = JoinSet::new();
    for _ in 0..8 {
        asking.spawn(ask(address, "/users/snap"));
    }
    let answers: Vec<String> = asking.join_all().await.into_iter().collect::<Result<_, _>>()?;
    let created = answers.iter().filter(|answer| answer.contains("201 Created")).count();
    let conflicts = answers.iter().filter(|answer| answer.contains("409 Conflict")).count();
    println!("{created} request created the user, {conflicts} found the name taken");
    if (created, conflicts) != (1, 7) {
        return Err(format!("unexpected answers: {answers:?}").into());
    }

    // First the server, then the client: its shutdown releases what is held, and waits for that.
    drop(stop);
    server.await??;
    Ok(locks.shutdown().await?)
}

/// The first line of an answer to a PUT request.
async fn ask(address: SocketAddr, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("PUT {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer.lines().next().unwrap_or_default().to_owned())
}

/// A table of users: in a service, a table of its database.
#[derive(Clone, Default)]
struct Users(Arc<Mutex<BTreeSet<String>>>);

impl Users {
    async fn contains(&self, name: &str) -> bool {
        tokio::time::sleep(Duration::from_millis(5)).await;
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(name)
    }

    async fn insert(&self, name: String) {
        tokio::time::sleep(Duration::from_millis(5)).await;
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(name);
    }
}
