//! Contenders on stores that write and read in one round trip.

use super::Subject::{self, Expiry, Replicas};
use super::{
    ALL, ASKING, EXCLUSIVE, FORCE, GIVING_UP, HASTE, LIMITED, Length, ORDINARY, OTHER_LIMIT,
    SHARED, SWEPT, THREE, TROUBLED, TRY, TWO,
};
use crate::core::bakery::SeededBug;
use crate::lease::Course;
use crate::scenario::{CALM, Flaw, LockRequest, Scenario, Troubles};
use crate::sightings::Sight;

const DYING: Troubles = Troubles { deaths: 1, ..CALM };

/// What holds.
pub(super) fn sound() -> Vec<(&'static str, Length, Subject)> {
    use Length::{Long, Short};
    let with = |requests: &[LockRequest], troubles, must_see| {
        Scenario::of(requests).troubles(troubles).must_see(must_see).exchanging()
    };
    let all = |requests| with(requests, ALL, TROUBLED);
    let expiry = |seconds| {
        let must_see = &[Sight::Renewed, Sight::Expired];
        Expiry(with(&TWO, CALM, must_see), Course::Late, seconds)
    };
    let revoked = &[Sight::HolderRevoked, Sight::WaiterRevoked];
    vec![
        ("two that exchange, twice, all troubles", Short, Replicas(all(&TWO).rounds(2))),
        (
            "two that exchange, twice, in haste",
            Short,
            Replicas(with(&TWO, HASTE, &[Sight::NextRoundInHaste]).rounds(2)),
        ),
        ("two that exchange, asked to leave", Short, Replicas(with(&TWO, ASKING, revoked))),
        ("two that exchange, removed by force", Long, Replicas(with(&TWO, FORCE, revoked))),
        ("two tries that exchange", Short, Replicas(with(&[TRY, TRY], GIVING_UP, &[Sight::Taken]))),
        ("a shared and an exclusive one that exchange", Short, Replicas(all(&[SHARED, EXCLUSIVE]))),
        ("two with two limits that exchange", Short, Replicas(all(&[LIMITED, OTHER_LIMIT]))),
        ("three that exchange", Long, Replicas(with(&THREE, CALM, ORDINARY))),
        ("three that exchange, given up", Long, Replicas(with(&THREE, GIVING_UP, ORDINARY))),
        (
            "three that exchange, of which one dies",
            Long,
            Replicas(with(&THREE, DYING, &[Sight::HolderDied, Sight::ContenderDied])),
        ),
        (
            "three that exchange, whose requests fail",
            Long,
            Replicas(with(&THREE, Troubles { failures: true, ..CALM }, ORDINARY)),
        ),
        (
            "shared ones and an exclusive one that exchange",
            Long,
            Replicas(with(&[SHARED, SHARED, EXCLUSIVE], CALM, &[Sight::FastPath])),
        ),
        (
            "limited ones and an exclusive one that exchange",
            Long,
            Replicas(with(&[LIMITED, LIMITED, EXCLUSIVE], CALM, &[Sight::FastPath])),
        ),
        ("two that exchange, whose leases end", Short, expiry(3)),
        ("two that exchange, whose leases end, for longer", Long, expiry(4)),
    ]
}

/// What each flaw breaks.
pub(super) fn flawed() -> Vec<(&'static str, Subject)> {
    let with = |flaw| Replicas(Scenario::of(&TWO).flaw(flaw).exchanging());
    let planted = |bug| with(Flaw::Protocol(bug));
    vec![
        ("flaw: waiter only reads", planted(SeededBug::WaiterOnlyReads)),
        ("flaw: quorum of one, exchanging", with(Flaw::QuorumOfOne)),
        (
            "flaw: fast path ignores choosing ones, exchanging",
            planted(SeededBug::FastPathIgnoresChoosing),
        ),
        // Such an object is never swept.
        ("flaw: swept, exchanging", Replicas(Scenario::of(&TWO).troubles(SWEPT).exchanging())),
    ]
}
