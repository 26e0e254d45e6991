//! A program without async code.
//!
//!     cargo run --example synchronous

use std::error::Error;
use std::thread;
use std::time::Duration;

use bakery_lock::{LockClient, MemoryStore, blocking};

fn main() -> Result<(), Box<dyn Error>> {
    let runtime = blocking::Runtime::new()?;
    // On a cluster:
    // let session = runtime.block_on(SessionBuilder::new().known_node("db1").build())?;
    // let client = runtime.build(LockClient::builder(session, "bakery_lock"))?;
    let client = runtime.build(LockClient::builder_in_memory(&MemoryStore::new()))?;

    let guard = client.lock("invoices::2026")?;
    for invoice in 1..=3 {
        // What must not be done twice needs the lock for as long as it takes.
        guard.ensure(Duration::from_secs(10))?;
        thread::sleep(Duration::from_millis(10));
        println!("sent invoice {invoice}; {}", guard.state());
    }
    guard.unlock()?;

    let answer = client.with_lock("invoices::2026", |guard| guard.name().len())?;
    println!("and again: {answer}");
    Ok(client.shutdown()?)
}
