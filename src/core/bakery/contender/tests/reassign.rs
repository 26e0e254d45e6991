//! What changes between the turns of a place (rule R5 of design section 7).

use super::*;

/// A lease of 8 s.
const SHORT: Duration = s(10);

fn on(ttl: Duration, renew: bool) -> ContenderInput {
    let terms = LeaseTerms::new(ttl, s(1));
    ContenderInput::Reassign(Assignment {
        terms,
        renew,
        owner: "another".into(),
        shares: false,
        at_once: false,
    })
}

impl Script {
    /// The object is held on other terms.
    fn is_reassigned(&mut self, ttl: Duration, renew: bool) {
        self.claim.owner = "another".into();
        self.ttl = ttl;
        self.tell(on(ttl, renew));
    }

    /// The rows are written, acknowledged and read back.
    fn is_renewed_now(&mut self, lease: Duration) {
        self.puts();
        self.applied();
        self.is_renewed_for(lease);
        self.reads(Read::Object);
        self.sees(&[]);
    }
}

#[test]
fn another_ttl_is_written_at_once_by_all_rows() {
    for mut script in [Script::held(exclusive()), Script::held_with_ticket(exclusive())] {
        script.is_reassigned(SHORT, true);
        script.checks();
        script.is_renewed_now(s(8));
        script.sleeps(SHORT / 3);
        script.checks();
        script.is_renewed_now(s(8));
    }
}

#[test]
fn owner_changes_with_the_next_renewal() {
    let mut script = Script::held(exclusive());
    script.is_reassigned(TTL, true);
    assert_eq!(script.contender.held_claim().map(|claim| &*claim.owner), Some("another"));
    script.is_silent();
    script.renews();
    script.sees(&[]);
}

#[test]
fn rows_that_may_be_shorter_count_no_longer() {
    let mut script = Script::held(exclusive());
    let lease = |script: &Script| {
        let lease = script.contender.held_lease().expect("it is held");
        lease.deadline() - script.now
    };
    script.is_reassigned(SHORT, true);
    script.reads(Read::Contender(ME));
    script.sees(&[]);
    assert_eq!(lease(&script), s(8), "from the moment when the write is sent");
    script.puts();
    // Its outcome is unknown to the end.
    script.written(WriteOutcome::Unknown);
    script.pass(s(8));
    script.tell(ContenderInput::Tick);
    script.is_lost(Loss::Expired);
}

#[test]
fn longer_rows_count_once_acknowledged() {
    let mut script = Script::new();
    script.ttl = SHORT;
    script.acquire(Acquire { terms: LeaseTerms::new(SHORT, s(1)), ..exclusive() });
    script.applied();
    script.reads(Read::Object);
    script.sees(&[]);
    script.is_held_for(s(8));
    script.is_reassigned(TTL, true);
    script.checks();
    script.puts();
    script.pass(s(8));
    script.applied();
    script.is_lost(Loss::Expired);
}

#[test]
fn write_on_earlier_terms_is_given_up() {
    let mut script = Script::held(exclusive());
    script.begins_to_renew();
    let earlier = script.outstanding();
    script.is_reassigned(SHORT, true);
    script.reads(Read::Contender(ME));
    script.tell(ContenderInput::Written { op: earlier, outcome: WriteOutcome::Applied });
    script.is_silent();
    script.sees(&[]);
    script.is_renewed_now(s(8));
}

#[test]
fn without_renewal_nothing_is_written_after_the_turn_before() {
    // A renewal that was being written, one whose write failed, and one that was being read back.
    let mut writing = Script::held(exclusive());
    writing.begins_to_renew();
    let renewal = writing.outstanding();
    writing.is_reassigned(TTL, false);
    writing.tell(ContenderInput::Written { op: renewal, outcome: WriteOutcome::Applied });

    let mut retrying = Script::held(exclusive());
    retrying.begins_to_renew();
    retrying.written(WriteOutcome::NotApplied);
    retrying.is_reassigned(TTL, false);

    for mut script in [writing, retrying] {
        script.sleeps(LEASE - RENEWAL_DUE);
        script.is_lost(Loss::Expired);
    }

    let mut verifying = Script::held(exclusive());
    verifying.renews();
    verifying.is_reassigned(TTL, false);
    verifying.sees(&[]);
    verifying.sleeps(LEASE);
    verifying.is_lost(Loss::Expired);
}

#[test]
fn failed_read_back_is_repeated_without_renewal() {
    let mut script = Script::held(exclusive());
    script.renews();
    script.is_reassigned(TTL, false);
    script.read_fails(ReadFailure::Failed);
    script.wakes();
    script.reads(Read::Object);
    script.sees(&[]);
    script.is_silent();
}

#[test]
fn resting_place_does_not_retry_a_write() {
    let mut failed_before = Script::held(exclusive());
    failed_before.begins_to_renew();
    failed_before.written(WriteOutcome::NotApplied);
    failed_before.tell(ContenderInput::Rest);

    let mut fails_later = Script::held(exclusive());
    fails_later.begins_to_renew();
    fails_later.tell(ContenderInput::Rest);
    fails_later.written(WriteOutcome::NotApplied);

    for mut script in [failed_before, fails_later] {
        script.pass(s(10));
        script.tell(ContenderInput::Tick);
        script.is_silent();
        // Nor does the next turn, before the rows are read.
        script.is_reassigned(TTL, true);
        script.checks();
        script.is_renewed_now(LEASE);
    }
}

#[test]
fn write_that_was_sent_before_a_place_rests_counts() {
    let mut script = Script::held(exclusive());
    script.begins_to_renew();
    script.tell(ContenderInput::Rest);
    script.applied();
    script.is_renewed_for(LEASE);
    script.reads(Read::Object);
    script.sees(&[]);
    script.sleeps(LEASE);
    script.is_lost(Loss::Expired);
}

#[test]
fn unrenewed_place_is_renewed_for_the_next_turn() {
    let mut script = Script::held(Acquire { renew: false, ..exclusive() });
    script.pass(s(10));
    script.is_reassigned(TTL, true);
    script.is_silent();
    script.tell(ContenderInput::Renew);
    script.checks();
    script.is_renewed_now(LEASE);
}

#[test]
fn lost_place_keeps_its_rows_until_the_release() {
    let mut script = Script::held_with_ticket(exclusive());
    script.sleeps(RENEWAL_DUE);
    script.reads(Read::Contender(ME));
    script.sees_only(&[]);
    script.says(ContenderEvent::Lost(Loss::RowMissing));
    // It does nothing by itself, and nothing else brings it back.
    assert_eq!(script.contender.deadline(), None);
    assert!(!script.contender.is_idle() && script.contender.held_claim().is_none());
    script.pass(s(600));
    for input in
        [ContenderInput::Tick, ContenderInput::Renew, ContenderInput::Confirm, on(SHORT, true)]
    {
        script.tell(input);
        script.is_silent();
    }
    script.release();
    script.gives_back();
}

#[test]
fn only_what_is_held_is_reassigned() {
    let mut script = Script::waiting(exclusive());
    script.tell(on(SHORT, false));
    script.is_silent();
    script.renews_while_it_waits();
}
