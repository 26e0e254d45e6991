//! Fencing tokens that holders get from those that a keeper has reserved: of this client if it has
//! the place, or of the one whose turn it has (rule R7 of design section 7).

use std::collections::VecDeque;

use super::Slot;
use crate::core::object::io::{Now, Output, Reply, RequestId};
use crate::core::turns::{GuestInput, KeeperInput, TokenBlock, TurnId};

/// The tokens that the present turn asks for, one at a time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct TokenRequests {
    waiting: VecDeque<RequestId>,
    /// The number of the last number.
    last: u64,
}

impl TokenRequests {
    /// The turn is over. Guards of earlier turns know why they get no token.
    pub(super) fn clear(&mut self, outputs: &mut VecDeque<Output>) {
        self.answer_all(&Reply::Over, outputs);
    }

    /// The holder shares the place from now on, and draws no more tokens.
    pub(super) fn refuse(&mut self, outputs: &mut VecDeque<Output>) {
        self.answer_all(&Reply::NoToken, outputs);
    }

    fn answer_all(&mut self, reply: &Reply, outputs: &mut VecDeque<Output>) {
        for request in self.waiting.drain(..) {
            outputs.push_back(Output::Reply { request, reply: reply.clone() });
        }
    }
}

impl Slot {
    /// Issues a token for a holder, which holds alone.
    pub(super) fn issue_token(&mut self, now: Now, turn: TurnId, request: RequestId) {
        if self.holders.only() != Some(turn) {
            return self.outputs.push_back(Output::Reply { request, reply: Reply::Over });
        }
        self.token_requests.waiting.push_back(request);
        if self.token_requests.waiting.len() == 1 {
            self.next_token(now);
        }
    }

    fn next_token(&mut self, now: Now) {
        let Some(turn) = self.holders.only().filter(|_| !self.token_requests.waiting.is_empty())
        else {
            return;
        };
        if self.remote_turns.sublease(turn).is_some() {
            self.remote_turns.tell_present(now, GuestInput::IssueToken);
        } else {
            self.token_requests.last += 1;
            let number = KeeperInput::IssueToken { turn, number: self.token_requests.last };
            self.keeper.handle(now.of_turns(), number);
        }
    }

    /// The holder's token is there.
    pub(super) fn token_issued(&mut self, now: Now, turn: TurnId, value: i64) {
        if self.holders.only() != Some(turn) {
            return;
        }
        if let Some(request) = self.token_requests.waiting.pop_front() {
            self.outputs.push_back(Output::Reply { request, reply: Reply::Token(value) });
        }
        self.next_token(now);
    }

    /// Issues a block of tokens for the turns of the present round.
    pub(super) fn issue_block(&mut self) {
        if let Some(claim) = self.contender.held_claim().cloned() {
            let max_clock_skew = self.contender.held_terms().max_clock_skew();
            self.outputs.push_back(Output::IssueBlock { claim, max_clock_skew });
        }
    }

    /// A block was issued for a round, or was not.
    pub(in crate::core::object) fn block_issued(
        &mut self,
        now: Now,
        round: i64,
        block: Option<TokenBlock>,
    ) {
        // What fails for an earlier round says nothing about this one.
        let is_present = self.contender.held_claim().is_some_and(|claim| claim.round == round);
        if block.is_none() && is_present {
            self.token_requests.answer_all(&Reply::NoToken, &mut self.outputs);
        }
        self.keeper.handle(now.of_turns(), KeeperInput::Block { round, block });
        self.settle(now);
    }
}
