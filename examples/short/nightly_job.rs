//! A job that ten machines start at the same time, and one does.
//!
//!     cargo run --example nightly_job

use std::error::Error;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bakery_lock::{LockClient, LockError, MemoryStore};
use tokio::task::JoinSet;

static REPORTS: AtomicU32 = AtomicU32::new(0);

/// What each machine does when its clock shows midnight.
async fn at_midnight(machine: LockClient) -> Result<(), LockError> {
    // Taken for a minute: by then the last machine's clock shows midnight too.
    let request = machine.request("reports::daily").min_hold(Duration::from_secs(60));
    let report = request.try_with_lock(async |_| REPORTS.fetch_add(1, Ordering::Relaxed)).await?;
    println!("{}", if report.is_some() { "wrote the report" } else { "another machine did" });
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let store = MemoryStore::new();
    let mut machines = JoinSet::new();
    for number in 0..10 {
        // On a cluster: LockClient::builder(session, "bakery_lock").build().await?
        let machine = LockClient::builder_in_memory(&store).host(format!("machine-{number}"));
        machines.spawn(at_midnight(machine.build().await?));
    }
    machines.join_all().await.into_iter().collect::<Result<(), _>>()?;
    assert_eq!(REPORTS.load(Ordering::Relaxed), 1);
    Ok(())
}
