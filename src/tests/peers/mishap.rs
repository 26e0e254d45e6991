//! What happens to one kind of message.

use std::time::Duration;

use tokio::time::Instant;

use crate::core::turns::{Request, Response};
use crate::peers::{Message, Received};

/// A kind of message between keeper and guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Ask,
    Withdraw,
    Renew,
    IssueToken,
    Return,
    Queued,
    Granted,
    Extended,
    Returned,
    Token,
    Leave,
    Elsewhere,
}

impl Kind {
    pub(super) const ALL: [Kind; 12] = [
        Kind::Ask,
        Kind::Withdraw,
        Kind::Renew,
        Kind::IssueToken,
        Kind::Return,
        Kind::Queued,
        Kind::Granted,
        Kind::Extended,
        Kind::Returned,
        Kind::Token,
        Kind::Leave,
        Kind::Elsewhere,
    ];

    fn of(message: &Received) -> Option<Self> {
        match message {
            Received::Message { message: Message::Request(_, request), .. } => {
                Some(match request.request {
                    Request::Ask { .. } => Kind::Ask,
                    Request::Withdraw { .. } => Kind::Withdraw,
                    Request::Renew { .. } => Kind::Renew,
                    Request::IssueToken { .. } => Kind::IssueToken,
                    Request::Return { .. } => Kind::Return,
                    // Only tries lead to it, and to the question.
                    Request::Confirm { .. } => return None,
                })
            }
            Received::Message { message: Message::Response(_, response, _), .. } => {
                Some(match response {
                    Response::Queued { .. } => Kind::Queued,
                    Response::Granted(_) => Kind::Granted,
                    Response::Extended(_) => Kind::Extended,
                    Response::Returned { .. } => Kind::Returned,
                    Response::Token { .. } => Kind::Token,
                    Response::Leave { .. } => Kind::Leave,
                    // No turn is lost while these clients take turns.
                    Response::Lost { .. } | Response::Check { .. } => return None,
                    Response::Elsewhere { .. } => Kind::Elsewhere,
                })
            }
            Received::Message { message: Message::Left(_), .. }
            | Received::Who { .. }
            | Received::Reconnected { .. } => None,
        }
    }
}

/// What happens to messages.
#[derive(Clone, Copy, Debug)]
pub(super) enum Mishap {
    /// The first ones are lost.
    FirstLost(usize),
    /// All are lost until then.
    LostUntil(Instant),
    /// Each comes twice more, later by this each time.
    Repeated(Duration),
    /// All are later by this.
    Late(Duration),
}

/// What happens to one kind of message, and how often it did.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trouble {
    kind: Kind,
    mishap: Mishap,
    times: usize,
}

impl Trouble {
    pub(super) fn new(kind: Kind, mishap: Mishap) -> Self {
        Trouble { kind, mishap, times: 0 }
    }

    /// How many messages were in trouble.
    pub(super) fn times(&self) -> usize {
        self.times
    }

    /// How much later than others a message arrives, each time that it does.
    pub(super) fn arrivals(&mut self, message: &Received) -> Vec<Duration> {
        let in_time = vec![Duration::ZERO];
        if Kind::of(message) != Some(self.kind) {
            return in_time;
        }
        let arrivals = match self.mishap {
            Mishap::FirstLost(count) if self.times < count => Vec::new(),
            Mishap::LostUntil(end) if Instant::now() < end => Vec::new(),
            Mishap::FirstLost(_) | Mishap::LostUntil(_) => return in_time,
            Mishap::Repeated(later) => vec![Duration::ZERO, later, later * 2],
            Mishap::Late(later) => vec![later],
        };
        self.times += 1;
        arrivals
    }
}
