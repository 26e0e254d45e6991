//! The protocol: Lamport's bakery on rows with leases, without any I/O (design sections 4 to 7).
//!
//! # The contract
//!
//! A [`Contender`] is driven by calls. After each [`Contender::handle`], take every output from
//! [`Contender::poll`] until it is empty, then sleep until [`Contender::deadline`] or the next
//! input. Inputs are [`ContenderInput`]s; outputs are [`ContenderOutput`]s: writes and reads, each
//! answered once by the id of its operation, and events. At most one operation is outstanding: a
//! newer one supersedes it, and an answer to any other operation is ignored.
//! [`ContenderInput::Release`] and [`ContenderInput::Tick`] are legal in every state.
//!
//! # Where to look
//!
//! [`io`] defines inputs and outputs. [`contender`] drives one contender, [`entry`] is
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
mod contender;
mod entry;
mod fence;
#[cfg(instrumented)]
mod fingerprint;
mod io;
mod lease;
mod queue;
mod row;
mod seeded_bug;
pub(crate) mod sweep;

pub(crate) use admission::{SeenContender, Snapshot};
pub(crate) use contender::Contender;
pub(crate) use fence::{FENCE_TTL_SECONDS, Poisoned, Right, SPACING};
#[cfg(instrumented)]
pub(crate) use fingerprint::Fingerprint;
pub(crate) use io::{
    Acquire, Assignment, Change, ContenderEvent, ContenderInput, ContenderOutput, Failure, Loss,
    Now, OpId, Patience, Read, ReadFailure, Write, WriteOutcome,
};
pub(crate) use lease::{Lease, LeaseTerms, TIME_IN_FLIGHT, TTL_MIN, ttl_seconds};
pub(crate) use row::{
    Claim, ContenderId, LAST_RELEASE_TTL_SECONDS, LastRelease, Mode, Revocation, RevokeKind, Seen,
    Statics, StoredRow, row_name,
};
pub(crate) use seeded_bug::SeededBug;

#[cfg(test)]
pub(crate) use self::{
    admission::{Blockers, QueuePosition, Standing},
    queue::{Question, Queue},
};
