//! The protocol: Lamport's bakery on rows with leases, without any I/O (design sections 4 to 7).
//!
//! # The contract
//!
//! A [`StateMachine`] is driven by calls. After each [`StateMachine::handle`], take every output
//! from [`StateMachine::poll`] until it is empty, then sleep until [`StateMachine::deadline`] or
//! the next input. Inputs are [`Input`]s; outputs are [`Output`]s: writes and reads, each answered
//! once by the id of its operation, and events. At most one operation is outstanding: a newer one
//! supersedes it, and an answer to any other operation is ignored. [`Input::Release`] and
//! [`Input::Tick`] are legal in every state.
//!
//! # Where to look
//!
//! [`messages`] defines inputs and outputs. [`state_machine`] drives one contender, [`entry`] is
//! its own rows of one round, [`lease`] how long those count. [`row`] says how rows are written and
//! read, [`admission`] what follows from them, and [`mod@queue`] which blocker a waiter asks next.
//! [`fence`] is the arithmetic of fencing tokens, which are kept with the rows. [`mod@sweep`]
//! says which dead rows may be hidden. [`seeded_bug`] and `fingerprint` are for the model in
//! `tests/model`, which checks all of it.
//!
//! # What is absent
//!
//! Async, a clock, randomness and the driver. Time, stamps and jitter come in with [`Now`].

mod admission;
mod entry;
mod fence;
#[cfg(model)]
mod fingerprint;
mod lease;
mod messages;
mod queue;
mod row;
mod seeded_bug;
mod state_machine;
pub(crate) mod sweep;

pub(crate) use admission::{SeenContender, Snapshot};
pub(crate) use fence::{FENCE_TTL_SECONDS, Poisoned, Right, SPACING};
#[cfg(model)]
pub(crate) use fingerprint::Fingerprint;
pub(crate) use lease::{Lease, LeaseTerms, TIME_IN_FLIGHT, TTL_MIN, ttl_seconds};
pub(crate) use messages::{
    Acquire, Assignment, Change, Event, Failure, Input, Loss, Now, OpId, Output, Patience, Read,
    ReadFailure, Write, WriteOutcome,
};
pub(crate) use row::{
    Claim, ContenderId, LAST_RELEASE_TTL_SECONDS, LastRelease, Means, Mode, Revocation, Seen,
    Statics, StoredRow, row_name,
};
pub(crate) use seeded_bug::SeededBug;
pub(crate) use state_machine::StateMachine;

#[cfg(test)]
pub(crate) use self::{
    admission::{Blockers, Place, Standing},
    queue::{Question, Queue},
};
