//! Why a client is not built.

use thiserror::Error;

use crate::error::{Class, predicates};
use crate::options::{InvalidOption, shell_operand};
use crate::peers::JoinError;
use crate::setup::hosts::RegistryError;
#[cfg(feature = "redis")]
use crate::setup::masters::MastersError;
use crate::setup::schema::SchemaError;
use crate::store::DatabaseError;

/// Why a client was not built. Nothing was written, except a host's registration if
/// `register_host(true)` requests it.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum BuildError {
    /// An option can't be used.
    #[error("{0}")]
    Option(#[from] InvalidOption),
    /// The tables are missing or not as they must be.
    #[error("{0}")]
    Schema(#[from] SchemaError),
    /// The host has no number.
    #[error(
        "host {host:?} is not registered: run `lock-hosts {} add {}`, or build the client with \
         `register_host(true)`",
        registry_option(keyspace),
        shell_operand(host)
    )]
    #[non_exhaustive]
    UnknownHost {
        /// The host's name.
        host: String,
        /// The keyspace of the registry.
        keyspace: String,
    },
    /// The host was removed from the registry. Only an operator adds it again:
    /// `register_host(true)` does not undo a removal.
    #[error(
        "host {host:?} was removed from the registry: run `lock-hosts {} add {}` to let it take \
         locks again, or build the client with another host name",
        registry_option(keyspace),
        shell_operand(host)
    )]
    #[non_exhaustive]
    HostRemoved {
        /// The host's name.
        host: String,
        /// The keyspace of the registry.
        keyspace: String,
    },
    /// The address for other clients can't be listened at: another program has it, or it is none
    /// of this machine's.
    #[cfg(feature = "peers")]
    #[error("can't listen for other clients at {address}: use another address, or port 0")]
    #[non_exhaustive]
    Peers {
        /// The address.
        address: std::net::SocketAddr,
        /// Why.
        #[source]
        cause: std::sync::Arc<std::io::Error>,
    },
    /// The client listens for others at all addresses of its machine, and none of them is
    /// advertised.
    #[cfg(feature = "peers")]
    #[error(
        "{address} is no address at which other clients reach this one: advertise one, by \
         `PeerOptions::advertised`"
    )]
    #[non_exhaustive]
    NotAdvertised {
        /// The address that it listens at.
        address: std::net::SocketAddr,
    },
    /// No address of this machine reaches the database, so none can be chosen for other clients
    /// ([`PeerOptions::auto`](crate::PeerOptions::auto)).
    #[cfg(feature = "peers")]
    #[error(
        "this machine has no route to {node}, so it can't choose an address for other clients: \
         give one, by `PeerOptions::new`"
    )]
    #[non_exhaustive]
    NoRoute {
        /// One of the database's nodes.
        node: std::net::SocketAddr,
        /// Why.
        #[source]
        cause: std::sync::Arc<std::io::Error>,
    },
    /// The system gave no randomness for a key.
    #[cfg(feature = "peers")]
    #[error("the system gave no randomness for the key of this client")]
    NoRandomness(#[source] std::sync::Arc<std::io::Error>),
    /// A client of the module [`blocking`](crate::blocking) was to be built inside an async
    /// runtime, whose other tasks that would stop.
    #[cfg(feature = "blocking")]
    #[error(
        "a client of `bakery_lock::blocking` can't be built inside an async runtime: use \
         `bakery_lock::LockClient` there"
    )]
    InsideRuntime,
    /// The registry of hosts could not be read, or the host could not be added.
    #[error("{0}")]
    Registry(#[from] RegistryError),
    /// The masters can't be used.
    #[cfg(feature = "redis")]
    #[error("{0}")]
    Masters(#[from] MastersError),
    /// The database did not answer.
    #[error("the client could not be prepared{}", .0.remedy(""))]
    Database(#[from] DatabaseError),
}

/// What stands for a keyspace on masters.
#[cfg(feature = "redis")]
pub(super) const ON_MASTERS: &str = "(masters)";

/// The option of `lock-hosts` that leads to the registry.
fn registry_option(keyspace: &str) -> String {
    #[cfg(feature = "redis")]
    if keyspace == ON_MASTERS {
        return "--masters ADDRESS,...".to_owned();
    }
    format!("--keyspace {keyspace}")
}

#[cfg(feature = "peers")]
impl From<JoinError> for BuildError {
    fn from(error: JoinError) -> Self {
        match error {
            JoinError::NoRandomness(cause) => BuildError::NoRandomness(cause),
            JoinError::NotAdvertised { address } => BuildError::NotAdvertised { address },
            JoinError::NoRoute { node, cause } => BuildError::NoRoute { node, cause },
            JoinError::Listen { address, cause } => BuildError::Peers { address, cause },
        }
    }
}

#[cfg(not(feature = "peers"))]
impl From<JoinError> for BuildError {
    fn from(error: JoinError) -> Self {
        match error {}
    }
}

predicates!(BuildError);

impl BuildError {
    fn class(&self) -> Class {
        match self {
            BuildError::Schema(error) => error.class(),
            BuildError::Registry(error) => error.class(),
            BuildError::Database(error) => Class::of_database(error),
            BuildError::Option(_)
            | BuildError::UnknownHost { .. }
            | BuildError::HostRemoved { .. } => Class::Misconfigured,
            #[cfg(feature = "peers")]
            BuildError::Peers { .. }
            | BuildError::NotAdvertised { .. }
            | BuildError::NoRoute { .. } => Class::Misconfigured,
            #[cfg(feature = "peers")]
            BuildError::NoRandomness(_) => Class::Final,
            #[cfg(feature = "blocking")]
            BuildError::InsideRuntime => Class::Final,
            #[cfg(feature = "redis")]
            BuildError::Masters(error) => error.class(),
        }
    }
}
