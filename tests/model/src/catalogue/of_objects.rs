//! The searches of whole objects.

use super::{Length, Subject};
use crate::core::bakery::{Mode, Patience, SeededBug as Bug};
use crate::objects::{CallerPlan, NO_TROUBLES, Plan, Troubles};
use crate::sightings::Sight;

const ALONE: CallerPlan = CallerPlan {
    ttl: 5,
    mode: Mode::Exclusive,
    patience: Patience::Wait,
    min_hold: 0,
    at_least: 0,
    yields: false,
};
const TRY: CallerPlan = CallerPlan { patience: Patience::Try, ..ALONE };
const LONG: CallerPlan = CallerPlan { ttl: 8, ..ALONE };
const SHARED: CallerPlan = CallerPlan { mode: Mode::Shared, ..ALONE };
const LIMITED: CallerPlan = CallerPlan { mode: Mode::Limited(1), ..ALONE };
const YIELDS: CallerPlan = CallerPlan { yields: true, ..ALONE };
/// It needs nearly all of the lease that its TTL gives.
const NEEDS_TIME: CallerPlan = CallerPlan { ttl: 8, at_least: 10, ..ALONE };
const STAYS: CallerPlan = CallerPlan { ttl: 8, min_hold: 4, ..ALONE };

/// One caller of each of two clients.
const TWO: Plan = Plan {
    clients: &[&[ALONE], &[ALONE]],
    has_network: false,
    keep_idle: 0,
    ticks: 1,
    troubles: NO_TROUBLES,
    bug: None,
    must_see: &[Sight::CallersTurn],
};
const PEERS: Plan =
    Plan { has_network: true, must_see: &[Sight::CallersTurn, Sight::GuestTurn], ticks: 0, ..TWO };

/// A client that uses the object again and again, and another one.
const KEEP: Plan = Plan {
    clients: &[&[ALONE; 2], &[ALONE]],
    keep_idle: 4,
    must_see: &[Sight::PlaceKept, Sight::KeptPlaceUsed],
    ..TWO
};
const PEERS_KEEP: Plan = Plan { has_network: true, ticks: 0, ..KEEP };

/// Its lease is renewed long before half of it has passed.
const LONGER: CallerPlan = CallerPlan { ttl: 20, ..ALONE };
const KEEPS_LONG: Plan =
    Plan { clients: &[&[LONGER]], ticks: 20, must_see: &[Sight::PlaceKept], ..KEEP };

const STOPS: Troubles = Troubles { stops: 1, naps: 1, ..NO_TROUBLES };
const LATE: Troubles = Troubles { late: 1, naps: 1, ..NO_TROUBLES };
const UNKNOWN: Troubles = Troubles { unknown: 1, ..NO_TROUBLES };
const LATE_MESSAGES: Troubles = Troubles { late_messages: 1, naps: 1, ..NO_TROUBLES };
const LOST_MESSAGES: Troubles = Troubles { lost_messages: 1, ..NO_TROUBLES };
const REPEATS: Troubles = Troubles { repeats: 1, ..NO_TROUBLES };
const PANICS: Troubles = Troubles { panics: 1, ..NO_TROUBLES };
const ENDS: Troubles = Troubles { deaths: 1, shutdowns: 1, ..NO_TROUBLES };
const REVOKED: Troubles = Troubles { revocations: 1, ..NO_TROUBLES };
const JUMPS: Troubles = Troubles { jumps: 1, ..NO_TROUBLES };
const GIVING_UP: Troubles = Troubles { giving_up: 1, ..NO_TROUBLES };
const RAISES: Troubles = Troubles { raises: 1, naps: 1, ..NO_TROUBLES };
const CONFIRMS: Troubles = Troubles { confirms: 1, ..NO_TROUBLES };

const RAISES_UNKNOWN: Troubles = Troubles { unknown: 1, ..RAISES };
const RAISES_STOPPED: Troubles = Troubles { stops: 1, ..RAISES };
const DOWNGRADES: Troubles = Troubles { downgrades: 1, ..NO_TROUBLES };
const DOWNGRADES_LATE: Troubles = Troubles { downgrades: 1, ..LATE };
const DOWNGRADES_UNKNOWN: Troubles = Troubles { downgrades: 1, ..UNKNOWN };
const DOWNGRADES_STOPPED: Troubles = Troubles { downgrades: 1, ..STOPS };
const DOWNGRADES_REVOKED: Troubles = Troubles { downgrades: 1, ..REVOKED };
const DOWNGRADES_ENDS: Troubles = Troubles { downgrades: 1, ..ENDS };
const DOWNGRADED: [Sight; 2] = [Sight::Downgraded, Sight::HeldTogether];
const RAISED: [Sight; 2] = [Sight::NextTurn, Sight::TtlRaised];
const PEERS_RAISED: [Sight; 2] = [Sight::GuestTurn, Sight::TtlRaised];

