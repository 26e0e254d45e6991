//! What is known of contenders, queues and health. Errors and tasks of a client name these types
//! too.

mod contender;
mod health;
mod place;
mod queue;

pub use self::contender::{ContenderInfo, ContenderState, LockMode};
pub use self::health::{Health, HealthWarning, UnreadyReason};
pub use self::place::HeldPlace;
pub(crate) use self::queue::QUEUE_SHOWN_MAX;
pub use self::queue::{HolderQueue, TurnUser};
