//! A holder or waiter, as printed.

use std::time::{Duration, SystemTime};

use bakery_lock::{ContenderInfo, ContenderState, LockMode};
use serde_json::{Value, json};

use crate::output::{time, visible};

/// What a contender does, in a word.
pub(super) fn state(contender: &ContenderInfo) -> &'static str {
    match contender.state {
        Some(ContenderState::Holding) => "holds",
        Some(ContenderState::Waiting) => "waits",
        None => "unreadable",
    }
}

/// How a contender holds the lock, or wants to.
pub(super) fn mode(contender: &ContenderInfo) -> String {
    match contender.mode {
        Some(LockMode::Exclusive) => "exclusive".to_owned(),
        Some(LockMode::Shared) => "shared".to_owned(),
        Some(LockMode::Limited { max_holders }) => format!("one of {max_holders}"),
        // A mode that is added later.
        Some(_) | None => "?".to_owned(),
    }
}

/// Why a contender seems to be dead; `None` if it renews its rows.
pub(super) fn warning(contender: &ContenderInfo) -> Option<String> {
    let overdue = seconds(contender.overdue?);
    let remaining = seconds(contender.remaining.unwrap_or_default());
    let owner = visible(contender.owner.as_str());
    Some(format!(
        "{owner} should have renewed its rows {overdue} ago: it is dead or stopped, does not reach \
         the database, was revoked, or holds without renewal; its rows expire in {remaining}"
    ))
}

/// A contender as JSON.
pub(super) fn as_json(contender: &ContenderInfo) -> Value {
    let ContenderInfo { owner, host, client, slot, round, ticket, .. } = contender;
    let (mode, max_holders) = match contender.mode {
        Some(LockMode::Exclusive) => (Some("exclusive"), None),
        Some(LockMode::Shared) => (Some("shared"), None),
        Some(LockMode::Limited { max_holders }) => (Some("limited"), Some(max_holders)),
        Some(_) | None => (None, None),
    };
    let state = contender.state.map(|state| match state {
        ContenderState::Holding => "holding",
        ContenderState::Waiting => "waiting",
    });
    json!({
        "state": state,
        "mode": mode,
        "max_holders": max_holders,
        "owner": owner.as_str(),
        "host": owner.host_name(),
        "pid": owner.pid(),
        "label": owner.label(),
        "note": owner.note(),
        "host_number": host,
        "client": client.to_string(),
        "slot": slot,
        "round": round,
        "ticket": ticket,
        "since": contender.since().map(time),
        "held_since": contender.held_since.map(time),
        "renewed_at": contender.renewed_at.map(time),
        "remaining_seconds": contender.remaining.map(|left| left.as_secs()),
        "overdue_seconds": contender.overdue.map(|overdue| overdue.as_secs()),
    })
}

/// How long ago a time was, in words.
pub(super) fn ago(then: Option<SystemTime>, now: SystemTime) -> String {
    // A time of another machine's clock may lie ahead.
    then.map_or_else(String::new, |then| seconds(now.duration_since(then).unwrap_or_default()))
}

/// A duration in its two largest units, in whole seconds.
pub(super) fn seconds(duration: Duration) -> String {
    let total = duration.as_secs();
    let (days, hours, minutes) = (total / 86_400, total / 3_600 % 24, total / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{total}s"),
        (0, 0, _) => format!("{minutes}m{:02}s", total % 60),
        (0, ..) => format!("{hours}h{minutes:02}m"),
        _ => format!("{days}d{hours:02}h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_two_units_at_most() {
        let told = [0, 59, 60, 3_599, 3_600, 86_399, 86_400, 10_000_000];
        let told = told.map(|total| seconds(Duration::from_secs(total)));
        let expected = ["0s", "59s", "1m00s", "59m59s", "1h00m", "23h59m", "1d00h", "115d17h"];
        assert_eq!(told, expected);
    }

    #[test]
    fn time_ahead_is_now() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(100);
        assert_eq!(ago(Some(now + Duration::from_secs(1)), now), "0s");
        assert_eq!(ago(Some(now - Duration::from_secs(61)), now), "1m01s");
        assert_eq!(ago(None, now), "");
    }
}
