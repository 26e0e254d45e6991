//! From the first read with a ticket to being let in (design sections 4 and 7).

use super::*;

#[test]
fn it_asks_the_middle_then_all_and_is_let_in() {
    let queue: Vec<_> = (11..=20).map(|host| queued(host, i64::from(host))).collect();
    let mut script = Script::settling(exclusive(), &queue, 21);
    script.sees(&queue);
    let pause = Duration::from_micros(2_800);
    script.sleeps(pause);
    script.reads(Read::Entering(id(16)));
    script.sees_only(&[]);
    script.reads(Read::Entering(id(19)));
    script.sees_only(&[]);
    // One is presumed to be ahead, and so a whole read shows who is.
    script.reads(Read::Object);
    script.sees(&[queue[1].clone(), queue[9].clone()]);
    script.sleeps(ms(1));
    script.reads(front(&[12, 20]));
    script.sees(&queue[9..]);
    script.sleeps(ms(1));
    script.reads(front(&[20]));
    script.sees(&[]);
    script.is_held_for(TTL - s(1) - SKEW - pause - ms(2));
    assert_eq!(script.contender.ahead(), []);
}

#[test]
fn no_contender_is_gone_because_another_one_is() {
    let queue = [queued(1, 6), queued(2, 7)];
    let mut script = Script::settling(exclusive(), &queue, 8);
    script.sees(&queue);
    script.reads(front(&[1, 2]));
    script.sees(&queue[..1]);
    script.sleeps(ms(1));
    script.reads(front(&[1]));
}

#[test]
fn exactly_the_pair_that_was_seen_goes() {
    for answer in [Vec::new(), rows_of(&claim(1, 2, Some(1)))] {
        let mut script = Script::waiting(exclusive());
        script.sees(&[answer]);
        script.is_let_in();
    }
    let mut script = Script::waiting(exclusive());
    script.sees(&[queued(1, 7)]);
    script.sleeps(ms(1));
    script.reads(front(&[1]));
}

#[test]
fn choosing_one_goes_once_it_leaves_or_draws_after_us() {
    let answered = |answer: &Vec<StoredRow>| {
        let mut script = Script::settling(exclusive(), &[choosing(1)], 1);
        script.sees(&[choosing(1)]);
        script.reads(front(&[1]));
        script.sees(std::slice::from_ref(answer));
        script
    };
    for answer in [Vec::new(), queued(1, 2), rows_of(&claim(1, 2, None))] {
        answered(&answer).is_let_in();
    }
    // Host 1 wins the tie.
    for answer in [choosing(1), queued(1, 1)] {
        let mut script = answered(&answer);
        script.sleeps(ms(1));
        script.reads(front(&[1]));
    }
}

#[test]
fn newcomers_are_never_added() {
    let mut script = Script::waiting(exclusive());
    // A contender that announces itself after our ticket was acknowledged will find it.
    script.sees(&[queued(2, 1), choosing(3), unreadable(4)]);
    script.is_let_in();
}

#[test]
fn read_that_lets_in_must_show_its_own_rows() {
    let near: fn() -> Script = || Script::waiting(exclusive());
    let further: fn() -> Script = || {
        let queue: Vec<_> = (11..=16).map(|host| queued(host, i64::from(host))).collect();
        let mut script = Script::settling(exclusive(), &queue, 17);
        script.sees(&queue);
        script.wakes();
        script.reads(Read::Entering(id(14)));
        script.sees_only(&[]);
        script.reads(Read::Object);
        script
    };
    for waiting in [near, further] {
        let mine = waiting().claim;
        for own in [Vec::new(), rows_of(&Claim { ticket: None, ..mine })] {
            let mut script = waiting();
            script.sees_only(&[own]);
            script.deletes();
            script.applied();
            script.announces();
        }
    }
}

#[test]
fn unreadable_row_blocks_until_absent_from_a_whole_read() {
    let mut script = Script::settling(exclusive(), &[unreadable(1)], 1);
    script.sees(&[unreadable(1)]);
    for _ in 0..3 {
        // A look by key would miss rows of an unknown name, and find no contender.
        script.reads(Read::Object);
        script.sees(&[unreadable(1)]);
        script.sleeps(ms(1));
    }
    script.reads(Read::Object);
    script.sees(&[]);
    script.is_let_in();
}

