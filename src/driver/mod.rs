//! What runs behind a client: tasks that feed the machines of [`core`](crate::core) and do their
//! I/O.
//!
//! A [`caller`] finds the task of its object in [`objects`], or starts it: [`object_task`]. It gets
//! a [`guard`], which shares the state of its [`grant`] with that task. The [`client_task`] knows
//! the [`registration`] of the [`host`], and the [`health`] of clocks and table. An [`inquirer`]
//! wants to know the line of an object. [`runtime`] has timers for what is polled outside any
//! runtime.

pub(crate) mod alternating;
pub(crate) mod caller;
pub(crate) mod client_task;
pub(crate) mod clock_skew;
pub(crate) mod drawing;
pub(crate) mod grant;
pub(crate) mod guard;
pub(crate) mod health;
pub(crate) mod hold_limit;
pub(crate) mod host;
pub(crate) mod inquirer;
pub(crate) mod object_task;
pub(crate) mod objects;
pub(crate) mod process;
pub(crate) mod registration;
pub(crate) mod retry;
pub(crate) mod runtime;
pub(crate) mod shared;
pub(crate) mod tally;
pub(crate) mod timer;
pub(crate) mod wait;
