//! An extractor for axum: a handler that names it runs under the lock of its path.
//!
//!     cargo run --features bakery-lock-examples/axum --example axum_extractor
//!
//! The lock is held until the handler returns. A client that goes away, or a timeout around the
//! handler, releases it too.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use axum::body::Body;
use axum::extract::{FromRef, FromRequestParts};
use axum::http::request::Parts;
use axum::http::{Request, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Extension, Router};
use bakery_lock::{LockClient, LockError, LockGuard, MemoryStore};
use tokio::task::JoinSet;
use tower::ServiceExt;

/// The lock of the path of a request, held for the handler.
struct PathLock(LockGuard);

impl<S: Sync> FromRequestParts<S> for PathLock
where
    LockClient: FromRef<S>,
{
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refused> {
        let guard = LockClient::from_ref(state).lock(parts.uri.path()).await;
        guard.map(PathLock).map_err(Refused)
    }
}

/// Why a handler did not run.
struct Refused(LockError);

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let status = if self.0.is_retryable() {
            StatusCode::SERVICE_UNAVAILABLE
        } else {
            StatusCode::INTERNAL_SERVER_ERROR
        };
        (status, self.0.to_string()).into_response()
    }
}

/// Adds to a number in two steps.
async fn count(PathLock(lock): PathLock, number: Extension<Arc<AtomicU32>>) -> StatusCode {
    let seen = number.load(Ordering::Relaxed);
    tokio::task::yield_now().await;
    number.store(seen + 1, Ordering::Relaxed);
    // The answer says whether the lock was held until the end.
    match lock.unlock().await {
        Ok(()) => StatusCode::NO_CONTENT,
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // On a cluster: LockClient::builder(session, "bakery_lock").build().await?
    let locks = LockClient::builder_in_memory(&MemoryStore::new()).build().await?;
    let number = Arc::<AtomicU32>::default();
    let service = Router::new().route("/counters/visits", post(count));
    let service = service.layer(Extension(Arc::clone(&number))).with_state(locks.clone());
    let mut requests = JoinSet::new();
    for _ in 0..20 {
        let request = Request::post(Uri::from_static("/counters/visits")).body(Body::empty())?;
        requests.spawn(service.clone().oneshot(request));
    }
    for answer in requests.join_all().await {
        assert_eq!(answer?.status(), StatusCode::NO_CONTENT);
    }
    println!("{} visits", number.load(Ordering::Relaxed));
    assert_eq!(number.load(Ordering::Relaxed), 20);
    Ok(locks.shutdown().await?)
}
