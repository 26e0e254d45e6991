//! What the world does that objects ask for.

use std::time::Duration;

use super::{Ended, World};
use crate::core::bakery::{Change, Read, ReadFailure, Seen, Statics, Write, WriteOutcome};
use crate::core::object::io::{HolderEvent, HolderRequest, Input, Output};
use crate::core::turns::{TokenBlock, TurnId};

impl World {
    pub(super) fn perform(&mut self, client: usize, output: Output) {
        let operations = usize::from(is_counted(&output));
        self.clients[client].operations += operations;
        self.clients[client].operations_of_machine += operations;
        let answer = match output {
            Output::Write { slot, op, write } => {
                Some(Input::Written { slot, op, outcome: self.write(&write) })
            }
            Output::Read { slot, op, read } => {
                let seen = self.read_for_slot(*read);
                Some(Input::Read { slot, op, read, seen })
            }
            Output::Exchange { .. } => unreachable!("the store does not exchange"),
            Output::ReadOneReplica { slot } => {
                self.clients[client].looks += 1;
                let rows = self.read(Read::Object).map(|seen| seen.rows).unwrap_or_default();
                Some(Input::OneReplicaRead { slot, rows })
            }
            Output::Look => Some(Input::Looked(self.read(Read::Object))),
            Output::SweepRead => {
                self.clients[client].sweep_reads += 1;
                Some(Input::SweepRead(self.read(Read::Object).ok()))
            }
            Output::SweepWrite(write) => {
                if write.change == Change::Mark {
                    self.mark = self.mark.max(Some(write.stamp));
                }
                Some(Input::SweepWritten(true))
            }
            Output::IssueBlock { claim, max_clock_skew } => {
                let block = self.block(max_clock_skew);
                Some(Input::Block { round: claim.round, block })
            }
            Output::Connect { keeper, .. } => {
                self.clients[client].connections += 1;
                let is_reachable = self.number_of(keeper).is_some();
                (!self.connects_slowly).then_some(Input::Connected { keeper, is_reachable })
            }
            Output::Ask { keeper, request } => {
                self.clients[client].requests_to_keepers += 1;
                let (guest, name) = (self.id(client), Some(format!("client {client}").into()));
                self.send(keeper, Input::Request { guest, name, request })
            }
            Output::Answer { guest, response, .. } => {
                self.send(guest, Input::Response { keeper: self.id(client), response })
            }
            Output::Holder { turn, event } => self.holder_event(turn, event),
            Output::Granted(granted) => {
                self.turns.insert(granted.caller, granted.turn);
                self.origins.insert(granted.caller, granted.origin);
                None
            }
            Output::Refused { caller, refusal } => {
                self.refusals.insert(caller, refusal);
                None
            }
            Output::Reply { request, reply } => {
                self.replies.insert(request, reply);
                None
            }
            Output::Report(report) => {
                self.reports.push(report);
                None
            }
        };
        self.clients[client].inputs.extend(answer);
    }

    fn write(&mut self, write: &Write) -> WriteOutcome {
        if self.refuses {
            WriteOutcome::Rejected
        } else if self.loses_deletions && matches!(write.change, Change::Delete { .. }) {
            WriteOutcome::Unknown
        } else {
            self.table.write(self.now, write)
        }
    }

    fn read_for_slot(&self, read: Read) -> Result<Seen, ReadFailure> {
        if self.refuses {
            return Err(ReadFailure::Rejected);
        }
        let mut seen = self.read(read)?;
        seen.rows.retain(|_| !self.loses_rows);
        Ok(seen)
    }

    fn read(&self, read: Read) -> Result<Seen, ReadFailure> {
        let statics = Statics { mark: self.mark, ..Statics::default() };
        self.table.read(self.now, read).map(|seen| Seen { statics, ..seen })
    }

    fn block(&mut self, max_clock_skew: Duration) -> Option<TokenBlock> {
        let wall = self.moment().wall;
        let block = TokenBlock::from(wall, wall, max_clock_skew).ok();
        block.filter(|_| self.issues_blocks)
    }

    /// A message has no answer of its own.
    fn send(&mut self, client: u128, input: Input) -> Option<Input> {
        if let Some(number) = self.number_of(client).filter(|_| !self.loses_messages) {
            self.clients[number].inputs.push_back(input);
        }
        None
    }

    fn holder_event(&mut self, turn: TurnId, event: HolderEvent) -> Option<Input> {
        match event {
            HolderEvent::Lost(loss) => {
                self.ended.insert(turn, Ended::Lost(loss));
                None
            }
            HolderEvent::AskWhetherCollected if !self.collects => {
                Some(Input::Holder { turn, request: HolderRequest::Uncollected })
            }
            HolderEvent::AtRisk { .. } => {
                self.at_risk.push(turn);
                None
            }
            HolderEvent::Expiring(_) => {
                self.expiring.push(turn);
                None
            }
            HolderEvent::AskWhetherCollected | HolderEvent::Renewed(_) => None,
        }
    }
}

/// Whether it is an operation that is counted: looks of keepers and tokens are not.
fn is_counted(output: &Output) -> bool {
    matches!(
        output,
        Output::Write { .. }
            | Output::Read { .. }
            | Output::Exchange { .. }
            | Output::Look
            | Output::SweepRead
            | Output::SweepWrite(_)
    )
}
