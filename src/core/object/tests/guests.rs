//! Turns that a client has of other keepers, and when it asks for one.

use super::world::{Ended, World, limited, ms, s, shared, tries, wants};
use crate::core::bakery::{Acquire, ContenderId, Mode};
use crate::core::object::io::{Caller, Loss, Need, Origin, Reply, Report, User};
use crate::core::turns::{GuestLoss, TurnId};

/// A turn of client 0's place that client 1 has.
fn guest_turn(world: &mut World) -> TurnId {
    let turn = world.granted(0, wants(1));
    let guests = world.granted_by_keeper(turn, 2);
    assert_eq!(guests.place, turn.place);
    guests
}

/// A contender of a client that can't be reached.
fn stranger(number: u128) -> ContenderId {
    ContenderId { host: 2, client: 5 << 76 | number, slot: 0 }
}

impl World {
    /// Client 0 returns its turn and asks again, and client 1 has the next one.
    fn granted_by_keeper(&mut self, turn: TurnId, caller: u64) -> TurnId {
        self.asks(1, wants(caller));
        self.passes(ms(100));
        self.asks(0, wants(100 + caller));
        self.returns(0, turn);
        self.turn_of(caller).expect("it is its turn")
    }
}

#[test]
fn keeper_that_served_a_second_ago_is_not_asked_first() {
    for (pause, is_asked_first) in [(ms(900), true), (ms(1_000), false)] {
        let mut world = World::of(2);
        let turn = guest_turn(&mut world);
        world.returns(1, turn);
        world.passes(pause);
        let before = world.operations(1);
        world.loses_messages = true;
        world.asks(1, wants(3));
        assert_eq!(world.operations(1) == before, is_asked_first, "{pause:?}");
    }
}

#[test]
fn keeper_is_remembered_while_the_object_is_idle() {
    let mut world = World::of(2);
    let turn = guest_turn(&mut world);
    world.returns(1, turn);
    world.passes(ms(100));
    world.begins_anew(1);
    let before = world.operations(1);
    world.asks(1, wants(3));
    assert_eq!((world.connections(1), world.operations(1)), (2, before));
}

#[test]
fn late_keeper_is_waited_for_in_the_table_too() {
    let mut world = World::of(2);
    let turn = guest_turn(&mut world);
    world.returns(1, turn);
    world.passes(ms(100));
    world.loses_messages = true;
    world.asks(1, wants(3));
    world.passes(ms(19));
    assert_eq!(world.live_rows(), 1);
    world.passes(ms(2));
    assert!(world.live_rows() > 1);
    world.loses_messages = false;
    world.passes(s(1));
    assert_eq!((world.object(0).waiting(), world.live_rows()), (1, 1), "it was asked again");
}

#[test]
fn late_keeper_is_waited_for_once_the_table_is_left() {
    let mut world = World::of(2);
    let turn = world.granted(0, wants(1));
    world.loses_deletions = true;
    world.asks(1, wants(2));
    world.returns(0, turn);
    let guests = world.turn_of(2).expect("it is its turn");
    world.returns(1, guests);
    world.loses_messages = true;
    world.asks(1, wants(3));
    world.passes(ms(30));
    world.loses_deletions = false;
    world.passes(ms(900));
    assert!(world.turn_of(3).is_some(), "it came from the table");
}

#[test]
fn contender_that_began_later_is_not_asked_for_a_second() {
    let mut world = World::of(1);
    world.is_held_by_stranger(stranger(0), i64::MAX / 2, Mode::Exclusive);
    world.asks(0, wants(1));
    world.passes(ms(990));
    assert_eq!(world.connections(0), 0);
    world.passes(s(5));
    assert_eq!(world.connections(0), 1);
}

#[test]
fn only_callers_that_wait_alone_ask_a_keeper() {
    let mut world = World::of(2);
    let turn = guest_turn(&mut world);
    world.returns(1, turn);
    let before = world.connections(1);
    let stays = |caller| Caller { min_hold: s(1), ..caller };
    for caller in [shared(3), limited(4, 2), stays(wants(5)), tries(shared(6))] {
        let number = caller.number;
        world.asks(1, caller);
        world.passes(ms(100));
        assert_eq!(world.connections(1), before, "{number}");
        world.leaves(1, number);
        world.passes(s(1));
    }
    world.asks(1, wants(7));
    assert_eq!(world.connections(1), before + 1);
}

