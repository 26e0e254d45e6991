//! What a contender does when it is asked to leave.

use super::*;

#[test]
fn revoked_holder_holds_until_its_release() {
    for mut script in [Script::held(exclusive()), Script::held_with_ticket(exclusive())] {
        let round = script.claim.round;
        script.renews();
        script.sees_revoked(round, &[]);
        script.says(ContenderEvent::Expiring(revocation(round)));
        script.is_silent();
        script.tell(ContenderInput::Renew);
        script.is_silent();
        script.release();
        script.gives_back();
    }
}

#[test]
fn revoked_holder_is_lost_when_its_lease_ends() {
    let mut script = Script::held(exclusive());
    let round = script.claim.round;
    script.renews();
    script.sees_revoked(round, &[]);
    script.says(ContenderEvent::Expiring(revocation(round)));
    script.sleeps(LEASE);
    script.is_lost(Loss::Revoked(revocation(round)));
}

#[test]
fn holder_that_confirms_finds_it_at_once() {
    let mut script = Script::held(Acquire { renew: false, ..exclusive() });
    let round = script.claim.round;
    script.tell(ContenderInput::Confirm);
    script.reads(Read::Contender(ME));
    script.sees_revoked(round, &[]);
    script.says(ContenderEvent::Expiring(revocation(round)));
    script.says(ContenderEvent::Confirmed);
    script.release();
    script.gives_back();
}

#[test]
fn holder_that_is_removed_by_force_has_lost_it() {
    let mut script = Script::held(exclusive());
    let round = script.claim.round;
    script.renews();
    script.revoked_row_seen = true;
    let forced = Revocation { kind: RevokeKind::Force, ..revocation(round) };
    script.sees(&[vec![StoredRow::revoked(&forced)]]);
    script.is_lost(Loss::Revoked(forced));
}

#[test]
fn waiter_leaves_at_the_read_that_shows_its_revocation() {
    let mut looking = Script::looking(exclusive());
    let round = looking.claim.round;
    looking.sees_revoked(round, &[]);
    looking.fails(Failure::Revoked(revocation(round)));

    let mut settling = Script::settling(exclusive(), &[queued(1, 7)], 8);
    let round = settling.claim.round;
    settling.sees_revoked(round, &[]);
    settling.fails(Failure::Revoked(revocation(round)));

    let mut confirming = Script::waiting(exclusive());
    let round = confirming.claim.round;
    confirming.sees_revoked(round, &[]);
    confirming.fails(Failure::Revoked(revocation(round)));

    let mut renewing = Script::waiting(exclusive());
    let round = renewing.claim.round;
    renewing.renews_while_it_waits();
    renewing.sees_revoked(round, &[]);
    renewing.fails(Failure::Revoked(revocation(round)));
}

#[test]
fn it_counts_when_the_rows_are_gone_too() {
    let mut script = Script::held(exclusive());
    let round = script.claim.round;
    script.renews();
    script.revoked_row_seen = true;
    script.sees_only(&[vec![StoredRow::revoked(&revocation(round))]]);
    script.is_lost(Loss::Revoked(revocation(round)));
}

#[test]
fn round_that_is_over_is_not_meant() {
    let mut script = Script::looking(exclusive());
    let round = script.claim.round;
    script.sees_revoked(round - 1, &[]);
    script.is_held_for(s(58));
    script.release();
    // The row of no use any more goes along.
    script.gives_back();

    script.acquire(exclusive());
    script.applied();
    script.reads(Read::Object);
    script.sees(&[]);
    script.is_held_for(s(58));
    script.release();
    script.gives_back();
}

#[test]
fn revocation_of_another_contender_changes_nothing() {
    let theirs = StoredRow::revoked(&Revocation { contender: id(1), ..revocation(1) });
    let mut script = Script::looking(exclusive());
    script.sees(&[queued(1, 7), vec![theirs.clone()]]);
    script.draws(8);
    script.applied();
    script.reads(Read::Object);
    // It blocks until its own rows are gone.
    script.sees(&[queued(1, 7), vec![theirs.clone()]]);
    script.reads(front(&[1]));
    script.sees(&[vec![theirs]]);
    script.is_held_for(s(58));
}
