//! What a check has found.

use crate::finding::{Finding, Severity};

/// What a check has found.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Each thing that was looked at, in the order in which it was.
    pub findings: Vec<Finding>,
}

impl Report {
    /// The worst severity among the findings.
    #[must_use]
    pub fn worst(&self) -> Severity {
        self.findings.iter().map(|finding| finding.severity).max().unwrap_or(Severity::Ok)
    }
}
