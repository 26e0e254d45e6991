//! Sweeps that reads of an object call for.

use super::world::{World, ms, s, wants};
use crate::core::bakery::Read;
use crate::core::object::io::{Health, Report};

#[test]
fn whole_read_that_meets_dead_rows_calls_for_a_sweep() {
    let mut world = World::of(1);
    world.meets_dead_rows(0, Read::Object);
    world.passes(s(1));
    assert!(matches!(world.reports(), [Report::Swept { .. }]), "{:?}", world.reports());
    assert!(world.is_idle(0));
}

#[test]
fn sweep_is_not_put_off_by_another_read() {
    let mut world = World::of(1);
    world.meets_dead_rows(0, Read::Object);
    world.passes(ms(300));
    world.meets_dead_rows(0, Read::Object);
    world.passes(ms(250));
    assert_eq!(world.reports().len(), 1);
    world.passes(s(1));
    assert_eq!(world.reports().len(), 1);
}

#[test]
fn no_sweep_begins_while_clocks_differ_or_after_shutdown() {
    let mut world = World::of(2);
    world.health(0, Health::ClocksDiffer);
    world.closes(1);
    for client in [0, 1] {
        world.meets_dead_rows(client, Read::Object);
    }
    world.passes(s(1));
    assert_eq!([0, 1].map(|client| world.sweep_reads(client)), [0, 0]);
}

#[test]
fn mark_ahead_of_the_clock_is_reported_once() {
    let mut world = World::of(1);
    world.sees_mark_ahead(0, s(1));
    assert_eq!(world.reports(), []);
    for _ in 0..2 {
        world.sees_mark_ahead(0, s(10));
    }
    assert!(matches!(world.reports(), [Report::MarkAhead(_)]), "{:?}", world.reports());
}

#[test]
fn object_with_a_mark_ahead_of_the_clock_is_used_again_and_again() {
    let mut world = World::of(1);
    world.is_marked_ahead(s(30));
    for caller in 1..=3 {
        let turn = world.granted(0, wants(caller));
        assert_eq!(world.live_rows(), 1);
        world.returns(0, turn);
        assert_eq!(world.live_rows(), 0);
    }
}
