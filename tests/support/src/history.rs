//! What happened during a run, as told by the clients that took the lock, and what must hold of it.
//!
//! Times are nanoseconds of a clock that all of them share. Each is noted on the side on which it
//! can't hide a fault: too late for the beginning of something that must come later, too early for
//! the end of something that must come earlier.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Something that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// A caller had the lock, from its guard to just before its release.
    Held { from: u64, until: u64 },
    /// A contender went through a round.
    Round(Round),
    /// A contender had a place, and gave turns of it.
    Place(Place),
}

/// A place in the table, whose keeper gives turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Since when it was held.
    pub held: u64,
    /// When the last turn was given.
    pub last_turn: u64,
    /// How long after its keeper knew that another contender waits in the table, by the clock by
    /// which the keeper decides; zero if it did not know.
    pub beside: u64,
}

/// A contender's try to get in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Round {
    /// Just before its announcement was sent.
    pub announced: u64,
    /// Once its ticket was acknowledged, if it drew one.
    pub drawn: Option<u64>,
    /// How it ended.
    pub end: End,
}

/// How a round ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The contender was let in.
    Granted(u64),
    /// It gave up.
    GaveUp(u64),
}

/// A fencing token that a client drew while it held the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drawn {
    /// Just before it was asked for.
    pub asked: u64,
    /// Once it was there.
    pub given: u64,
    pub value: i64,
}

/// Two clients that held the lock at the same time, if there were any.
pub fn overlap(moments: &[Moment]) -> Option<[(u64, u64); 2]> {
    let held = held(moments);
    // A later hold may end earlier, so each is compared with the longest one before it.
    let mut longest: Option<(u64, u64)> = None;
    for next in held {
        match longest {
            Some(before) if next.0 < before.1 => return Some([before, next]),
            Some(before) if next.1 <= before.1 => {}
            Some(_) | None => longest = Some(next),
        }
    }
    None
}

/// One of each kind that held the lock at the same time, if there were such.
pub fn overlap_between(one: &[Moment], other: &[Moment]) -> Option<[(u64, u64); 2]> {
    let other = held(other);
    // The one that ends last of each and those before it.
    let last = other.iter().scan(None, |last: &mut Option<(u64, u64)>, next| {
        *last = last.filter(|last| last.1 >= next.1).or(Some(*next));
        *last
    });
    let last: Vec<_> = last.collect();
    held(one).into_iter().find_map(|one| {
        let begun = other.partition_point(|other| other.0 < one.1);
        let last = last[..begun].last().filter(|last| last.1 > one.0)?;
        Some([one, *last])
    })
}

/// How many held the lock at once, at most, and on average from the first grant until some time.
pub fn inside(moments: &[Moment], until: u64) -> (usize, f64) {
    let held = held(moments).into_iter().map(|(from, end)| (from, until.min(end)));
    let held: Vec<_> = held.filter(|(from, end)| from < end).collect();
    // One that ends as another one begins is not beside it.
    let begins = held.iter().map(|(from, _)| (*from, true));
    let mut changes: Vec<_> = begins.chain(held.iter().map(|(_, end)| (*end, false))).collect();
    changes.sort_unstable();
    let (mut now, mut most) = (0_usize, 0);
    for (_, begins) in &changes {
        now = if *begins { now + 1 } else { now - 1 };
        most = most.max(now);
    }
    let period = changes.first().zip(changes.last()).map_or(0, |(first, last)| last.0 - first.0);
    let time: u64 = held.iter().map(|(from, end)| end - from).sum();
    (most, time as f64 / period.max(1) as f64)
}

/// A client that announced itself after another one's ticket was acknowledged, and was let in
/// before that other client was let in or gave up, if there was any.
pub fn overtaking(moments: &[Moment]) -> Option<[Round; 2]> {
    let rounds = rounds(moments);
    overtaking_of(&rounds, &rounds)
}

