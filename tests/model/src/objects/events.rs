//! What can happen next.

use super::client::Caller;
use super::message::Frame;
use super::operation::Fate;
use super::{Action, Moment, Objects};
use crate::core::bakery::Mode;

impl Objects {
    /// What comes before time passes.
    pub(super) fn prompt_actions(&self, moment: &Moment, actions: &mut Vec<Action>) {
        for (i, client) in moment.clients.iter().enumerate() {
            if client.is_stopped {
                continue;
            }
            let prompt = client.operations.iter().enumerate().filter(|(_, it)| !it.is_late);
            actions.extend(prompt.map(|(number, _)| Action::Operation(i, number, Fate::Answered)));
            if client.is_due(moment.now_of(i)) {
                actions.push(Action::Wakes(i));
            }
        }
        for (number, frame) in moment.frames.iter().enumerate() {
            let same_way = |other: &Frame| other.is_on_the_way_of(frame) && !other.is_late;
            let is_first = !moment.frames[..number].iter().any(same_way);
            if !frame.is_late && is_first && !moment.clients[frame.to].is_stopped {
                actions.push(Action::Deliver(number));
            }
        }
    }

    pub(super) fn late_actions(&self, moment: &Moment, actions: &mut Vec<Action>) {
        for (i, client) in moment.clients.iter().enumerate() {
            if client.is_stopped {
                actions.push(Action::Continues(i));
                continue;
            }
            let late = client.operations.iter().enumerate().filter(|(_, it)| it.is_late);
            actions.extend(late.map(|(number, _)| Action::Operation(i, number, Fate::Answered)));
        }
        for (number, frame) in moment.frames.iter().enumerate() {
            if frame.is_late && !moment.clients[frame.to].is_stopped {
                actions.push(Action::Deliver(number));
            }
        }
        actions.extend((0..moment.orphans.len()).map(Action::Orphan));
    }

    pub(super) fn user_actions(&self, moment: &Moment, actions: &mut Vec<Action>) {
        for (i, client) in moment.clients.iter().enumerate() {
            if client.is_stopped || client.is_dead {
                continue;
            }
            if client.next_caller().is_some() {
                actions.push(Action::Asks(i));
            }
            for number in 0..client.callers.len() {
                if client.turn_of(number).is_some() && !client.is_confirming {
                    if moment.left.confirms > 0 {
                        actions.push(Action::Confirms(i, number));
                    }
                    let mode = client.mode_of(number, self.callers_of(i)[number].mode);
                    if moment.left.downgrades > 0 && mode == Mode::Exclusive {
                        actions.push(Action::Downgrades(i, number));
                    }
                    if moment.left.raises > 0 {
                        actions.push(Action::Raises(i, number));
                    }
                    actions.push(Action::Returns(i, number));
                }
                if client.callers[number] == Caller::Waiting && moment.left.giving_up > 0 {
                    actions.push(Action::GivesUp(i, number));
                }
            }
        }
    }

    pub(super) fn fault_actions(&self, moment: &Moment, actions: &mut Vec<Action>) {
        let Moment { left, clients, .. } = moment;
        for (i, client) in clients.iter().enumerate() {
            // Only what has begun can go wrong.
            if client.is_dead || client.is_stopped || client.object.is_none() {
                continue;
            }
            let faults = [
                (left.stops, Action::Stops(i)),
                (left.deaths, Action::Dies(i)),
                (left.panics, Action::Fails(i)),
                (left.jumps, Action::Jumps(i)),
            ];
            actions.extend(faults.into_iter().filter(|(left, _)| *left > 0).map(|(_, it)| it));
            if left.shutdowns > 0 && !client.is_closed {
                actions.push(Action::Closes(i));
            }
            if left.revocations > 0 && moment.entered(i).is_some() {
                actions.push(Action::Revoke(i));
            }
            for (number, operation) in client.operations.iter().enumerate() {
                if !operation.is_late {
                    let fates = operation.fates(left.late > 0, left.unknown > 0);
                    actions.extend(fates.map(|fate| Action::Operation(i, number, fate)));
                }
            }
        }
        for (number, frame) in moment.frames.iter().enumerate() {
            if left.repeats > 0 && !clients[frame.to].is_stopped {
                actions.push(Action::Repeat(number));
            }
            if left.lost_messages > 0 {
                actions.push(Action::Lose(number));
            }
            if left.late_messages > 0 && !frame.is_late {
                actions.push(Action::Delay(number));
            }
        }
    }
}
