//! Scripts of holders: their events and replies, and which renewals and reads they need.

use super::*;
use crate::core::bakery::{ContenderId, LeaseTerms, Loss as PlaceLoss};
use crate::core::turns::{GuestLoss, HoldTerms};

const PATIENCE: Duration = s(5);

const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn turn(number: u64) -> TurnId {
    TurnId { place: ContenderId { host: 1, client: 7, slot: 0 }, round: 40, number }
}

/// A lease that was written at `first_try`: it lasts 58 s, and is at risk after two thirds of them.
fn lease(first_try: u64) -> Lease {
    Lease::new(LeaseTerms::new(s(60), s(1)), s(first_try))
}

/// A holder that renews, and has collected its guard.
fn holder(number: u64) -> Holder {
    Holder {
        turn: turn(number),
        owner: "owner".into(),
        renews: true,
        lease: lease(100),
        expiry: Loss::Place(PlaceLoss::Expired),
        limit: None,
        expiring: None,
        uncollected_until: None,
        clocks_differ: false,
        warned: false,
        confirming: Vec::new(),
    }
}

fn once() -> Holder {
    Holder { renews: false, ..holder(1) }
}

fn limited(max_hold: u64, grace: u64) -> Holder {
    let limit = HoldTerms { max_hold: s(max_hold), grace: s(grace) }.limit(s(100));
    Holder { limit: Some(limit), ..holder(1) }
}

fn event(event: HolderEvent) -> Output {
    Output::Holder { turn: turn(1), event }
}

fn reply(request: RequestId, reply: Reply) -> Output {
    Output::Reply { request, reply }
}

fn held(request: RequestId, remaining: u64) -> Output {
    reply(request, Reply::Held { remaining: s(remaining) })
}

fn too_long(request: RequestId, min: u64, remaining: u64) -> Output {
    reply(request, Reply::TooLong { min: s(min), remaining: s(remaining) })
}

/// What a step makes, with what it returns.
fn made<T>(step: impl FnOnce(&mut VecDeque<Output>) -> T) -> (T, Vec<Output>) {
    let mut outputs = VecDeque::new();
    let returned = step(&mut outputs);
    (returned, outputs.into())
}

fn needs(holder: &mut Holder, min: u64, request: RequestId) -> (Option<Wanted>, Vec<Output>) {
    made(|outputs| holder.confirm(s(110), Need::Lease(s(min)), request, outputs))
}

fn renewed(holder: &mut Holder, now: u64, lease: Lease) -> (bool, Vec<Output>) {
    made(|outputs| holder.renew(s(now), lease, outputs))
}

fn warned(holder: &mut Holder, now: u64) -> usize {
    made(|outputs| holder.warn_if_at_risk(s(now), outputs)).1.len()
}

#[test]
fn lease_that_is_needed_is_renewed() {
    let mut holder = holder(1);
    assert_eq!(needs(&mut holder, 10, 1), (Some(Wanted::Renewal), vec![]));
    assert_eq!(needs(&mut holder, 57, 2), (Some(Wanted::Renewal), vec![]));
    assert_eq!(holder.needed_lease(), s(57));
    let outputs = vec![event(HolderEvent::Renewed(lease(110))), held(1, 57), held(2, 57)];
    assert_eq!(renewed(&mut holder, 111, lease(110)), (false, outputs));
    assert_eq!(holder.needed_lease(), Duration::ZERO);
}

#[test]
fn second_renewal_is_as_long_as_any() {
    let mut holder = holder(1);
    for (request, min) in [(1, 50), (2, 60)] {
        needs(&mut holder, min, request);
    }
    // It was under way when they asked.
    let begun = vec![event(HolderEvent::Renewed(lease(103)))];
    assert_eq!(renewed(&mut holder, 112, lease(103)), (true, begun));
    let outputs = vec![event(HolderEvent::Renewed(lease(113))), held(1, 57), too_long(2, 60, 57)];
    assert_eq!(renewed(&mut holder, 114, lease(113)), (false, outputs));
}

#[test]
fn holder_without_renewals_knows_how_long_it_lasts() {
    let mut holder = once();
    assert_eq!(needs(&mut holder, 48, 1), (None, vec![held(1, 48)]));
    assert_eq!(needs(&mut holder, 49, 2), (None, vec![too_long(2, 49, 48)]));
    assert_eq!(renewed(&mut holder, 111, lease(110)), (false, vec![]));
    assert_eq!(holder.lease, lease(100));
}

