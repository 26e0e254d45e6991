//! The rows of one object, as the protocol reads and writes them (design section 3).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A client's place for one object.
///
/// The derived order, host before client before slot, breaks ties between equal tickets. Any total
/// order would do, as long as every client uses the same one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ContenderId {
    /// The number of the host, from the registry.
    pub(crate) host: i32,
    /// The client's random uuid, as a number.
    pub(crate) client: u128,
    /// Distinguishes the client's places for this object.
    pub(crate) slot: i16,
}

impl fmt::Display for ContenderId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{:032x}/{}", self.host, self.client, self.slot)
    }
}

/// How a contender wants to hold the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Mode {
    /// Alone.
    Exclusive,
    /// Together with other shared holders.
    Shared,
    /// Together with other limited holders, at most this many.
    Limited(i32),
}

impl Mode {
    /// The value of the column `mode`.
    pub(crate) fn code(self) -> i8 {
        match self {
            Mode::Exclusive => 0,
            Mode::Shared => 1,
            Mode::Limited(_) => 2,
        }
    }

    /// The value of the column `max_holders`.
    pub(crate) fn max_holders(self) -> Option<i32> {
        match self {
            Mode::Limited(most) => Some(most),
            Mode::Exclusive | Mode::Shared => None,
        }
    }

    fn parse(code: i8, max_holders: Option<i32>) -> Option<Self> {
        match (code, max_holders) {
            (0, _) => Some(Mode::Exclusive),
            (1, _) => Some(Mode::Shared),
            (2, Some(most)) if most > 0 => Some(Mode::Limited(most)),
            _ => None,
        }
    }
}

/// Values of the column `row_name`.
pub(crate) mod row_name {
    /// The announcement of a contender, and its ticket once it has drawn one.
    pub(crate) const ENTERING: &str = "entering::";
    /// The request that a contender leave.
    pub(crate) const REVOKED: &str = "revoked::";
}

/// A contender's statement about itself: the content of its `entering::` row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    /// The claiming contender.
    pub(crate) contender: ContenderId,
    /// The contender's round.
    pub(crate) round: i64,
    /// How it wants to hold the object.
    pub(crate) mode: Mode,
    /// The ticket, once drawn.
    pub(crate) ticket: Option<i64>,
    /// Human-readable: host name, process id and label.
    pub(crate) owner: Arc<str>,
    /// When the object was granted, in milliseconds since the Unix epoch by the contender's own
    /// clock. `None` while it waits.
    pub(crate) held_since: Option<i64>,
}

impl Claim {
    /// When the round began, in milliseconds since the Unix epoch: a round is the stamp of its
    /// announcement.
    pub(crate) fn since_millis(&self) -> i64 {
        self.round / MICROS_PER_MILLI
    }
}

/// The request that a contender give up a round: the content of its `revoked::` row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Revocation {
    /// The contender to leave.
    pub(crate) contender: ContenderId,
    /// The only round that it is asked to give up.
    pub(crate) round: i64,
    /// Human-readable: the client that asks.
    pub(crate) by: String,
    /// Human-readable: the reason.
    pub(crate) why: String,
    /// How it is made to leave.
    pub(crate) kind: RevokeKind,
}

/// How a contender is made to leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum RevokeKind {
    /// It leaves by itself.
    Request,
    /// Its rows are deleted for it.
    Force,
}

impl RevokeKind {
    /// What the column `mode` says of [`Force`](Self::Force). It is null otherwise.
    const FORCE: i8 = 1;

    fn code(self) -> Option<i8> {
        match self {
            RevokeKind::Request => None,
            RevokeKind::Force => Some(Self::FORCE),
        }
    }

    fn parse(code: Option<i8>) -> Self {
        if code == Some(Self::FORCE) { RevokeKind::Force } else { RevokeKind::Request }
    }
}