const fn of(clients: &'static [&'static [CallerPlan]], plan: Plan) -> Plan {
    Plan { clients, ..plan }
}

/// What holds.
pub(super) fn sound() -> Vec<(&'static str, Length, Subject)> {
    use Length::{Long, Short};
    let modes = of(&[&[SHARED, ALONE], &[SHARED]], TWO);
    let limited = of(&[&[LIMITED], &[LIMITED]], TWO);
    let tries = of(&[&[ALONE, TRY], &[TRY]], TWO).must_see(&[Sight::CallerRefused]);
    let yielding = of(&[&[SHARED, YIELDS], &[SHARED]], TWO);
    let stays = of(&[&[STAYS], &[LONG]], TWO).must_see(&[Sight::ReturnedEarly]);
    let peers_stay = of(&[&[STAYS], &[LONG]], PEERS).must_see(&[Sight::ReturnedEarly]);
    let twice = of(&[&[ALONE; 2], &[ALONE]], TWO).must_see(&[Sight::NextTurn]);
    let plans = [
        ("objects", Short, TWO.over(4)),
        ("objects, stopped", Short, TWO.with(STOPS)),
        ("objects, late", Short, TWO.with(LATE)),
        ("objects, unknown", Short, TWO.with(UNKNOWN)),
        ("objects, a task fails", Short, TWO.with(PANICS).must_see(&[Sight::TaskFailed])),
        ("objects, ended", Short, TWO.with(ENDS)),
        ("objects, revoked", Short, TWO.with(REVOKED).must_see(&[Sight::PlaceRevoked])),
        ("objects, clock set ahead", Short, TWO.with(JUMPS)),
        ("objects, given up", Short, TWO.with(GIVING_UP)),
        ("objects, used again", Short, twice),
        ("objects, used again, a task fails", Short, twice.with(PANICS)),
        ("objects of two modes", Short, modes),
        ("objects of limited callers", Short, limited.over(4)),
        ("objects of callers that try", Short, tries),
        ("objects of callers that yield", Short, yielding),
        ("objects that stay taken", Short, stays.over(6).with(CONFIRMS)),
        ("objects that stay taken, ended", Short, stays.with(ENDS)),
        ("objects of peers", Short, PEERS),
        ("objects of peers, stopped", Long, PEERS.with(STOPS)),
        ("objects of peers, late", Long, PEERS.with(LATE)),
        ("objects of peers, unknown", Short, PEERS.with(UNKNOWN)),
        ("objects of peers, messages late", Long, PEERS.with(LATE_MESSAGES)),
        ("objects of peers, messages lost", Short, PEERS.with(LOST_MESSAGES)),
        ("objects of peers, messages repeated", Long, PEERS.with(REPEATS)),
        (
            "objects of peers, a task fails",
            Short,
            PEERS.with(PANICS).must_see(&[Sight::TaskFailed, Sight::GuestTurn]),
        ),
        ("objects of peers, ended", Long, PEERS.with(ENDS)),
        (
            "objects of peers, revoked",
            Short,
            PEERS.with(REVOKED).must_see(&[Sight::PlaceRevoked, Sight::GuestTurn]),
        ),
        ("objects of peers, given up", Short, PEERS.with(GIVING_UP)),
        ("objects of peers that stay taken", Short, peers_stay.with(CONFIRMS)),
        ("objects of peers that stay taken, ended", Short, peers_stay.with(ENDS)),
        ("objects of peers that stay taken, stopped", Long, peers_stay.with(STOPS)),
        ("objects, stopped, for longer", Long, TWO.over(4).with(STOPS)),
        ("objects, late, for longer", Long, TWO.over(4).with(LATE)),
        ("objects of three clients", Long, of(&[&[ALONE], &[ALONE], &[ALONE]], TWO).over(0)),
    ];
    let of_objects = |(name, length, plan)| (name, length, Subject::Objects(plan));
    plans.into_iter().chain(revised()).chain(in_need()).chain(kept()).map(of_objects).collect()
}

