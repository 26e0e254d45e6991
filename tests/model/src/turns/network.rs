//! Messages under way. They arrive in any order, or never.

use std::time::Duration;

use std::collections::BTreeSet;

use crate::core::turns::{Extended, Granted, Request, Response, TimedRequest, TurnId};

/// A message between keeper and guest.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Frame {
    ToKeeper { guest: u128, request: TimedRequest },
    ToGuest { guest: u128, response: Response },
}

impl Frame {
    pub(super) fn tell(&self) -> String {
        match self {
            Frame::ToKeeper { guest, request: TimedRequest { sent, request } } => {
                let request = match request {
                    Request::Ask { request, .. } => format!("ask {request}"),
                    Request::Withdraw { request } => format!("withdraw {request}"),
                    Request::Renew { turn, least: Duration::ZERO } => {
                        format!("renew {}", short(*turn))
                    }
                    Request::Renew { turn, least } => {
                        format!("renew {} for {least:?}", short(*turn))
                    }
                    Request::IssueToken { turn, number } => {
                        format!("token {number} of {}", short(*turn))
                    }
                    Request::Return { turn } => format!("return {}", short(*turn)),
                    Request::Confirm { turn, number } => {
                        format!("confirm {number} of {}", short(*turn))
                    }
                };
                format!("{guest}'s {request} of {:.3} s", sent.as_secs_f64())
            }
            Frame::ToGuest { guest, response } => {
                let response = match response {
                    Response::Queued { request, ahead } => {
                        format!("queued {request}, {ahead} ahead")
                    }
                    Response::Granted(Granted { request, turn, echo, length }) => format!(
                        "granted {request} {}, {:.3} s from {:.3} s",
                        short(*turn),
                        length.as_secs_f64(),
                        echo.as_secs_f64()
                    ),
                    Response::Extended(Extended { turn, echo, length }) => format!(
                        "extended {}, {:.3} s from {:.3} s",
                        short(*turn),
                        length.as_secs_f64(),
                        echo.as_secs_f64()
                    ),
                    Response::Token { turn, number, value } => {
                        format!("token {number} of {}: {value}", short(*turn))
                    }
                    Response::Returned { turn } => format!("returned {}", short(*turn)),
                    Response::Leave { turn } => format!("leave {}", short(*turn)),
                    Response::Lost { turn } => format!("lost {}", short(*turn)),
                    Response::Elsewhere { request } => format!("elsewhere {request}"),
                    Response::Check { turn, number } => {
                        format!("check {number} of {}", short(*turn))
                    }
                };
                format!("{response} to {guest}")
            }
        }
    }
}

/// The keeper, round and number of a turn.
pub(super) fn short(turn: TurnId) -> String {
    format!("{}.{}.{}", turn.place.client, turn.round, turn.number)
}

/// All messages under way.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Network(BTreeSet<Frame>);

impl Network {
    pub(super) fn send(&mut self, frame: Frame) {
        self.0.insert(frame);
    }

    pub(super) fn remove(&mut self, frame: &Frame) {
        self.0.remove(frame);
    }

    pub(super) fn frames(&self) -> impl Iterator<Item = &Frame> {
        self.0.iter()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn retain(&mut self, keep: impl FnMut(&Frame) -> bool) {
        self.0.retain(keep);
    }

    pub(super) fn lose_all(&mut self) {
        self.0.clear();
    }

    pub(super) fn first(&self) -> Option<Frame> {
        self.0.first().cloned()
    }
}
