//! What readers must know of servers to judge the figures.

use serde::Serialize;

use crate::arguments::Durability;
use crate::sides::System;

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Facts {
    pub(crate) system: System,
    pub(crate) version: String,
    pub(crate) servers: usize,
    /// When an acknowledged write is where.
    pub(crate) durability: &'static str,
    pub(crate) settings: String,
}

impl Facts {
    /// Of servers that the bench started.
    pub(crate) fn of(
        system: System,
        version: String,
        servers: usize,
        durability: Durability,
    ) -> Self {
        let settings = match system {
            System::Cassandra => "heaps of 1024 MiB; QUORUM, SERIAL, replication factor 3",
            System::Etcd => "defaults; clients use all three servers",
            System::Zookeeper => "defaults, tickTime 2 s; heaps of 512 MiB",
            System::Redis => "defaults; SET NX uses the first of them",
        };
        let durability = durability_of(system, durability);
        Facts { system, version, servers, durability, settings: settings.to_owned() }
    }

    /// Of nodes of Cassandra that were given.
    pub(crate) fn of_given(version: String, servers: usize) -> Self {
        Facts {
            system: System::Cassandra,
            version,
            servers,
            durability: "as the given nodes are configured",
            settings: "as the given nodes are configured; QUORUM, SERIAL".to_owned(),
        }
    }
}

fn durability_of(system: System, durability: Durability) -> &'static str {
    match (system, durability) {
        (System::Cassandra, Durability::Usual) => {
            "commitlog_sync: periodic (default): in the memory of two of three servers before it \
             is acknowledged, on their disks within 10 s"
        }
        (System::Cassandra, Durability::Synced) => {
            "commitlog_sync: batch: on the disks of two of three servers before it is acknowledged"
        }
        (System::Etcd, _) => {
            "on the disks of two of three servers before it is acknowledged (its only mode)"
        }
        (System::Zookeeper, _) => {
            "forceSync: yes (default): on the disks of two of three servers before it is \
             acknowledged"
        }
        (System::Redis, Durability::Usual) => {
            "in memory only, the fastest; safe for Redlock if a server that died stays away for a \
             TTL, which bakery does by itself"
        }
        (System::Redis, Durability::Synced) => {
            "appendonly yes, appendfsync always: on disk before it is acknowledged"
        }
    }
}
