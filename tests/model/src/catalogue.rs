//! All searches: what holds, and what each flaw breaks.

use crate::lease::Course;
use crate::protocol::{Mode, Patience, SeededBug};
use crate::scenario::{CALM, EXCLUSIVE, Flaw, LockRequest, Revoking, Scenario, Troubles};
use crate::sightings::Sight;
use crate::tokens;
use crate::turns::{self, NO_TROUBLES, Troubles as TurnTroubles};

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
    /// Rows that expire, in a model that lasts so many seconds.
    Expiry(Scenario, Course, u64),
    /// The fence, and tokens of a holder that is removed and of its successor.
    Tokens(tokens::Plan),
    /// Turns of callers and guests.
    Turns(turns::Plan),
}

impl Subject {
    /// The bug that is planted in the protocol.
    pub(crate) fn mutation(&self) -> Option<SeededBug> {
        match self {
            Subject::Replicas(scenario)
            | Subject::Registers(scenario)
            | Subject::Expiry(scenario, ..) => scenario.mutation(),
            // The flaw there is in the order of requests, which is not the protocol's.
            Subject::Tokens(_) => None,
            Subject::Turns(plan) => plan.bug,
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

/// What has to come of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// Nothing is wrong.
    Holds,
    /// The flaw is noticed.
    Caught,
}

/// Every search.
pub(crate) fn entries() -> Vec<Entry> {
    let holds = sound().into_iter().chain(turns()).map(|(name, length, subject)| Entry {
        name,
        length,
        expected: Expected::Holds,
        subject,
    });
    let caught = flawed().into_iter().chain(flawed_turns()).map(|(name, subject)| Entry {
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
const TRY: LockRequest = LockRequest { mode: Mode::Exclusive, patience: Patience::Try };

const TWO: [LockRequest; 2] = [EXCLUSIVE; 2];
const THREE: [LockRequest; 3] = [EXCLUSIVE; 3];

const GIVING_UP: Troubles = Troubles { giving_up: true, ..CALM };
const HASTE: Troubles = Troubles { haste: true, ..CALM };
const ASKING: Troubles = Troubles { revocation: Revoking::Asking, giving_up: true, ..CALM };
const FORCE: Troubles = Troubles { revocation: Revoking::Force, giving_up: true, ..CALM };
const ALL: Troubles = Troubles { failures: true, giving_up: true, deaths: 1, ..CALM };

const ORDINARY: &[Sight] = &[Sight::FastPath, Sight::ThroughTheQueue, Sight::Tie];
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
    flaw: None,
    must_see: &[
        Sight::TokenBesideRemoval,
        Sight::TokenRefused,
        Sight::TokenOfSuccessor,
        Sight::TokenGivenUp,
    ],
};

const REPEATS: TurnTroubles = TurnTroubles { repeats: 1, ..NO_TROUBLES };
const RENEWALS: TurnTroubles = TurnTroubles { renewals: 1, ..NO_TROUBLES };
const JUMPS: TurnTroubles = TurnTroubles { jumps: 1, ..NO_TROUBLES };
const ALL_OF_TURNS: TurnTroubles = TurnTroubles {
    repeats: 1,
    reconnects: 1,
    keeper_deaths: 1,
    guest_deaths: 1,
    jumps: 1,
    revocations: 1,
    removals: 0,
    renewals: 1,
    giving_up: 1,
};
const DEATHS: TurnTroubles = TurnTroubles { keeper_deaths: 1, guest_deaths: 1, ..NO_TROUBLES };
const TURNS: turns::Plan = turns::Plan {
    guests: 1,
    requests: 1,
    callers: &[5],
    has_next_holder: false,
    is_first_guest: false,
    ticks: 6,
    frames: 3,
    troubles: NO_TROUBLES,
    bug: None,
    must_see: &[Sight::CallersTurn, Sight::GuestsTurn],
};

/// Turns, each trouble by itself, and how long.
fn turns() -> Vec<(&'static str, Length, Subject)> {
    use Length::{Long, Short};
    let plan = |ticks, troubles| turns::Plan { ticks, troubles, ..TURNS };
    let callers = |ticks, troubles| turns::Plan { callers: &[5, 5], ..plan(ticks, troubles) };
    let beside = |ticks, troubles| turns::Plan { has_next_holder: true, ..plan(ticks, troubles) };
    let ttls = |ticks, troubles| turns::Plan { callers: &[8, 5], ..beside(ticks, troubles) };
    let both = |ticks| turns::Plan {
        callers: &[5, 5],
        is_first_guest: true,
        ..beside(ticks, NO_TROUBLES)
    };
    let guests = |ticks, troubles| turns::Plan { guests: 2, ..plan(ticks, troubles) };
    let rounds = |ticks| turns::Plan { callers: &[5, 5, 5], requests: 2, ..plan(ticks, REPEATS) };
    vec![
        ("turns of a caller and a guest", Short, plan(5, NO_TROUBLES)),
        ("turns, given up", Short, callers(3, TurnTroubles { giving_up: 1, ..NO_TROUBLES })),
        ("turns, messages repeated", Short, callers(2, REPEATS)),
        ("turns, connected again", Short, callers(2, TurnTroubles { reconnects: 1, ..REPEATS })),
        ("turns of two guests", Short, guests(1, REPEATS)),
        ("turns of two rounds", Short, rounds(0)),
        ("turns, of two ttls, beside another contender", Short, ttls(2, RENEWALS)),
        ("turns of a guest that waits in the table, too", Short, both(3)),
        ("turns, keeper and guest die", Short, callers(3, DEATHS)),
        ("turns, clock set ahead", Short, callers(3, JUMPS)),
        ("turns, place revoked", Short, beside(4, TurnTroubles { revocations: 1, ..NO_TROUBLES })),
        ("turns of a caller and a guest, for longer", Long, plan(6, NO_TROUBLES)),
        ("turns, messages repeated, for longer", Long, callers(3, REPEATS)),
        ("turns, of two ttls, for longer", Long, ttls(3, RENEWALS)),
        ("turns, clock set ahead, for longer", Long, callers(4, JUMPS)),
        (
            "turns of two guests and two callers",
            Long,
            turns::Plan { callers: &[5, 5], ..guests(1, REPEATS) },
        ),
        ("turns, all troubles", Long, turns::Plan { callers: &[5, 5], ..beside(1, ALL_OF_TURNS) }),
        ("turns of two rounds, for longer", Long, rounds(1)),
        ("turns, place removed", Short, beside(4, TurnTroubles { removals: 1, ..NO_TROUBLES })),
    ]
    .into_iter()
    .map(|(name, length, plan)| (name, length, Subject::Turns(plan)))
    .collect()
}

/// The flaws of turns: each with a plan in which it shows.
fn flawed_turns() -> Vec<(&'static str, Subject)> {
    use SeededBug as Bug;
    let late = turns::Plan { callers: &[5, 5], ..TURNS };
    let beside = turns::Plan { has_next_holder: true, ..TURNS };
    let at_once = turns::Plan { ticks: 0, troubles: REPEATS, ..late };
    let again = turns::Plan { requests: 2, callers: &[5, 5, 5], ..at_once };
    let death = TurnTroubles { keeper_deaths: 1, ..REPEATS };
    let plant = |bug, plan| Subject::Turns(turns::Plan { bug: Some(bug), ..plan });
    let with = |bug, plan, troubles| plant(bug, turns::Plan { troubles, ..plan });
    vec![
        ("flaw: sublease beyond the place", plant(Bug::SubleaseBeyondPlace, beside)),
        ("flaw: no drift allowance", plant(Bug::NoDriftAllowance, late)),
        ("flaw: sublease on a clock that jumps", with(Bug::SubleaseOnJumpingClock, late, JUMPS)),
        ("flaw: sublease from the receipt", plant(Bug::LeaseFromReceipt, late)),
        ("flaw: echo refreshed", plant(Bug::EchoRefreshed, late)),
        ("flaw: old grant accepted", plant(Bug::OldGrantAccepted, at_once)),
        ("flaw: repeated grant returned", plant(Bug::RepeatedGrantReturned, at_once)),
        ("flaw: any return counts", plant(Bug::AnyReturnCounts, again)),
        ("flaw: turn without its round", plant(Bug::TurnWithoutRound, again)),
        ("flaw: turn without its client", with(Bug::TurnWithoutClient, again, death)),
        ("flaw: rows deleted in a turn", plant(Bug::RowsDeletedInTurn, beside)),
        (
            "flaw: rows shortened in a turn",
            plant(Bug::RowsShortenedInTurn, turns::Plan { callers: &[8, 5], ..beside }),
        ),
        ("flaw: finished requests count", plant(Bug::FinishedRequestsCount, TURNS)),
    ]
}

fn sound() -> Vec<(&'static str, Length, Subject)> {
    use Length::{Long, Short};
    use Subject::{Expiry, Registers, Replicas, Tokens};
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
        ("two, removed by force", Short, Replicas(with(&TWO, FORCE, revoked))),
        ("two tries", Short, Replicas(with(&[TRY, TRY], GIVING_UP, &[Sight::Taken]))),
        ("a shared and an exclusive one", Short, Replicas(all(&[SHARED, EXCLUSIVE], 1))),
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
        ("tokens of a holder that is removed", Short, Tokens(TOKENS)),
        (
            "tokens of a holder that is removed and renews",
            Short,
            Tokens(tokens::Plan { draws: [1, 1], renewals: 1, ..TOKENS }),
        ),
        (
            "tokens of a holder that is removed, two of each",
            Long,
            Tokens(tokens::Plan { draws: [2, 2], ..TOKENS }),
        ),
        ("two, whose rows get lost", Short, losing(&TWO, TRUE_CLOCKS, 8)),
        (
            "two, whose rows get lost, and whose clocks differ",
            Long,
            losing(&TWO, Course::Losing { ahead: 3 }, 8),
        ),
        ("three, whose rows get lost", Long, losing(&THREE, TRUE_CLOCKS, 5)),
        (
            "limited ones and a shared one, on registers",
            Long,
            Registers(all(&[LIMITED, LIMITED, SHARED], 1)),
        ),
    ]
}

fn flawed() -> Vec<(&'static str, Subject)> {
    use Subject::{Expiry, Registers, Replicas};
    let two = |flaw| Scenario::of(&TWO).flaw(flaw);
    let planted = |requests, mutation| Scenario::of(requests).flaw(Flaw::Protocol(mutation));
    let late = |scenario| Expiry(scenario, Course::Late, 4);
    let tokens = |flaw| Subject::Tokens(tokens::Plan { draws: [1, 1], flaw: Some(flaw), ..TOKENS });
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
        ("flaw: ticket stands alone", Replicas(planted(&TWO, SeededBug::TicketStandsAlone))),
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
        ("flaw: age of the entering row ignored", late(two(Flaw::EnteringIsNotRewritten))),
        ("flaw: late renewal counts", late(planted(&TWO, SeededBug::LateRenewalCounts))),
        ("flaw: own rows unread before a token", tokens(tokens::Flaw::OwnRowsUnread)),
        ("flaw: own rows read too early", tokens(tokens::Flaw::OwnRowsReadEarly)),
        ("flaw: rows deleted too early", tokens(tokens::Flaw::RowsDeletedEarly)),
        ("flaw: fence read too early", tokens(tokens::Flaw::FenceReadEarly)),
        ("flaw: renewal unread", losing(SeededBug::RenewalUnread)),
        ("flaw: holders do not compare", losing(SeededBug::HoldersDoNotCompare)),
        ("flaw: no tie-break of holders", losing(SeededBug::NoTieBreakOfHolders)),
        (
            "flaw: no confirming read",
            Replicas(planted(&TWO, SeededBug::NoConfirmingRead).troubles(FORCE)),
        ),
    ]
}
