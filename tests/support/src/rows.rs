//! Waits for what becomes of the rows of an object, whatever database they are in.

use bakery_lock::LockClient;

use crate::pace::{self, Steps};

/// How long a row must still live while a test waits for its deletion, in seconds. With less it
/// would seem to be deleted when its time is over.
const LIFE_MIN: i32 = 2;

/// The name of a row, and how many seconds it lives, if that ends.
pub type RowAndLife = (String, Option<i32>);

/// Waits until an object has `count` rows, whatever ends the others.
pub async fn wait_for<F>(object: &str, count: usize, look: impl Fn() -> F)
where
    F: Future<Output = Vec<RowAndLife>>,
{
    let came = async {
        let mut steps = Steps::new();
        while look().await.len() != count {
            steps.next().await;
        }
    };
    pace::within_limit(&format!("{count} rows of {object}"), came).await;
}

/// Waits until `count` contenders of an object have a ticket.
pub async fn wait_for_tickets(client: &LockClient, object: &str, count: usize) {
    let drawn = async {
        let mut steps = Steps::new();
        loop {
            let contenders = client.contenders(object).await.unwrap_or_default();
            let with_ticket = contenders.iter().filter(|contender| contender.ticket.is_some());
            if with_ticket.count() == count {
                return;
            }
            steps.next().await;
        }
    };
    pace::within_limit(&format!("{count} tickets of {object}"), drawn).await;
}

/// Waits until all rows of an object are deleted.
///
/// # Panics
///
/// If one is about to expire instead.
pub async fn wait_until_deleted<F>(look: impl Fn() -> F)
where
    F: Future<Output = Vec<RowAndLife>>,
{
    let deleted = async {
        let mut steps = Steps::new();
        loop {
            let rows = look().await;
            let expires = |life: Option<i32>| life.is_some_and(|life| life < LIFE_MIN);
            assert!(!rows.iter().any(|row| expires(row.1)), "left to expire: {rows:?}");
            if rows.is_empty() {
                return;
            }
            steps.next().await;
        }
    };
    pace::within_limit("the deletion of all rows", deleted).await;
}
