//! What contenders got who wanted one lock.

use serde::{Deserialize, Serialize};

/// When a lock was asked for, granted and about to be released, by the clock that all processes
/// share, in nanoseconds. In this order, so that a million of them are short as JSON.
pub type Hold = [u64; 3];

/// What one contender got.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Served {
    pub holds: Vec<Hold>,
    /// How long it had waited in vain when the time was over, in nanoseconds.
    pub waited: u64,
    pub errors: Vec<String>,
}

/// What all contenders got, by the order of the grants.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Contest {
    /// How often each contender got the lock.
    pub grants: Vec<u64>,
    /// How often the lock went from one contender to another.
    pub handoffs: u64,
    /// How long that took: from one that is about to unlock to the other's grant, in nanoseconds.
    pub gaps: Vec<u64>,
    /// How long they waited. A contender that still waited at the end counts with its wait until
    /// then.
    pub waits: Vec<u64>,
    /// Grants while an earlier holder had not begun to release.
    pub overlaps: u64,
}

impl Contest {
    /// Puts together what contenders of one lock saw.
    pub fn of(served: &[Served]) -> Self {
        let mut contest = Contest::default();
        let mut holds = Vec::new();
        for (contender, served) in served.iter().enumerate() {
            contest.grants.push(served.holds.len() as u64);
            contest.waits.extend(served.holds.iter().map(|[asked, granted, _]| granted - asked));
            contest.waits.extend(Some(served.waited).filter(|waited| *waited > 0));
            holds.extend(served.holds.iter().map(|[_, from, until]| (*from, *until, contender)));
        }
        holds.sort_unstable();
        // The holder that releases last of those before.
        let mut last: Option<(u64, usize)> = None;
        for (granted, released, contender) in holds {
            if let Some((until, before)) = last {
                contest.overlaps += u64::from(granted < until);
                if before != contender {
                    contest.handoffs += 1;
                    contest.gaps.push(granted.saturating_sub(until));
                }
            }
            last = last.filter(|(until, _)| *until > released).or(Some((released, contender)));
        }
        contest
    }

    /// All grants.
    pub fn total(&self) -> u64 {
        self.grants.iter().sum()
    }

    /// The grants of the worst-served contender, of the mean; 0 where there were none at all.
    pub fn worst_share(&self) -> f64 {
        let worst = self.grants.iter().copied().min().unwrap_or(0);
        let mean = self.total() as f64 / self.grants.len() as f64;
        if worst == 0 { 0.0 } else { worst as f64 / mean }
    }

    /// Jain's index of fairness: 1 where all got the same, and 1/n where one of n got all.
    pub fn jain(&self) -> f64 {
        let squares: f64 = self.grants.iter().map(|grants| (*grants as f64).powi(2)).sum();
        let square = (self.total() as f64).powi(2);
        if square == 0.0 { 0.0 } else { square / (self.grants.len() as f64 * squares) }
    }
}

/// The time from a moment to the first grant after it, and the longest time without any holder
/// between it and the end.
pub fn gaps_after(served: &[Served], moment: u64, ends: u64) -> (Option<u64>, u64) {
    let mut holds: Vec<_> = served
        .iter()
        .flat_map(|served| &served.holds)
        .map(|[_, from, until]| (*from, *until))
        .collect();
    holds.sort_unstable();
    let first = holds.iter().find(|(granted, _)| *granted >= moment);
    let first = first.map(|(granted, _)| granted - moment);
    let (mut free, mut longest) = (moment, 0);
    for (granted, released) in holds {
        if granted >= moment {
            longest = longest.max(granted.saturating_sub(free));
        }
        free = free.max(released);
    }
    (first, longest.max(ends.saturating_sub(free)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(holds: &[Hold]) -> Served {
        Served { holds: holds.to_vec(), ..Served::default() }
    }

    // Goal: handoffs, their gaps and waits are those between different contenders, in the order of
    // the grants.
    // Method: two contenders, one of which takes the lock twice in a row.
    #[test]
    fn handoffs_are_between_contenders() {
        let waits = Served { waited: 7, ..served(&[[0, 20, 30], [30, 31, 40]]) };
        let contest = Contest::of(&[served(&[[0, 1, 10]]), waits]);
        assert_eq!(contest.grants, [1, 2]);
        assert_eq!((contest.handoffs, contest.gaps), (1, vec![10]));
        assert_eq!(contest.waits, [1, 20, 1, 7]);
        assert_eq!(contest.overlaps, 0);
    }

    // Goal: each grant beside an earlier holder counts, also behind a shorter hold, and neighbours
    // don't.
    // Method: made-up holds.
    #[test]
    fn overlaps_are_counted() {
        let overlaps = |holds: &[Hold]| Contest::of(&holds.map_to_served()).overlaps;
        assert_eq!(overlaps(&[[0, 1, 2], [0, 2, 5], [0, 5, 7]]), 0);
        assert_eq!(overlaps(&[[0, 1, 3], [0, 2, 5]]), 1);
        assert_eq!(overlaps(&[[0, 1, 9], [0, 2, 3], [0, 4, 5]]), 2);
    }

    trait MapToServed {
        fn map_to_served(&self) -> Vec<Served>;
    }

    impl MapToServed for [Hold] {
        fn map_to_served(&self) -> Vec<Served> {
            self.iter().map(|hold| served(&[*hold])).collect()
        }
    }

    // Goal: both figures of fairness are 1 for equals, and small where one gets nearly all.
    // Method: made-up grants.
    #[test]
    fn fairness_is_measured() {
        let of = |grants: &[u64]| Contest { grants: grants.to_vec(), ..Contest::default() };
        let close = |a: f64, b: f64| (a - b).abs() < 1e-9;
        assert!(close(of(&[5, 5, 5]).jain(), 1.0) && close(of(&[5, 5, 5]).worst_share(), 1.0));
        assert!(close(of(&[9, 0, 0]).jain(), 1.0 / 3.0) && close(of(&[9, 0]).worst_share(), 0.0));
        assert!(close(of(&[3, 1]).jain(), 0.8) && close(of(&[3, 1]).worst_share(), 0.5));
        assert!(close(of(&[0, 0]).jain(), 0.0));
    }

    // Goal: the first grant after a moment and the longest time without a holder are found.
    // Method: made-up holds, one of which is held while the moment passes.
    #[test]
    fn gaps_after_a_moment_are_found() {
        let all = [served(&[[0, 1, 10], [0, 25, 26]]), served(&[[0, 12, 13]])];
        assert_eq!(gaps_after(&all, 5, 30), (Some(7), 12));
        assert_eq!(gaps_after(&all, 11, 30), (Some(1), 12));
        assert_eq!(gaps_after(&all, 20, 30), (Some(5), 5));
        assert_eq!(gaps_after(&all, 20, 40), (Some(5), 14));
        assert_eq!(gaps_after(&all, 26, 30), (None, 4));
    }
}
