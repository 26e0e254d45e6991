//! What guards ask of their object.

use std::sync::Arc;
use std::time::Duration;

use super::ObjectTask;
use super::replies::GuardReply;
use crate::core::bakery::LeaseTerms;
use crate::core::object::io::{HolderRequest, Input};
use crate::core::turns::TurnId;
use crate::error::EnsureError;
use crate::guard::grant::GuardRequest;
use crate::options::{InvalidOption, check_note, lease_terms};

/// On which terms, and with which text, rows are to be written: as before where it says nothing.
type Revision = (Option<LeaseTerms>, Option<Arc<str>>);

impl ObjectTask {
    /// What a request of a guard means for the object; `None` if it is answered already.
    pub(super) fn input_of_request(
        &mut self,
        turn: TurnId,
        request: GuardRequest,
    ) -> Option<Input> {
        let request = match request {
            GuardRequest::Release { reply } => {
                let request = reply.map(|reply| self.replies.register(GuardReply::Release(reply)));
                HolderRequest::Return { request }
            }
            GuardRequest::RowsLost(loss) => HolderRequest::RowsLost(*loss),
            GuardRequest::Confirm { need, reply } => {
                let request = self.replies.register(GuardReply::Confirm(reply));
                HolderRequest::Confirm { need, request }
            }
            GuardRequest::Revise { ttl, note, reply } => {
                match self.revision(turn, ttl, note.as_deref()) {
                    Ok((terms, owner)) => {
                        let request = self.replies.register(GuardReply::Confirm(reply));
                        HolderRequest::Revise { terms, owner, request }
                    }
                    Err(invalid) => {
                        drop(reply.send(Err(EnsureError::Option(invalid))));
                        return None;
                    }
                }
            }
            GuardRequest::Share { reply } => {
                let request = self.replies.register(GuardReply::Confirm(reply));
                HolderRequest::Share { request }
            }
            GuardRequest::IssueToken { reply } => {
                let request = self.replies.register(GuardReply::IssueToken(reply));
                HolderRequest::IssueToken { request }
            }
        };
        Some(Input::Holder { turn, request })
    }

    /// On which terms, and with which text, a holder wants its rows.
    fn revision(
        &self,
        turn: TurnId,
        ttl: Option<Duration>,
        note: Option<&str>,
    ) -> Result<Revision, InvalidOption> {
        check_note(note)?;
        let (max_ttl, max_clock_skew) =
            (self.shared.longest_terms.ttl(), self.shared.longest_terms.max_clock_skew());
        let terms = ttl.map(|ttl| lease_terms(ttl, max_ttl, max_clock_skew)).transpose()?;
        let label = self.grants.get(&turn).and_then(|(grant, _)| grant.label());
        let owner = note.map(|note| self.shared.owner.of_caller(label, Some(note)).into());
        Ok((terms, owner))
    }
}
