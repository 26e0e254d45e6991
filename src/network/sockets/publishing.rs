//! The client's row in the table `lock_peers`, and its keys.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::super::wire::{Key, Keys, VERSION};
use super::{Shared, keepers};
use crate::store::{PEER_TTL_MAX, PeerRow};

/// The row is written so often in its TTL. Then the key is rotated.
pub(super) const WRITES_PER_TTL: u32 = 3;

/// The row is written at this interval. A key is valid for as long after its rotation: twice the
/// longest TTL of locks.
pub(super) const WRITE_EVERY: Duration =
    Duration::from_secs(PEER_TTL_MAX.as_secs() / WRITES_PER_TTL as u64);

/// The pause before a failed write is repeated.
const RETRY_PAUSE: Duration = Duration::from_secs(10);

/// Publishes where the client listens, until `stopped`, with another key each hour. Gives up, and
/// stops listening, if the client does not reach itself at its own address.
pub(super) async fn publish(
    shared: Arc<Shared>,
    addresses: Vec<String>,
    stopped: CancellationToken,
) {
    let publishing = async {
        if !reaches_itself(&shared, &addresses).await {
            return;
        }
        for writes in 1.. {
            write(&shared, &addresses).await;
            sleep(WRITE_EVERY).await;
            if writes % WRITES_PER_TTL == 0 {
                rotate(&shared);
            } else {
                // A guest that read the row before the rotation has connected by now, or reads it
                // again: it is longer ago than two of the longest TTLs.
                let Keys { current, .. } = shared.keys();
                shared.set_keys(Keys { current, previous: None });
            }
        }
    };
    let is_stopped = stopped.run_until_cancelled(publishing).await.is_none();
    stopped.cancel();
    if is_stopped {
        // Others would try to connect until the row expires.
        let stamp = shared.stamps.draw(&*shared.clock);
        if let Err(error) = shared.store.delete_peer(shared.client, stamp).await {
            debug!(%error, "the row of this client stays until its ttl is over");
        }
    }
}

/// Whether others can reach the client where it says: tried by itself, before it says so.
async fn reaches_itself(shared: &Shared, addresses: &[String]) -> bool {
    let Keys { current, .. } = shared.keys();
    for address in addresses {
        match keepers::reach_at(shared, shared.client, address, &current).await {
            Ok(_) => return true,
            Err(error) => warn!(
                address,
                %error,
                "this client does not reach itself at the address for its peers, so it gives them \
                 no turns: advertise another address, or open its port"
            ),
        }
    }
    false
}

/// Writes the client's row until that is acknowledged or refused.
async fn write(shared: &Shared, addresses: &[String]) {
    let ttl_seconds = crate::protocol::ttl_seconds(PEER_TTL_MAX);
    loop {
        let Keys { current, previous } = shared.keys();
        let row = PeerRow {
            client: shared.client,
            addresses: addresses.to_vec(),
            key: *current.as_bytes(),
            previous_key: previous.map(|key| *key.as_bytes()),
            version: VERSION.into(),
            stamp: shared.stamps.draw(&*shared.clock),
        };
        match shared.store.write_peer(&row, ttl_seconds).await {
            Ok(()) => return,
            Err(error) if error.is_permanent() => {
                warn!(%error, "this client can't publish where it listens, so it gives no turns");
                return;
            }
            Err(error) => debug!(%error, "the row of this client was not written"),
        }
        sleep(RETRY_PAUSE).await;
    }
}

/// Replaces the key. The one before stays valid for guests that read the row earlier.
fn rotate(shared: &Shared) {
    match Key::generate() {
        Ok(current) => {
            let Keys { current: previous, .. } = shared.keys();
            shared.set_keys(Keys { current, previous: Some(previous) });
        }
        Err(error) => warn!(%error, "no randomness for another key: the present one stays"),
    }
}
