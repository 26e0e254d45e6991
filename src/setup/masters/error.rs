//! Why a set of masters can't be used.

use thiserror::Error;

use crate::error::{Class, predicates};
use crate::finding::{Finding, Joined};
use crate::store::{InvalidIdentifier, MastersTrouble};

/// Why a set of masters can't be used.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum MastersError {
    /// An address is no URL of a Redis server. Nothing was sent.
    #[error("master {number} has no address that can be used ({reason}): give redis://HOST:PORT")]
    #[non_exhaustive]
    Address {
        /// Which of the addresses, from 1.
        number: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// Too few or too many addresses, or an even number. Nothing was sent.
    #[error("{given} masters can't be used: give 3 or 5, or 1 for tests")]
    #[non_exhaustive]
    Count {
        /// How many were given.
        given: usize,
    },
    /// The name of the lock table is invalid. Nothing was sent.
    #[error("{0}")]
    Name(InvalidIdentifier),
    /// A setting of the lock table can't be used; and why. Nothing was sent.
    #[error("{0}")]
    Setting(String),
    /// No master has a record of the lock table, or all have lost theirs. Nothing was changed.
    #[error(
        "no master has a record of lock table {lock_table:?}: run `lock-hosts init`, or see \
         whether the name and the addresses are right"
    )]
    #[non_exhaustive]
    NotInitialised {
        /// The lock table.
        lock_table: String,
    },
    /// The lock table was created on more or fewer masters. Nothing was changed.
    #[error(
        "lock table {lock_table:?} is kept by {recorded} masters, and {given} are given: give all \
         of them, as all clients must"
    )]
    #[non_exhaustive]
    OtherCount {
        /// The lock table.
        lock_table: String,
        /// How many keep it.
        recorded: usize,
        /// How many were given.
        given: usize,
    },
    /// The lock table has other settings. Nothing was changed.
    #[error(
        "lock table {lock_table:?} has other settings ({recorded}): use these, or stop all \
         clients, delete the key {key:?} on each master, and run `lock-hosts init` again"
    )]
    #[non_exhaustive]
    Differs {
        /// The lock table.
        lock_table: String,
        /// Its settings.
        recorded: String,
        /// The key of its record.
        key: String,
    },
    /// Masters do not answer, or can't be used for locks.
    #[error("these masters can't be used for locks: {}", Joined(problems))]
    #[non_exhaustive]
    Unfit {
        /// Which ones, and what to do.
        problems: Vec<Finding>,
    },
    /// Another client changed the membership at the same moment. The same call succeeds later.
    #[error("another client changed the membership of the masters at the same time: do it again")]
    Interrupted,
}

impl From<MastersTrouble> for MastersError {
    fn from(trouble: MastersTrouble) -> Self {
        match trouble {
            MastersTrouble::Address { number, reason } => MastersError::Address { number, reason },
            MastersTrouble::Count { given } => MastersError::Count { given },
            MastersTrouble::Name(name) => MastersError::Name(name),
            MastersTrouble::NoRecord { lock_table } => MastersError::NotInitialised { lock_table },
            MastersTrouble::OtherCount { lock_table, recorded, given } => {
                MastersError::OtherCount { lock_table, recorded, given }
            }
            MastersTrouble::Differs { lock_table, recorded, key } => {
                MastersError::Differs { lock_table, recorded, key }
            }
            MastersTrouble::Unfit { servers } => {
                let advice = "see to it, and do the same again";
                let problem =
                    |(address, why)| Finding::error(format!("master {address}"), why, advice);
                let problems = servers.into_iter().map(problem).collect();
                MastersError::Unfit { problems }
            }
            MastersTrouble::Interrupted => MastersError::Interrupted,
        }
    }
}

predicates!(MastersError);

impl MastersError {
    pub(crate) fn class(&self) -> Class {
        match self {
            MastersError::Interrupted => Class::Passing,
            MastersError::Unfit { .. } | MastersError::NotInitialised { .. } => Class::Disorder,
            MastersError::Address { .. }
            | MastersError::Count { .. }
            | MastersError::Name(_)
            | MastersError::Setting(_)
            | MastersError::OtherCount { .. }
            | MastersError::Differs { .. } => Class::Misconfigured,
        }
    }
}
