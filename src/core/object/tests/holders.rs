//! Events of holders, and how their turns end.

use std::time::Duration;

use super::world::{Ended, World, ms, s, shared, tries, wants};
use crate::core::bakery::{self, Acquire};
use crate::core::object::io::{
    Caller, CheckReason, Expiring, Health, Loss, Need, Refusal, Reply, Report, User,
};
use crate::core::turns::{GuestLoss, HoldTerms};

fn checks(world: &World, reason: CheckReason) -> usize {
    world.reports().iter().filter(|report| **report == Report::Check(reason)).count()
}

#[test]
fn revoked_holder_is_asked_to_finish_and_loses_the_place_with_its_lease() {
    let mut world = World::of(1);
    let turn = world.granted(0, wants(1));
    world.revokes(0);
    world.passes(s(40));
    assert!(world.is_expiring(turn));
    assert_eq!(world.ended(turn), None);
    world.passes(s(60));
    let ended = world.ended(turn);
    assert!(matches!(ended, Some(Ended::Lost(Loss::Place(bakery::Loss::Revoked(_))))), "{ended:?}");
}

#[test]
fn reason_to_finish_is_why_a_turn_is_lost_unless_it_is_renewed() {
    assert_eq!(Expiring::Keeper.loss(), Some(Loss::Guest(GuestLoss::PlaceLost)));
    assert_eq!(Expiring::HoldLimit.loss(), None);
}

#[test]
fn holder_is_warned_once_each_time_it_is_at_risk() {
    let mut world = World::of(1);
    let turn = world.granted(0, wants(1));
    for warnings in 1..=2 {
        // Leases are renewed every 20 s, and at risk after 39 s without.
        world.passes(s(50));
        assert_eq!(world.warnings(turn), warnings - 1);
        world.table.is_down = true;
        world.passes(s(39));
        world.table.is_down = false;
        assert_eq!(world.warnings(turn), warnings);
    }
    assert_eq!(world.ended(turn), None);
}

#[test]
fn holder_that_is_to_finish_is_not_warned() {
    let mut world = World::of(1);
    let hold_terms = Some(HoldTerms { max_hold: s(10), grace: s(1_000) });
    let turn = world.granted(0, Caller { hold_terms, ..wants(1) });
    world.passes(s(11));
    assert!(world.is_expiring(turn));
    world.table.is_down = true;
    world.passes(s(55));
    assert_eq!(world.warnings(turn), 0);
}

#[test]
fn holders_are_at_risk_while_clocks_differ() {
    let mut world = World::of(1);
    let turn = world.granted(0, wants(1));
    world.health(0, Health::ClocksDiffer);
    assert_eq!(world.warnings(turn), 1);
    let mut world = World::of(1);
    let turn = world.granted(0, wants(1));
    world.health(0, Health::TableGone);
    assert_eq!((world.warnings(turn), world.ended(turn)), (0, Some(&Ended::Lost(Loss::TableGone))));
}

#[test]
fn clocks_are_looked_at_after_renewals_and_refusals() {
    let mut world = World::of(1);
    let turn = world.granted(0, wants(1));
    assert_eq!(checks(&world, CheckReason::Renewal), 0);
    world.passes(s(30));
    assert!(checks(&world, CheckReason::Renewal) > 0);
    world.returns(0, turn);
    assert_eq!(checks(&world, CheckReason::Refusal), 0);
    world.refuses = true;
    world.asks(0, wants(2));
    assert!(matches!(world.refusal(2), Some(Refusal::Failed { .. })), "{:?}", world.refusal(2));
    assert!(checks(&world, CheckReason::Refusal) > 0);
}

#[test]
fn read_that_is_refused_is_a_reason_to_look_at_clocks() {
    let mut world = World::without_messages(2);
    world.granted(0, wants(1));
    world.asks(1, wants(2));
    world.table.is_down = true;
    world.passes(ms(500));
    world.table.is_down = false;
    assert_eq!(checks(&world, CheckReason::Refusal), 0, "no answer is no refusal");
    world.refuses = true;
    world.passes(ms(500));
    assert!(matches!(world.refusal(2), Some(Refusal::Failed { .. })), "{:?}", world.refusal(2));
    assert!(checks(&world, CheckReason::Refusal) > 0);
}

#[test]
fn caller_that_timed_out_knows_who_was_ahead() {
    let mut world = World::without_messages(2);
    world.granted(0, wants(1));
    world.asks_for(1, wants(2), s(2));
    world.passes(s(3));
    let Some(Refusal::TimedOut { user: None, ahead, .. }) = world.refusal(2) else {
        panic!("{:?}", world.refusal(2));
    };
    let clients: Vec<_> = ahead.iter().map(|seen| seen.contender.client).collect();
    assert_eq!(clients, [world.id(0)]);
}

