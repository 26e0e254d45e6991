//! Who wants to know the line of an object.

use tokio::sync::oneshot;

use crate::core::turns::GuestId;
use crate::line::Line;
use crate::network::{Network, ObjectKey};

/// Who wants to know the line of an object.
#[derive(Debug)]
pub(crate) enum Inquirer {
    /// A user of this client.
    User(oneshot::Sender<Option<Line>>),
    /// Another client, and the object as it named it.
    Guest(GuestId, ObjectKey),
}

impl Inquirer {
    /// Reports the line; `None` if this client has no place.
    pub(crate) fn answer(self, network: Option<&dyn Network>, line: Option<Line>) {
        match self {
            Inquirer::User(reply) => {
                // One that stopped waiting needs no answer.
                let _ = reply.send(line);
            }
            Inquirer::Guest(guest, object) => {
                if let Some(network) = network {
                    network.tell(guest, object, line);
                }
            }
        }
    }
}
