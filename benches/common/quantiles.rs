//! Durations, summed up.

use serde::{Deserialize, Serialize};

/// Quantiles of durations, in the unit of the name under which they are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Quantiles {
    pub count: u64,
    pub p50: f64,
    pub p99: f64,
    pub p999: f64,
    pub max: f64,
}

impl Quantiles {
    /// Of durations in nanoseconds, in milliseconds. All are 0 where there are none.
    pub fn milliseconds(mut nanoseconds: Vec<u64>) -> Self {
        nanoseconds.sort_unstable();
        let at = |quantile| at(&nanoseconds, quantile) as f64 / 1e6;
        let count = nanoseconds.len() as u64;
        Quantiles { count, p50: at(0.5), p99: at(0.99), p999: at(0.999), max: at(1.0) }
    }
}

/// The smallest value that is not below so great a share of all, which are in order.
fn at(sorted: &[u64], quantile: f64) -> u64 {
    // Lists of durations are far shorter than 2^52, and quantiles are between 0 and 1.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let rank = (sorted.len() as f64 * quantile).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0)
}

/// The median of a few figures; of an even number of them the mean of the middle two.
pub fn median(figures: &[f64]) -> f64 {
    let mut figures = figures.to_vec();
    figures.sort_by(f64::total_cmp);
    let half = figures.len() / 2;
    match figures.len() {
        0 => f64::NAN,
        length if length.is_multiple_of(2) => f64::midpoint(figures[half - 1], figures[half]),
        _ => figures[half],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: quantiles are values that occurred, by their rank.
    // Method: a thousand durations, in any order; a single one; none.
    #[test]
    fn quantiles_are_taken_by_rank() {
        let durations: Vec<_> = (1..=1_000).rev().map(|ms| ms * 1_000_000).collect();
        let expected =
            Quantiles { count: 1_000, p50: 500.0, p99: 990.0, p999: 999.0, max: 1_000.0 };
        assert_eq!(Quantiles::milliseconds(durations), expected);
        let one = Quantiles { count: 1, p50: 2.0, p99: 2.0, p999: 2.0, max: 2.0 };
        assert_eq!(Quantiles::milliseconds(vec![2_000_000]), one);
        assert_eq!(Quantiles::milliseconds(Vec::new()), Quantiles::default());
    }

    // Goal: a median is the middle one, or the mean of the middle two.
    // Method: made-up figures.
    #[test]
    fn medians_are_in_the_middle() {
        assert!((median(&[3.0, 1.0, 2.0]) - 2.0).abs() < f64::EPSILON);
        assert!((median(&[4.0, 1.0, 2.0, 3.0]) - 2.5).abs() < f64::EPSILON);
        assert!(median(&[]).is_nan());
    }
}
