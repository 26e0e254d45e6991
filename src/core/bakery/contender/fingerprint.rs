//! The part of a contender's state that decides what can still follow.

use std::hash::{Hash, Hasher};
use std::mem::discriminant;
use std::time::Duration;

use super::super::fingerprint::Fingerprint;
use super::{Contender, Outstanding, State};

impl Fingerprint for Contender {
    fn feed(&self, now: Duration, hasher: &mut impl Hasher) {
        let Contender {
            id,
            state,
            outstanding,
            last_op: _,
            outputs,
            pace,
            revoked_row_seen,
            // It lies beyond the end of any search.
            gone_by: _,
            raised,
            exchanges,
            // The same for all.
            front_max: _,
            ahead: _,
        } = self;
        assert!(outputs.is_empty(), "outputs are taken before anything else happens");
        (id, revoked_row_seen, raised).hash(hasher);
        // The time of sending sets the length of a pause.
        let task = outstanding.as_ref().map(|Outstanding { op: _, task, sent: _ }| *task);
        task.hash(hasher);
        pace.feed(now, hasher);
        state.feed(now, hasher);
        if let (true, State::Waiting(entry, _)) = (exchanges, state) {
            entry.stamp.hash(hasher);
        }
    }
}

impl Fingerprint for State {
    fn feed(&self, now: Duration, hasher: &mut impl Hasher) {
        discriminant(self).hash(hasher);
        match self {
            State::Idle | State::Lost => {}
            State::Announcing(_, claim, attempt) => {
                claim.round.hash(hasher);
                attempt.feed(now, hasher);
            }
            State::Looking(entry) | State::Held(entry) => entry.feed(now, hasher),
            State::TakingTicket(entry, attempt) => {
                entry.feed(now, hasher);
                attempt.feed(now, hasher);
            }
            // The duration of the doorway sets the length of pauses.
            State::Settling(entry, _) => entry.feed(now, hasher),
            State::Waiting(entry, queue) => {
                entry.feed(now, hasher);
                queue.feed(now, hasher);
            }
            State::Releasing { delete, again } => (delete.stamp, again.is_some()).hash(hasher),
        }
    }
}
