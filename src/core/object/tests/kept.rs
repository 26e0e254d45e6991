//! Idle places that are kept.

use std::time::Duration;

use super::world::{World, limited, ms, s, shared, tries, wants};
use crate::core::bakery::{Acquire, LeaseTerms};
use crate::core::object::io::{Caller, CallerId, Health, Refusal, Reply};
use crate::core::turns::KeptEnd;

/// A place that client 0 keeps.
fn kept(clients: u128, has_network: bool) -> World {
    let mut world = World::keeping(clients, has_network);
    let turn = world.granted(0, wants(1));
    assert_eq!(world.returns(0, turn), Some(Reply::Returned), "its caller waits for nothing");
    assert!(world.is_kept(0));
    assert_eq!(world.live_rows(), 1);
    world
}

/// Whether client 0 keeps its place if it uses it after so much time.
fn is_kept_after(world: &mut World, caller: CallerId, time: Duration) -> bool {
    world.passes(time);
    world.asks(0, wants(caller));
    let turn = world.turn_of(caller).expect("it has its turn at once");
    assert!(!world.is_kept(0));
    assert_eq!(world.returns(0, turn), Some(Reply::Returned));
    world.is_kept(0)
}

/// A kept place is gone, for this reason.
fn is_gone(world: &World, end: KeptEnd) {
    assert_eq!(world.kept_ends(), [end]);
    assert!(!world.is_kept(0) && world.is_idle(0));
    assert_eq!(world.live_rows(), 0);
}

#[test]
fn next_caller_has_a_kept_place_without_an_operation() {
    let mut world = kept(1, false);
    let before = world.operations(0);
    for caller in 2..100 {
        assert!(is_kept_after(&mut world, caller, ms(40)));
    }
    assert_eq!(world.operations(0), before);
    assert_eq!(world.kept_ends(), [KeptEnd::Used; 98]);
}

#[test]
fn try_has_a_kept_place() {
    let mut world = kept(1, false);
    world.asks(0, tries(wants(2)));
    assert!(world.turn_of(2).is_some());
}

#[test]
fn unused_place_is_kept_for_twice_the_mean_gap() {
    let mut world = kept(1, false);
    world.passes(ms(599));
    assert!(world.is_kept(0));
    world.passes(ms(2));
    is_gone(&world, KeptEnd::Unused);
    assert_eq!(world.operations(0), 3, "announced, read and deleted");
}

#[test]
fn use_is_worth_remembering_for_two_seconds() {
    let mut world = World::keeping(1, false);
    let turn = world.granted(0, wants(1));
    world.returns(0, turn);
    for is_of_use in [true, false] {
        assert_eq!(world.remembers(0), is_of_use);
        world.passes(s(2));
    }
}

#[test]
fn object_must_be_used_twice_within_a_second() {
    let mut world = World::keeping(1, false);
    world.forgets(0);
    for (caller, is_kept) in [(1, false), (2, true)] {
        let turn = world.granted(0, wants(caller));
        world.returns(0, turn);
        assert_eq!(world.is_kept(0), is_kept);
        world.passes(ms(300));
    }
    world.passes(s(10));
    let turn = world.granted(0, wants(3));
    world.returns(0, turn);
    assert!(!world.is_kept(0), "the last gap was long");
}

#[test]
fn peer_has_a_kept_place_by_message() {
    let mut world = kept(2, true);
    world.asks(1, wants(2));
    let turn = world.turn_of(2).expect("its keeper gives it a turn at once");
    world.passes(ms(10));
    assert_eq!(world.live_rows(), 1, "the guest has deleted its rows");
    world.returns(1, turn);
    assert!(world.is_kept(0), "the use of a guest counts as a use");
    // The guest knows its keeper now.
    let before = world.operations(0) + world.operations(1);
    world.asks(1, wants(3));
    assert!(world.turn_of(3).is_some());
    assert_eq!(world.operations(0) + world.operations(1), before);
}

#[test]
fn try_of_a_peer_has_a_kept_place_and_no_other() {
    let mut world = kept(2, true);
    // It waits a moment for one that seems to be choosing its ticket.
    world.asks(1, tries(wants(2)));
    world.passes(ms(45));
    let turn = world.turn_of(2).expect("the place is idle");
    assert_eq!(world.live_rows(), 1, "the guest has deleted its rows");
    world.returns(1, turn);
    // The keeper uses it.
    world.asks(0, wants(3));
    let turn = world.turn_of(3).expect("the place is kept");
    world.asks(1, tries(wants(4)));
    world.passes(ms(45));
    assert_eq!(world.refusal(4), Some(&Refusal::Taken));
    assert!(world.is_idle(1));
    world.returns(0, turn);
    assert!(world.is_kept(0));
    world.passes(s(2));
    assert_eq!(world.live_rows(), 0);
}

#[test]
fn outsider_ends_a_kept_place_at_the_next_look() {
    let mut world = kept(2, false);
    world.asks(1, wants(2));
    world.passes(ms(45));
    assert_eq!((world.turn_of(2), world.is_kept(0)), (None, true));
    world.passes(ms(6));
    assert_eq!(world.kept_ends(), [KeptEnd::Outsiders]);
    world.passes(ms(100));
    let turn = world.turn_of(2).expect("the place was released");
    world.returns(1, turn);
    // Client 0 does not keep it for a second.
    assert!(!is_kept_after(&mut world, 3, ms(800)));
    assert!(is_kept_after(&mut world, 4, ms(100)));
}

