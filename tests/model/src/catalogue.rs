//! All searches: what holds, and what each flaw breaks. Those of turns are in [`of_turns`].

mod of_dead;
mod of_exchanges;
mod of_members;
mod of_objects;
mod of_turns;

use crate::core::bakery::{Mode, Patience, SeededBug};
use crate::dead;
use crate::lease::Course;
use crate::members;
use crate::objects;
use crate::scenario::{CALM, EXCLUSIVE, Flaw, LockRequest, Revoking, Scenario, Troubles};
use crate::sightings::Sight;
use crate::tokens;
use crate::turns;

/// A search by its name.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) name: &'static str,
    pub(crate) length: Length,
    pub(crate) expected: Expected,
    pub(crate) subject: Subject,
}

/// What is searched.
#[derive(Clone, Debug)]
pub(crate) enum Subject {
    /// Rows on three replicas.
    Replicas(Scenario),
    /// Rows that are regular registers.
    Registers(Scenario),
    /// Rows that expire, in a model that lasts this many seconds.
    Expiry(Scenario, Course, u64),
    /// The fence, and tokens of a holder that is removed and of its successor.
    Tokens(tokens::Plan),
    /// Masters that lose their data.
    Members(members::Plan),
    /// The lock of a process that has died.
    Dead(dead::Plan),
    /// Turns of callers and guests.
    Turns(turns::Plan),
    /// Whole objects of several clients.
    Objects(objects::Plan),
}

impl Subject {
    /// The bug that is planted in the protocol.
    pub(crate) fn mutation(&self) -> Option<SeededBug> {
        match self {
            Subject::Replicas(scenario)
            | Subject::Registers(scenario)
            | Subject::Expiry(scenario, ..) => scenario.mutation(),
            // The flaw there is in the order of requests, which is not the protocol's.
            Subject::Tokens(_) | Subject::Members(_) | Subject::Dead(_) => None,
            Subject::Turns(plan) => plan.bug,
            Subject::Objects(plan) => plan.bug,
        }
    }
}

/// How long a search takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// Seconds: every test run can afford it.
    Short,
    /// Minutes.
    Long,
}

/// What must come of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// Nothing is wrong.
    Holds,
    /// The flaw is noticed.
    Caught,
}

/// Every search.
pub(crate) fn entries() -> Vec<Entry> {
    let holds = sound()
        .into_iter()
        .chain(of_exchanges::sound())
        .chain(of_fronts())
        .chain(of_sweeps())
        .chain(of_tokens())
        .chain(of_members::sound())
        .chain(of_dead::sound())
        .chain(of_turns::sound())
        .chain(of_objects::sound())
        .map(|(name, length, subject)| Entry { name, length, expected: Expected::Holds, subject });
    let caught = flawed()
        .into_iter()
        .chain(of_exchanges::flawed())
        .chain(of_members::flawed())
        .chain(of_dead::flawed())
        .chain(of_turns::flawed())
        .chain(of_objects::flawed())
        .map(|(name, subject)| Entry {
            name,
            length: Length::Short,
            expected: Expected::Caught,
            subject,
        });
    holds.chain(caught).collect()
}

/// What is searched with and without a reduction.
pub(crate) fn for_comparison() -> Scenario {
    Scenario::of(&TWO).troubles(GIVING_UP)
}

const SHARED: LockRequest = LockRequest { mode: Mode::Shared, patience: Patience::Wait };
const LIMITED: LockRequest = LockRequest { mode: Mode::Limited(2), patience: Patience::Wait };
/// One of a client with another limit, as while a program with a new one is being deployed.
const OTHER_LIMIT: LockRequest = LockRequest { mode: Mode::Limited(3), patience: Patience::Wait };
const TRY: LockRequest = LockRequest { mode: Mode::Exclusive, patience: Patience::Try };

const TWO: [LockRequest; 2] = [EXCLUSIVE; 2];
const THREE: [LockRequest; 3] = [EXCLUSIVE; 3];

