//! The yardstick: a bare write and a bare read of the same row.

use anyhow::Result;
use common::bare::BareRows;

use crate::sides::Side;

/// "Locking" writes a row and "unlocking" reads it, so that it is timed as the locks are.
impl Side for BareRows {
    type Held = String;

    async fn lock(&self, name: &str) -> Result<String> {
        self.write(name).await?;
        Ok(name.to_owned())
    }

    async fn unlock(&self, name: String) -> Result<()> {
        self.read(&name).await
    }
}
