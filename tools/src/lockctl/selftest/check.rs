//! What must hold of a run, whatever happened meanwhile.
//!
//! No rule raises a false alarm: where the times don't prove a fault, there is none.

use std::collections::{BTreeMap, HashMap};

use super::acquisition::Acquisition;

/// A rule that two acquisitions of one name break together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// Both held the lock at one time.
    Overlap,
    /// The later one has a token that is not above the earlier one's.
    Tokens,
    /// The later one asked after the other one in their process, and was granted before it.
    Line,
    /// The later one asked after the other one's process had its ticket, and was granted before it.
    Queue,
}

/// Two acquisitions that break a rule, the one that asked or held first before the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Violation<'a> {
    pub(super) rule: Rule,
    pub(super) pair: [&'a Acquisition; 2],
}

/// How much there was to compare.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Compared {
    /// Holds that were compared for overlaps.
    pub(super) holds: usize,
    pub(super) tokens: usize,
    /// Grants that were compared with others of their process.
    pub(super) line: usize,
    /// Grants that waited with a ticket while another process came later.
    pub(super) queue: usize,
}

/// What breaks a rule, and how much was compared.
///
/// `in_order` says whether grants come in an order that can be seen from outside: that of processes
/// that are peers can't.
pub(super) fn check(
    acquisitions: &[Acquisition],
    in_order: bool,
) -> (Vec<Violation<'_>>, Compared) {
    let mut names = BTreeMap::<u16, Vec<&Acquisition>>::new();
    for acquisition in acquisitions {
        names.entry(acquisition.name).or_default().push(acquisition);
    }
    let (mut violations, mut compared) = (Vec::new(), Compared::default());
    for mut of_name in names.into_values() {
        of_name.sort_by_key(|acquisition| acquisition.asked);
        compared.holds += overlaps(&of_name, &mut violations);
        compared.tokens += tokens(&of_name, &mut violations);
        if in_order {
            compared.line += line(&of_name, &mut violations);
            compared.queue += queue(&of_name, &mut violations);
        }
    }
    (violations, compared)
}

/// No two hold at one time.
fn overlaps<'a>(of_name: &[&'a Acquisition], violations: &mut Vec<Violation<'a>>) -> usize {
    let hold = |it: &&'a Acquisition| {
        let hold = it.hold()?;
        hold.until.map(|until| (hold.granted, until, *it))
    };
    let mut held: Vec<_> = of_name.iter().filter_map(hold).collect();
    held.sort_by_key(|(from, until, _)| (*from, *until));
    // A later one may end earlier, so each is compared with the one before that ends last.
    let mut last: Option<(u64, &Acquisition)> = None;
    for (from, until, next) in &held {
        if let Some((end, before)) = last
            && *from < end
        {
            violations.push(Violation { rule: Rule::Overlap, pair: [before, next] });
        }
        if last.is_none_or(|(end, _)| end <= *until) {
            last = Some((*until, next));
        }
    }
    held.len()
}

/// A token that was there before another one was asked for is below it, and no two are the same.
fn tokens<'a>(of_name: &[&'a Acquisition], violations: &mut Vec<Violation<'a>>) -> usize {
    let mut given: Vec<_> =
        of_name.iter().filter_map(|it| it.token().map(|token| (token, *it))).collect();
    let count = given.len();
    let mut seen = HashMap::new();
    let mut asked = given.clone();
    given.sort_by_key(|(token, _)| token.given);
    asked.sort_by_key(|(token, _)| token.asked);
    let mut given = given.into_iter().peekable();
    let mut largest: Option<(i64, &Acquisition)> = None;
    for (token, next) in asked {
        // Its own is not among them: what is asked for is given later.
        while let Some((before, of)) = given.next_if(|(before, _)| before.given <= token.asked) {
            largest =
                largest.filter(|(value, _)| *value >= before.value).or(Some((before.value, of)));
        }
        let same = seen.insert(token.value, next);
        let not_below = largest.filter(|(value, _)| *value >= token.value).map(|(_, of)| of);
        if let Some(before) = not_below.or(same) {
            violations.push(Violation { rule: Rule::Tokens, pair: [before, next] });
        }
    }
    count
}

/// Callers of one process are granted in the order in which they asked. Those that gave up don't
/// count.
fn line<'a>(of_name: &[&'a Acquisition], violations: &mut Vec<Violation<'a>>) -> usize {
    let mut last = HashMap::<u16, (u64, &Acquisition)>::new();
    let mut count = 0;
    for next in of_name {
        let Some(granted) = next.certainly_granted() else { continue };
        count += 1;
        let last = last.entry(next.process).or_insert((granted, next));
        if granted < last.0 {
            violations.push(Violation { rule: Rule::Line, pair: [last.1, next] });
        } else {
            *last = (granted, next);
        }
    }
    count
}