#[test]
fn clients_without_network_ask_none() {
    let mut world = World::without_messages(2);
    world.granted(0, wants(1));
    world.asks(1, wants(2));
    world.passes(s(3));
    assert_eq!(world.connections(1), 0);
}

#[test]
fn only_places_for_turns_are_asked_for() {
    let mut world = World::of(2);
    world.granted(0, limited(1, 2));
    world.asks(0, wants(2));
    world.asks(1, wants(3));
    world.passes(s(1));
    assert_eq!((world.connections(0), world.connections(1)), (0, 1), "of client 0's second slot");
    let mut world = World::of(2);
    world.granted(0, limited(1, 2));
    world.asks(1, wants(2));
    world.passes(s(1));
    assert_eq!(world.connections(1), 0);
}

#[test]
fn eight_keepers_are_asked_at_most() {
    let mut world = World::of(1);
    for number in 1..=10 {
        world.is_held_by_stranger(stranger(number), 1, Mode::Shared);
    }
    world.asks(0, wants(1));
    world.passes(s(20));
    assert_eq!((world.connections(0), world.requests_to_keepers(0)), (8, 0));
    assert_eq!(world.turn_of(1), None);
}

#[test]
fn each_keeper_is_asked_once() {
    let mut world = World::of(1);
    world.is_held_by_stranger(stranger(0), 1, Mode::Exclusive);
    world.asks(0, wants(1));
    world.passes(s(20));
    assert_eq!(world.connections(0), 1);
}

#[test]
fn requests_are_repeated_on_a_new_connection() {
    let mut world = World::of(2);
    world.granted(0, wants(1));
    world.asks(1, wants(2));
    world.passes(ms(100));
    let before = world.requests_to_keepers(1);
    world.is_reconnected(1, 0);
    assert_eq!(world.requests_to_keepers(1), before + 1);
}

#[test]
fn return_is_repeated_until_the_turn_is_over_in_any_case() {
    let mut world = World::of(2);
    let turn = guest_turn(&mut world);
    world.loses_messages = true;
    assert_eq!(world.returns(1, turn), Some(Reply::Returned));
    let before = world.requests_to_keepers(1);
    world.passes(s(1));
    assert!(!world.is_idle(1));
    assert_eq!(world.requests_to_keepers(1) - before, 3, "every 250 ms");
    world.passes(s(5));
    assert!(world.is_idle(1));
}

#[test]
fn request_for_a_token_ends_with_its_turn() {
    let mut world = World::of(2);
    let turn = guest_turn(&mut world);
    world.loses_messages = true;
    assert_eq!(world.issues_token(1, turn), None);
    let request = world.last_request();
    world.returns(1, turn);
    assert_eq!(world.reply_to(request), Some(&Reply::Over));
}

#[test]
fn guests_wait_after_a_caller_that_tried() {
    let mut world = World::of(2);
    let turn = world.granted(0, tries(shared(1)));
    world.asks(1, wants(2));
    world.is_held_by_stranger(stranger(0), 1, Mode::Shared);
    world.passes(ms(100));
    world.returns(0, turn);
    world.passes(s(3));
    assert_eq!((world.object(0).waiting(), world.turn_of(2)), (1, None));
}

#[test]
fn turn_comes_from_the_table_a_caller_before_or_a_keeper() {
    let mut world = World::of(2);
    let turn = world.granted(0, wants(1));
    world.asks(0, wants(2));
    world.asks(1, wants(3));
    world.returns(0, turn);
    let turn = world.turn_of(2).expect("it is its turn");
    assert_eq!(lent(&world), 0);
    world.returns(0, turn);
    let origins = [1, 2, 3].map(|caller| world.origin_of(caller));
    assert_eq!(origins, [Origin::Table, Origin::Turn, Origin::Keeper].map(Some));
    world.passes(s(1));
    assert_eq!(lent(&world), 1);
}

/// How many turns guests had.
fn lent(world: &World) -> usize {
    world.reports().iter().filter(|report| matches!(report, Report::Lent { .. })).count()
}

