//! One finding, as printed.

use bakery_lock::schema::{Finding, Severity};
use serde_json::{Value, json};

/// One finding, as printed.
pub(crate) struct Line {
    pub(crate) severity: Severity,
    pub(crate) subject: String,
    pub(crate) found: String,
    pub(crate) advice: Option<String>,
}

impl From<Finding> for Line {
    fn from(finding: Finding) -> Self {
        let Finding { severity, subject, found, advice, .. } = finding;
        Line { severity, subject, found, advice }
    }
}

impl Line {
    pub(crate) fn text(&self) -> String {
        let Line { subject, found, .. } = self;
        let advice = self.advice.as_ref().map(|advice| format!("; {advice}")).unwrap_or_default();
        format!("{:<7}  {subject}: {found}{advice}\n", self.severity())
    }

    pub(crate) fn json(&self) -> Value {
        let Line { subject, found, advice, .. } = self;
        json!({
            "severity": self.severity(),
            "subject": subject,
            "found": found,
            "advice": advice,
        })
    }

    /// Whether it makes a check fail; `strict` if warnings do.
    pub(crate) fn fails(&self, strict: bool) -> bool {
        match self.severity {
            Severity::Ok => false,
            Severity::Warning => strict,
            // A variant that is added later must not be shown as fine.
            Severity::Error | _ => true,
        }
    }

    fn severity(&self) -> &'static str {
        match self.severity {
            Severity::Ok => "ok",
            Severity::Warning => "warning",
            // A variant that is added later must not be shown as fine.
            Severity::Error | _ => "error",
        }
    }
}
