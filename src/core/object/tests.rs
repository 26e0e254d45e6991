//! Objects of one and several clients, on a table that answers at once, with messages that arrive.

mod guests;
mod holders;
mod kept;
mod sweeps;
mod world;

use std::time::Duration;

use self::world::{Ended, World, limited, ms, s, shared, tries, wants};
use super::Object;
use super::io::{Caller, Health, HolderRequest, Input, Loss, Refusal, Reply, User};
use crate::core::bakery::{self, Acquire, LeaseTerms};
use crate::core::turns::TurnId;

#[test]
fn caller_has_the_object_and_returns_it() {
    let mut world = World::of(1);
    let turn = world.granted(0, wants(1));
    assert_eq!(world.live_rows(), 1);
    let reply = world.returns(0, turn);
    assert_eq!(reply, Some(Reply::Returned));
    assert_eq!(world.live_rows(), 0);
    assert!(world.is_idle(0));
    // Announced, read, deleted.
    assert_eq!(world.operations(0), 3);
}

#[test]
fn callers_of_one_client_have_turns_without_the_table() {
    let mut world = World::of(1);
    let turn = world.granted(0, wants(1));
    world.asks(0, wants(2));
    world.asks(0, wants(3));
    let before = world.operations(0);
    assert_eq!(world.returns(0, turn), Some(Reply::Returned), "another turn follows");
    let turn = world.turn_of(2).expect("it is its turn");
    assert_eq!(world.turn_of(3), None);
    assert_eq!(world.returns(0, turn), Some(Reply::Returned));
    let turn = world.turn_of(3).expect("it is its turn");
    assert_eq!(world.operations(0), before);
    world.returns(0, turn);
    assert!(world.is_idle(0));
}

#[test]
fn client_without_messages_waits_in_the_table() {
    let mut world = World::without_messages(2);
    let turn = world.granted(0, wants(1));
    world.asks(1, wants(2));
    world.passes(s(3));
    assert_eq!(world.turn_of(2), None);
    assert_eq!(world.live_rows(), 2);
    world.returns(0, turn);
    world.passes(s(2));
    let turn = world.turn_of(2).expect("the object is free");
    world.returns(1, turn);
    assert_eq!(world.live_rows(), 0);
}

#[test]
fn guest_leaves_the_table_and_has_its_turn() {
    let mut world = World::of(2);
    let turn = world.granted(0, wants(1));
    world.asks(1, wants(2));
    world.passes(ms(100));
    assert_eq!(world.live_rows(), 1, "the guest has deleted its rows");
    let before = world.operations(0) + world.operations(1);
    assert_eq!(world.returns(0, turn), Some(Reply::Returned));
    let turn = world.turn_of(2).expect("it is its turn");
    assert_eq!(world.operations(0) + world.operations(1), before);
    world.passes(s(100));
    assert_eq!(world.ended(turn), None, "it is extended for as long as it lasts");
    assert_eq!(world.returns(1, turn), Some(Reply::Returned));
    world.passes(s(1));
    assert_eq!(world.live_rows(), 0);
    assert!(world.is_idle(0) && world.is_idle(1));
}

#[test]
fn object_says_who_has_the_turn_and_who_waits() {
    let mut world = World::of(2);
    let [keeper, guest] = [0, 1].map(|client| world.id(client));
    assert!(!world.object(0).has_place() && world.object(0).user().is_none());
    assert!(!world.object(0).knows_name(guest));
    let turn = world.granted(0, wants(1));
    assert!(world.object(0).has_place());
    assert_eq!(world.object(0).waiting(), 0);
    world.asks(1, wants(2));
    world.passes(ms(100));
    world.asks(0, wants(3));
    let as_guest = User::Guest(guest, Some("client 1".into()));
    let own = |number| User::Own(format!("caller {number}").into());
    assert_eq!(world.object(0).user(), Some(own(1)));
    assert_eq!(world.object(0).waiting(), 2);
    assert_eq!(world.object(0).line().collect::<Vec<_>>(), [as_guest.clone(), own(3)]);
    assert!(world.object(0).knows_name(guest) && !world.object(0).knows_name(keeper));
    assert_eq!(world.object(1).user(), Some(User::OfKeeper(keeper)));
    world.returns(0, turn);
    assert_eq!(world.object(0).user(), Some(as_guest));
    assert_eq!(world.object(1).user(), Some(own(2)));
    assert!(!world.object(1).has_place() && !world.object(0).was_handed_on());
    let turn = world.turn_of(2).expect("it is its turn");
    world.returns(1, turn);
    assert!(world.object(0).was_handed_on(), "none waits any more");
}

