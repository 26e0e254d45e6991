//! The names of keys.

use uuid::Uuid;

use crate::store::Identifier;

/// The keys of one lock table.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    pub(super) lock_table: Identifier,
    /// The record of the server that has it.
    pub(super) record: String,
    /// The registry of hosts.
    pub(super) registry: String,
    objects: String,
    fences: String,
    peers: String,
}

impl Keys {
    /// The keys of a lock table. Its name has no colon, so no two tables have a key in common.
    pub(super) fn new(lock_table: Identifier) -> Self {
        let prefix = format!("bl:{lock_table}");
        Keys {
            record: format!("{prefix}:master"),
            registry: format!("{prefix}:hosts"),
            objects: format!("{prefix}:o:"),
            fences: format!("{prefix}:f:"),
            peers: format!("{prefix}:p:"),
            lock_table,
        }
    }

    /// The rows of an object.
    pub(super) fn object(&self, name: &str) -> String {
        format!("{}{name}", self.objects)
    }

    /// The fence of an object, which outlives its rows.
    pub(super) fn fence(&self, name: &str) -> String {
        format!("{}{name}", self.fences)
    }

    /// What a client publishes of itself.
    pub(super) fn peer(&self, client: Uuid) -> String {
        format!("{}{client}", self.peers)
    }

    /// A pattern of the keys of all objects. A table's name has no character that means anything
    /// in it.
    pub(super) fn objects(&self) -> String {
        format!("{}*", self.objects)
    }

    /// The object whose rows a key has.
    pub(super) fn object_of<'a>(&self, key: &'a str) -> Option<&'a str> {
        key.strip_prefix(&self.objects)
    }
}
