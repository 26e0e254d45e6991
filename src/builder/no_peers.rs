//! Without the feature `peers` no client has peers.

use std::sync::Arc;

use super::error::BuildError;
use crate::client::Join;
use crate::clock::Clock;
use crate::store::PeerTable;

/// There are none.
#[derive(Clone, Debug)]
pub(super) enum PeerOptions {}

impl PeerOptions {
    /// Never called.
    pub(super) async fn join(
        self,
        _: Arc<dyn PeerTable>,
        _: &Arc<dyn Clock>,
        (_, _): (String, String),
        _: &str,
    ) -> Result<Join, BuildError> {
        match self {}
    }
}