#[test]
fn next_caller_stays_in_the_line_of_the_keeper() {
    let mut world = World::of(2);
    let turn = world.granted(0, wants(1));
    for caller in [2, 3] {
        world.asks(1, wants(caller));
    }
    world.passes(ms(100));
    let before = world.operations(1);
    world.leaves(1, 2);
    world.passes(ms(100));
    world.returns(0, turn);
    assert!(world.turn_of(3).is_some());
    assert_eq!(world.operations(1), before);
}

#[test]
fn unsuitable_next_caller_leaves_the_keeper() {
    for caller in [shared(3), Caller { min_hold: s(1), ..wants(3) }] {
        let mut world = World::of(2);
        let turn = world.granted(0, wants(1));
        world.asks(1, wants(2));
        world.asks(1, caller);
        world.passes(ms(100));
        assert_eq!((world.object(0).waiting(), world.live_rows()), (1, 1));
        world.leaves(1, 2);
        assert_eq!(world.object(0).waiting(), 0);
        world.passes(ms(100));
        world.returns(0, turn);
        world.passes(s(1));
        assert!(world.turn_of(3).is_some_and(|turn| turn.place.client == world.id(1)));
    }
}

#[test]
fn guests_far_back_return_to_the_table_later() {
    let mut world = World::of(13);
    let turn = world.granted(0, wants(1));
    for client in 1..=12 {
        world.asks(client, wants(10 + client as u64));
        world.passes(ms(30));
    }
    assert_eq!(world.object(0).waiting(), 12);
    let before = world.operations(12);
    world.closes(0);
    assert!(matches!(world.ended(turn), Some(Ended::Lost(Loss::Closed))));
    // Three after the first eight, 5 ms apart.
    world.passes(ms(14));
    assert_eq!(world.operations(12), before);
    world.passes(ms(2));
    assert!(world.operations(12) > before);
}

#[test]
fn guest_that_is_sent_elsewhere_while_it_leaves_the_table_comes_back() {
    let mut world = World::of(2);
    let turn = world.granted(0, wants(1));
    world.loses_deletions = true;
    world.asks(1, wants(2));
    assert_eq!((world.object(0).waiting(), world.live_rows()), (1, 2), "none is deleted");
    world.closes(0);
    assert!(world.ended(turn).is_some());
    world.loses_deletions = false;
    world.passes(s(100));
    assert!(world.turn_of(2).is_some());
}

#[test]
fn none_comes_back_for_a_caller_that_left() {
    let mut world = World::of(2);
    world.granted(0, wants(1));
    world.loses_deletions = true;
    world.asks(1, wants(2));
    world.leaves(1, 2);
    world.loses_deletions = false;
    world.passes(s(10));
    assert!(world.is_idle(1));
    assert_eq!(world.live_rows(), 1);
}

#[test]
fn keeper_that_is_not_reached_is_forgotten_once_its_caller_left() {
    let mut world = World::of(2);
    let turn = guest_turn(&mut world);
    world.returns(1, turn);
    world.passes(ms(100));
    world.connects_slowly = true;
    world.asks(1, wants(3));
    world.leaves(1, 3);
    let before = world.operations(1);
    world.is_connected(1, 0, false);
    world.passes(s(1));
    assert_eq!(world.operations(1), before);
}

#[test]
fn sublease_lasts_as_long_as_its_holder_needs() {
    for (min, is_long) in
        [(s(2), false), (s(5), false), (s(9), false), (s(15), true), (s(50), true)]
    {
        let mut world = World::of(2);
        let turn = guest_turn(&mut world);
        world.passes(ms(10));
        let Some(Reply::Held { remaining }) = world.confirms(1, turn, Need::Lease(min)) else {
            panic!("the keeper answers");
        };
        assert!(remaining >= min, "{remaining:?} instead of {min:?}");
        assert_eq!(remaining > s(10), is_long, "{remaining:?} instead of {min:?}");
    }
}

#[test]
fn guest_without_its_keeper_loses_its_turn_within_ten_seconds() {
    let mut world = World::of(2);
    let turn = guest_turn(&mut world);
    world.passes(s(1));
    world.loses_messages = true;
    world.passes(s(8));
    assert_eq!(world.ended(turn), None);
    world.passes(s(2));
    let lost = Ended::Lost(Loss::Guest(GuestLoss::KeeperUnreachable));
    assert_eq!(world.ended(turn), Some(&lost));
    assert!(world.turn_of(102).is_none_or(|own| own.place == turn.place));
}

