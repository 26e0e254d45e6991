//! Guests of one keeper have their turns in the order in which they came to its line.
//!
//! The order is that in which a keeper heard the first request of each guest. One that withdraws,
//! is sent away or was not heard from for a while has left the line; of one that was silent for
//! so long and came back it is open where it stands. One that asks just after it returned a turn
//! stands where it was when it returned that, or where it asks: whether the keeper counted the
//! return is not seen. Nor is a caller's joining, so where guests stand among the callers of the
//! keeper itself is not checked.

use std::collections::BTreeMap;
use std::time::Duration;

use bakery_lock::testing::{LineKind, LineRecord};

use super::batch::{Invariant, assert_kept};
use super::log::Log;
use super::plan::{Deed, Plan};

/// A guest that was silent for so long may have left the line: two seconds, less what a message
/// may wait for its process to run.
const SILENT: Duration = Duration::from_millis(1_950);

/// A guest that asks so soon after it returned a turn keeps its position: one millisecond, and
/// another one that its message may wait for its process to run.
const COMES_BACK: Duration = Duration::from_millis(2);

/// A guest that was overtaken in a line.
pub(crate) fn check(plan: &Plan, log: &Log, object: &str) -> Option<String> {
    // A keeper that is stopped hears late, and takes guests for silent that are not.
    if plan.deeds.iter().any(|(_, deed)| matches!(deed, Deed::Pause { .. })) {
        return None;
    }
    let mut lines = BTreeMap::<usize, Line>::new();
    log.lines.iter().filter(|record| record.object == object).find_map(|record| {
        let overtaken = lines.entry(record.keeper).or_default().note(record)?;
        Some(format!("overtaken in the line of {object}: {overtaken:?} by {record:?}"))
    })
}

/// The guests in the line of one keeper.
#[derive(Default)]
struct Line {
    waiting: Vec<Waiting>,
    /// The last request of each guest that is over: what comes late of it and of those before it
    /// counts for nothing.
    over: BTreeMap<usize, u64>,
    /// When each guest returned a turn last, and what had been noted by then.
    returned: BTreeMap<usize, (Duration, usize)>,
    noted: usize,
}

#[derive(Clone, Debug)]
struct Waiting {
    guest: usize,
    request: u64,
    /// It stands before all who asked after this.
    asked: usize,
    /// It may stand before those who asked after this.
    first: usize,
    heard: Duration,
    /// It was never silent for long.
    is_in_order: bool,
}

impl Line {
    /// Notes what the keeper heard or said; the guest that is overtaken by it, if one is.
    fn note(&mut self, record: &LineRecord) -> Option<Waiting> {
        let LineRecord { guest, request, at, kind, .. } = *record;
        self.noted += 1;
        match kind {
            LineKind::Asks => self.asks(guest, request, at),
            LineKind::Withdraws | LineKind::SentAway => self.leaves(guest, request),
            LineKind::Returns => drop(self.returned.insert(guest, (at, self.noted))),
            // It may ask for the same over another connection.
            LineKind::Disconnected => self.waiting.retain(|waiting| waiting.guest != guest),
            LineKind::Granted => {
                let granted =
                    self.waiting.iter().find(|w| (w.guest, w.request) == (guest, request));
                let first = granted.filter(|w| w.is_in_order).map_or(0, |w| w.first);
                let stands =
                    |w: &&Waiting| w.asked < first && w.is_in_order && at < w.heard + SILENT;
                let overtaken = self.waiting.iter().find(stands).cloned();
                self.leaves(guest, request);
                return overtaken;
            }
        }
        None
    }