/// One of `waiting` that one of `newcomers` overtook, and that one, if there was any.
pub fn overtaking_of(waiting: &[Round], newcomers: &[Round]) -> Option<[Round; 2]> {
    // By the time of drawing: the latest end of all rounds that drew up to then.
    let mut drawn: Vec<_> =
        waiting.iter().filter_map(|round| Some((round.drawn?, *round))).collect();
    drawn.sort_unstable_by_key(|(drawn, _)| *drawn);
    let mut latest = BTreeMap::<u64, Round>::new();
    let mut last = None::<Round>;
    for (drawn, round) in drawn {
        let later = last.filter(|last| last.end.time() > round.end.time()).unwrap_or(round);
        last = Some(later);
        latest.insert(drawn, later);
    }
    newcomers.iter().find_map(|round| {
        let End::Granted(granted) = round.end else {
            return None;
        };
        let (_, before) = latest.range(..round.announced).next_back()?;
        (before.end.time() > granted).then_some([*before, *round])
    })
}

/// A place whose last turn was given more than `limit` after its keeper knew that another contender
/// waits in the table, if there was any.
pub fn lingering(moments: &[Moment], limit: Duration) -> Option<Place> {
    let limit = u64::try_from(limit.as_nanos()).expect("a limit is short");
    places(moments).into_iter().find(|place| place.beside > limit)
}

/// For how long, at most, turns of a place were given while a contender with a ticket waited in the
/// table: from the first turn after its ticket to the last one.
pub fn overtaken(moments: &[Moment]) -> Duration {
    let begins: Vec<_> = held(moments).into_iter().map(|(from, _)| from).collect();
    let mut places = places(moments);
    // One after the other: at most one is held at a time.
    places.sort_unstable_by_key(|place| place.held);
    let mut longest = 0;
    for round in rounds(moments) {
        let Some(drawn) = round.drawn else {
            continue;
        };
        let first = places.partition_point(|place| place.last_turn <= drawn);
        let ahead = places[first..].iter().take_while(|place| place.held < round.end.time());
        for place in ahead {
            // What was held before it had its ticket is no turn that overtakes it.
            let first = begins.partition_point(|begin| *begin <= place.held.max(drawn));
            let last_turn = place.last_turn.min(round.end.time());
            let first_turn = begins.get(first).copied().unwrap_or(last_turn);
            longest = longest.max(last_turn.saturating_sub(first_turn));
        }
    }
    Duration::from_nanos(longest)
}

/// A token that was there before another one was asked for, and is not below it, if there was
/// such.
pub fn disorder(tokens: &[Drawn]) -> Option<[Drawn; 2]> {
    let mut given = tokens.to_vec();
    given.sort_unstable_by_key(|token| token.given);
    let mut asked = tokens.to_vec();
    asked.sort_unstable_by_key(|token| token.asked);
    let mut given = given.into_iter().peekable();
    let mut largest = None::<Drawn>;
    for token in asked {
        // Its own is not among them: what is asked for is given later.
        while let Some(before) = given.next_if(|before| before.given <= token.asked) {
            largest = largest.filter(|largest| largest.value >= before.value).or(Some(before));
        }
        if let Some(largest) = largest.filter(|largest| largest.value >= token.value) {
            return Some([largest, token]);
        }
    }
    None
}

/// From when until when callers had the lock, the first one first.
fn held(moments: &[Moment]) -> Vec<(u64, u64)> {
    let held = moments.iter().filter_map(|moment| match moment {
        Moment::Held { from, until } => Some((*from, *until)),
        Moment::Round(_) | Moment::Place(_) => None,
    });
    let mut held: Vec<_> = held.collect();
    held.sort_unstable();
    held
}

fn places(moments: &[Moment]) -> Vec<Place> {
    let places = moments.iter().filter_map(|moment| match moment {
        Moment::Place(place) => Some(*place),
        Moment::Held { .. } | Moment::Round(_) => None,
    });
    places.collect()
}

/// The rounds of a history.
pub fn rounds(moments: &[Moment]) -> Vec<Round> {
    let rounds = moments.iter().filter_map(|moment| match moment {
        Moment::Round(round) => Some(*round),
        Moment::Held { .. } | Moment::Place(_) => None,
    });
    rounds.collect()
}

