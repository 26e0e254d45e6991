//! Fencing tokens of turns (rule R7).

use super::messages::Output;
use super::{Keeper, Place, Turn};
use crate::core::turns::messages::{GuestId, Response, TurnId};
use crate::core::turns::tokens::TokenBlock;

impl Keeper {
    /// A guest, or a caller if it is `None`, draws a token in its turn.
    pub(super) fn draw_token(&mut self, guest: Option<GuestId>, turn: TurnId, draw: u64) {
        let is_meant = |present: &&mut Turn| present.id == turn && present.guest() == guest;
        let Some(present) = self.turn.as_mut().filter(is_meant) else {
            return;
        };
        if let Some(tenant) = &mut present.tenant {
            // It knows its turn.
            tenant.repeat = None;
        }
        match present.token {
            Some((last, _)) if last > draw => return,
            Some((last, _)) if last == draw => {}
            Some(_) | None => present.token = Some((draw, None)),
        }
        self.hand_out_token();
    }

    /// The block that was drawn for this round.
    pub(super) fn block_drawn(&mut self, round: i64, block: Option<TokenBlock>) {
        if let Place::Held(held) = &mut self.place
            && held.round == round
        {
            held.is_drawing = false;
            self.block = block;
            // Without one it is asked for again when the user of the turn asks again.
            if block.is_some() {
                self.hand_out_token();
            }
        }
    }

    /// Hands out the token that the present turn asked for last, or draws a block for it.
    fn hand_out_token(&mut self) {
        let (Some(turn), Place::Held(held)) = (&mut self.turn, &mut self.place) else {
            return;
        };
        let Some((draw, token)) = turn.token else {
            return;
        };
        let Some(value) = token.or_else(|| self.block.as_mut()?.take()) else {
            if !held.is_drawing {
                held.is_drawing = true;
                self.outputs.push_back(Output::DrawBlock { round: held.round });
            }
            return;
        };
        turn.token = Some((draw, Some(value)));
        let (id, guest) = (turn.id, turn.guest());
        match guest {
            Some(guest) => self.send(guest, Response::Token { turn: id, draw, value }),
            None => self.outputs.push_back(Output::Token { turn: id, draw, value }),
        }
    }
}