#[test]
fn limit_ends_a_turn_before_its_lease() {
    let mut holder = Holder { renews: false, ..limited(10, 20) };
    assert_eq!(needs(&mut holder, 21, 1), (None, vec![too_long(1, 21, 20)]));
    assert_eq!(holder.loss(s(129)), None);
    assert_eq!(holder.loss(s(130)), Some(Loss::HoldLimit));
    assert_eq!(holder.loss(s(158)), Some(Loss::HoldLimit), "it ended first");
    let holder = limited(10, 60);
    assert_eq!(holder.loss(s(157)), None);
    assert_eq!(holder.loss(s(170)), Some(Loss::Place(PlaceLoss::Expired)), "the lease ended first");
}

#[test]
fn holder_that_is_to_finish_is_renewed_for_its_limit_alone() {
    let mut for_limit = Holder { expiring: Some(Expiring::HoldLimit), ..holder(1) };
    assert_eq!(needs(&mut for_limit, 10, 1), (Some(Wanted::Renewal), vec![]));
    let mut for_keeper = Holder { expiring: Some(Expiring::Keeper), ..holder(1) };
    assert_eq!(needs(&mut for_keeper, 10, 1), (None, vec![held(1, 48)]));
    assert_eq!(for_keeper.loss(s(158)), Some(Loss::Guest(GuestLoss::PlaceLost)));
}

#[test]
fn expiring_holder_is_answered_without_a_renewal() {
    let mut holder = holder(1);
    needs(&mut holder, 10, 1);
    needs(&mut holder, 50, 2);
    made(|outputs| holder.confirm(s(110), Need::Rows, 3, outputs));
    let (_, outputs) = made(|outputs| holder.expire(s(111), &Expiring::Keeper, outputs));
    let finish = event(HolderEvent::Expiring(Expiring::Keeper));
    assert_eq!(outputs, [finish, held(1, 47), too_long(2, 50, 47)]);
    let (_, outputs) = made(|outputs| holder.expire(s(112), &Expiring::HoldLimit, outputs));
    assert_eq!(outputs, [], "the first reason counts");
    let (_, outputs) = made(|outputs| holder.confirmed(s(113), s(110), outputs));
    assert_eq!(outputs, [held(3, 45)]);
}

#[test]
fn read_answers_those_that_asked_before_it() {
    let mut holder = holder(1);
    needs(&mut holder, 10, 1);
    for (asked, request) in [(110, 2), (112, 3)] {
        let wanted = made(|outputs| holder.confirm(s(asked), Need::Rows, request, outputs));
        assert_eq!(wanted, (Some(Wanted::Read), vec![]));
    }
    let (_, outputs) = made(|outputs| holder.confirmed(s(113), s(111), outputs));
    assert_eq!(outputs, [held(2, 45)]);
    let (_, outputs) = made(|outputs| holder.confirmed(s(114), s(112), outputs));
    assert_eq!(outputs, [held(3, 44)]);
}

#[test]
fn renewal_after_the_end_counts_for_nothing() {
    let mut holder = holder(1);
    needs(&mut holder, 10, 1);
    assert_eq!(renewed(&mut holder, 158, lease(150)), (false, vec![]));
    assert_eq!(holder.lease, lease(100));
}

#[test]
fn each_thing_that_is_due_is_done_once() {
    let mut holder = Holder { uncollected_until: Some(s(120)), ..limited(30, 200) };
    made(|outputs| holder.confirm(s(118), Need::Rows, 1, outputs));
    made(|outputs| holder.confirm(s(125), Need::Rows, 2, outputs));
    let unconfirmed = |request| reply(request, Reply::Unconfirmed { waited: PATIENCE });
    for (due, outputs) in [
        (120, vec![event(HolderEvent::AskWhetherCollected)]),
        (123, vec![unconfirmed(1)]),
        (130, vec![event(HolderEvent::Expiring(Expiring::HoldLimit)), unconfirmed(2)]),
    ] {
        assert_eq!(holder.due(PATIENCE), s(due));
        let before = s(due) - Duration::from_nanos(1);
        assert_eq!(made(|outputs| holder.look(before, PATIENCE, outputs)), ((), vec![]));
        assert_eq!(made(|outputs| holder.look(s(due), PATIENCE, outputs)), ((), outputs));
    }
    assert_eq!(holder.due(PATIENCE), s(158), "the end of its lease");
}

