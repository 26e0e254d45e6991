//! A guest that floods its keeper.

use std::time::{Duration, Instant};

use uuid::Uuid;

use crate::LockClient;
use crate::core::turns::{Request, TimedRequest};

/// How many messages are sent before the connection's other task may run.
const AT_ONCE: u64 = 64;

/// Sends messages to a client, as fast as the connection takes them, until a moment: to the task of
/// one lock, which that client uses, and to that of the client itself. Returns how many were sent;
/// 0 if there is no connection.
///
/// # Cancel safety
///
/// Dropping the future ends the flood.
pub async fn flood(client: &LockClient, keeper: Uuid, used: &str, ends: Instant) -> u64 {
    let shared = client.shared();
    let Some(network) = &shared.network else {
        return 0;
    };
    let keeper = keeper.as_u128();
    if !network.connect(keeper).await {
        return 0;
    }
    let before = network.messages_sent();
    let (used, unused) = (network.key(used), network.key("flood"));
    while Instant::now() < ends {
        for number in 0..AT_ONCE {
            let (object, request) = if number % 2 == 0 {
                (used, Request::Withdraw { request: 0 })
            } else {
                {
                    let ttl = Duration::from_secs(5);
                    (
                        unused,
                        Request::Ask { request: number, ttl, is_try: false, least: Duration::ZERO },
                    )
                }
            };
            network.ask(keeper, object, TimedRequest { sent: shared.clock.elapsed(), request });
        }
        tokio::task::yield_now().await;
    }
    network.messages_sent() - before
}
