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
//! Deliberately absent here: async, a clock, randomness, the driver. Time, stamps and jitter come
//! in with [`Now`].

mod contender;
mod lease;
mod line;
mod row;
mod verdict;

pub(crate) use contender::{
    Acquire, Ahead, Change, Contender, Event, Failure, Input, Loss, Now, OpId, Output, Patience,
    Read, ReadFailure, Write, WriteOutcome,
};
pub(crate) use lease::{Lease, LeaseTerms, TIME_IN_FLIGHT, TTL_MIN};
pub(crate) use row::{Claim, ContenderId, Mode, StoredRow, row_name};
