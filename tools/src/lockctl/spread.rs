//! How long something took, each time.

/// The times, the shortest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Spread(Vec<u64>);

impl Spread {
    /// Of times in nanoseconds.
    pub(super) fn new(times: impl IntoIterator<Item = u64>) -> Self {
        let mut times: Vec<_> = times.into_iter().collect();
        times.sort_unstable();
        Spread(times)
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    /// The time that this many of a thousand don't exceed, in milliseconds; `None` of no times.
    pub(super) fn per_mille(&self, share: usize) -> Option<f64> {
        let rank = (self.0.len() * share).div_ceil(1000).max(1);
        self.0.get(rank - 1).map(|nanos| *nanos as f64 / 1e6)
    }

    pub(super) fn median(&self) -> Option<f64> {
        self.per_mille(500)
    }

    pub(super) fn p99(&self) -> Option<f64> {
        self.per_mille(990)
    }

    pub(super) fn max(&self) -> Option<f64> {
        self.per_mille(1000)
    }
}

/// A time in milliseconds with three digits or so, for people.
pub(super) fn millis(time: Option<f64>) -> String {
    match time {
        None => "-".to_owned(),
        Some(time) if time < 10.0 => format!("{time:.2} ms"),
        Some(time) if time < 100.0 => format!("{time:.1} ms"),
        Some(time) => format!("{time:.0} ms"),
    }
}

/// The same for programs: whole microseconds.
pub(super) fn rounded(time: Option<f64>) -> Option<f64> {
    time.map(|time| (time * 1000.0).round() / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_those_of_the_nearest_rank() {
        let spread = Spread::new((1..=200).rev().map(|millis| millis * 1_000_000));
        let told = [spread.median(), spread.p99(), spread.max()];
        assert_eq!(told, [Some(100.0), Some(198.0), Some(200.0)]);
        assert_eq!(Spread::new([7_000_000]).median(), Some(7.0));
        assert_eq!(Spread::default().max(), None);
    }

    #[test]
    fn times_have_three_digits() {
        let told = [Some(1.234_56), Some(12.345), Some(1234.5), None].map(millis);
        assert_eq!(told, ["1.23 ms", "12.3 ms", "1234 ms", "-"]);
        assert_eq!(rounded(Some(1.234_56)), Some(1.235));
    }
}
