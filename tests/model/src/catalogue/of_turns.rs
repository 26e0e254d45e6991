//! The searches of turns: each trouble by itself, then together.

use super::{Length, Subject};
use crate::core::bakery::{Mode, SeededBug as Bug};
use crate::sightings::Sight;
use crate::turns::{CallerPlan, NO_TROUBLES, Plan, Troubles};

const ALONE: CallerPlan = CallerPlan { ttl: 5, mode: Mode::Exclusive, min_hold: 0 };
const TO_SHARE: CallerPlan = CallerPlan { mode: Mode::Shared, ..ALONE };

/// A caller has the first turn, so that there is a keeper when the guest asks.
const PLAN: Plan = Plan {
    guests: 1,
    requests: 1,
    callers: &[ALONE],
    has_next_holder: false,
    is_first_guest: false,
    ticks: 6,
    stride: 1,
    frames: 3,
    troubles: NO_TROUBLES,
    bug: None,
    must_see: &[Sight::CallersTurn, Sight::GuestsTurn],
};
const TWO_CALLERS: Plan = Plan { callers: &[ALONE; 2], ..PLAN };
const TWO_GUESTS: Plan = Plan { guests: 2, ..PLAN };
const TWO_ROUNDS: Plan = Plan { callers: &[ALONE; 3], requests: 2, ..PLAN };
const NEXT_HOLDER: Plan = Plan {
    has_next_holder: true,
    must_see: &[Sight::CallersTurn, Sight::GuestsTurn, Sight::NextHolderEntered],
    ..PLAN
};
const TWO_TTLS: Plan = Plan { callers: &[CallerPlan { ttl: 8, ..ALONE }, ALONE], ..NEXT_HOLDER };
/// The rows of a place that stays taken are shortened for the rest of that time.
const MIN_HOLD: Plan = Plan {
    callers: &[CallerPlan { ttl: 8, min_hold: 1, ..ALONE }],
    must_see: &[Sight::ReturnedEarly, Sight::GuestsTurn, Sight::NextHolderEntered],
    ..NEXT_HOLDER
};
const ALL_PARTIES: Plan = Plan { callers: &[ALONE; 2], ..NEXT_HOLDER };
/// Readers and a writer of one client, and a writer in the table.
const SHARED: Plan = Plan {
    guests: 0,
    callers: &[TO_SHARE, TO_SHARE, ALONE],
    must_see: &[Sight::CallersTurn, Sight::CallersShare, Sight::NextHolderEntered],
    ..NEXT_HOLDER
};
const SHARED_FOR_TWO_TTLS: Plan =
    Plan { callers: &[TO_SHARE, CallerPlan { ttl: 8, ..TO_SHARE }, ALONE], ..SHARED };
const SHARED_BESIDE_GUEST: Plan = Plan {
    guests: 1,
    callers: &[TO_SHARE, TO_SHARE],
    must_see: &[Sight::CallersShare, Sight::GuestsTurn, Sight::NextHolderEntered],
    ..SHARED
};
const BOTH_WAYS: Plan = Plan { is_first_guest: true, ..ALL_PARTIES };

const REPEATS: Troubles = Troubles { repeats: 1, ..NO_TROUBLES };
const RECONNECTS: Troubles = Troubles { reconnects: 1, ..REPEATS };
const RENEWALS: Troubles = Troubles { renewals: 1, ..NO_TROUBLES };
const JUMPS: Troubles = Troubles { jumps: 1, ..NO_TROUBLES };
const DEATHS: Troubles = Troubles { keeper_deaths: 1, guest_deaths: 1, ..NO_TROUBLES };
const GIVING_UP: Troubles = Troubles { giving_up: 1, ..NO_TROUBLES };
const DISBANDED: Troubles = Troubles { disbanded: 1, ..NO_TROUBLES };
const REVOKED: Troubles = Troubles { revocations: 1, ..NO_TROUBLES };
const REMOVED: Troubles = Troubles { removals: 1, ..NO_TROUBLES };
const DRAWS: Troubles = Troubles { draws: 2, ..NO_TROUBLES };
const ALL: Troubles = Troubles {
    repeats: 1,
    reconnects: 1,
    keeper_deaths: 1,
    guest_deaths: 1,
    jumps: 1,
    revocations: 1,
    removals: 0,
    renewals: 1,
    disbanded: 1,
    giving_up: 1,
    draws: 0,
};

