//! What operators and their tools see and change: contenders, queues, locks in use, revocations.
//!
//! All of it is reached by methods of [`LockClient`](crate::LockClient), defined here with
//! the types that they return.

pub(crate) mod contenders;
mod dead;
mod health;
mod locks;
mod queue;
mod repair;
mod revoke;
mod round_rows;
pub(crate) mod types;

pub use self::locks::{LockInUse, Locks};
pub use self::types::{HeldPlace, HolderQueue};
pub use crate::error::QueueError;
pub use crate::options::{ParseDurationError, check_name, parse_duration, shell_operand};