/// A row of a store, uninterpreted: a null column is `None`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredRow {
    /// The column `row_name`.
    pub(crate) row_name: String,
    /// The columns `host`, `client` and `slot`.
    pub(crate) contender: ContenderId,
    /// The column `round`.
    pub(crate) round: Option<i64>,
    /// The column `mode`.
    pub(crate) mode: Option<i8>,
    /// The column `max_holders`.
    pub(crate) max_holders: Option<i32>,
    /// The column `ticket`.
    pub(crate) ticket: Option<i64>,
    /// The column `owner`.
    pub(crate) owner: Option<String>,
    /// The column `why`.
    pub(crate) why: Option<String>,
    /// The column `held_since`, in milliseconds since the Unix epoch.
    pub(crate) held_since: Option<i64>,
}

/// The static columns of an object that the protocol reads: they belong to no row, and are there
/// without any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Statics {
    /// The last release.
    pub(crate) last_release: Option<LastRelease>,
    /// The column `mark`: up to which round no contender may enter.
    pub(crate) mark: Option<i64>,
}

/// The last release of an object that had a queue: who left, and how fast the queue moves.
///
/// It suggests to those behind when to look again, and does nothing else: it may be missing, late,
/// or of a queue of long ago. No contender is let in because of it, and none leaves the blockers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LastRelease {
    /// The client that left. Rounds are unique within a client.
    pub(crate) client: u128,
    /// The round that it ended.
    pub(crate) round: i64,
    /// How long a handoff takes.
    pub(crate) handoff: Duration,
    /// The write timestamp, in µs: above that of the release before, whatever the clocks say.
    pub(crate) stamp: i64,
}

/// How long it is known, in seconds. An object that is free for so long has no queue to pace.
pub(crate) const LAST_RELEASE_TTL_SECONDS: i32 = 60;

impl StoredRow {
    /// The `entering::` row of a claim.
    pub(crate) fn entering(claim: &Claim) -> Self {
        StoredRow {
            row_name: row_name::ENTERING.to_owned(),
            contender: claim.contender,
            round: Some(claim.round),
            mode: Some(claim.mode.code()),
            max_holders: claim.mode.max_holders(),
            ticket: claim.ticket,
            owner: Some(claim.owner.to_string()),
            why: None,
            held_since: claim.held_since,
        }
    }

    /// The `revoked::` row of a revocation.
    pub(crate) fn revoked(revocation: &Revocation) -> Self {
        StoredRow {
            row_name: row_name::REVOKED.to_owned(),
            contender: revocation.contender,
            round: Some(revocation.round),
            mode: revocation.kind.code(),
            max_holders: None,
            ticket: None,
            owner: Some(revocation.by.clone()),
            why: Some(revocation.why.clone()),
            held_since: None,
        }
    }

    /// Interprets the row.
    pub(crate) fn parse(&self) -> Row {
        let claimed = || {
            let mode = Mode::parse(self.mode?, self.max_holders)?;
            Some((self.round?, mode))
        };
        match (self.row_name.as_str(), claimed()) {
            (row_name::ENTERING, Some((round, mode))) => {
                let held_since = self.held_since_of(round);
                Row::Entering { round, mode, ticket: self.ticket, held_since }
            }
            (row_name::REVOKED, _) => {
                Row::Revoked { round: self.round, kind: RevokeKind::parse(self.mode) }
            }
            _ => Row::Unreadable,
        }
    }

    /// Since when the contender holds the object in this round. Where the delete of an earlier
    /// round has not arrived, its cells may still be seen, and a waiting contender writes no such
    /// cell, so a value older than the round does not count.
    fn held_since_of(&self, round: i64) -> Option<i64> {
        self.held_since.filter(|since| *since >= round / MICROS_PER_MILLI)
    }
}

/// Stamps are in µs, and so are rounds, because they are stamps.
pub(super) const MICROS_PER_MILLI: i64 = 1000;