const GIVING_UP: Troubles = Troubles { giving_up: true, ..CALM };
const HASTE: Troubles = Troubles { haste: true, ..CALM };
const ASKING: Troubles = Troubles { revocation: Revoking::Asking, giving_up: true, ..CALM };
const FORCE: Troubles = Troubles { revocation: Revoking::Force, giving_up: true, ..CALM };
const SWEPT: Troubles = Troubles { sweep: true, ..CALM };
const SWEPT_AND_ALL: Troubles = Troubles { sweep: true, ..ALL };
const ALL: Troubles = Troubles { failures: true, giving_up: true, deaths: 1, ..CALM };

const ORDINARY: &[Sight] =
    &[Sight::FastPath, Sight::ThroughTheQueue, Sight::FromTheFront, Sight::Tie];
/// Where waiters ask for one contender at a time.
const ONE_BY_ONE: &[Sight] = &[Sight::FastPath, Sight::ThroughTheQueue, Sight::Tie];
const TROUBLED: &[Sight] = &[
    Sight::FastPath,
    Sight::ThroughTheQueue,
    Sight::Tie,
    Sight::GivenUpInTheDoorway,
    Sight::GivenUpInTheQueue,
    Sight::HolderDied,
    Sight::ContenderDied,
    Sight::StaleRow,
];

const TRUE_CLOCKS: Course = Course::Losing { ahead: 0 };
const ROWS_LOST: &[Sight] = &[
    Sight::VanishedBeforeWrite,
    Sight::TwoHold,
    Sight::MissingBeforeRenewal,
    Sight::EarlierGivesWay,
    Sight::BegunAnew,
];
const TOKENS: tokens::Plan = tokens::Plan {
    draws: [2, 1],
    renewals: 0,
    reserve: 0,
    flaw: None,
    must_see: &[
        Sight::TokenBesideRemoval,
        Sight::TokenRefused,
        Sight::TokenOfSuccessor,
        Sight::TokenGivenUp,
    ],
};

fn sound() -> Vec<(&'static str, Length, Subject)> {
    use Length::{Long, Short};
    use Subject::{Expiry, Registers, Replicas};
    let all =
        |requests, rounds| Scenario::of(requests).rounds(rounds).troubles(ALL).must_see(TROUBLED);
    let with =
        |requests, troubles, must_see| Scenario::of(requests).troubles(troubles).must_see(must_see);
    let ended = &[Sight::Renewed, Sight::Expired];
    let expiry = |seconds| Expiry(Scenario::of(&TWO).must_see(ended), Course::Late, seconds);
    let losing = |requests, course, seconds| {
        Expiry(Scenario::of(requests).must_see(ROWS_LOST), course, seconds)
    };
    let revoked = &[Sight::HolderRevoked, Sight::WaiterRevoked];
    vec![
        ("two, twice, all troubles", Short, Replicas(all(&TWO, 2))),
        (
            "two, twice, in haste",
            Short,
            Replicas(with(&TWO, HASTE, &[Sight::NextRoundInHaste]).rounds(2)),
        ),
        ("two, asked to leave", Short, Replicas(with(&TWO, ASKING, revoked))),
        ("two, removed by force", Long, Replicas(with(&TWO, FORCE, revoked))),
        ("two tries", Short, Replicas(with(&[TRY, TRY], GIVING_UP, &[Sight::Taken]))),
        ("a shared and an exclusive one", Short, Replicas(all(&[SHARED, EXCLUSIVE], 1))),
        ("two with two limits", Short, Replicas(all(&[LIMITED, OTHER_LIMIT], 1))),
        (
            "three with two limits, on registers",
            Long,
            Registers(all(&[LIMITED, LIMITED, OTHER_LIMIT], 1)),
        ),
        ("three", Long, Replicas(Scenario::of(&THREE).must_see(ORDINARY))),
        ("three, all troubles, on registers", Short, Registers(all(&THREE, 1))),
        (
            "three, twice, on registers",
            Long,
            Registers(Scenario::of(&THREE).rounds(2).must_see(ORDINARY)),
        ),
        (
            "shared ones and an exclusive one, on registers",
            Short,
            Registers(all(&[SHARED, SHARED, EXCLUSIVE], 1)),
        ),
        ("three limited ones, on registers", Short, Registers(all(&[LIMITED; 3], 1))),
        (
            "limited ones and an exclusive one, on registers",
            Short,
            Registers(all(&[LIMITED, LIMITED, EXCLUSIVE], 1)),
        ),
        ("two, whose leases end", Short, expiry(3)),
        ("two, whose leases end, for longer", Long, expiry(4)),
        ("two, whose rows get lost", Short, losing(&TWO, TRUE_CLOCKS, 8)),
        (
            "two, whose rows get lost, and whose clocks differ",
            Long,
            losing(&TWO, Course::Losing { ahead: 3 }, 8),
        ),
        ("three, whose rows get lost", Long, losing(&THREE, TRUE_CLOCKS, 5)),
        ("one of each mode, on registers", Long, Registers(all(&[SHARED, LIMITED, EXCLUSIVE], 1))),
        (
            "limited ones and a shared one, on registers",
            Long,
            Registers(all(&[LIMITED, LIMITED, SHARED], 1)),
        ),
    ]
}

