//! Transfers between two accounts that are safe against concurrent transfers.
//!
//!     cargo run --example two_accounts

use std::collections::BTreeMap;
use std::error::Error;

use bakery_lock::{FencingToken, LockClient, MemoryStore};
use tokio::sync::Mutex;

/// Balances, and the tokens with which they were written.
type Accounts = Mutex<BTreeMap<String, (i64, Option<FencingToken>)>>;

async fn transfer(
    client: &LockClient,
    accounts: &Accounts,
    (from, to, amount): (&str, &str, i64),
) -> Result<(), Box<dyn Error>> {
    // In the order of their names, so that no two transfers wait for each other.
    let locks = client.lock_all([from, to]).await?;
    for (name, change) in [(from, -amount), (to, amount)] {
        let token = locks.get(name).ok_or("both are locked")?.fencing_token().await?;
        let mut accounts = accounts.lock().await;
        let account = accounts.entry(name.to_owned()).or_default();
        // In CQL: UPDATE .. USING TIMESTAMP, with `token.write_timestamp(0)`.
        if account.1 < Some(token) {
            *account = (account.0 + change, Some(token));
        }
    }
    Ok(locks.unlock().await?)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // On a cluster: LockClient::builder(session, "bakery_lock").build().await?
    let client = LockClient::builder_in_memory(&MemoryStore::new()).build().await?;
    let accounts = Accounts::default();
    let there = transfer(&client, &accounts, ("accounts::1", "accounts::2", 10));
    let back = transfer(&client, &accounts, ("accounts::2", "accounts::1", 4));
    tokio::try_join!(there, back)?;
    let accounts = accounts.into_inner();
    println!("{accounts:?}");
    assert_eq!(accounts["accounts::1"].0, -6);
    assert_eq!(accounts["accounts::2"].0, 6);
    Ok(client.shutdown().await?)
}
