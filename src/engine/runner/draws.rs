//! Fencing tokens that callers draw from those that a keeper has reserved: of this client if it has
//! the place, or of the one whose turn it has (rule R7 of design section 7).

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;

use tokio::sync::oneshot;
use tracing::debug;

use super::{Runner, Step};
use crate::core::turns::{GuestInput, KeeperInput, TokenBlock, TurnId};
use crate::engine::drawing::FenceOfClaim;
use crate::engine::wait::when_some;
use crate::fence::{FencingError, FencingToken};

/// Where the answer to a draw goes.
type Reply = oneshot::Sender<Result<FencingToken, FencingError>>;

/// A block that was drawn for a round.
pub(super) type Drawn = (i64, Result<TokenBlock, FencingError>);

/// The draws of the present turn, one at a time.
#[derive(Default)]
pub(super) struct Draws {
    waiting: VecDeque<Reply>,
    /// The number of the last draw.
    last: u64,
    /// The block that is being drawn.
    block: Option<Pin<Box<dyn Future<Output = Drawn> + Send>>>,
}

impl Draws {
    /// Waits for the block that is being drawn.
    pub(super) async fn block(&mut self) -> Drawn {
        let drawn = when_some(self.block.as_mut()).await;
        self.block = None;
        drawn
    }

    /// The turn is over. Guards of earlier turns know why they get no token.
    pub(super) fn clear(&mut self) {
        self.waiting.clear();
    }
}

impl Runner {
    /// Draws a token for a holder, which holds alone.
    pub(super) fn draw_token(&mut self, turn: TurnId, reply: Reply) {
        if self.holders.only() != Some(turn) {
            return;
        }
        self.draws.waiting.push_back(reply);
        if self.draws.waiting.len() == 1 {
            self.next_draw();
        }
    }

    fn next_draw(&mut self) {
        let Some(turn) = self.holders.only().filter(|_| !self.draws.waiting.is_empty()) else {
            return;
        };
        match (self.borrowing.present(), self.borrowing.sublease(turn)) {
            (Some(keeper), Some(_)) => {
                self.steps.push_back(Step::Guest(keeper, GuestInput::DrawToken));
            }
            _ => {
                self.draws.last += 1;
                let draw = KeeperInput::DrawToken { turn, draw: self.draws.last };
                self.steps.push_back(Step::Keeper(draw));
            }
        }
    }

    /// The holder's token is there.
    pub(super) fn token_drawn(&mut self, turn: TurnId, value: i64) {
        if self.holders.only() != Some(turn) {
            return;
        }
        if let Some(reply) = self.draws.waiting.pop_front() {
            // A caller that stopped waiting needs no answer, here and below.
            let _ = reply.send(Ok(FencingToken::from_value(value)));
        }
        self.next_draw();
    }

    /// Draws a block of tokens for the turns of a round.
    pub(super) fn draw_block(&mut self, round: i64) {
        let Some(claim) = self.contender.held_claim().cloned() else {
            return;
        };
        let max_clock_skew = self.contender.held_terms().max_clock_skew();
        let (shared, name) = (self.shared.clone(), self.object.clone());
        let fence = FenceOfClaim { shared, name, claim, max_clock_skew };
        self.draws.block = Some(Box::pin(async move { (round, fence.draw_block().await) }));
    }

    pub(super) fn block_drawn(&mut self, (round, drawn): Drawn) {
        let block = match drawn {
            Ok(block) => Some(block),
            // What fails for an earlier round says nothing about this one.
            Err(_) if self.contender.held_claim().is_none_or(|claim| claim.round != round) => None,
            Err(error) => {
                debug!(parent: self.span(), %error, "no block of tokens");
                for reply in self.draws.waiting.drain(..) {
                    let _ = reply.send(Err(error.clone()));
                }
                None
            }
        };
        self.tell_keeper(KeeperInput::Block { round, block });
    }
}