/// Waiters that ask for fewer or more of those ahead at once than in other searches.
fn of_fronts() -> Vec<(&'static str, Length, Subject)> {
    use Length::{Long, Short};
    use Subject::{Registers, Replicas};
    let of = |requests: &[LockRequest], troubles| Scenario::of(requests).troubles(troubles);
    let one_by_one = |requests: &[LockRequest], troubles| {
        of(requests, troubles).must_see(ONE_BY_ONE).asking_one_by_one()
    };
    vec![
        ("two, all troubles, asking one by one", Short, Replicas(one_by_one(&TWO, ALL))),
        ("three, asking one by one", Long, Replicas(one_by_one(&THREE, CALM))),
        (
            "three, all troubles, asking for all, on registers",
            Long,
            Registers(of(&THREE, ALL).must_see(TROUBLED).with_front_max(2)),
        ),
    ]
}

fn of_sweeps() -> Vec<(&'static str, Length, Subject)> {
    use Length::{Long, Short};
    use Subject::{Registers, Replicas};
    let with = |requests, troubles| {
        let swept = &[Sight::SentBack, Sight::Swept, Sight::Spared];
        Scenario::of(requests).troubles(troubles).must_see(swept)
    };
    vec![
        ("two, swept", Long, Replicas(with(&TWO, SWEPT))),
        ("two, swept, given up", Long, Replicas(with(&TWO, Troubles { giving_up: true, ..SWEPT }))),
        ("two, swept, all troubles, on registers", Short, Registers(with(&TWO, SWEPT_AND_ALL))),
        (
            "two, swept, two rounds, on registers",
            Long,
            Registers(with(&TWO, SWEPT_AND_ALL).rounds(2)),
        ),
        ("three, swept, on registers", Long, Registers(with(&THREE, SWEPT))),
    ]
}

fn of_tokens() -> Vec<(&'static str, Length, Subject)> {
    use Length::{Long, Short};
    use Subject::Tokens;
    vec![
        ("tokens of a holder that is removed", Short, Tokens(TOKENS)),
        (
            "tokens of a holder that is removed and renews",
            Short,
            Tokens(tokens::Plan { draws: [1, 1], renewals: 1, ..TOKENS }),
        ),
        (
            "tokens of a holder that is removed, in blocks",
            Short,
            Tokens(tokens::Plan { draws: [1, 1], reserve: 1, ..TOKENS }),
        ),
        (
            "tokens of a holder that is removed, in two blocks",
            Long,
            Tokens(tokens::Plan { reserve: 1, ..TOKENS }),
        ),
        (
            "tokens of a holder that is removed, two of each",
            Long,
            Tokens(tokens::Plan { draws: [2, 2], ..TOKENS }),
        ),
    ]
}