impl Moment {
    /// When it began.
    pub fn first(&self) -> u64 {
        match self {
            Moment::Held { from, .. } => *from,
            Moment::Round(round) => round.announced,
            Moment::Place(place) => place.held,
        }
    }

    /// When it ended.
    pub fn last(&self) -> u64 {
        match self {
            Moment::Held { until, .. } => *until,
            Moment::Round(round) => round.end.time(),
            Moment::Place(place) => place.last_turn,
        }
    }
}

impl End {
    /// When that was.
    pub fn time(self) -> u64 {
        match self {
            End::Granted(time) | End::GaveUp(time) => time,
        }
    }
}

/// As a line between processes.
impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Moment::Held { from, until } => write!(f, "held {from} {until}"),
            Moment::Round(Round { announced, drawn, end }) => {
                // No moment is at zero.
                let drawn = drawn.unwrap_or(0);
                match end {
                    End::Granted(time) => write!(f, "granted {announced} {drawn} {time}"),
                    End::GaveUp(time) => write!(f, "gave-up {announced} {drawn} {time}"),
                }
            }
            Moment::Place(Place { held, last_turn, beside }) => {
                write!(f, "place {held} {last_turn} {beside}")
            }
        }
    }
}

impl FromStr for Moment {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let mut words = line.split_whitespace();
        let what = words.next().unwrap_or_default();
        let times: Result<Vec<u64>, _> = words.map(str::parse).collect();
        let round = |announced, drawn, end| {
            let drawn = Some(drawn).filter(|drawn| *drawn != 0);
            Moment::Round(Round { announced, drawn, end })
        };
        match (what, times.as_deref()) {
            ("held", Ok(&[from, until])) => Ok(Moment::Held { from, until }),
            ("granted", Ok(&[announced, drawn, time])) => {
                Ok(round(announced, drawn, End::Granted(time)))
            }
            ("gave-up", Ok(&[announced, drawn, time])) => {
                Ok(round(announced, drawn, End::GaveUp(time)))
            }
            ("place", Ok(&[held, last_turn, beside])) => {
                Ok(Moment::Place(Place { held, last_turn, beside }))
            }
            _ => Err(format!("not a moment: {line:?}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(from: u64, until: u64) -> Moment {
        Moment::Held { from, until }
    }

    fn round(announced: u64, drawn: Option<u64>, end: End) -> Moment {
        Moment::Round(Round { announced, drawn, end })
    }

    // Goal: the overlap checker finds two holders, also when one holds during all of the other's
    // time, and takes neighbours for what they are.
    // Method: made-up histories.
    #[test]
    fn two_holders_are_found() {
        assert_eq!(overlap(&[held(5, 7), held(1, 2), held(2, 5)]), None);
        assert_eq!(overlap(&[held(1, 3), held(2, 5)]), Some([(1, 3), (2, 5)]));
        assert_eq!(overlap(&[held(1, 9), held(2, 3)]), Some([(1, 9), (2, 3)]));
        assert_eq!(overlap(&[held(4, 9), held(1, 4), held(8, 8)]), Some([(4, 9), (8, 8)]));
    }

    // Goal: one of a kind is found that holds together with one of another kind, and none of the
    // same kind.
    // Method: made-up histories.
    #[test]
    fn two_of_different_kinds_are_found() {
        let readers = [held(1, 9), held(2, 3), held(12, 15)];
        assert_eq!(overlap_between(&[held(9, 12), held(15, 16)], &readers), None);
        assert_eq!(overlap_between(&[held(4, 5)], &readers), Some([(4, 5), (1, 9)]));
        assert_eq!(overlap_between(&readers, &[held(4, 5)]), Some([(1, 9), (4, 5)]));
        assert_eq!(overlap_between(&[held(9, 13)], &readers), Some([(9, 13), (12, 15)]));
        assert_eq!(overlap_between(&readers, &[]), None);
    }

    // Goal: those inside at once are counted, and a hold that begins as another one ends is not
    // beside it.
    // Method: made-up histories.
    #[test]
    fn holders_are_counted() {
        assert_eq!(inside(&[], 10), (0, 0.0));
        assert_eq!(inside(&[held(1, 3), held(3, 5)], 10), (1, 1.0));
        assert_eq!(inside(&[held(1, 5), held(2, 4), held(3, 9)], 10), (3, 1.5));
        assert_eq!(inside(&[held(1, 5), held(2, 4), held(3, 9)], 3), (2, 1.5));
    }

    // Goal: the order checker finds the client that overtook, and no other.
    // Method: made-up histories.
    #[test]
    fn overtaking_is_found() {
        let first = round(1, Some(3), End::Granted(20));
        let together = round(2, Some(4), End::Granted(10));
        let later = round(5, Some(6), End::Granted(30));
        assert_eq!(overtaking(&[first, together, later]), None);
        let overtaker = round(5, Some(6), End::Granted(15));
        let expected = rounds(&[first, overtaker]);
        assert_eq!(overtaking(&[together, first, overtaker]).map(Vec::from), Some(expected));
        let fast_path = round(5, None, End::Granted(15));
        assert!(overtaking(&[first, fast_path]).is_some());
        let gave_up = round(1, Some(3), End::GaveUp(14));
        assert_eq!(overtaking(&[gave_up, overtaker]), None);
        let gave_up_later = round(1, Some(3), End::GaveUp(16));
        assert!(overtaking(&[gave_up_later, overtaker]).is_some());
        let left = round(5, Some(6), End::GaveUp(7));
        assert_eq!(overtaking(&[first, left]), None);
    }

    // Goal: a keeper that gives turns for too long beside others is found, and so is the longest
    // time for which a contender in the table was overtaken by turns.
    // Method: made-up histories.
    #[test]
    fn turns_beside_others_are_measured() {
        let with = |beside| Moment::Place(Place { held: 1, last_turn: 9, beside });
        let lingers = |moment| lingering(&[moment], Duration::from_nanos(3)).is_some();
        assert!(!lingers(with(0)) && !lingers(with(3)));
        assert!(lingers(with(4)));
        let place = |held, last_turn| Moment::Place(Place { held, last_turn, beside: 0 });
        let waits = round(4, Some(10), End::Granted(30));
        let turns = [held(2, 11), held(12, 13), held(14, 15), held(17, 18), held(20, 29)];
        let after = |place| overtaken(&[&turns[..], &[place, waits]].concat()).as_nanos();
        assert_eq!(after(place(1, 9)), 0);
        assert_eq!(after(place(1, 11)), 0);
        assert_eq!(after(place(1, 14)), 2);
        assert_eq!(after(place(16, 20)), 3);
        assert_eq!(after(place(31, 40)), 0);
        let none = round(4, None, End::Granted(30));
        assert_eq!(overtaken(&[none, place(5, 20)]), Duration::ZERO);
    }

    // Goal: tokens that don't grow are found, and tokens that were drawn together are left alone.
    // Method: made-up tokens.
    #[test]
    fn tokens_that_do_not_grow_are_found() {
        let token = |asked, given, value| Drawn { asked, given, value };
        let found = |tokens: &[Drawn]| disorder(tokens).map(|found| found.map(|t| t.value));
        assert_eq!(found(&[token(1, 2, 10), token(2, 4, 11), token(1, 5, 9)]), None);
        assert_eq!(found(&[token(1, 4, 12), token(2, 3, 11)]), None);
        assert_eq!(found(&[token(2, 4, 10), token(1, 2, 10)]), Some([10, 10]));
        let hidden = [token(1, 2, 10), token(1, 3, 12), token(3, 4, 13), token(4, 5, 11)];
        assert_eq!(found(&hidden), Some([13, 11]));
    }

    // Goal: a history survives its way between processes.
    // Method: there and back.
    #[test]
    fn moments_survive_as_lines() {
        let place = Moment::Place(Place { held: 1, last_turn: 3, beside: 2 });
        for moment in
            [held(1, 2), round(1, None, End::Granted(3)), round(1, Some(2), End::GaveUp(3)), place]
        {
            assert_eq!(moment.to_string().parse(), Ok(moment));
        }
        assert!("held 1".parse::<Moment>().is_err());
    }
}
