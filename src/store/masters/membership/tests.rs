use std::time::Duration;

use super::super::record::PROTOCOL;
use super::*;

const NOW: i64 = 1_700_000_000_000;

fn epoch(index: usize) -> Uuid {
    Uuid::from_u128(100 + index as u128)
}

fn view(version: u64) -> View {
    let first = View::first(Uuid::nil());
    (1..version).fold(first, |view, _| view.next(Uuid::nil()))
}

fn record(index: usize, servers: usize) -> Record {
    Record {
        cluster: Uuid::from_u128(1),
        settings: MastersSettings {
            max_ttl: Duration::from_secs(30),
            max_clock_skew: Duration::from_secs(1),
        },
        protocol: PROTOCOL,
        index,
        epoch: epoch(index),
        run_id: format!("run{index}"),
        is_durable: false,
        view: view(1),
        members: (0..servers).map(epoch).collect(),
        usable_from: NOW,
    }
}

fn here(process: &str, record: Option<Record>) -> Sight<()> {
    let run_id = process.to_owned();
    Sight::Here { connection: (), run_id, keeps_data: true, now_millis: NOW, record }
}

/// A server that has kept its data, and runs since.
fn member(index: usize) -> Sight<()> {
    here(&format!("run{index}"), Some(record(index, 3)))
}

fn down() -> Sight<()> {
    Sight::Out("down".to_owned())
}

fn plan(sights: &[Sight<()>]) -> Plan {
    judge(sights, &vec![None; sights.len()]).expect("there is a record")
}

fn stays(index: usize) -> Place {
    Place::Member { index, usable_from: NOW, task: MemberTask::Nothing }
}

#[test]
fn servers_keep_their_places_in_any_order() {
    let plan = plan(&[member(2), member(0), member(1)]);
    assert_eq!(plan.places, [stays(2), stays(0), stays(1)]);
    assert_eq!((plan.present(), plan.can_restore()), (3, true));
}

#[test]
fn empty_server_gets_the_place_that_is_left() {
    let plan = plan(&[member(2), here("new", None), member(0)]);
    assert_eq!(plan.places[1], Place::Lost { index: 1, view: None });
    assert!(plan.can_restore());
    assert_eq!(plan.lost(), [1].into());
}

// Goal: with a server out of sight, an empty one is not taken for it.
#[test]
fn empty_server_waits_until_its_place_is_certain() {
    let sights = [member(0), here("new", None), down()];
    assert!(matches!(&plan(&sights).places[1], Place::Out(why) if why == NO_PLACE));
    // It was seen before.
    let known = judge(&sights, &[None, None, Some(2)]).expect("there is a record");
    assert_eq!(known.places[1], Place::Lost { index: 1, view: None });
    assert!(!known.can_restore(), "the view would reach only one of the two others");
}

// Goal: a server that was started again is not trusted, unless all it acknowledged was synced.
#[test]
fn process_that_was_started_again_has_lost_data() {
    for (was_durable, keeps_data) in [(false, false), (true, false), (false, true), (true, true)] {
        let record = Record { is_durable: was_durable, ..record(1, 3) };
        let run_id = "again".to_owned();
        let record = Some(record);
        let again = Sight::Here { connection: (), run_id, keeps_data, now_millis: NOW, record };
        let expected = if was_durable && keeps_data {
            Place::Member { index: 1, usable_from: NOW, task: MemberTask::Adopt }
        } else {
            Place::Lost { index: 1, view: Some(view(1)) }
        };
        assert_eq!(plan(&[member(0), again, member(2)]).places[1], expected);
    }
}

#[test]
fn majority_that_lost_data_is_not_restored() {
    let all_but_one = plan(&[here("a", None), member(1), here("b", None)]);
    assert_eq!(all_but_one.lost(), [0, 2].into());
    assert!(!all_but_one.can_restore());
    let all = [here("a", None), here("b", None), here("c", None)];
    assert_eq!(judge(&all, &[None; 3]), Err(Unplanned::NoRecord));
}

#[test]
fn same_server_under_two_addresses_counts_once() {
    let plan = plan(&[member(0), member(0), member(1)]);
    assert_eq!(plan.places[0], stays(0));
    assert!(matches!(&plan.places[1], Place::Out(why) if why.contains("the same server")));
}

#[test]
fn strangers_are_refused() {
    let stranger = Record { cluster: Uuid::from_u128(9), ..record(1, 3) };
    let sights = [member(0), here("run1", Some(stranger)), member(2)];
    assert!(matches!(&plan(&sights).places[1], Place::Out(why) if why.contains("another set")));
    let five = here("run0", Some(Record { view: view(2), ..record(0, 5) }));
    let refused = judge(&[five, member(1), member(2)], &[None; 3]);
    assert_eq!(refused, Err(Unplanned::OtherCount { recorded: 5 }));
}

// Goal: a server whose place another one has is refused once it has taken part; one that has not
// was overtaken by another client's attempt, and is given a place again.
#[test]
fn replaced_server_is_refused() {
    let newer = |index| {
        let mut members: Vec<_> = (0..3).map(epoch).collect();
        members[1] = Uuid::from_u128(7);
        let record = Record { view: view(2), members, ..record(index, 3) };
        here(&format!("run{index}"), Some(record))
    };
    let sights = |usable_from| {
        let old = Record { usable_from, ..record(1, 3) };
        [newer(0), here("run1", Some(old)), newer(2)]
    };
    assert!(matches!(&plan(&sights(NOW)).places[1], Place::Out(why) if why == REPLACED));
    let expected = Place::Lost { index: 1, view: Some(view(1)) };
    assert_eq!(plan(&sights(NOW + 1)).places[1], expected);
}

// Goal: the newest view counts, and members with an earlier one are brought up to date.
#[test]
fn view_of_another_client_is_completed() {
    let newer = here("run0", Some(Record { view: view(2), ..record(0, 3) }));
    let plan = plan(&[newer, member(1), member(2)]);
    assert_eq!(plan.view, view(2));
    let behind = MemberTask::Install;
    let expected = |index| Place::Member { index, usable_from: NOW, task: behind };
    assert_eq!(plan.places, [stays(0), expected(1), expected(2)]);
}
