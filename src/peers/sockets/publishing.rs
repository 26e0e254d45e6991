//! The client's row in the table `lock_peers`: its public key, and where it listens.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};
use tracing::{debug, info, warn};

use super::super::wire::VERSION;
use super::SocketState;
use super::reaching::reach_at;
use crate::store::{PEER_TTL_MAX, PeerRow};

/// How often the row is written in its TTL.
const WRITES_PER_TTL: u32 = 3;

/// The row is written at this interval.
pub(super) const WRITE_EVERY: Duration =
    Duration::from_secs(PEER_TTL_MAX.as_secs() / WRITES_PER_TTL as u64);

/// The pause before a failed write is repeated.
const RETRY_PAUSE: Duration = Duration::from_secs(10);

/// The pause before a client that can't connect to itself tries again.
pub(super) const CHECK_AGAIN: Duration = Duration::from_secs(60);

/// How long a guest waits for its row before it gives up a connection.
const PUBLISHED_MAX: Duration = Duration::from_secs(2);

/// Whether others know this client.
#[derive(Default)]
pub(super) struct Publishing {
    is_wanted: Notify,
    /// Whether its row was written the last time; `None` before the first answer.
    is_published: watch::Sender<Option<bool>>,
}

impl SocketState {
    /// Waits until this client has a row, by which keepers know it. `false` if the database refuses
    /// it, or takes too long.
    pub(super) async fn is_published(&self) -> bool {
        self.publishing.is_wanted.notify_one();
        let mut answers = self.publishing.is_published.subscribe();
        let answered = timeout(PUBLISHED_MAX, answers.wait_for(Option::is_some)).await;
        answered.is_ok_and(|answer| answer.is_ok_and(|written| *written == Some(true)))
    }
}

/// Publishes the client's key and where it listens, until it leaves the network; then deletes its
/// row. A client that can't connect to an address of its own publishes none, and gives no
/// turns, until it does. A client that listens nowhere publishes its key once it asks a keeper.
pub(super) async fn publish(shared: Arc<SocketState>, advertised: Vec<String>) {
    let mut has_written = false;
    let publishing = async {
        if advertised.is_empty() {
            shared.publishing.is_wanted.notified().await;
        }
        let mut is_reachable = true;
        loop {
            let reached = reaches_itself(&shared, &advertised, is_reachable).await;
            if reached && !is_reachable {
                info!(?advertised, "this client reaches itself now, and gives turns to its peers");
            }
            is_reachable = reached;
            has_written = true;
            write(&shared, if is_reachable { &advertised } else { &[] }).await;
            sleep(if is_reachable { WRITE_EVERY } else { CHECK_AGAIN }).await;
        }
    };
    shared.ended.run_until_cancelled(publishing).await;
    if has_written {
        // Others would try to connect until the row expires.
        let stamp = shared.stamps.draw(&*shared.clock);
        if let Err(error) = shared.peers.delete_peer(shared.client, stamp).await {
            debug!(%error, "the row of this client stays until its ttl is over");
        }
    }
}

/// Whether others can reach the client where it says, at each of its addresses: tried by itself,
/// before it says so. A client without an address has nothing to try.
async fn reaches_itself(shared: &SocketState, advertised: &[String], warns: bool) -> bool {
    let mut reached = advertised.is_empty();
    for address in advertised {
        match reach_at(shared, address, (shared.client, &shared.keys.public())).await {
            Ok(_) => reached = true,
            Err(error) if warns => warn!(
                address,
                %error,
                "this client can't connect to its own address for peers, so it acts as a guest \
                 only; it tries again every {CHECK_AGAIN:?}: advertise another address, or open \
                 its port"
            ),
            Err(error) => debug!(address, %error, "this client can't connect to itself yet"),
        }
    }
    reached
}

/// Writes the client's row until that is acknowledged or refused.
async fn write(shared: &SocketState, addresses: &[String]) {
    let ttl_seconds = crate::core::bakery::ttl_seconds(PEER_TTL_MAX);
    let answer = |written| shared.publishing.is_published.send_replace(Some(written));
    loop {
        let row = PeerRow {
            client: shared.client,
            addresses: addresses.to_vec(),
            key: *shared.keys.public().as_bytes(),
            version: VERSION.into(),
            stamp: shared.stamps.draw(&*shared.clock),
        };
        match shared.peers.write_peer(&row, ttl_seconds).await {
            Ok(()) => {
                answer(true);
                return;
            }
            Err(error) if error.is_permanent() => {
                answer(false);
                warn!(
                    %error,
                    "this client can't publish its key, so it gives its peers no turns and takes \
                     none of theirs; it tries again in {WRITE_EVERY:?}"
                );
                return;
            }
            Err(error) => debug!(%error, "the row of this client was not written"),
        }
        sleep(RETRY_PAUSE).await;
    }
}
