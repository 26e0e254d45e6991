//! The protocol: Lamport's bakery on rows with leases, without any I/O (design sections 4 to 7).
//!
//! # The contract
//!
//! A [`Contender`] is driven by calls. After each [`Contender::handle`], take every output from
//! [`Contender::poll`] until it is empty, then sleep until [`Contender::deadline`] or the next
//! input. Inputs are [`Input`]s; outputs are [`Output`]s: writes and reads, each answered once by
//! the id of its operation, and events. At most one operation is outstanding: a newer one
//! supersedes it, and an answer to any other operation is ignored. [`Input::Release`] and
//! [`Input::Tick`] are legal in every state.
//!
//! # Where to look
//!
//! [`traffic`] says what goes in and out. [`contender`] is the state machine, [`entry`] its own
//! rows of one round, [`lease`] how long those count. [`row`] says how rows are written and read,
//! [`verdict`] what follows from them, and [`mod@line`] whom a waiting contender asks next.
//! [`fence`] is the arithmetic of fencing tokens, which stand beside the rows. [`mutation`] and
//! `essence` are for the model in `tests/model`, which checks all of it.
//!
//! # What is absent
//!
//! Async, a clock, randomness, the driver. Time, stamps and jitter come in with [`Now`].

mod contender;
mod entry;
#[cfg(model)]
mod essence;
mod fence;
mod lease;
mod line;
mod mutation;
mod row;
mod traffic;
mod verdict;

pub(crate) use contender::Contender;
#[cfg(model)]
pub(crate) use essence::Essence;
pub(crate) use fence::{FENCE_TTL_SECONDS, Poisoned, Right, SPACING};
pub(crate) use lease::{Lease, LeaseTerms, TIME_IN_FLIGHT, TTL_MIN, ttl_seconds};
#[cfg(model)]
pub(crate) use mutation::Mutation;
pub(crate) use row::{Claim, ContenderId, Mode, Revocation, StoredRow, row_name};
pub(crate) use traffic::{
    Acquire, Change, Event, Failure, Input, Loss, Now, OpId, Output, Patience, Read, ReadFailure,
    Write, WriteOutcome,
};
pub(crate) use verdict::{SeenContender, Survey};

#[cfg(test)]
pub(crate) use self::{
    line::{Line, Question},
    verdict::{Blockers, Place, Standing},
};
