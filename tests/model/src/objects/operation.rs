//! A request of a client to the database.

use std::time::Duration;

use crate::core::bakery::{OpId, Read, ReadFailure, Write, WriteOutcome};
use crate::core::object::io::Input;
use crate::core::object::table::Table;

/// A request that is not answered.
#[derive(Clone, Debug)]
pub(super) struct Operation {
    pub(super) slot: i16,
    op: OpId,
    what: What,
    /// It took effect, and will be answered like this.
    pub(super) answer: Option<Input>,
    /// Time passes before it is answered.
    pub(super) is_late: bool,
}

#[derive(Clone, Debug)]
enum What {
    Write(Write),
    Read(Read),
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It takes effect, unless it has, and is answered.
    Answered,
    /// It takes effect later.
    Late,
    /// It takes effect, and is answered later.
    LateAnswer,
    /// It fails, and never takes effect.
    UnknownNever,
    /// It fails, and has taken effect.
    UnknownNow,
    /// It fails, and may take effect later.
    UnknownLater,
}

impl Operation {
    pub(super) fn write(slot: i16, op: OpId, write: Write) -> Self {
        Operation { slot, op, what: What::Write(write), answer: None, is_late: false }
    }

    pub(super) fn read(slot: i16, op: OpId, read: Read) -> Self {
        Operation { slot, op, what: What::Read(read), answer: None, is_late: false }
    }

    /// It takes effect, unless it has.
    pub(super) fn take_effect(&mut self, table: &mut Table, time: Duration) {
        if self.answer.is_some() {
            return;
        }
        let (slot, op) = (self.slot, self.op);
        self.answer = Some(match &self.what {
            What::Write(write) => Input::Written { slot, op, outcome: table.write(time, write) },
            What::Read(read) => {
                let seen = table.read(time, *read);
                Input::Read { slot, op, read: Box::new(*read), seen }
            }
        });
    }

    /// The answer of one that failed.
    pub(super) fn failed(&self) -> Input {
        let (slot, op) = (self.slot, self.op);
        match self.what {
            What::Write(_) => Input::Written { slot, op, outcome: WriteOutcome::Unknown },
            What::Read(read) => {
                let (read, seen) = (Box::new(read), Err(ReadFailure::Failed));
                Input::Read { slot, op, read, seen }
            }
        }
    }

    /// The write, if it is one that has not taken effect.
    pub(super) fn into_write(self) -> Option<Write> {
        match self.what {
            What::Write(write) if self.answer.is_none() => Some(write),
            What::Write(_) | What::Read(_) => None,
        }
    }

    /// What may become of it, other than an answer at once.
    pub(super) fn fates(
        &self,
        may_be_late: bool,
        may_fail: bool,
    ) -> impl Iterator<Item = Fate> + use<> {
        let late: &[Fate] = if may_be_late { &[Fate::Late, Fate::LateAnswer] } else { &[] };
        let failed: &[Fate] = match self.what {
            _ if !may_fail => &[],
            What::Read(_) => &[Fate::UnknownNever],
            What::Write(_) => &[Fate::UnknownNever, Fate::UnknownNow, Fate::UnknownLater],
        };
        late.iter().chain(failed).copied()
    }
}