#[test]
fn caller_that_timed_out_knows_whose_turn_it_waited_for() {
    let mut world = World::of(2);
    world.granted(0, wants(1));
    world.asks_for(0, wants(2), s(2));
    world.asks_for(1, wants(3), s(2));
    world.passes(s(3));
    let user = |caller| match world.refusal(caller) {
        Some(Refusal::TimedOut { user, ahead, .. }) => (user.clone(), ahead.len()),
        other => panic!("{other:?}"),
    };
    assert_eq!(user(2), (Some(User::Own("caller 1".into())), 1));
    assert_eq!(user(3).0, Some(User::OfKeeper(world.id(0))));
}

#[test]
fn min_hold_outlasts_a_shutdown() {
    let mut world = World::without_messages(2);
    let turn = world.granted(0, Caller { min_hold: s(20), ..wants(1) });
    world.asks(1, wants(2));
    world.closes(0);
    assert_eq!(world.ended(turn), Some(&Ended::Lost(Loss::Closed)));
    world.passes(s(1));
    assert!(world.is_idle(0), "nothing is left to do");
    world.passes(s(17));
    assert_eq!(world.turn_of(2), None);
    world.passes(s(60));
    assert!(world.turn_of(2).is_some());
}

#[test]
fn shutdown_waits_until_rows_are_deleted() {
    let mut world = World::of(1);
    let turn = world.granted(0, wants(1));
    world.table.is_down = true;
    world.closes(0);
    assert_eq!(world.returns(0, turn), Some(Reply::Over));
    world.passes(s(1));
    assert!(!world.is_idle(0));
    world.table.is_down = false;
    world.passes(s(5));
    assert!(world.is_idle(0));
}

#[test]
fn without_messages_a_failed_task_is_not_waited_for() {
    let mut world = World::without_messages(1);
    world.granted(0, wants(1));
    world.fails(0);
    world.asks(0, wants(2));
    world.passes(Duration::from_secs(1));
    assert!(world.turn_of(2).is_some());
}

#[test]
fn caller_leaves_wherever_it_waits() {
    let mut world = World::of(1);
    let turn = world.granted(0, shared(1));
    world.asks(0, Caller { yields: Some(s(5)), ..wants(2) });
    world.asks(0, wants(3));
    world.leaves(0, 2);
    world.leaves(0, 3);
    assert_eq!(world.object(0).waiting(), 0);
    world.returns(0, turn);
    world.passes(s(10));
    assert_eq!((world.turn_of(2), world.turn_of(3)), (None, None));
    assert!(world.is_idle(0));
    world.asks(0, tries(wants(4)));
    assert!(world.turn_of(4).is_some());
}

#[test]
fn row_that_is_missing_is_a_reason_to_look_at_clocks() {
    let mut world = World::of(1);
    world.loses_rows = true;
    world.asks(0, wants(1));
    assert!(matches!(world.refusal(1), Some(Refusal::Failed { .. })), "{:?}", world.refusal(1));
    assert_eq!(checks(&world, CheckReason::RowMissing), 1);
    let mut world = World::of(1);
    let turn = world.granted(0, wants(1));
    world.loses_rows = true;
    world.passes(s(30));
    assert_eq!(world.ended(turn), Some(&Ended::Lost(Loss::Place(bakery::Loss::RowMissing))));
    assert_eq!(checks(&world, CheckReason::RowMissing), 1);
}

#[test]
fn refused_statement_is_no_missing_row() {
    let mut world = World::of(1);
    world.refuses = true;
    world.asks(0, wants(1));
    assert!(matches!(world.refusal(1), Some(Refusal::Failed { .. })), "{:?}", world.refusal(1));
    assert_eq!(checks(&world, CheckReason::RowMissing), 0);
}

#[test]
fn release_that_is_not_acknowledged_is_waited_for_until_patience_ends() {
    let mut world = World::of(1);
    let turn = world.granted(0, wants(1));
    world.table.is_down = true;
    assert_eq!(world.returns(0, turn), None);
    let request = world.last_request();
    world.passes(ms(4_999));
    assert_eq!(world.reply_to(request), None);
    world.passes(ms(2));
    let reply = world.reply_to(request);
    assert!(matches!(reply, Some(Reply::Unacknowledged { .. })), "{reply:?}");
}

#[test]
fn turn_beyond_its_limit_leaves_the_place_to_the_next_one() {
    let mut world = World::of(1);
    let hold_terms = Some(HoldTerms { max_hold: s(3), grace: s(2) });
    let turn = world.granted(0, Caller { hold_terms, ..wants(1) });
    world.asks(0, wants(2));
    let before = world.operations(0);
    world.passes(s(3));
    assert_eq!((world.is_expiring(turn), world.ended(turn)), (true, None));
    world.passes(s(2));
    assert_eq!(world.ended(turn), Some(&Ended::Lost(Loss::HoldLimit)));
    assert!(world.turn_of(2).is_some());
    assert_eq!(world.operations(0), before);
}

#[test]
fn renewal_under_way_is_followed_by_the_one_that_is_needed() {
    let mut world = World::of(1);
    let turn = world.granted(0, wants(1));
    world.table.is_down = true;
    world.passes(s(25));
    assert_eq!(world.confirms(0, turn, Need::Lease(s(56))), None);
    let request = world.last_request();
    world.table.is_down = false;
    world.passes(s(1));
    let reply = world.reply_to(request);
    assert!(matches!(reply, Some(Reply::Held { remaining }) if *remaining >= s(56)), "{reply:?}");
}

