//! Values of options.

use std::time::Duration;

use bakery_lock::InvalidOption;
use bakery_lock::admin::{ParseDurationError, check_name, parse_duration};
use bakery_lock::hosts::UNSEEN_MIN;

/// Parses a duration: `20`, `20s`, `500ms` or `2m`.
///
/// # Errors
///
/// The message names the valid forms.
pub fn duration(text: &str) -> Result<Duration, ParseDurationError> {
    parse_duration(text)
}

/// Parses a time for which hosts were not seen: `30d`, `48h` or `4w`.
///
/// # Errors
///
/// The message names the valid forms, and the shortest time.
pub fn inactive_for(text: &str) -> Result<Duration, String> {
    const FORMS: &str = "use a number with a unit: 30d, 48h, 4w";
    let unit = text.chars().next_back().ok_or(FORMS)?;
    let number: u64 = text[..text.len() - unit.len_utf8()].parse().map_err(|_| FORMS)?;
    let hours = match unit {
        'h' => 1,
        'd' => 24,
        'w' => 7 * 24,
        _ => return Err(FORMS.to_owned()),
    };
    let seconds = number.checked_mul(hours * 60 * 60).ok_or("that is too long")?;
    match Duration::from_secs(seconds) {
        time if time < UNSEEN_MIN => {
            Err("use 2d or more: a host that is in use is seen once a day".to_owned())
        }
        time => Ok(time),
    }
}

/// Parses the name of a lock: 1 to 65,535 bytes.
///
/// # Errors
///
/// The message names the problem.
pub fn lock_name(text: &str) -> Result<String, InvalidOption> {
    check_name(text).map(|()| text.to_owned())
}

/// Parses a timeout: a duration that is not zero.
///
/// # Errors
///
/// The message names the problem.
pub fn timeout(text: &str) -> Result<Duration, String> {
    match duration(text).map_err(|error| error.to_string())? {
        Duration::ZERO => Err("a timeout of zero leaves no time to do anything".to_owned()),
        timeout => Ok(timeout),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeout_leaves_time() {
        assert!(timeout("0ms").is_err() && timeout("1ms").is_ok());
    }

    #[test]
    fn hosts_are_unseen_for_days() {
        let days = |days: u64| Ok(Duration::from_secs(days * 24 * 60 * 60));
        assert_eq!(["30d", "48h", "4w"].map(inactive_for), [30, 2, 28].map(days));
        for text in ["", "d", "30", "30m", "-1d", "1.5d", "30 d", "3é", "30D"] {
            let error = inactive_for(text).expect_err("the form is not valid");
            assert!(error.contains("30d, 48h, 4w"), "{text}: {error}");
        }
        for text in ["0d", "1d", "47h"] {
            let error = inactive_for(text).expect_err("the time is too short");
            assert!(error.contains("seen once a day"), "{text}: {error}");
        }
        assert_eq!(inactive_for("18446744073709551615w"), Err("that is too long".to_owned()));
    }
}
