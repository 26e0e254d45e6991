//! Durations as text, for the command line, the environment and files.

use std::time::Duration;

use thiserror::Error;

/// Reads a duration: `20`, `20s`, `500ms` or `2m`. Without a unit it is in seconds.
///
/// # Errors
///
/// [`ParseDurationError`] names the valid forms.
pub fn parse_duration(text: &str) -> Result<Duration, ParseDurationError> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: u64 = digits.parse().map_err(|_| ParseDurationError::Form)?;
    match &text[digits.len()..] {
        "" | "s" => Ok(Duration::from_secs(number)),
        "ms" => Ok(Duration::from_millis(number)),
        "m" => number.checked_mul(60).map(Duration::from_secs).ok_or(ParseDurationError::TooLong),
        _ => Err(ParseDurationError::Form),
    }
}

/// Why a text is no duration.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ParseDurationError {
    /// It has another form.
    #[error("use a number of seconds, or a number with a unit: 20s, 500ms, 2m")]
    Form,
    /// There are too many minutes.
    #[error("that is too long")]
    TooLong,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units() {
        let ms = Duration::from_millis;
        let parsed = ["20", "20s", "500ms", "2m", "0"].map(parse_duration);
        assert_eq!(parsed, [20_000, 20_000, 500, 120_000, 0].map(|millis| Ok(ms(millis))));
        for text in ["", "s", "2h", "-1", "1.5s", "1 s", "é"] {
            assert_eq!(parse_duration(text), Err(ParseDurationError::Form), "{text}");
        }
        assert_eq!(parse_duration("18446744073709551615m"), Err(ParseDurationError::TooLong));
    }
}