#[test]
fn unreadable_row_is_polled_like_a_holder() {
    // Polls of 2 ms each until a renewal is due.
    let polls = |holder: &dyn Fn() -> Vec<StoredRow>, ticket| {
        let mut script = Script::settling(exclusive(), &[holder()], ticket);
        script.sees(&[holder()]);
        let until = script.now + RENEWAL_DUE - s(2);
        let mut polls = 0;
        while script.now < until {
            let read = script.said.pop_front();
            assert!(matches!(read, Some(ContenderOutput::Read { .. })), "{read:?}");
            script.pass(ms(2));
            script.sees(&[holder()]);
            if script.said.is_empty() {
                script.wakes();
            }
            polls += 1;
        }
        polls
    };
    let [queued, unreadable] = [polls(&|| queued(1, 7), 8), polls(&|| unreadable(1), 1)];
    assert!((50..300).contains(&queued), "{queued} polls of a holder");
    assert!(unreadable <= queued + 5, "{unreadable} polls instead of {queued}");
}

#[test]
fn unreadable_row_blocks_limited_contender() {
    let mode = Mode::Limited(2);
    let limited = rows_of(&Claim { mode, ..claim(2, 1, Some(7)) });
    let others = [unreadable(1), limited.clone()];
    let mut script = Script::settling(Acquire { mode, ..exclusive() }, &others, 8);
    script.sees(&others);
    script.reads(Read::Object);
    script.sees(&others);
    script.wakes();
    script.reads(Read::Object);
    // One that shows as limited leaves room for us.
    script.sees(&[rows_of(&Claim { mode, ..claim(1, 2, Some(9)) }), limited]);
    script.is_let_in();
}

#[test]
fn row_that_becomes_readable_counts_like_others() {
    let mut script = Script::settling(exclusive(), &[unreadable(1)], 1);
    script.sees(&[unreadable(1)]);
    script.reads(Read::Object);
    script.sees(&[choosing(1)]);
    script.sleeps(ms(1));
    script.reads(front(&[1]));
    script.sees(&[queued(1, 2)]);
    script.is_let_in();
}

#[test]
fn pauses_follow_queue_length_then_round_trip() {
    let queue: Vec<_> = (11..=18).map(|host| queued(host, i64::from(host))).collect();
    let mut script = Script::settling(exclusive(), &queue, 19);
    script.sees(&queue);
    script.sleeps(Duration::from_micros(2_100));
    script.reads(Read::Entering(id(15)));
    script.sees_only(&[queue[4].clone()]);
    script.sleeps(Duration::from_micros(2_100));
    script.reads(Read::Entering(id(15)));
    script.sees_only(&[]);
    script.reads(Read::Object);
    script.sees(&queue[7..]);
    script.sleeps(ms(1));
    script.reads(front(&[18]));
    script.pass(ms(4));
    script.jitter = 0.0;
    script.sees(&queue[7..]);
    script.sleeps(ms(3));
    script.reads(front(&[18]));
}

#[test]
fn limited_waiter_reads_whole_near_the_front() {
    let mode = Mode::Limited(2);
    let limited = |host, ticket| rows_of(&Claim { mode, ..claim(host, 1, Some(ticket)) });
    let others = [limited(1, 6), limited(2, 7)];
    let mut script = Script::settling(Acquire { mode, ..exclusive() }, &others, 8);
    script.sees(&others);
    script.reads(Read::Object);
    script.sees(&others);
    script.sleeps(ms(1));
    script.reads(Read::Object);
    script.sees(&others[1..]);
    script.is_let_in();
}

#[test]
fn read_that_fails_is_repeated() {
    let mut looking = Script::looking(exclusive());
    looking.read_fails(ReadFailure::Failed);
    looking.sleeps(ms(10));
    looking.reads(Read::Object);
    looking.sees(&[]);
    looking.is_let_in();

    let mut settling = Script::settling(exclusive(), &[queued(1, 7)], 8);
    settling.read_fails(ReadFailure::Failed);
    settling.sleeps(ms(10));
    settling.reads(Read::Object);
    settling.sees(&[]);
    settling.is_let_in();

    let mut waiting = Script::waiting(exclusive());
    waiting.read_fails(ReadFailure::Failed);
    waiting.sleeps(ms(10));
    waiting.reads(front(&[1]));
    waiting.sees(&[]);
    waiting.is_let_in();
}

#[test]
fn read_that_is_refused_ends_it() {
    let mut looking = Script::looking(exclusive());
    looking.read_fails(ReadFailure::Rejected);
    looking.fails(Failure::Rejected);

    let settling = Script::settling(exclusive(), &[queued(1, 7)], 8);
    for mut script in [settling, Script::waiting(exclusive())] {
        script.read_fails(ReadFailure::Rejected);
        script.fails(Failure::Rejected);
    }
}