    fn asks(&mut self, guest: usize, request: u64, heard: Duration) {
        if self.over.get(&guest).is_some_and(|last| request <= *last) {
            return;
        }
        // The guest withdrew the earlier one.
        self.waiting.retain(|waiting| waiting.guest != guest || waiting.request >= request);
        match self.waiting.iter_mut().find(|waiting| waiting.guest == guest) {
            // A late message says nothing about the guest now.
            Some(waiting) if waiting.request > request => {}
            Some(waiting) => {
                waiting.is_in_order &= heard < waiting.heard + SILENT;
                waiting.heard = heard;
            }
            None => {
                let asked = self.noted;
                let returned = self.returned.get(&guest);
                let first = returned.filter(|(at, _)| heard <= *at + COMES_BACK);
                let first = first.map_or(asked, |(_, noted)| *noted);
                self.waiting.push(Waiting {
                    guest,
                    request,
                    asked,
                    first,
                    heard,
                    is_in_order: true,
                });
            }
        }
    }

    fn leaves(&mut self, guest: usize, request: u64) {
        self.waiting.retain(|waiting| waiting.guest != guest || waiting.request > request);
        let last = self.over.entry(guest).or_default();
        *last = request.max(*last);
    }
}

// Goal: no guest is overtaken by one that came to the line of the same keeper later.
// Method: the histories of all seeds.
#[test]
fn no_guest_is_overtaken_in_its_line() {
    assert_kept(Invariant::Lines);
}

// Goal: the check finds a guest that was overtaken, unless it had left or was silent.
// Method: made-up records of three guests.
#[test]
fn guests_that_were_overtaken_are_found() {
    use LineKind::{Asks, Granted, Returns, SentAway, Withdraws};
    let plan = {
        let mut plan = Plan::new(1, super::plan::Disks::Synced);
        plan.deeds.clear();
        plan
    };
    let found_of = |records: &[(usize, u64, LineKind)], numbers: &[u64]| {
        let record = |((guest, at, kind), request): (&(usize, u64, LineKind), &u64)| LineRecord {
            keeper: 0,
            guest: *guest,
            object: "a".to_owned(),
            request: *request,
            at: Duration::from_millis(*at),
            kind: *kind,
        };
        let lines = records.iter().zip(numbers).map(record).collect();
        let log = Log { lines, ..Log::default() };
        check(&plan, &log, "a").is_some()
    };
    let found = |records: &[_]| found_of(records, &[7; 9]);
    assert!(!found(&[(1, 0, Asks), (2, 1, Asks), (1, 2, Granted), (2, 3, Granted)]));
    assert!(found(&[(1, 0, Asks), (2, 1, Asks), (2, 2, Granted)]));
    assert!(found(&[(1, 0, Asks), (2, 1, Asks), (1, 2, Asks), (2, 3, Granted)]), "a repeated one");
    assert!(!found(&[(1, 0, Asks), (2, 1, Asks), (1, 2, Withdraws), (2, 3, Granted)]));
    assert!(!found(&[(1, 0, Asks), (2, 1, Asks), (1, 2, SentAway), (2, 3, Granted)]));
    assert!(!found(&[(1, 0, Asks), (2, 1, Asks), (2, 1_950, Granted)]), "the first was silent");
    let back = [(1, 0, Asks), (2, 1, Asks), (1, 2_000, Asks), (2, 2_001, Granted)];
    assert!(!found(&back), "it stands behind the other one");
    let at_once = [(2, 0, Returns), (1, 0, Asks), (2, 1, Asks), (2, 2, Granted)];
    assert!(!found(&at_once), "it comes back to its position");
    let later = [(2, 0, Returns), (1, 0, Asks), (2, 3, Asks), (2, 4, Granted)];
    assert!(found(&later), "it comes back too late");
    let late = [(1, 0, Asks), (1, 1, Granted), (2, 2, Asks), (1, 3, Asks), (2, 4, Granted)];
    assert!(!found(&late), "its request is over");
    let later = [(1, 0, Withdraws), (1, 1, Asks), (2, 2, Asks), (2, 3, Granted)];
    assert!(!found_of(&later, &[8, 7, 7, 7]), "a later one of it is over");
    let older = [(1, 0, Asks), (2, 1, Asks), (1, 1_000, Asks), (2, 1_950, Granted)];
    assert!(!found_of(&older, &[8, 7, 7, 7]), "a late request of it says nothing");
    assert!(found_of(&later, &[8, 9, 7, 7]), "it asks anew");
}
