//! What runs behind a client: tasks that feed the machines of [`core`](crate::core) and do their
//! I/O.
//!
//! A [`caller`] finds the task of its object in [`objects`], or starts it: [`object_task`]. It gets
//! a [guard](crate::guard), which shares the state of its grant with that task. The
//! [`client_task`] knows the [`registration`] of the [`host`], and the [`health`] of clocks and
//! table.

pub(crate) mod alternating;
pub(crate) mod caller;
pub(crate) mod client_task;
pub(crate) mod clock_skew;
mod clock_watch;
pub(crate) mod health;
pub(crate) mod host;
pub(crate) mod object_task;
pub(crate) mod objects;
pub(crate) mod registration;
pub(crate) mod timer;