/// A process that waits with a ticket goes before one that came later.
///
/// Only those count that did not come while their process used or awaited the lock for another
/// caller: a process passes its locks on, and lets others of its callers in before processes
/// that wait behind it. Nor those that came after such a use ended in a way that leaves open
/// whether the place was given back.
fn queue<'a>(of_name: &[&'a Acquisition], violations: &mut Vec<Violation<'a>>) -> usize {
    let fresh = fresh(of_name);
    let granted = |it: &&'a Acquisition| it.certainly_granted().map(|granted| (granted, *it));
    let newcomers: Vec<_> = fresh.iter().filter_map(granted).collect();
    let mut waiting: Vec<_> =
        newcomers.iter().filter_map(|(granted, it)| Some((it.queued?, *granted, *it))).collect();
    waiting.sort_by_key(|(queued, ..)| *queued);
    let mut waiting = waiting.into_iter().peekable();
    // Of each process, the one that was granted last of those with a ticket.
    let mut last = BTreeMap::<u16, (u64, &Acquisition)>::new();
    let mut compared = 0;
    for (granted, newcomer) in newcomers {
        while let Some((_, granted, it)) = waiting.next_if(|(at, ..)| *at < newcomer.asked) {
            let last = last.entry(it.process).or_insert((granted, it));
            *last = if granted > last.0 { (granted, it) } else { *last };
        }
        for (process, (other, it)) in &last {
            if *process == newcomer.process || *other <= newcomer.asked {
                continue;
            }
            compared += 1;
            if granted < *other {
                violations.push(Violation { rule: Rule::Queue, pair: [it, newcomer] });
            }
        }
    }
    compared
}

/// The acquisitions whose process neither held nor awaited the lock when they came, and had given
/// it back for certain; in the order in which they came.
fn fresh<'a>(of_name: &[&'a Acquisition]) -> Vec<&'a Acquisition> {
    /// A time during which a process held or awaited the lock without a pause.
    struct Use {
        ended: u64,
        given_back: bool,
    }
    let mut uses = HashMap::<u16, Use>::new();
    let mut fresh = Vec::new();
    for it in of_name {
        let given_back = it.hold().is_some_and(|hold| hold.released);
        match uses.get_mut(&it.process) {
            Some(last) if it.asked <= last.ended => {
                last.ended = last.ended.max(it.ended);
                last.given_back &= given_back;
            }
            last => {
                if last.is_none_or(|last| last.given_back) {
                    fresh.push(*it);
                }
                uses.insert(it.process, Use { ended: it.ended, given_back });
            }
        }
    }
    fresh
}

#[cfg(test)]
mod tests {
    use super::super::acquisition::{Hold, Outcome, Token};
    use super::*;

    /// A lock that was asked for, granted and held until shortly before its end.
    fn held(process: u16, asked: u64, granted: u64, ended: u64) -> Acquisition {
        let until = Some(ended - 1);
        let hold = Hold { granted, until, token: None, released: true, errors: Vec::new() };
        let outcome = Outcome::Held(hold);
        Acquisition { name: 1, process, caller: 1, asked, queued: None, outcome, ended }
    }

    fn ended(mut it: Acquisition, outcome: Outcome) -> Acquisition {
        it.outcome = outcome;
        it
    }

    fn queued(mut it: Acquisition, queued: u64) -> Acquisition {
        it.queued = Some(queued);
        it
    }

    fn with(mut it: Acquisition, change: impl FnOnce(&mut Hold)) -> Acquisition {
        if let Outcome::Held(hold) = &mut it.outcome {
            change(hold);
        }
        it
    }

    fn token(it: Acquisition, asked: u64, given: u64, value: i64) -> Acquisition {
        with(it, |hold| hold.token = Some(Token { asked, given, value }))
    }

    /// The rules that a history breaks, and by whom: when each of the two asked.
    fn broken(history: &[Acquisition]) -> Vec<(Rule, u64, u64)> {
        let (violations, _) = check(history, true);
        let asked = violations.iter().map(|it| (it.rule, it.pair[0].asked, it.pair[1].asked));
        asked.collect()
    }

    // Goal: a history without faults has none, and all of it is compared.
    #[test]
    fn good_history_passes() {
        let history = [
            token(held(1, 10, 20, 40), 21, 22, 100),
            token(queued(held(2, 11, 45, 60), 15), 46, 47, 101),
            token(held(3, 30, 65, 70), 66, 67, 102),
            ended(held(1, 50, 0, 1), Outcome::TimedOut),
            Acquisition { name: 2, ..held(1, 12, 30, 50) },
        ];
        let (violations, compared) = check(&history, true);
        assert_eq!(violations, []);
        assert_eq!(compared, Compared { holds: 4, tokens: 3, line: 4, queue: 1 });
    }

