//! Which process something belongs to.
//!
//! A fork copies clients and guards into a child, which must not use them: it would renew and
//! release the parent's rows, on the parent's connections.

/// A process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process(u32);

impl Process {
    /// The current process.
    pub(crate) fn current() -> Self {
        Process(std::process::id())
    }

    /// Whether this is the current process.
    pub(crate) fn is_current(self) -> bool {
        self == Process::current()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_process_is_not_this_one() {
        assert!(Process::current().is_current());
        assert!(!Process(std::process::id() + 1).is_current());
    }
}
