//! When a command must end.

use std::time::Duration;

/// How long before the deadline no process is left at the latest: as long as a busy machine takes
/// to end them.
const MARGIN: Duration = Duration::from_millis(250);

/// When a command and all that it started must end.
#[derive(Debug)]
pub(super) struct Watch {
    /// Until when the lock is held.
    pub(super) deadline: Duration,
    kill_after: Duration,
    /// Since when they are asked to end.
    ends_from: Option<Duration>,
}

/// What must be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// Nothing, for so long.
    In(Duration),
    /// They are asked to end.
    Term,
    /// They are killed.
    Kill,
}

impl Watch {
    /// A command has `kill_after` from TERM to KILL.
    pub(super) fn new(deadline: Duration, kill_after: Duration) -> Self {
        Watch { deadline, kill_after, ends_from: None }
    }

    /// Whether TERM was due.
    pub(super) fn has_begun(&self) -> bool {
        self.ends_from.is_some()
    }

    /// What is due now. Once TERM was due, all must end, whatever the deadline is later.
    pub(super) fn due(&mut self, now: Duration) -> Due {
        let last = self.deadline.saturating_sub(MARGIN);
        match self.ends_from {
            None if now + self.kill_after < last => Due::In(last - self.kill_after - now),
            None => {
                self.ends_from = Some(now);
                Due::Term
            }
            Some(since) => {
                let kill_at = last.min(since + self.kill_after);
                if now < kill_at { Due::In(kill_at - now) } else { Due::Kill }
            }
        }
    }

    /// The lock is lost: there is no more to wait for.
    pub(super) fn abandon(&mut self, now: Duration) {
        if self.ends_from.is_none() {
            self.deadline = self.deadline.min(now + self.kill_after + MARGIN);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    fn watch() -> Watch {
        Watch::new(ms(60_000), ms(5_000))
    }

    #[test]
    fn command_ends_before_the_deadline() {
        let mut watch = watch();
        assert_eq!(watch.due(ms(0)), Due::In(ms(54_750)));
        watch.deadline = ms(80_000);
        assert_eq!(watch.due(ms(54_750)), Due::In(ms(20_000)));
        assert_eq!(watch.due(ms(74_750)), Due::Term);
        assert_eq!(watch.due(ms(74_760)), Due::In(ms(4_990)));
        assert_eq!(watch.due(ms(79_750)), Due::Kill);
        watch.deadline = ms(200_000);
        assert_eq!(watch.due(ms(79_800)), Due::Kill, "it was asked to end");
    }

    #[test]
    fn late_watch_kills_at_once() {
        let mut watch = watch();
        assert_eq!(watch.due(ms(59_900)), Due::Term);
        assert_eq!(watch.due(ms(59_900)), Due::Kill);
    }

    #[test]
    fn command_without_lockctl_ends_as_after_a_loss() {
        let mut watch = watch();
        assert_eq!(watch.due(ms(0)), Due::In(ms(54_750)));
        watch.abandon(ms(10_000));
        assert_eq!(watch.due(ms(10_000)), Due::Term);
        assert_eq!(watch.due(ms(10_001)), Due::In(ms(4_999)));
        assert_eq!(watch.due(ms(15_000)), Due::Kill);
    }
}