    // Goal: two holders of one name at one time are found, also when one holds during all of the
    // other's time; neighbours, other names, and a hold that was lost before are none.
    #[test]
    fn two_holders_are_found() {
        let outer = held(1, 1, 10, 90);
        assert_eq!(broken(&[outer.clone(), held(2, 2, 89, 95)]), []);
        assert_eq!(broken(&[held(2, 2, 88, 95), outer.clone()]), [(Rule::Overlap, 1, 2)]);
        let both = [outer.clone(), held(2, 2, 20, 30), held(3, 3, 80, 95)];
        assert_eq!(broken(&both), [(Rule::Overlap, 1, 2), (Rule::Overlap, 1, 3)]);
        let elsewhere = Acquisition { name: 2, ..held(2, 2, 20, 30) };
        assert_eq!(broken(&[outer.clone(), elsewhere]), []);
        let lost = with(held(2, 2, 20, 30), |hold| hold.until = None);
        assert_eq!(broken(&[outer, lost]), []);
    }

    // Goal: tokens that don't grow are found, and so is one that two holders got; tokens that were
    // drawn at one time may have any order.
    #[test]
    fn tokens_out_of_order_are_found() {
        let first = token(held(1, 1, 10, 20), 11, 12, 100);
        let second = |value| token(held(2, 2, 30, 40), 31, 32, value);
        assert_eq!(broken(&[first.clone(), second(101)]), []);
        assert_eq!(broken(&[first.clone(), second(100)]), [(Rule::Tokens, 1, 2)]);
        assert_eq!(broken(&[second(99), first.clone()]), [(Rule::Tokens, 1, 2)]);
        let third = token(held(3, 3, 50, 60), 51, 52, 100);
        assert_eq!(broken(&[first, second(101), third]), [(Rule::Tokens, 2, 3)]);
        let beside = |value| token(held(2, 2, 30, 40), 11, 13, value);
        let first = token(held(1, 1, 10, 20), 12, 14, 100);
        assert_eq!(broken(&[first.clone(), beside(99)]), []);
        assert_eq!(broken(&[first, beside(100)]), [(Rule::Tokens, 2, 1)]);
    }

    // Goal: a caller that overtakes another one of its process is found; one that gave up, or of
    // which it is not certain when it was granted, was not overtaken.
    #[test]
    fn callers_out_of_line_are_found() {
        let first = held(1, 1, 30, 40);
        let second = held(1, 2, 10, 20);
        assert_eq!(broken(&[first.clone(), second.clone()]), [(Rule::Line, 1, 2)]);
        assert_eq!(broken(&[held(2, 1, 30, 40), second.clone()]), []);
        let gave_up = ended(first.clone(), Outcome::TimedOut);
        assert_eq!(broken(&[gave_up, second.clone()]), []);
        let late = with(first, |hold| hold.until = None);
        assert_eq!(broken(&[late, second]), []);
    }

    // Goal: a process that came after another one had its ticket, and was granted before it, is
    // found.
    #[test]
    fn process_that_overtakes_is_found() {
        let first = queued(held(1, 1, 50, 60), 5);
        assert_eq!(broken(&[first.clone(), held(2, 6, 20, 30)]), [(Rule::Queue, 1, 6)]);
        assert_eq!(broken(&[first.clone(), held(2, 4, 20, 30)]), [], "its ticket may be smaller");
        assert_eq!(broken(&[first.clone(), held(2, 6, 70, 80)]), []);
        assert_eq!(broken(&[held(1, 1, 50, 60), held(2, 6, 20, 30)]), [], "it may have no ticket");
        let gave_up = ended(first.clone(), Outcome::TimedOut);
        assert_eq!(broken(&[gave_up, held(2, 6, 20, 30)]), []);
        let history = [first, held(2, 6, 20, 30)];
        assert_eq!(check(&history, false).0, [], "they take turns of each other");
    }

    // Goal: a process lets its own callers in before others that wait behind it; that is no fault.
    // Once it has given the lock back for certain, it queues like any other.
    #[test]
    fn turns_are_no_overtaking() {
        let first = queued(held(1, 4, 50, 60), 5);
        let joins = [held(2, 1, 2, 10), first.clone(), held(2, 6, 20, 30)];
        assert_eq!(broken(&joins), [], "its process held the lock when it came");
        let comes_back = [held(2, 1, 2, 5), first.clone(), held(2, 6, 20, 30)];
        assert_eq!(broken(&comes_back), [(Rule::Queue, 4, 6)]);
        let unknown = with(held(2, 1, 2, 5), |hold| hold.released = false);
        assert_eq!(broken(&[unknown, first.clone(), held(2, 6, 20, 30)]), []);
        let gave_up = Acquisition { caller: 2, ..ended(held(2, 2, 0, 4), Outcome::TimedOut) };
        let together = [held(2, 1, 2, 5), gave_up, first, held(2, 6, 20, 30)];
        assert_eq!(broken(&together), [], "the place may be given back late");
        let waits_behind_another =
            [held(1, 1, 10, 20), queued(held(1, 2, 50, 60), 5), held(2, 6, 25, 30)];
        assert_eq!(broken(&waits_behind_another), [], "the ticket was the other caller's");
    }
}