#[test]
fn bar_doubles_while_outsiders_keep_coming() {
    let mut world = kept(2, false);
    let mut caller = 2;
    for bar in [1, 2, 4, 8, 16, 32, 60, 60] {
        world.asks(1, wants(caller));
        world.passes(ms(51));
        assert_eq!(world.kept_ends().last(), Some(&KeptEnd::Outsiders), "{bar}");
        world.passes(ms(100));
        let turn = world.turn_of(caller).expect("the place was released");
        world.returns(1, turn);
        world.passes(s(bar) - ms(400));
        // Two short gaps, whatever came before.
        assert!(!is_kept_after(&mut world, caller + 1, ms(0)), "{bar}");
        assert!(!is_kept_after(&mut world, caller + 2, ms(200)), "{bar}");
        assert!(is_kept_after(&mut world, caller + 3, ms(100)), "{bar}");
        caller += 4;
    }
    // They have not come for long.
    world.passes(s(200));
    for number in 0..2 {
        is_kept_after(&mut world, caller + number, ms(100));
    }
    assert!(world.is_kept(0));
    world.asks(1, wants(caller + 2));
    world.passes(ms(151));
    let turn = world.turn_of(caller + 2).expect("the place was released");
    world.returns(1, turn);
    assert!(!is_kept_after(&mut world, caller + 3, ms(700)));
    assert!(is_kept_after(&mut world, caller + 4, ms(200)), "it begins with a second again");
}

#[test]
fn kept_place_is_looked_at_each_time_the_gap_has_doubled() {
    let mut world = kept(1, false);
    let mut looks = Vec::new();
    for _ in 0..59 {
        world.passes(ms(10));
        looks.push(world.looks(0));
    }
    let at = |time: usize| looks[time / 10 - 1];
    assert_eq!([40, 60, 90, 110, 190, 210, 390, 410].map(at), [0, 1, 1, 2, 2, 3, 3, 4]);
    assert_eq!(looks.last(), Some(&4));
}

#[test]
fn caller_that_wants_it_otherwise_ends_a_kept_place() {
    for caller in [shared(2), limited(2, 2)] {
        let mut world = kept(1, false);
        let turn = world.granted(0, caller);
        assert_eq!(world.kept_ends(), [KeptEnd::OtherMode]);
        world.returns(0, turn);
        assert!(!world.is_kept(0), "only one that is held alone is kept");
        assert_eq!(world.live_rows(), 0);
    }
}

#[test]
fn kept_place_is_given_up_when_the_client_must() {
    let mut world = kept(1, false);
    world.closes(0);
    is_gone(&world, KeptEnd::Client);
    for health in [Health::ClocksDiffer, Health::TableGone] {
        let mut world = kept(1, false);
        world.health(0, health);
        is_gone(&world, KeptEnd::Client);
    }
    let mut world = kept(1, false);
    world.keeps_too_many(0);
    is_gone(&world, KeptEnd::TooMany);
}

#[test]
fn kept_place_that_is_revoked_is_given_up_at_the_next_look() {
    let mut world = kept(1, false);
    world.revokes(0);
    world.passes(ms(51));
    is_gone(&world, KeptEnd::Revoked);
}

#[test]
fn nothing_is_kept_while_clocks_are_in_doubt() {
    let mut world = World::keeping(1, false);
    let turn = world.granted(0, wants(1));
    world.health(0, Health::ClocksDiffer);
    world.returns(0, turn);
    assert!(!world.is_kept(0));
    world.health(0, Health::Good);
    let turn = world.granted(0, wants(2));
    world.health(0, Health::ClocksDiffer);
    world.health(0, Health::Good);
    world.returns(0, turn);
    assert!(world.is_kept(0));
}

#[test]
fn place_is_kept_only_before_half_of_its_lease() {
    let short = |number| {
        let caller = wants(number);
        let acquire =
            Acquire { terms: LeaseTerms::new(s(5), s(1)), renew: false, ..caller.acquire };
        Caller { acquire, ..caller }
    };
    // The lease is 3 s long.
    for (held, until) in [(ms(1_000), Some(ms(500))), (ms(1_600), None)] {
        let mut world = World::keeping(1, false);
        world.asks(0, short(1));
        let turn = world.turn_of(1).expect("the object is free");
        world.passes(held);
        world.returns(0, turn);
        assert_eq!(world.is_kept(0), until.is_some());
        if let Some(until) = until {
            world.passes(until - ms(1));
            assert!(world.is_kept(0));
            world.passes(ms(2));
            is_gone(&world, KeptEnd::Unused);
        }
    }
}

#[test]
fn kept_place_is_not_renewed() {
    let mut world = World::keeping(1, false);
    let turn = world.granted(0, wants(1));
    // Renewals are due each 20 s.
    world.passes(s(18) + ms(900));
    world.returns(0, turn);
    let before = world.operations(0);
    world.passes(ms(500));
    assert!(world.is_kept(0));
    assert_eq!(world.operations(0), before);
}

#[test]
fn kept_place_ends_if_its_caller_leaves_before_renewal() {
    let mut world = kept(1, false);
    let caller = wants(2);
    let acquire = Acquire { terms: LeaseTerms::new(s(30), s(1)), ..caller.acquire };
    world.table.is_down = true;
    world.asks_for(0, Caller { acquire, ..caller }, ms(200));
    assert_eq!(world.kept_ends(), [KeptEnd::Used], "it waits for the renewal on its terms");
    world.passes(ms(300));
    world.table.is_down = false;
    world.passes(s(1));
    assert!(world.is_idle(0));
    assert_eq!(world.live_rows(), 0);
}

#[test]
fn kept_place_costs_a_renewal_at_half_of_its_lease() {
    let mut world = kept(1, false);
    let before = world.operations(0);
    // Used each 0.3 s; the lease is 58 s long.
    for caller in 2..99 {
        assert!(is_kept_after(&mut world, caller, ms(300)));
    }
    let operations = world.operations(0) - before;
    assert!((1..=40).contains(&operations), "{operations}");
}