#[test]
fn guest_whose_connection_has_ended_leaves_the_line() {
    let mut world = World::of(2);
    world.granted(0, wants(1));
    world.asks(1, wants(2));
    assert_eq!(world.object(0).waiting(), 1);
    world.is_disconnected(1, 0);
    assert_eq!(world.object(0).waiting(), 0);
}

#[test]
fn names_of_1024_guests_are_remembered() {
    let mut world = World::of(1);
    world.granted(0, wants(1));
    let (guests, newest) = (1..=1_024, 1_025);
    for guest in guests.clone() {
        world.withdraws(guest, 0);
    }
    assert!(guests.clone().all(|guest| world.object(0).knows_name(guest)));
    world.withdraws(newest, 0);
    assert!(!guests.clone().any(|guest| world.object(0).knows_name(guest)));
    assert!(world.object(0).knows_name(newest));
}

#[test]
fn keeper_that_served_of_late_is_asked_before_the_table() {
    let mut world = World::of(2);
    let mut turn = world.granted(0, wants(1));
    for caller in [2, 4, 6] {
        world.asks(1, wants(caller));
        world.passes(ms(50));
        let before = world.operations(1);
        world.asks(0, wants(caller + 1));
        world.returns(0, turn);
        let guests = world.turn_of(caller).expect("it is its turn");
        world.returns(1, guests);
        turn = world.turn_of(caller + 1).expect("it is its turn");
        assert_eq!(world.operations(1), before);
        if caller > 2 {
            assert_eq!(world.live_rows(), 1, "no guest came through the table");
        }
    }
}

#[test]
fn limited_callers_have_slots_and_wait_for_one() {
    let mut world = World::of(1);
    for caller in 1..=3 {
        world.asks(0, limited(caller, 3));
    }
    world.passes(s(1));
    let turns = [1, 2, 3].map(|caller| world.turn_of(caller).expect("there is room"));
    let slots = turns.map(|turn| turn.place.slot);
    assert_eq!(slots, [1, 2, 3]);
    world.asks(0, limited(4, 3));
    world.passes(s(1));
    assert_eq!(world.turn_of(4), None);
    world.returns(0, turns[1]);
    world.passes(s(2));
    let turn = world.turn_of(4).expect("there is room");
    for turn in [turns[0], turns[2], turn] {
        world.returns(0, turn);
    }
    assert!(world.is_idle(0));
}

#[test]
fn any_slot_serves_the_next_of_many_callers() {
    let mut world = World::of(1);
    for caller in 0..70 {
        world.asks(0, limited(caller, 100));
    }
    world.passes(s(10));
    let turn = world.turn_of(63).expect("there are 64 slots");
    assert_eq!(world.turn_of(64), None);
    world.returns(0, turn);
    world.passes(s(1));
    assert_eq!(world.turn_of(64).map(|turn| turn.place.slot), Some(turn.place.slot));
    assert_eq!(world.turn_of(65), None);
}

#[test]
fn callers_that_share_begin_together() {
    let mut world = World::of(1);
    let turn = world.granted(0, wants(1));
    for caller in [2, 3] {
        world.asks(0, shared(caller));
    }
    world.asks(0, wants(4));
    world.returns(0, turn);
    world.passes(ms(100));
    let [two, three] = [2, 3].map(|caller| world.turn_of(caller).expect("it is their turn"));
    assert_eq!(world.turn_of(4), None);
    world.returns(0, two);
    assert_eq!(world.turn_of(4), None);
    world.returns(0, three);
    world.passes(ms(100));
    assert!(world.turn_of(4).is_some());
}

#[test]
fn caller_is_dismissed_when_its_timeout_has_passed() {
    let mut world = World::of(2);
    let turn = world.granted(0, wants(1));
    world.asks_for(1, wants(2), s(5));
    world.passes(s(6));
    let Some(Refusal::TimedOut { waited, .. }) = world.refusal(2) else {
        panic!("{:?}", world.refusal(2));
    };
    assert!(*waited >= s(5) && *waited < ms(5_001), "{waited:?}");
    assert!(world.is_idle(1));
    assert_eq!(world.live_rows(), 1);
    world.returns(0, turn);
    assert_eq!(world.live_rows(), 0);
}

