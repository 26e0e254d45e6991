//! The forms in which services write work under a lock: each compiles as it stands here.

use std::future::Future;
use std::sync::Arc;

use bakery_lock::testing::FaultyStore;
use bakery_lock::{EnsureError, LockClient, LockError, LockHandle};

use super::{OBJECT, client, s, store};

/// An error of an application.
#[derive(Debug)]
struct Failure {
    _text: String,
}

impl From<LockError> for Failure {
    fn from(error: LockError) -> Self {
        Failure { _text: error.to_string() }
    }
}

impl From<EnsureError> for Failure {
    fn from(error: EnsureError) -> Self {
        Failure { _text: error.to_string() }
    }
}

async fn free() -> (FaultyStore, LockClient) {
    let store = store();
    let client = client(&store, "holder").await;
    (store, client)
}

#[tokio::test(start_paused = true)]
async fn body_without_output() -> Result<(), LockError> {
    let (_store, client) = free().await;
    client.with_lock(OBJECT, async |_| {}).await
}

#[tokio::test(start_paused = true)]
async fn body_with_a_value() -> Result<(), LockError> {
    let (_store, client) = free().await;
    let length = client.with_lock(OBJECT, async |lock| lock.name().len()).await?;
    assert_eq!(length, OBJECT.len());
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn body_with_anyhow() -> anyhow::Result<()> {
    let (_store, client) = free().await;
    let remaining = client
        .with_lock(OBJECT, async |lock| {
            let remaining = lock.ensure(s(1)).await?;
            anyhow::Ok(remaining)
        })
        .await??;
    assert!(remaining >= s(1));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn body_with_an_error_of_the_application() -> Result<(), Failure> {
    let (_store, client) = free().await;
    // The function's own error, so no type needs to be named.
    client
        .with_lock(OBJECT, async |lock| {
            lock.ensure(s(1)).await?;
            Ok(())
        })
        .await?
}

#[tokio::test(start_paused = true)]
async fn function_as_body() -> Result<(), Failure> {
    async fn work(lock: LockHandle) -> Result<usize, EnsureError> {
        lock.ensure(s(1)).await?;
        Ok(lock.name().len())
    }
    let (_store, client) = free().await;
    let plain = client.with_lock(OBJECT, work).await??;
    #[expect(clippy::redundant_closure, reason = "this form is to compile as well")]
    let called = client.with_lock(OBJECT, |lock| work(lock)).await??;
    assert_eq!(plain, called);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn body_that_borrows_mutably() -> Result<(), LockError> {
    let (_store, client) = free().await;
    let mut names = Vec::new();
    client.with_lock(OBJECT, async |lock| names.push(lock.name().to_owned())).await?;
    assert_eq!(names, [OBJECT]);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn body_that_moves() -> Result<(), LockError> {
    let (_store, client) = free().await;
    let words = ["one".to_owned(), "two".to_owned()];
    let sentence = client.with_lock(OBJECT, async move |_| words.join(" ")).await?;
    assert_eq!(sentence, "one two");
    let spelled = client.with_lock(OBJECT, move |_| async move { sentence.len() }).await?;
    assert_eq!(spelled, 7);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn inside_a_spawned_task() -> anyhow::Result<()> {
    let (_store, client) = free().await;
    let task = tokio::spawn(async move {
        client
            .with_lock(OBJECT, async |lock| {
                lock.ensure(s(1)).await?;
                anyhow::Ok(())
            })
            .await?
    });
    task.await?
}

// A handler of axum is a function whose future is `Send`, called with values of its own.
#[tokio::test(start_paused = true)]
async fn in_a_handler() -> Result<(), Failure> {
    async fn register(locks: Arc<LockClient>, name: String) -> Result<String, Failure> {
        let lock = format!("users::{name}");
        locks.with_lock(&lock, async |_| Ok(format!("{name} is registered"))).await?
    }
    fn serve<F: Future<Output = Result<String, Failure>> + Send + 'static>(
        handler: impl Fn(Arc<LockClient>, String) -> F + Send + Sync + 'static,
        locks: Arc<LockClient>,
    ) -> impl Future<Output = F::Output> + Send + 'static {
        handler(locks, "snap".to_owned())
    }
    let (_store, client) = free().await;
    let answer = tokio::spawn(serve(register, Arc::new(client)));
    assert_eq!(answer.await.expect("the task does not panic")?, "snap is registered");
    Ok(())
}

// A handler of tonic is a method of a trait by `async_trait`, which boxes a `Send` future.
#[tokio::test(start_paused = true)]
async fn in_a_boxed_method() -> Result<(), LockError> {
    trait Users {
        fn register<'a>(
            &'a self,
            name: &'a str,
        ) -> std::pin::Pin<Box<dyn Future<Output = Result<usize, LockError>> + Send + 'a>>;
    }
    struct Service {
        locks: LockClient,
    }
    impl Users for Service {
        fn register<'a>(
            &'a self,
            name: &'a str,
        ) -> std::pin::Pin<Box<dyn Future<Output = Result<usize, LockError>> + Send + 'a>> {
            Box::pin(async move { self.locks.with_lock(name, async |_| name.len()).await })
        }
    }
    let (_store, locks) = free().await;
    let service: Box<dyn Users + Send + Sync> = Box::new(Service { locks });
    assert_eq!(service.register("snap").await?, 4);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn in_a_generic_helper() -> Result<(), Failure> {
    async fn locked<T, E: From<LockError>>(
        client: &LockClient,
        body: impl AsyncFnOnce(LockHandle) -> Result<T, E>,
    ) -> Result<T, E> {
        client.with_lock(OBJECT, body).await?
    }
    let (_store, client) = free().await;
    let length = locked(&client, async |lock| Ok::<_, Failure>(lock.name().len())).await?;
    assert_eq!(length, OBJECT.len());
    Ok(())
}

// The future of such a helper is declared to be `Send`, for callers that spawn it.
#[tokio::test(start_paused = true)]
async fn in_a_generic_helper_that_can_be_spawned() -> Result<(), Failure> {
    #[expect(clippy::redundant_closure, reason = "the body alone is no async function")]
    fn locked<T, W>(
        client: &LockClient,
        body: impl FnOnce(LockHandle) -> W + Send,
    ) -> impl Future<Output = Result<T, LockError>> + Send
    where
        T: Send,
        W: Future<Output = T> + Send,
    {
        client.with_lock(OBJECT, |lock| body(lock))
    }
    let (_store, client) = free().await;
    let length =
        tokio::spawn(
            async move { locked(&client, async |lock: LockHandle| lock.name().len()).await },
        );
    assert_eq!(length.await.expect("the task does not panic")?, OBJECT.len());
    Ok(())
}
