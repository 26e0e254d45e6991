//! One user per name, in a web service.
//!
//!     cargo run --features bakery-lock-examples/axum --example unique_user

use std::{collections::BTreeSet, error::Error, sync::Arc};

use axum::extract::{Path, State};
use axum::{Router, body::Body, http::Request, http::StatusCode, routing::put};
use bakery_lock::{LockClient, MemoryStore};
use tokio::sync::Mutex;
use tower::ServiceExt;

type App = (LockClient, Arc<Mutex<BTreeSet<String>>>);

async fn create(State((locks, users)): State<App>, Path(name): Path<String>) -> StatusCode {
    let lock = format!("users::{name}");
    match locks.with_lock(lock, async |_| users.lock().await.insert(name)).await {
        Ok(true) => StatusCode::CREATED,
        Ok(false) => StatusCode::CONFLICT,
        Err(error) if error.is_retryable() => StatusCode::SERVICE_UNAVAILABLE,
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // On a cluster: LockClient::builder(session, "bakery_lock").build().await?
    let locks = LockClient::builder_in_memory(&MemoryStore::new()).build().await?;
    let state: App = (locks.clone(), Arc::default());
    let service = Router::new().route("/users/{name}", put(create)).with_state(state);
    let ask = || Request::put("/users/snap").body(Body::empty());
    let answers = tokio::try_join!(service.clone().oneshot(ask()?), service.oneshot(ask()?))?;
    println!("{} and {}", answers.0.status(), answers.1.status());
    assert_ne!(answers.0.status(), answers.1.status(), "one of them finds the name taken");
    Ok(locks.shutdown().await?)
}