#[test]
fn holder_loses_the_object_when_its_lease_ends() {
    let mut world = World::of(1);
    let turn = world.granted(0, wants(1));
    world.table.is_down = true;
    world.passes(s(56));
    assert_eq!(world.ended(turn), None);
    world.passes(s(2));
    assert_eq!(world.ended(turn), Some(&Ended::Lost(Loss::Place(bakery::Loss::Expired))));
    assert_eq!(world.returns(0, turn), Some(Reply::Over));
}

#[test]
fn place_stays_taken_for_its_min_hold() {
    let mut world = World::without_messages(2);
    let mut caller = wants(1);
    caller.min_hold = s(10);
    let turn = world.granted(0, caller);
    world.asks(1, wants(2));
    assert_eq!(world.returns(0, turn), Some(Reply::Returned));
    world.passes(s(9));
    assert_eq!(world.turn_of(2), None);
    world.passes(s(3));
    assert!(world.turn_of(2).is_some());
}

#[test]
fn shut_down_client_refuses_callers_and_releases() {
    let mut world = World::of(1);
    let turn = world.granted(0, wants(1));
    world.asks(0, wants(2));
    world.closes(0);
    assert_eq!(world.ended(turn), Some(&Ended::Lost(Loss::Closed)));
    assert_eq!(world.refusal(2), Some(&Refusal::Closed));
    world.asks(0, wants(3));
    assert_eq!(world.refusal(3), Some(&Refusal::Closed));
    world.passes(s(1));
    assert_eq!(world.live_rows(), 0);
    assert!(world.is_idle(0));
}

#[test]
fn no_lock_is_granted_while_clocks_differ() {
    let mut world = World::of(1);
    let turn = world.granted(0, wants(1));
    world.asks(0, wants(2));
    world.health(0, Health::ClocksDiffer);
    assert_eq!(world.ended(turn), None, "a holder continues");
    assert_eq!(world.refusal(2), Some(&Refusal::Unhealthy(Health::ClocksDiffer)));
    world.asks(0, wants(3));
    assert_eq!(world.refusal(3), Some(&Refusal::Unhealthy(Health::ClocksDiffer)));
    world.health(0, Health::Good);
    world.returns(0, turn);
    world.granted(0, wants(4));
}

#[test]
fn rows_of_failed_task_are_waited_for() {
    let mut world = World::of(1);
    world.granted(0, wants(1));
    world.fails(0);
    world.asks_for(0, wants(2), s(300));
    world.passes(s(75));
    assert_eq!(world.turn_of(2), None);
    assert_eq!(world.operations_of_machine(0), 0);
    world.passes(s(2));
    assert!(world.turn_of(2).is_some());
}

#[test]
fn rows_with_the_longest_ttl_of_failed_task_are_waited_for() {
    let mut world = World::of(1);
    let on_ttl = |number, ttl| {
        let acquire = Acquire { terms: LeaseTerms::new(ttl, s(1)), ..wants(number).acquire };
        Caller { acquire, ..wants(number) }
    };
    world.granted(0, on_ttl(1, s(20)));
    world.asks(0, on_ttl(2, s(60)));
    world.asks(0, on_ttl(3, s(20)));
    world.fails(0);
    world.asks_for(0, wants(4), s(300));
    world.passes(s(75));
    assert_eq!(world.turn_of(4), None);
    world.passes(s(2));
    assert!(world.turn_of(4).is_some());
}

#[test]
fn try_does_not_wait_for_rows_of_failed_task() {
    let mut world = World::of(1);
    world.granted(0, wants(1));
    world.fails(0);
    world.asks(0, tries(wants(2)));
    assert_eq!(world.refusal(2), Some(&Refusal::Taken));
}

#[test]
fn callers_without_a_slot_are_refused_when_clocks_differ() {
    let mut world = World::of(1);
    world.granted(0, wants(1));
    world.fails(0);
    world.asks_for(0, wants(2), s(300));
    world.health(0, Health::Good);
    assert_eq!(world.refusal(2), None);
    world.health(0, Health::ClocksDiffer);
    assert_eq!(world.refusal(2), Some(&Refusal::Unhealthy(Health::ClocksDiffer)));
}

