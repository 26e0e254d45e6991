//! The requests that wait for the acknowledgement of a release.

use std::collections::VecDeque;
use std::time::Duration;

use super::super::io::{Output, Reply, RequestId};
use super::holders::expired;

/// The requests that wait for the acknowledgement of a release, in the order in which they came.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Releases {
    waiting: Vec<(Duration, RequestId)>,
}

impl Releases {
    /// Adds a request that came at `asked`.
    pub(super) fn push(&mut self, asked: Duration, request: RequestId) {
        self.waiting.push((asked, request));
    }

    /// When the first one that still waits came.
    pub(super) fn first_asked(&self) -> Option<Duration> {
        self.waiting.first().map(|(asked, _)| *asked)
    }

    /// Answers all of them.
    pub(super) fn answer(&mut self, reply: &Reply, outputs: &mut VecDeque<Output>) {
        for (_, request) in self.waiting.drain(..) {
            outputs.push_back(Output::Reply { request, reply: reply.clone() });
        }
    }

    /// Dismisses those that have waited for `limit`.
    pub(super) fn dismiss_expired(
        &mut self,
        now: Duration,
        limit: Duration,
        outputs: &mut VecDeque<Output>,
    ) {
        for (asked, request) in expired(&mut self.waiting, |(asked, _)| *asked, limit, now) {
            let reply = Reply::Unacknowledged { waited: now.saturating_sub(asked) };
            outputs.push_back(Output::Reply { request, reply });
        }
    }
}
