//! What runs behind a client.
//!
//! [`dispatch`] is the client's task; it starts a [`runner`] for each object in use, which feeds
//! the protocol and does its I/O. [`waiters`] is the queue of an object's callers, [`grant`] the
//! state that guard and runner share, [`guard`] what the caller holds. [`registration`] is what a
//! client knows about its [`host`], [`health`] what it knows about clocks and table. An
//! [`inquirer`] wants to know the line of an object. [`runtime`] has timers for what is polled
//! outside any runtime.

pub(crate) mod alternating;
pub(crate) mod clock_skew;
pub(crate) mod dispatch;
pub(crate) mod drawing;
pub(crate) mod grant;
pub(crate) mod guard;
pub(crate) mod health;
pub(crate) mod hold_limit;
pub(crate) mod host;
pub(crate) mod inquirer;
pub(crate) mod process;
pub(crate) mod raised;
pub(crate) mod registration;
pub(crate) mod remembered;
pub(crate) mod retry;
pub(crate) mod runner;
pub(crate) mod runtime;
pub(crate) mod shared;
pub(crate) mod tally;
pub(crate) mod timer;
pub(crate) mod wait;
pub(crate) mod waiters;