#[test]
fn grant_that_is_not_collected_is_given_back() {
    let mut world = World::of(1);
    world.collects = false;
    let turn = world.granted(0, wants(1));
    world.passes(Duration::from_secs(60));
    assert!(matches!(world.ended(turn), Some(Ended::Lost(_))), "{:?}", world.ended(turn));
    assert_eq!(world.live_rows(), 0);
}

#[test]
fn caller_that_yields_has_no_rows_while_others_share() {
    let mut world = World::without_messages(2);
    let turn = world.granted(0, shared(1));
    world.asks(1, Caller { yields: Some(s(5)), ..wants(2) });
    world.passes(s(4));
    assert_eq!((world.turn_of(2), world.live_rows()), (None, 1));
    world.returns(0, turn);
    world.passes(s(1));
    let turn = world.turn_of(2).expect("none shares the object any more");
    world.returns(1, turn);
    assert!(world.is_idle(1));
}

#[test]
fn caller_yields_no_longer_than_its_limit() {
    let mut world = World::without_messages(2);
    let _shares = world.granted(0, shared(1));
    world.asks(1, Caller { yields: Some(s(5)), ..wants(2) });
    world.asks(1, Caller { yields: Some(Duration::MAX), deadline: s(7), ..wants(3) });
    world.passes(s(6));
    assert!(world.live_rows() > 1, "it waits in the table");
    world.passes(s(2));
    assert_eq!(world.turn_of(2), None);
    let refusal = world.refusal(3).expect("its timeout has passed");
    assert!(matches!(refusal, Refusal::TimedOut { ahead, .. } if ahead.len() == 1));
}

#[test]
fn caller_that_yields_looks_less_often_the_longer_it_waits() {
    let mut world = World::without_messages(2);
    let _shares = world.granted(0, shared(1));
    world.asks(1, Caller { yields: Some(s(60)), ..wants(2) });
    // Every 20 ms at first, then after a sixteenth of its wait, then each second.
    for (pass, time, looks) in [(ms(0), ms(190), 9), (s(4), s(1), 3), (s(20), ms(9_900), 10)] {
        world.passes(pass);
        let before = world.operations(1);
        world.passes(time);
        assert_eq!(world.operations(1) - before, looks, "{time:?}");
    }
}

#[test]
fn nothing_is_looked_at_for_a_caller_that_has_left() {
    let mut world = World::without_messages(2);
    let _shares = world.granted(0, shared(1));
    world.asks_for(1, Caller { yields: Some(s(5)), ..wants(2) }, s(2));
    world.passes(s(1));
    assert!(!world.is_idle(1));
    world.passes(s(1) + ms(1));
    assert!(world.refusal(2).is_some() && world.is_idle(1));
    let before = world.operations(1);
    world.passes(s(2));
    assert_eq!(world.operations(1), before);
}

#[test]
fn try_that_yields_gives_up_when_it_sees_a_sharer() {
    let mut world = World::without_messages(2);
    let turn = world.granted(0, shared(1));
    let yields = |number| Caller { yields: Some(s(5)), ..tries(wants(number)) };
    world.asks(1, yields(2));
    assert_eq!(world.refusal(2), Some(&Refusal::Taken));
    assert!(world.is_idle(1));
    world.returns(0, turn);
    world.granted(1, yields(3));
}

#[test]
fn caller_that_yields_looks_again_after_a_failure() {
    let mut world = World::of(1);
    world.table.is_down = true;
    world.asks(0, Caller { yields: Some(s(5)), ..wants(1) });
    world.passes(s(1));
    assert_eq!(world.turn_of(1), None);
    world.table.is_down = false;
    world.passes(ms(100));
    assert!(world.turn_of(1).is_some());
}

#[test]
fn waiting_callers_come_first_and_tries_last() {
    let turn =
        TurnId { place: bakery::ContenderId { host: 1, client: 1, slot: 0 }, round: 1, number: 1 };
    let returned = Input::Holder { turn, request: HolderRequest::Return { request: None } };
    let [two, three] = [2, 3].map(|number| Input::Acquire(Box::new(wants(number))));
    let mut inputs = [Input::Acquire(Box::new(tries(wants(1)))), returned, two, three];
    Object::arrange(&mut inputs);
    let number = |input| if let Input::Acquire(caller) = input { caller.number } else { 0 };
    let order = inputs.map(number);
    assert_eq!(order, [2, 3, 1, 0]);
}