/// What holds of holders that raise their TTL, or share what they had alone.
fn revised() -> [(&'static str, Length, Plan); 17] {
    use Length::{Long, Short};
    let twice = of(&[&[ALONE; 2], &[ALONE]], TWO);
    let downgraded = of(&[&[ALONE], &[SHARED]], TWO).with(DOWNGRADES).must_see(&DOWNGRADED);
    let downgraded_again =
        of(&[&[ALONE, SHARED], &[ALONE]], TWO).with(DOWNGRADES).must_see(&DOWNGRADED);
    let of_three = of(&[&[ALONE], &[SHARED], &[ALONE]], downgraded).over(0);
    let of_peers = of(&[&[ALONE], &[SHARED]], PEERS).with(DOWNGRADES).must_see(&DOWNGRADED);
    let with_guest = PEERS.with(DOWNGRADES).must_see(&[Sight::Downgraded, Sight::GuestTurn]);
    [
        ("objects, ttl raised", Short, twice.with(RAISES).must_see(&RAISED)),
        ("objects, ttl raised, unknown", Long, twice.with(RAISES_UNKNOWN).must_see(&RAISED)),
        ("objects, ttl raised, stopped", Long, twice.with(RAISES_STOPPED).must_see(&RAISED)),
        ("objects, downgraded", Short, downgraded),
        ("objects, downgraded, used again", Short, downgraded_again),
        ("objects, downgraded, late", Short, downgraded.with(DOWNGRADES_LATE)),
        ("objects, downgraded, unknown", Short, downgraded.with(DOWNGRADES_UNKNOWN)),
        ("objects, downgraded, stopped", Short, downgraded.with(DOWNGRADES_STOPPED)),
        ("objects, downgraded, revoked", Short, downgraded.with(DOWNGRADES_REVOKED)),
        ("objects, downgraded, ended", Short, downgraded.with(DOWNGRADES_ENDS)),
        ("objects, downgraded, used again, late", Long, downgraded_again.with(DOWNGRADES_LATE)),
        (
            "objects, downgraded, used again, stopped",
            Long,
            downgraded_again.with(DOWNGRADES_STOPPED),
        ),
        ("objects of three clients, downgraded", Long, of_three),
        ("objects of peers, downgraded", Short, of_peers),
        ("objects of peers, downgraded, with a guest", Short, with_guest),
        ("objects of peers, downgraded, late", Long, of_peers.with(DOWNGRADES_LATE)),
        ("objects of peers, ttl raised", Short, PEERS.with(RAISES).must_see(&PEERS_RAISED)),
    ]
}

/// Two callers of one client, the second of which needs time.
const OF_ONE_IN_NEED: Plan = Plan { clients: &[&[LONG, NEEDS_TIME]], ..TWO };

/// What holds if callers need so much of the lease.
fn in_need() -> [(&'static str, Length, Plan); 9] {
    use Length::{Long, Short};
    let keeper_in_need = Plan { clients: &[&[NEEDS_TIME, ALONE], &[ALONE]], ..PEERS };
    let guest_in_need = Plan { clients: &[&[LONGER], &[NEEDS_TIME]], ..PEERS };
    let sent_elsewhere =
        Plan { clients: &[&[ALONE], &[NEEDS_TIME]], ..PEERS }.must_see(&[Sight::CallersTurn]);
    [
        ("objects, time needed", Short, OF_ONE_IN_NEED.over(4)),
        ("objects, time needed, stopped", Short, OF_ONE_IN_NEED.with(STOPS)),
        ("objects, time needed, late", Short, OF_ONE_IN_NEED.with(LATE)),
        ("objects of peers, time needed", Short, keeper_in_need),
        ("objects of peers, time needed by a guest", Short, guest_in_need),
        ("objects of peers, time needed that none gives", Short, sent_elsewhere),
        (
            "objects of peers, time needed by a guest, messages lost",
            Short,
            guest_in_need.with(LOST_MESSAGES),
        ),
        (
            "objects of peers, time needed by a guest, confirmed",
            Short,
            guest_in_need.with(Troubles { confirms: 1, naps: 1, ..NO_TROUBLES }),
        ),
        ("objects of peers, time needed by a guest, late", Long, guest_in_need.with(LATE)),
    ]
}

/// What holds of idle places that are kept.
fn kept() -> [(&'static str, Length, Plan); 23] {
    use Length::{Long, Short};
    let peers_try = Plan { clients: &[&[ALONE], &[TRY, TRY]], ..PEERS_KEEP }.must_see(&[
        Sight::PlaceKept,
        Sight::GuestTurn,
        Sight::CallerRefused,
    ]);
    [
        ("objects that are kept", Short, KEEP.over(3)),
        ("objects that are kept, for long", Short, KEEPS_LONG),
        ("objects that are kept, stopped", Short, KEEP.with(STOPS)),
        ("objects that are kept, late", Long, KEEP.with(LATE)),
        ("objects that are kept, unknown", Short, KEEP.with(UNKNOWN)),
        ("objects that are kept, ended", Short, KEEP.with(ENDS)),
        ("objects that are kept, revoked", Short, KEEP.with(REVOKED)),
        ("objects that are kept, clock set ahead", Short, KEEP.with(JUMPS)),
        ("objects that peers keep", Short, PEERS_KEEP),
        ("objects that peers keep, unknown", Short, PEERS_KEEP.with(UNKNOWN)),
        ("objects that peers keep, messages lost", Short, PEERS_KEEP.with(LOST_MESSAGES)),
        ("objects that peers keep, revoked", Long, PEERS_KEEP.with(REVOKED)),
        ("objects that peers keep, ended", Long, PEERS_KEEP.with(ENDS)),
        ("objects that peers keep, stopped", Long, PEERS_KEEP.with(STOPS)),
        ("objects that peers keep, late", Long, PEERS_KEEP.with(LATE)),
        ("objects that peers keep, messages late", Long, PEERS_KEEP.with(LATE_MESSAGES)),
        ("objects that peers try", Short, peers_try),
        ("objects that peers try, unknown", Short, peers_try.with(UNKNOWN)),
        ("objects that peers try, messages lost", Short, peers_try.with(LOST_MESSAGES)),
        ("objects that peers try, a task fails", Short, peers_try.with(PANICS)),
        ("objects that peers try, given up", Long, peers_try.with(GIVING_UP)),
        ("objects that peers try, ended", Long, peers_try.with(ENDS)),
        ("objects that peers try, messages late", Long, peers_try.with(LATE_MESSAGES)),
    ]
}

/// What each flaw breaks.
pub(super) fn flawed() -> Vec<(&'static str, Subject)> {
    const STAY_LONG: Plan = Plan { clients: &[&[STAYS], &[LONG]], ..PEERS };
    let confirms = STAY_LONG.with(Troubles { confirms: 1, ..NO_TROUBLES });
    const TWICE: Plan = Plan { clients: &[&[ALONE; 2], &[SHARED]], ..TWO };
    let again = Plan { clients: &[&[ALONE; 2], &[ALONE]], ..PEERS };
    let plans = [
        ("flaw: kept without a lease", Bug::KeptWithoutLease, KEEP.with(STOPS)),
        ("flaw: kept place renewed", Bug::KeptPlaceRenewed, KEEPS_LONG),
        ("flaw: kept through a revocation", Bug::KeptThroughRevocation, KEEP.with(REVOKED)),
        ("flaw: kept through a shutdown", Bug::KeptThroughShutdown, KEEP.with(ENDS)),
        ("flaw: kept beside outsiders", Bug::KeptBesideOutsiders, KEEP),
        ("flaw: guest on the terms of a rest", Bug::GuestOnTermsOfRest, confirms),
        ("flaw: minimum time ignored", Bug::MinHoldIgnored, STAY_LONG),
        ("flaw: shutdown frees the place", Bug::ShutdownFreesPlace, STAY_LONG.with(ENDS)),
        ("flaw: too little time", Bug::TooLittleTime, OF_ONE_IN_NEED.over(4)),
        ("flaw: downgrade forgotten", Bug::DowngradeForgotten, TWICE.with(DOWNGRADES)),
        ("flaw: failed task forgotten", Bug::FailedTaskForgotten, again.with(PANICS)),
        ("flaw: no way back", Bug::NoWayBack, PEERS.with(ENDS)),
        ("flaw: no way back while leaving", Bug::NoWayBackWhileLeaving, PEERS.with(ENDS)),
    ];
    let planted = |bug, plan| Subject::Objects(Plan { bug: Some(bug), ..plan });
    plans.into_iter().map(|(name, bug, plan)| (name, planted(bug, plan))).collect()
}
