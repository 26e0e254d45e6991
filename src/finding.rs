//! Findings of checks, in words.

use std::fmt;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Severity {
    /// No problem.
    Ok,
    /// Locks work, but slower than they could, or on a condition that the advice names.
    Warning,
    /// Locks don't work, or might admit two holders.
    Error,
}

/// One result of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// What was checked.
    pub subject: String,
    /// What was found.
    pub found: String,
    /// What to do; `None` if there is no problem.
    pub advice: Option<String>,
}

impl Finding {
    pub(crate) fn ok(subject: impl Into<String>, found: impl Into<String>) -> Self {
        let (subject, found) = (subject.into(), found.into());
        Finding { severity: Severity::Ok, subject, found, advice: None }
    }

    pub(crate) fn warning(
        subject: impl Into<String>,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        let advice = Some(advice.into());
        Finding { severity: Severity::Warning, advice, ..Self::ok(subject, found) }
    }

    pub(crate) fn error(
        subject: impl Into<String>,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Finding { severity: Severity::Error, ..Self::warning(subject, found, advice) }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.subject, self.found)?;
        match &self.advice {
            Some(advice) => write!(f, "; {advice}"),
            None => Ok(()),
        }
    }
}

/// Joined findings, for an error message.
pub(crate) struct Joined<'a>(pub(crate) &'a [Finding]);

impl fmt::Display for Joined<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, finding) in self.0.iter().enumerate() {
            write!(f, "{}{finding}", if index == 0 { "" } else { " | " })?;
        }
        Ok(())
    }
}
