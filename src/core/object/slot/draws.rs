//! Fencing tokens that holders draw from those that a keeper has reserved: of this client if it has
//! the place, or of the one whose turn it has (rule R7 of design section 7).

use std::collections::VecDeque;

use super::Slot;
use crate::core::object::io::{Now, Output, Reply, RequestId};
use crate::core::turns::{GuestInput, KeeperInput, TokenBlock, TurnId};

/// The draws of the present turn, one at a time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Draws {
    waiting: VecDeque<RequestId>,
    /// The number of the last draw.
    last: u64,
}

impl Draws {
    /// The turn is over. Guards of earlier turns know why they get no token.
    pub(super) fn clear(&mut self, outputs: &mut VecDeque<Output>) {
        self.answer_all(&Reply::Over, outputs);
    }

    fn answer_all(&mut self, reply: &Reply, outputs: &mut VecDeque<Output>) {
        for request in self.waiting.drain(..) {
            outputs.push_back(Output::Reply { request, reply: reply.clone() });
        }
    }
}

impl Slot {
    /// Draws a token for a holder, which holds alone.
    pub(super) fn draw_token(&mut self, now: Now, turn: TurnId, request: RequestId) {
        if self.holders.only() != Some(turn) {
            return self.outputs.push_back(Output::Reply { request, reply: Reply::Over });
        }
        self.draws.waiting.push_back(request);
        if self.draws.waiting.len() == 1 {
            self.next_draw(now);
        }
    }

    fn next_draw(&mut self, now: Now) {
        let Some(turn) = self.holders.only().filter(|_| !self.draws.waiting.is_empty()) else {
            return;
        };
        if self.borrowing.sublease(turn).is_some() {
            self.borrowing.tell_present(now, GuestInput::DrawToken);
        } else {
            self.draws.last += 1;
            let draw = KeeperInput::DrawToken { turn, draw: self.draws.last };
            self.keeper.handle(now.of_turns(), draw);
        }
    }

    /// The holder's token is there.
    pub(super) fn token_drawn(&mut self, now: Now, turn: TurnId, value: i64) {
        if self.holders.only() != Some(turn) {
            return;
        }
        if let Some(request) = self.draws.waiting.pop_front() {
            self.outputs.push_back(Output::Reply { request, reply: Reply::Token(value) });
        }
        self.next_draw(now);
    }

    /// Draws a block of tokens for the turns of the present round.
    pub(super) fn draw_block(&mut self) {
        if let Some(claim) = self.contender.held_claim().cloned() {
            let max_clock_skew = self.contender.held_terms().max_clock_skew();
            self.outputs.push_back(Output::DrawBlock { claim, max_clock_skew });
        }
    }

    /// A block was drawn for a round, or was not.
    pub(in crate::core::object) fn block_drawn(
        &mut self,
        now: Now,
        round: i64,
        block: Option<TokenBlock>,
    ) {
        // What fails for an earlier round says nothing about this one.
        let is_present = self.contender.held_claim().is_some_and(|claim| claim.round == round);
        if block.is_none() && is_present {
            self.draws.answer_all(&Reply::NoToken, &mut self.outputs);
        }
        self.keeper.handle(now.of_turns(), KeeperInput::Block { round, block });
        self.settle(now);
    }
}
