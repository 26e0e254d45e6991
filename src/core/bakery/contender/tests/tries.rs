//! Trying: through the doorway, waiting only for choosing contenders (design section 7).

use super::*;

#[test]
fn free_lock_is_got() {
    let mut script = Script::looking(a_try());
    script.sees(&[]);
    script.is_let_in();
    let mut script = Script::settling(a_try(), &[choosing(1)], 1);
    script.sees(&[queued(1, 2)]);
    script.is_let_in();
}

#[test]
fn behind_a_ticket_it_is_taken() {
    let mut looking = Script::looking(a_try());
    looking.sees(&[queued(1, 7)]);
    looking.is_taken();

    let mut settling = Script::settling(a_try(), &[choosing(1)], 1);
    settling.sees(&[queued(1, 1)]);
    settling.is_taken();

    let mut asking = asking();
    asking.sees(&[queued(1, 1)]);
    asking.is_taken();
}

#[test]
fn stuck_chooser_is_polled_for_20ms() {
    let mut script = asking();
    for _ in 0..19 {
        script.sees(&[choosing(1)]);
        script.sleeps(ms(1));
        script.reads(front(&[1]));
    }
    script.sleeps(ms(1));
    script.is_taken();
}

#[test]
fn slow_doorway_limits_choosing_to_100ms() {
    for (step, patience) in [(2, 24), (5, 60), (40, 100)] {
        let mut script = Script::announcing(a_try());
        script.pass(ms(step));
        script.applied();
        script.reads(Read::Object);
        script.pass(ms(step));
        script.sees(&[choosing(1)]);
        script.draws(1);
        script.pass(ms(step));
        script.applied();
        script.reads(Read::Object);
        // What comes after the ticket is no part of the doorway.
        script.pass(ms(step));
        script.sees(&[choosing(1)]);
        script.reads(front(&[1]));
        script.pass(ms(patience - 1));
        script.sees(&[choosing(1)]);
        script.sleeps(ms(1));
        script.is_taken();
    }
}

#[test]
fn time_is_over_even_while_an_answer_is_out() {
    let mut script = asking();
    script.sleeps(ms(20));
    script.is_taken();
}

#[test]
fn holder_that_leaves_in_time_frees_the_lock() {
    let mut script = asking();
    script.pass(ms(19));
    script.sees(&[]);
    script.is_let_in();
}

#[test]
fn of_two_tries_that_draw_the_same_number_one_wins() {
    let mut winner = Script::settling(a_try(), &[choosing(6)], 1);
    winner.sees(&[queued(6, 1)]);
    winner.is_let_in();
    let mut loser = Script::settling(a_try(), &[choosing(4)], 1);
    loser.sees(&[queued(4, 1)]);
    loser.is_taken();
}

#[test]
fn limited_ones_that_leave_room_do_not_take_it() {
    let mode = Mode::Limited(2);
    let others = [rows_of(&Claim { mode, ..claim(1, 1, Some(7)) }), choosing(2)];
    let mut script = Script::settling(Acquire { mode, ..a_try() }, &others, 8);
    script.sees(&others);
    script.reads(Read::Object);
    script.sees(&others[..1]);
    script.is_let_in();
}

#[test]
fn lease_that_ends_begins_a_new_round_here_too() {
    let mut script = Script::looking(a_try());
    script.sleeps(s(58));
    script.deletes();
    script.applied();
    script.announces();
    script.applied();
    script.reads(Read::Object);
    script.sees(&[queued(1, 7)]);
    script.is_taken();
}

/// Has number 1, and asks whether host 1 is still choosing.
fn asking() -> Script {
    let mut script = Script::settling(a_try(), &[choosing(1)], 1);
    script.sees(&[choosing(1)]);
    script.reads(front(&[1]));
    script
}