fn flawed() -> Vec<(&'static str, Subject)> {
    use Subject::{Expiry, Registers, Replicas};
    let two = |flaw| Scenario::of(&TWO).flaw(flaw);
    let planted = |requests, mutation| Scenario::of(requests).flaw(Flaw::Protocol(mutation));
    let late = |scenario| Expiry(scenario, Course::Late, 4);
    let tokens = |flaw| Subject::Tokens(tokens::Plan { draws: [1, 1], flaw: Some(flaw), ..TOKENS });
    let block = |flaw| {
        Subject::Tokens(tokens::Plan { draws: [1, 1], reserve: 1, flaw: Some(flaw), ..TOKENS })
    };
    let losing = |mutation| Expiry(planted(&TWO, mutation), TRUE_CLOCKS, 8);
    vec![
        ("flaw: read before the acknowledgement", Replicas(two(Flaw::ReadBeforeAcknowledgement))),
        ("flaw: quorum of one", Replicas(two(Flaw::QuorumOfOne))),
        (
            "flaw: fast path ignores choosing ones",
            Replicas(planted(&TWO, SeededBug::FastPathIgnoresChoosing)),
        ),
        ("flaw: no choosing phase", Replicas(planted(&TWO, SeededBug::NoChoosingPhase))),
        ("flaw: no tie-break", Replicas(planted(&TWO, SeededBug::NoTieBreak))),
        (
            "flaw: middle stands for all",
            Registers(planted(&THREE, SeededBug::MiddleStandsForAll).troubles(GIVING_UP)),
        ),
        (
            "flaw: limited counts exclusive",
            Replicas(planted(&[LIMITED, EXCLUSIVE], SeededBug::LimitedCountsExclusive)),
        ),
        (
            "flaw: lease from the acknowledgement",
            late(planted(&TWO, SeededBug::LeaseFromAcknowledgement)),
        ),
        ("flaw: late renewal counts", late(planted(&TWO, SeededBug::LateRenewalCounts))),
        ("flaw: own rows unread before a token", tokens(tokens::Flaw::OwnRowsUnread)),
        ("flaw: own rows read too early", tokens(tokens::Flaw::OwnRowsReadEarly)),
        ("flaw: rows deleted too early", tokens(tokens::Flaw::RowsDeletedEarly)),
        ("flaw: fence read too early", tokens(tokens::Flaw::FenceReadEarly)),
        ("flaw: fence of a block unacknowledged", block(tokens::Flaw::FenceUnacknowledged)),
        ("flaw: own rows unread before a block", block(tokens::Flaw::OwnRowsUnread)),
        ("flaw: renewal unread", losing(SeededBug::RenewalUnread)),
        ("flaw: holders do not compare", losing(SeededBug::HoldersDoNotCompare)),
        ("flaw: no tie-break of holders", losing(SeededBug::NoTieBreakOfHolders)),
        ("flaw: mark ignored", Replicas(planted(&TWO, SeededBug::MarkIgnored).troubles(SWEPT))),
        (
            "flaw: sweep unchecked",
            Replicas(planted(&TWO, SeededBug::SweepUnchecked).troubles(SWEPT)),
        ),
        ("flaw: sweep reads too early", Replicas(two(Flaw::SweepReadsEarly).troubles(SWEPT))),
        (
            "flaw: revoked holder renews",
            Replicas(planted(&TWO, SeededBug::RevokedRenews).troubles(ASKING)),
        ),
        (
            "flaw: revoked holder deletes its rows",
            Replicas(planted(&TWO, SeededBug::RevokedDeletesRows).troubles(ASKING)),
        ),
        (
            "flaw: own rows unread",
            Replicas(planted(&TWO, SeededBug::OwnRowsUnread).troubles(FORCE)),
        ),
        (
            "flaw: own rows unread, asking one by one",
            Replicas(planted(&TWO, SeededBug::OwnRowsUnread).troubles(FORCE).asking_one_by_one()),
        ),
    ]
}