#[test]
fn each_token_of_a_turn_is_another() {
    let mut world = World::of(2);
    let turn = world.granted(0, wants(1));
    let mut last = 0;
    let mut five_grow = |world: &mut World, client, turn| {
        for _ in 0..5 {
            let Some(Reply::Token(token)) = world.issues_token(client, turn) else {
                panic!("tokens are issued");
            };
            assert!(token > last);
            last = token;
        }
    };
    five_grow(&mut world, 0, turn);
    let turn = world.granted_by_keeper(turn, 2);
    five_grow(&mut world, 1, turn);
}

#[test]
fn there_is_no_token_without_a_block() {
    let mut world = World::of(1);
    let turn = world.granted(0, wants(1));
    world.issues_blocks = false;
    assert_eq!(world.issues_token(0, turn), Some(Reply::NoToken));
    world.issues_blocks = true;
    assert!(matches!(world.issues_token(0, turn), Some(Reply::Token(_))));
}

#[test]
fn requests_of_a_turn_that_is_over_are_answered() {
    let mut world = World::of(1);
    let turn = world.granted(0, wants(1));
    world.returns(0, turn);
    assert!(world.is_idle(0));
    assert_eq!(world.returns(0, turn), Some(Reply::Over));
    assert_eq!(world.confirms(0, turn, Need::Rows), Some(Reply::Over));
    assert_eq!(world.issues_token(0, turn), Some(Reply::Over));
}

#[test]
fn guest_after_those_that_share_has_the_object_for_itself() {
    let mut world = World::of(2);
    let acquire = Acquire { renew: false, ..shared(1).acquire };
    let turn = world.granted(0, Caller { acquire, ..shared(1) });
    world.asks(1, wants(2));
    world.passes(ms(100));
    assert_eq!(world.object(0).waiting(), 1);
    world.returns(0, turn);
    world.passes(ms(100));
    let turn = world.turn_of(2).expect("none shares the object any more");
    assert_eq!(turn.place.client, world.id(0));
    assert_eq!(world.modes(), [Some(0)], "the place is exclusive");
    world.passes(s(200));
    assert_eq!(world.ended(turn), None, "the place is renewed for it");
}

#[test]
fn keepers_are_asked_one_after_the_other() {
    let mut world = World::of(3);
    world.connects_slowly = true;
    world.granted(0, wants(1));
    for client in [1, 2] {
        world.asks(client, wants(client as u64 + 1));
    }
    world.passes(s(3));
    assert_eq!(world.connections(2), 1, "the first one has not answered");
    world.is_connected(2, 0, false);
    assert_eq!(world.connections(2), 2);
}

#[test]
fn line_stays_when_its_client_finds_a_keeper() {
    let mut world = World::of(3);
    world.connects_slowly = true;
    world.granted(0, wants(1));
    for client in [1, 2] {
        world.asks(client, wants(client as u64 + 1));
    }
    world.is_connected(2, 0, false);
    world.is_connected(2, 1, true);
    assert_eq!(world.object(1).waiting(), 2);
    world.is_connected(1, 0, true);
    assert_eq!(world.object(1).waiting(), 2);
}

#[test]
fn guest_keeps_its_turn_when_another_caller_leaves() {
    let mut world = World::of(2);
    let turn = guest_turn(&mut world);
    world.asks(1, shared(3));
    world.asks(1, wants(4));
    world.leaves(1, 4);
    assert_eq!(world.object(1).user(), Some(User::Own("caller 2".into())));
    assert!(matches!(world.object(0).user(), Some(User::Guest(..))));
    assert_eq!(world.returns(1, turn), Some(Reply::Returned));
}

#[test]
fn sublease_is_extended_three_times_in_its_length() {
    let mut world = World::of(2);
    let turn = guest_turn(&mut world);
    world.passes(s(5));
    let before = world.requests_to_keepers(1);
    world.passes(s(100));
    assert_eq!(world.requests_to_keepers(1) - before, 30);
    assert_eq!(world.ended(turn), None);
}
