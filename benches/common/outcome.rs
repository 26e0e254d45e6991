//! Comparisons of sides, and targets.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::quantiles::median;
use crate::record::{Record, Which};

/// A figure against which is measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    AtMost(f64),
    AtLeast(f64),
    Above(f64),
}

/// A figure or a ratio over the half rounds, and what it shall be.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    pub what: String,
    pub bound: Bound,
    /// Whether it compares two sides: then it says something about a short run, too.
    pub is_ratio: bool,
    /// The least, the median and the greatest; `None` where a side was left out.
    pub measured: Option<[f64; 3]>,
}

/// How far a ratio of a short run may be from the worst recorded one before that is no chance any
/// more.
const GROSS: f64 = 2.0;

impl Outcome {
    /// A figure of one side.
    pub fn figure(
        what: impl Into<String>,
        bound: Bound,
        records: &[Record],
        which: Which<'_>,
        path: &str,
    ) -> Self {
        let figures = which.figures(records, path).into_iter().map(|(_, figure)| figure);
        let measured = spread(&figures.collect::<Vec<_>>());
        Outcome { what: what.into(), bound, is_ratio: false, measured }
    }

    /// The ratio of two sides' figures, each within its half round.
    pub fn ratio(
        what: impl Into<String>,
        bound: Bound,
        records: &[Record],
        (which, path): (Which<'_>, &str),
        (other, other_path): (Which<'_>, &str),
    ) -> Self {
        let measured = ratio(records, (which, path), (other, other_path));
        Outcome { what: what.into(), bound, is_ratio: true, measured }
    }

    /// Whether the median is what it shall be; `None` where nothing was measured.
    pub fn is_met(&self) -> Option<bool> {
        let [_, median, _] = self.measured?;
        Some(match self.bound {
            Bound::AtMost(bound) => median <= bound,
            Bound::AtLeast(bound) => median >= bound,
            Bound::Above(bound) => median > bound,
        })
    }

    /// Whether it is a ratio that is worse than all recorded ones by more than chance explains.
    pub fn is_gross_regression_of(&self, recorded: &Outcome) -> bool {
        if !self.is_ratio {
            return false;
        }
        let (Some([_, now, _]), Some([least, _, greatest])) = (self.measured, recorded.measured)
        else {
            return false;
        };
        match self.bound {
            Bound::AtMost(_) => now > greatest * GROSS,
            Bound::AtLeast(_) | Bound::Above(_) => now * GROSS < least && least < f64::MAX,
        }
    }
}

/// The least, the median and the greatest ratio of two sides' figures, each within its half round;
/// `None` where a side was left out.
pub fn ratio(
    records: &[Record],
    (which, path): (Which<'_>, &str),
    (other, other_path): (Which<'_>, &str),
) -> Option<[f64; 3]> {
    let others = other.figures(records, other_path);
    let ratios = which.figures(records, path).into_iter().filter_map(|(half, figure)| {
        let (_, other) = others.iter().find(|(other_half, _)| *other_half == half)?;
        // A side that gets nothing done is outdone by any factor.
        Some(if *other == 0.0 && figure > 0.0 { f64::MAX } else { figure / other })
    });
    let ratios: Vec<_> = ratios.filter(|ratio| !ratio.is_nan()).collect();
    spread(&ratios)
}

fn spread(figures: &[f64]) -> Option<[f64; 3]> {
    let least = figures.iter().copied().min_by(f64::total_cmp)?;
    let greatest = figures.iter().copied().max_by(f64::total_cmp)?;
    Some([least, median(figures), greatest])
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Bound::AtMost(bound) => write!(f, "at most {bound}"),
            Bound::AtLeast(bound) => write!(f, "at least {bound}"),
            Bound::Above(bound) => write!(f, "above {bound}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records() -> Vec<Record> {
        let mut records = Vec::new();
        for (half, side, handoffs) in
            [(0, "ours", 10.0), (1, "ours", 40.0), (0, "v1", 5.0), (1, "v2", 10.0), (2, "v1", 1.0)]
        {
            let mut record = Record::new(half, side, "hot name", None);
            record.number("handoffs", handoffs);
            records.push(record);
        }
        records
    }

    fn side(side: &str) -> Which<'_> {
        Which { side, measure: "hot name", parameter: None }
    }

    fn ratio(other: &str, bound: Bound) -> Outcome {
        let ours = (side("ours"), "handoffs");
        Outcome::ratio("it", bound, &records(), ours, (side(other), "handoffs"))
    }

    // Goal: ratios are taken within half rounds, and sides that were left out are no miss.
    // Method: made-up records.
    #[test]
    fn ratios_are_within_half_rounds() {
        let v1 = ratio("v1", Bound::AtLeast(2.0));
        assert_eq!((v1.measured, v1.is_met()), (Some([2.0; 3]), Some(true)));
        let v2 = ratio("v2", Bound::Above(4.0));
        assert_eq!((v2.measured, v2.is_met()), (Some([4.0; 3]), Some(false)));
        let none = ratio("etcd", Bound::AtMost(1.0));
        assert_eq!((none.measured, none.is_met()), (None, None));
        let ours = side("ours");
        let figure = Outcome::figure("it", Bound::AtMost(25.0), &records(), ours, "handoffs");
        assert_eq!((figure.measured, figure.is_met()), (Some([10.0, 25.0, 40.0]), Some(true)));
    }

    // Goal: only a ratio that is worse by more than the factor is a gross regression, in the
    // direction of the bound.
    // Method: made-up outcomes.
    #[test]
    fn gross_regressions_are_found() {
        let outcome = |bound, it| Outcome {
            what: "it".to_owned(),
            bound,
            is_ratio: true,
            measured: Some([it, it, it]),
        };
        let (least, most) = (Bound::AtLeast(1.0), Bound::AtMost(1.0));
        let regressed =
            |bound, now, then| outcome(bound, now).is_gross_regression_of(&outcome(bound, then));
        assert!(regressed(least, 4.9, 10.0) && !regressed(least, 5.1, 10.0));
        assert!(!regressed(least, 100.0, 10.0));
        assert!(regressed(most, 2.1, 1.0) && !regressed(most, 1.9, 1.0));
        assert!(!regressed(most, 0.1, 1.0) && !regressed(most, 0.0, 0.0));
        let varied = |bound| Outcome { measured: Some([1.0, 3.0, 9.0]), ..outcome(bound, 0.0) };
        let from_varied = |bound, now| outcome(bound, now).is_gross_regression_of(&varied(bound));
        assert!(from_varied(least, 0.4) && !from_varied(least, 0.6));
        assert!(from_varied(most, 19.0) && !from_varied(most, 17.0));
        let figure = Outcome { is_ratio: false, ..outcome(most, 9.0) };
        assert!(!figure.is_gross_regression_of(&outcome(most, 1.0)));
        let unmeasured = Outcome { measured: None, ..outcome(least, 0.0) };
        assert!(!unmeasured.is_gross_regression_of(&outcome(least, 1.0)));
    }
}
