//! Who uses a lock, and who stands in line for it.

use tokio::sync::oneshot;

use crate::admin::types::{ContenderInfo, HolderQueue};
use crate::client::{Interruption, LockClient};
use crate::driver::caller::QueueReplyTo;
use crate::error::QueueError;
use crate::peers::NotReached;

impl LockClient {
    /// Who uses the lock of `name` now, and who stands in line for it at the client that has the
    /// place in the table.
    ///
    /// The table shows that client, and from its next renewal on the guest that has its turn; it
    /// does not show the line. This call finds the client in the table by one read of the whole
    /// object, as [`contenders`](Self::contenders) does, and then asks it by message. About locks
    /// of this client itself it sends no message, and needs neither the feature `peers` nor options
    /// for peers. For others this client must be built with both, and theirs with a place for
    /// guests; it may be built to keep none itself (`PeerOptions::serve_guests(false)`).
    ///
    /// The answer is a moment old when it arrives, and names the first six that wait. Clients that
    /// wait in the table are not in it: [`contenders`](Self::contenders) shows them.
    ///
    /// # Errors
    ///
    /// See [`QueueError`]. Nothing is changed in any case. It waits for the table for at most the
    /// client's acquire timeout, and for as long for answers.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    ///
    /// # Example
    ///
    /// ```
    /// # use bakery_lock::{LockClient, MemoryStore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let store = MemoryStore::new();
    /// # let client = LockClient::builder_in_memory(&store).build().await?;
    /// let _guard = client.request("users::snap").label("nightly job").acquire().await?;
    /// let line = client.queue("users::snap").await?;
    /// if let Some(user) = line.user {
    ///     println!("{} has its turn, {} wait", user.owner, line.waiting);
    ///     # assert!(user.owner.label() == Some("nightly job") && line.waiting == 0);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn queue(&self, name: &str) -> Result<HolderQueue, QueueError> {
        let name = &*self.shared().table_name(name);
        let mut unasked = candidates(self.contenders_in_table(name).await?);
        let asking = async {
            let mut index = 0;
            while let Some(contender) = unasked.get(index) {
                match self.line_of(name, contender).await {
                    Ok(Some(line)) => return Some(line),
                    Ok(None) => drop(unasked.remove(index)),
                    Err(NotReached) => index += 1,
                }
            }
            None
        };
        let line = match self.unless_interrupted(asking).await {
            Ok(line) => line,
            Err(Interruption::TimedOut { .. }) => None,
            Err(ended @ (Interruption::Closed | Interruption::Forked)) => {
                return Err(ended.on_table(Some(name), None).into());
            }
        };
        line.ok_or_else(|| self.no_line(name, unasked.into_iter().next()))
    }

    /// The line as this contender's client reports it; `None` if it has no place.
    async fn line_of(
        &self,
        name: &str,
        contender: &ContenderInfo,
    ) -> Result<Option<HolderQueue>, NotReached> {
        let shared = self.shared();
        let client = contender.client.as_u128();
        if client == shared.id.client {
            let (reply, answer) = oneshot::channel();
            self.inner.objects.report_line(name, QueueReplyTo::User(reply));
            // A task that ends meanwhile has no place.
            return Ok(answer.await.unwrap_or_default());
        }
        match &shared.network {
            Some(network) => network.who(client, network.key(name)).await,
            None => Err(NotReached),
        }
    }

    fn no_line(&self, name: &str, unasked: Option<ContenderInfo>) -> QueueError {
        let name = name.to_owned();
        match unasked {
            None => QueueError::NotHeld { name },
            Some(contender) if self.shared().network.is_some() => {
                QueueError::NotReached { name, contender }
            }
            Some(contender) => QueueError::AsksNone { name, contender },
        }
    }
}

/// The contenders that may hold the object: those without a ticket, of which one may hold it on the
/// fast path, and the first one with a ticket.
fn candidates(mut contenders: Vec<ContenderInfo>) -> Vec<ContenderInfo> {
    let first_in_queue = contenders.iter().position(|contender| contender.ticket.is_some());
    contenders.truncate(first_in_queue.map_or(usize::MAX, |index| index + 1));
    contenders
}
