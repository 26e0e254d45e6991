//! Waits for the end of a key.

use tonic::Status;
use tonic::transport::Channel;

use crate::sides::etcd::calls::{Answers, stream};
use crate::sides::etcd::messages::{WatchCreateRequest, WatchRequest, WatchResponse};

/// A watch of one key. Dropped, it ends.
pub(crate) struct Watch {
    answers: Answers<WatchResponse>,
    /// The last revision whose changes it does not see.
    pub(crate) after: i64,
}

impl Watch {
    /// Watches from now on. The client in Go gives the revision at which it saw the key; but the
    /// server looks for changes since a past revision only every 100 ms.
    pub(crate) async fn begin(channel: &Channel, key: Vec<u8>) -> Result<Self, Status> {
        let request = WatchRequest { create: Some(WatchCreateRequest { key }) };
        let mut answers = stream(channel, request).await?;
        let begun = answers.next().await?.filter(|begun| !begun.canceled);
        let header = begun.and_then(|begun| begun.header);
        let after = header.ok_or_else(|| Status::aborted("a watch did not begin"))?.revision;
        Ok(Watch { answers, after })
    }

    /// Waits until the key is deleted. Fails if the watch ends before.
    pub(crate) async fn deletion(mut self) -> Result<(), Status> {
        while let Some(seen) = self.answers.next().await? {
            if seen.canceled || seen.compact_revision > 0 {
                return Err(Status::aborted("the server cancelled a watch"));
            }
            if seen.events.iter().any(|event| event.is_delete()) {
                return Ok(());
            }
        }
        Err(Status::aborted("the server ended a watch"))
    }
}