#[test]
fn place_is_renewed_while_one_of_those_that_share_it_renews() {
    let mut world = World::of(1);
    let once = |number| {
        let acquire = Acquire { renew: false, ..shared(number).acquire };
        Caller { acquire, ..shared(number) }
    };
    let renewing = world.granted(0, shared(1));
    let once_too = world.granted(0, once(2));
    world.passes(s(30));
    assert_eq!(world.owners(), [Some("caller 2".into())], "the last one that came");
    world.passes(s(40));
    assert_eq!(world.ended(renewing), None);
    let expired = Ended::Lost(Loss::Place(bakery::Loss::Expired));
    assert_eq!(world.ended(once_too), Some(&expired));
    world.passes(s(30));
    assert_eq!(world.owners(), [Some("caller 1".into())]);
    world.granted(0, once(3));
    world.returns(0, renewing);
    world.passes(s(70));
    assert_eq!(world.live_rows(), 0, "none renews it any more");
}

#[test]
fn note_is_written_at_once() {
    let mut world = World::of(1);
    let turn = world.granted(0, wants(1));
    let reply = world.revises(0, turn, (None, Some("another")));
    assert!(matches!(reply, Some(Reply::Held { .. })), "{reply:?}");
    assert_eq!(world.owners(), [Some("another".into())]);
}

#[test]
fn raised_ttl_lasts_until_the_turn_ends() {
    let mut world = World::of(1);
    let turn = world.granted(0, wants(1));
    let reply = world.revises(0, turn, (Some(s(120)), None));
    let Some(Reply::Held { remaining }) = reply else { panic!("{reply:?}") };
    assert!(remaining > s(110), "{remaining:?}");
    // A shorter one has no effect.
    world.revises(0, turn, (Some(s(10)), None));
    world.passes(s(60));
    let lasts = world.confirms(0, turn, Need::Lease(s(110)));
    assert!(matches!(lasts, Some(Reply::Held { .. })), "{lasts:?}");
    // The next caller has its own.
    world.returns(0, turn);
    let next = world.granted(0, wants(2));
    let lasts = world.confirms(0, next, Need::Lease(s(110)));
    assert!(matches!(lasts, Some(Reply::TooLong { .. })), "{lasts:?}");
}

#[test]
fn rows_that_are_not_renewed_are_not_changed() {
    let mut world = World::of(1);
    let unrenewed = Caller { acquire: Acquire { renew: false, ..wants(1).acquire }, ..wants(1) };
    let turn = world.granted(0, unrenewed);
    assert_eq!(world.revises(0, turn, (None, Some("another"))), Some(Reply::Unchangeable));
    world.returns(0, turn);
    let turn = world.granted(0, wants(2));
    world.revokes(0);
    world.passes(s(40));
    assert!(world.is_expiring(turn));
    assert_eq!(world.revises(0, turn, (Some(s(120)), None)), Some(Reply::Unchangeable));
    world.returns(0, turn);
    assert_eq!(world.revises(0, turn, (None, None)), Some(Reply::Over));
}

#[test]
fn downgraded_holder_is_joined_by_others() {
    let mut world = World::without_messages(2);
    let turn = world.granted(0, wants(1));
    world.asks(0, shared(2));
    world.asks(1, shared(3));
    world.passes(s(5));
    assert_eq!((world.turn_of(2), world.turn_of(3)), (None, None));
    let reply = world.shares(0, turn);
    assert!(matches!(reply, Some(Reply::Held { .. })), "{reply:?}");
    assert!(world.turn_of(2).is_some(), "a caller of the same client joins at once");
    world.passes(s(5));
    assert!(world.turn_of(3).is_some(), "another client joins");
    assert_eq!(world.ended(turn), None);
    // A writer waits for all of them.
    world.asks(0, wants(4));
    world.passes(s(5));
    assert_eq!(world.turn_of(4), None);
}

#[test]
fn only_a_caller_that_holds_alone_can_downgrade() {
    let mut world = World::of(2);
    let reader = world.granted(0, shared(1));
    assert_eq!(world.shares(0, reader), Some(Reply::Unchangeable));
    world.returns(0, reader);
    let stays = world.granted(0, Caller { min_hold: s(10), ..wants(2) });
    assert_eq!(world.shares(0, stays), Some(Reply::Unchangeable));
    world.returns(0, stays);
    world.passes(s(20));
    let turn = world.granted(0, wants(3));
    assert!(matches!(world.shares(0, turn), Some(Reply::Held { .. })));
    assert_eq!(world.shares(0, turn), Some(Reply::Unchangeable), "it is shared already");
    assert_eq!(world.issues_token(0, turn), None);
    world.returns(0, turn);
    assert_eq!(world.shares(0, turn), Some(Reply::Over));
}