#[test]
fn holder_at_risk_is_looked_at() {
    let mut renewing = holder(1);
    assert_eq!(renewing.due(PATIENCE), lease(100).at_risk_from());
    renewing.warned = true;
    assert_eq!(renewing.due(PATIENCE), s(158));
    assert_eq!(once().due(PATIENCE), s(158));
    let expiring = Holder { expiring: Some(Expiring::HoldLimit), ..holder(1) };
    assert_eq!(expiring.due(PATIENCE), s(158));
    assert_eq!(limited(1, 2).due(PATIENCE), s(101));
    let finishing = Holder { expiring: Some(Expiring::HoldLimit), ..limited(1, 2) };
    assert_eq!(finishing.due(PATIENCE), s(103));
}

#[test]
fn warning_is_given_each_time_a_turn_becomes_at_risk() {
    let mut holder = holder(1);
    assert_eq!([138, 139, 140].map(|now| warned(&mut holder, now)), [0, 1, 0]);
    renewed(&mut holder, 141, lease(140));
    assert_eq!([178, 179, 198].map(|now| warned(&mut holder, now)), [0, 1, 0]);
}

#[test]
fn only_what_should_last_is_at_risk() {
    let differ = |holder| Holder { clocks_differ: true, ..holder };
    let finishes = |holder| Holder { expiring: Some(Expiring::HoldLimit), ..holder };
    for (mut holder, early, late) in [
        (holder(1), 0, 1),
        (once(), 0, 0),
        (differ(holder(1)), 1, 0),
        (differ(once()), 1, 0),
        (finishes(holder(1)), 0, 0),
        (finishes(differ(holder(1))), 0, 0),
    ] {
        assert_eq!([110, 150].map(|now| warned(&mut holder, now)), [early, late], "{holder:?}");
    }
    assert_eq!(warned(&mut holder(1), 158), 0, "it is over");
}

#[test]
fn warning_is_not_repeated_for_another_reason() {
    let mut holder = Holder { clocks_differ: true, ..once() };
    assert_eq!(warned(&mut holder, 150), 1);
    holder.clocks_differ = false;
    assert_eq!(warned(&mut holder, 151), 0);
    holder.clocks_differ = true;
    assert_eq!(warned(&mut holder, 152), 0);
}

#[test]
fn requests_of_a_turn_that_ends_are_answered() {
    let mut ended = holder(1);
    needs(&mut ended, 10, 1);
    made(|outputs| ended.confirm(s(110), Need::Rows, 2, outputs));
    let over = [reply(1, Reply::Over), reply(2, Reply::Over)];
    assert_eq!(made(|outputs| ended.clone().end(outputs)).1, over);
    let lost = event(HolderEvent::Lost(Loss::Closed));
    let (_, outputs) = made(|outputs| ended.lose(Loss::Closed, outputs));
    assert_eq!(outputs, [[lost].as_slice(), &over].concat());
}

#[test]
fn holders_that_share_a_place_are_known_by_their_turns() {
    let mut holders = Holders::new(PATIENCE);
    assert!(holders.is_empty() && holders.only().is_none() && holders.last().is_none());
    assert_eq!(holders.deadline(), None);
    holders.insert(Holder { turn: turn(1), ..once() });
    assert!(!holders.is_empty() && !holders.any_renews());
    assert_eq!(holders.only(), Some(turn(1)));
    holders.insert(holder(2));
    assert!(holders.any_renews());
    assert_eq!((holders.only(), holders.last().map(|it| it.turn)), (None, Some(turn(2))));
    let at_risk = lease(100).at_risk_from();
    assert_eq!(holders.deadline(), Some(at_risk));
    assert_eq!(holders.due(at_risk), [turn(2)]);
    assert_eq!(holders.due(s(158)), [turn(2), turn(1)]);
    assert_eq!(holders.with(turn(2), |it| std::mem::replace(&mut it.warned, true)), Some(false));
    assert_eq!(holders.deadline(), Some(s(158)), "it changes with the holder");
    holders.for_each(|it| it.lease = lease(90));
    assert_eq!(holders.due(s(148)), [turn(1), turn(2)]);
    assert_eq!(holders.with(turn(3), |_| ()), None);
    assert!(holders.take(turn(2)).is_some() && holders.take(turn(2)).is_none());
    assert!(!holders.any_renews());
    assert_eq!(holders.due(s(148)), [turn(1)]);
    assert_eq!(holders.take_all().count(), 1);
    assert!(holders.is_empty() && holders.deadline().is_none());
}
