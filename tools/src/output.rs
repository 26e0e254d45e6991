//! Output of the tools.

use std::error::Error;
use std::io::{self, Write};
use std::time::SystemTime;

use chrono::{DateTime, SecondsFormat, Utc};

use crate::failure::Failure;

/// Writes text to standard output, at once.
///
/// # Errors
///
/// [`Failure::Output`]; [`Failure::is_broken_pipe`] when the reader has gone.
pub fn print(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).map_err(Failure::Output)
}

/// Writes a JSON value to standard output, for people too: indented, with a newline at the end.
///
/// # Errors
///
/// As for [`print()`].
pub fn print_json(value: &serde_json::Value) -> Result<(), Failure> {
    print(&format!("{value:#}\n"))
}

/// Writes a note about progress to standard error.
pub fn note(text: &str) {
    // If standard error is closed, there is no reader for the note.
    let _ = writeln!(io::stderr(), "{text}");
}

/// Writes a warning to standard error.
pub fn warn(text: &str) {
    // If standard error is closed, there is no reader for the warning.
    let _ = writeln!(io::stderr(), "warning: {text}");
}

/// Writes the details of an error to standard error.
pub(crate) fn details(lines: &str) {
    let _ = io::stderr().write_all(lines.as_bytes());
}

/// Writes an error and its causes to standard error, in one line: `tool: what: why: why`.
pub fn report(tool: &str, error: &dyn Error) {
    let _ = writeln!(io::stderr(), "{tool}: {}", chain(error));
}

/// Text from the database as it is safe to print: a character that a terminal would act on is
/// written as its escape.
#[must_use]
pub fn visible(text: &str) -> String {
    let escaped = |c: char| match c {
        c if c.is_control() => c.escape_default().to_string(),
        c => c.to_string(),
    };
    text.chars().map(escaped).collect()
}

/// A time in JSON: RFC 3339, UTC, milliseconds.
#[must_use]
pub fn time(time: SystemTime) -> String {
    DateTime::<Utc>::from(time).to_rfc3339_opts(SecondsFormat::Millis, true)
}

/// An error and its causes. Errors of the driver repeat their causes in their own text: a cause
/// that the text already contains is left out.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut said = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = lower_first(&error.to_string());
        if !said.to_lowercase().contains(&text.to_lowercase()) {
            said.push_str(": ");
            said.push_str(&text);
        }
        cause = error.source();
    }
    said
}

/// A message with its first letter in lower case: the driver's messages begin with a capital, which
/// looks odd in the middle of a line. Acronyms stay.
pub(crate) fn lower_first(text: &str) -> String {
    let mut chars = text.chars();
    match (chars.next(), chars.next()) {
        (Some(first), Some(second)) if second.is_lowercase() => {
            first.to_lowercase().chain(text.chars().skip(1)).collect()
        }
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct Layer {
        text: &'static str,
        source: Option<Box<Layer>>,
    }

    fn layers(texts: &[&'static str]) -> Layer {
        let (text, deeper) = texts.split_first().expect("there is a text");
        let source = (!deeper.is_empty()).then(|| Box::new(layers(deeper)));
        Layer { text, source }
    }

    #[test]
    fn causes_are_printed_once_and_in_lower_case() {
        let error = layers(&["can't connect", "Pool is broken: Refused", "refused", "TLS failed"]);
        assert_eq!(chain(&error), "can't connect: pool is broken: Refused: TLS failed");
    }

    #[test]
    fn terminal_does_not_act_on_names() {
        assert_eq!(visible("a\u{1b}[2Jb\n\u{9b}c"), "a\\u{1b}[2Jb\\n\\u{9b}c");
        assert_eq!(visible("Zürich 🦀 \"x\""), "Zürich 🦀 \"x\"");
    }

    #[test]
    fn times_are_printed_in_utc() {
        let moment = SystemTime::UNIX_EPOCH + Duration::from_millis(1_700_000_000_123);
        assert_eq!(time(moment), "2023-11-14T22:13:20.123Z");
    }
}
