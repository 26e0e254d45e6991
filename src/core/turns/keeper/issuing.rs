//! Fencing tokens of turns (rule R7).

use super::io::KeeperOutput;
use super::{Keeper, Place, Turn};
use crate::core::turns::messages::{GuestId, Response, TurnId};
use crate::core::turns::tokens::TokenBlock;

impl Keeper {
    /// A guest, or a caller if it is `None`, issues a token in its turn.
    pub(super) fn issue_token(&mut self, guest: Option<GuestId>, turn: TurnId, number: u64) {
        let is_meant = |present: &&mut Turn| present.id == turn && present.guest() == guest;
        let Some(present) = self.turn.as_mut().filter(is_meant) else {
            return;
        };
        if let Some(guest_turn) = &mut present.guest_turn {
            // It knows its turn.
            guest_turn.repeat = None;
        }
        match present.token {
            Some((last, _)) if last > number => return,
            Some((last, _)) if last == number => {}
            Some(_) | None => present.token = Some((number, None)),
        }
        self.hand_out_token();
    }

    /// The block that was issued for this round.
    pub(super) fn block_issued(&mut self, round: i64, block: Option<TokenBlock>) {
        if let Place::Held(held) = &mut self.place
            && held.round == round
        {
            held.is_issuing = false;
            self.block = block;
            // Without one it is asked for again when the user of the turn asks again.
            if block.is_some() {
                self.hand_out_token();
            }
        }
    }

    /// Hands out the token that the present turn asked for last, or issues a block for it.
    fn hand_out_token(&mut self) {
        let (Some(turn), Place::Held(held)) = (&mut self.turn, &mut self.place) else {
            return;
        };
        let Some((number, token)) = turn.token else {
            return;
        };
        let Some(value) = token.or_else(|| self.block.as_mut()?.take()) else {
            if !held.is_issuing {
                held.is_issuing = true;
                self.outputs.push_back(KeeperOutput::IssueBlock { round: held.round });
            }
            return;
        };
        turn.token = Some((number, Some(value)));
        let (id, guest) = (turn.id, turn.guest());
        match guest {
            Some(guest) => self.send(guest, Response::Token { turn: id, number, value }),
            None => self.outputs.push_back(KeeperOutput::Token { turn: id, number, value }),
        }
    }
}