/// What holds.
pub(super) fn sound() -> Vec<(&'static str, Length, Subject)> {
    use Length::{Long, Short};
    let revoked = Plan { must_see: &[Sight::GuestsTurn, Sight::PlaceRevoked], ..NEXT_HOLDER };
    let disbanded = Plan {
        requests: 2,
        must_see: &[Sight::GuestsTurn, Sight::NextHolderEntered, Sight::LineDisbanded],
        ..NEXT_HOLDER
    };
    let shared = Plan {
        must_see: &[
            Sight::CallersShare,
            Sight::NextHolderEntered,
            Sight::NextHolderGaveUp,
            Sight::PlaceRevoked,
        ],
        ..SHARED
    };
    let shared_troubles = Troubles { giving_up: 1, revocations: 1, ..RENEWALS };
    let tokens = |plan| Plan { must_see: &[Sight::GuestsTurn, Sight::TokenOfGuest], ..plan };
    let plans = [
        ("turns", Short, PLAN.over(5)),
        ("turns, given up", Short, TWO_CALLERS.over(3).with(GIVING_UP)),
        ("turns, messages repeated", Short, TWO_CALLERS.over(2).with(REPEATS)),
        ("turns, connected again", Short, TWO_CALLERS.over(2).with(RECONNECTS)),
        ("turns, keeper and guest die", Short, TWO_CALLERS.over(3).with(DEATHS)),
        ("turns, clock set ahead", Short, TWO_CALLERS.over(2).with(JUMPS)),
        ("turns of two guests", Short, TWO_GUESTS.over(1).with(REPEATS)),
        ("turns of two rounds", Short, TWO_ROUNDS.over(0).with(REPEATS)),
        ("turns, of two ttls", Short, TWO_TTLS.over(2).with(RENEWALS)),
        ("turns of a guest that waits in the table, too", Short, BOTH_WAYS.over(3)),
        ("turns after a minimum time", Short, MIN_HOLD.over(3)),
        ("turns after a minimum time, clock set ahead", Short, MIN_HOLD.over(2).with(JUMPS)),
        ("turns after a minimum time, keeper and guest die", Short, MIN_HOLD.over(2).with(DEATHS)),
        ("turns, place revoked", Short, revoked.over(4).with(REVOKED)),
        ("turns, place removed", Short, NEXT_HOLDER.over(4).with(REMOVED)),
        ("turns, line disbanded", Short, disbanded.over(2).with(DISBANDED)),
        ("turns, tokens", Short, tokens(TWO_CALLERS).over(1).with(DRAWS)),
        ("turns, tokens beside another contender", Short, tokens(ALL_PARTIES).over(0).with(DRAWS)),
        (
            "turns, tokens, place removed",
            Short,
            tokens(NEXT_HOLDER).over(0).with(Troubles { removals: 1, ..DRAWS }),
        ),
        ("turns that are shared", Short, shared.over(3).with(shared_troubles)),
        ("turns that are shared, of two ttls", Short, SHARED_FOR_TWO_TTLS.over(3).with(RENEWALS)),
        ("turns that are shared, beside a guest", Short, SHARED_BESIDE_GUEST.over(2)),
        ("turns that are shared, for longer", Long, shared.over(6).with(shared_troubles)),
        (
            "turns that are shared, beside a guest that gives up",
            Long,
            SHARED_BESIDE_GUEST.over(2).with(GIVING_UP),
        ),
        ("turns, for longer", Long, PLAN.over(6)),
        ("turns, messages repeated, for longer", Long, TWO_CALLERS.over(3).with(REPEATS)),
        ("turns, clock set ahead, for longer", Long, TWO_CALLERS.over(3).with(JUMPS)),
        ("turns of two rounds, for longer", Long, TWO_ROUNDS.over(1).with(REPEATS)),
        ("turns after a minimum time, for longer", Long, MIN_HOLD.over(6)),
        ("turns, of two ttls, for longer", Long, TWO_TTLS.over(3).with(RENEWALS)),
        (
            "turns of two guests and two callers",
            Long,
            Plan { callers: &[ALONE; 2], ..TWO_GUESTS }.over(1).with(REPEATS),
        ),
        (
            "turns of two guests beside another contender",
            Long,
            Plan { guests: 2, ..NEXT_HOLDER }.over(1).with(REPEATS),
        ),
        ("turns, all troubles at once", Long, ALL_PARTIES.over(0).with(ALL)),
    ];
    plans.into_iter().map(|(name, length, plan)| (name, length, Subject::Turns(plan))).collect()
}

/// What each flaw breaks, in a plan in which it shows.
pub(super) fn flawed() -> Vec<(&'static str, Subject)> {
    let at_once = TWO_CALLERS.over(0).with(REPEATS);
    let again = TWO_ROUNDS.over(0).with(REPEATS);
    let death = again.with(Troubles { keeper_deaths: 1, ..REPEATS });
    let plans = [
        ("flaw: sublease beyond the place", Bug::SubleaseBeyondPlace, NEXT_HOLDER),
        ("flaw: no drift allowance", Bug::NoDriftAllowance, TWO_CALLERS),
        (
            "flaw: sublease on a clock that jumps",
            Bug::SubleaseOnJumpingClock,
            TWO_CALLERS.with(JUMPS),
        ),
        ("flaw: sublease from the receipt", Bug::LeaseFromReceipt, TWO_CALLERS),
        ("flaw: echo refreshed", Bug::EchoRefreshed, TWO_CALLERS),
        ("flaw: old grant accepted", Bug::OldGrantAccepted, at_once),
        ("flaw: repeated grant returned", Bug::RepeatedGrantReturned, at_once),
        ("flaw: any return counts", Bug::AnyReturnCounts, again),
        ("flaw: turn without its round", Bug::TurnWithoutRound, again),
        ("flaw: turn without its client", Bug::TurnWithoutClient, death),
        ("flaw: rows deleted in a turn", Bug::RowsDeletedInTurn, NEXT_HOLDER),
        (
            "flaw: rows shortened in a turn",
            Bug::RowsShortenedInTurn,
            Plan { stride: 3, ..TWO_TTLS },
        ),
        ("flaw: rows shortened after a return", Bug::RowsShortenedAfterReturn, MIN_HOLD),
        ("flaw: finished requests count", Bug::FinishedRequestsCount, PLAN),
        ("flaw: tokens carried over", Bug::BlockCarriedOver, ALL_PARTIES.over(0).with(DRAWS)),
    ];
    let planted = |bug, plan| Subject::Turns(Plan { bug: Some(bug), ..plan });
    plans.into_iter().map(|(name, bug, plan)| (name, planted(bug, plan))).collect()
}