/// The meaning of a stored row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Row {
    /// The contender announced itself.
    Entering {
        /// Its round.
        round: i64,
        /// How it wants to hold the object.
        mode: Mode,
        /// Its ticket, once drawn.
        ticket: Option<i64>,
        /// Since when it holds the object, in milliseconds since the Unix epoch; known from the
        /// first renewal after the grant on.
        held_since: Option<i64>,
    },
    /// A request to leave; only the contender itself acts on it.
    Revoked {
        /// The round to give up; if missing, no round is revoked.
        round: Option<i64>,
        /// How it is made to leave.
        kind: RevokeKind,
    },
    /// This version can't interpret the row. Its contender blocks (design section 3).
    Unreadable,
}

/// What a read shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    /// The rows.
    pub(crate) rows: Vec<StoredRow>,
    /// The static columns.
    pub(crate) statics: Statics,
    /// Whether the database warns that the read met very many dead rows, or cells of them.
    pub(crate) many_dead: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim() -> Claim {
        Claim {
            contender: ContenderId { host: 3, client: 9, slot: 0 },
            round: 1_700_000_000_000_000,
            mode: Mode::Exclusive,
            ticket: Some(7),
            owner: "snap".into(),
            held_since: None,
        }
    }

    #[test]
    fn contenders_are_told_by_host_client_and_slot() {
        let contender = ContenderId { host: -3, client: 0xab, slot: 7 };
        assert_eq!(contender.to_string(), "-3/000000000000000000000000000000ab/7");
    }

    #[test]
    fn row_of_a_claim_says_what_it_says() {
        for ticket in [None, Some(7)] {
            let claim = Claim { ticket, ..claim() };
            let (round, mode) = (claim.round, Mode::Exclusive);
            let row = StoredRow::entering(&claim).parse();
            assert_eq!(row, Row::Entering { round, mode, ticket, held_since: None });
        }
        assert_eq!(claim().since_millis(), 1_700_000_000_000);
    }

    #[test]
    fn incomplete_or_unknown_row_is_unreadable() {
        let entering = StoredRow::entering(&claim());
        for row in [
            StoredRow { round: None, ..entering.clone() },
            StoredRow { mode: None, ..entering.clone() },
            StoredRow { mode: Some(9), ..entering.clone() },
            StoredRow { mode: Some(2), max_holders: None, ..entering.clone() },
            StoredRow { mode: Some(2), max_holders: Some(0), ..entering.clone() },
            StoredRow { row_name: "priority::".to_owned(), ..entering },
        ] {
            assert_eq!(row.parse(), Row::Unreadable, "{row:?}");
        }
    }

    #[test]
    fn rows_of_a_revocation_say_what_it_says() {
        let revocation = Revocation {
            contender: claim().contender,
            round: 7,
            by: "ops".to_owned(),
            why: "it hangs".to_owned(),
            kind: RevokeKind::Request,
        };
        for kind in [RevokeKind::Request, RevokeKind::Force] {
            let row = StoredRow::revoked(&Revocation { kind, ..revocation.clone() });
            assert_eq!(row.parse(), Row::Revoked { round: Some(7), kind });
            let said = (row.owner.as_deref(), row.why.as_deref());
            assert_eq!(said, (Some("ops"), Some("it hangs")));
        }
    }

    #[test]
    fn modes_survive_the_store() {
        for mode in [Mode::Exclusive, Mode::Shared, Mode::Limited(4)] {
            let row = StoredRow::entering(&Claim { mode, ..claim() });
            let Claim { round, ticket, .. } = claim();
            assert_eq!(row.parse(), Row::Entering { round, mode, ticket, held_since: None });
        }
    }

    #[test]
    fn holder_says_since_when_it_holds_in_its_round() {
        let began = claim().since_millis();
        for (written, counts) in [(None, None), (Some(began - 1), None), (Some(0), None)]
            .into_iter()
            .chain([began, began + 1].map(|since| (Some(since), Some(since))))
        {
            let claim = Claim { held_since: written, ..claim() };
            let Claim { round, mode, ticket, .. } = claim;
            let entering = StoredRow::entering(&claim).parse();
            assert_eq!(entering, Row::Entering { round, mode, ticket, held_since: counts });
        }
    }
}
