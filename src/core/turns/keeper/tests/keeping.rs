//! Scripts of places that are kept idle, and of what is known of their use.

use super::*;

/// A keeper that may keep its place for a second, whose caller 1 has the first turn.
fn held() -> Script {
    held_after_pauses(ms(300))
}

/// The same, if its object is used with so much time between two turns.
fn held_after_pauses(gap: Duration) -> Script {
    let mut script = Script::new();
    script.keeper = Keeper::new(true).with_keep_idle(s(1), Usage::with_mean_gap(gap));
    script.joins(1, 60);
    script.is_held(terms(60));
    script.said.clear();
    script
}

fn ends_turn(script: &mut Script) {
    script.tell(KeeperInput::Returned { turn: turn(1) });
}

#[test]
fn kept_place_is_renewed_for_min_hold() {
    let mut script = held();
    ends_turn(&mut script);
    script.says(&[KeeperOutput::Keep]);
    script.now += ms(500);
    // The lease of 58 s has half a second less left.
    let demand = Demand { min_hold: ms(57_600), ..demand(60) };
    script.tell(KeeperInput::Join { caller: 2, demand });
    let renew = KeeperOutput::Renew { terms: terms(60) };
    script.says(&[KeeperOutput::KeptEnds(KeptEnd::Used), renew]);
}

#[test]
fn old_place_is_not_kept() {
    let mut script = held();
    script.now += s(29);
    ends_turn(&mut script);
    script.says(&[KeeperOutput::Release]);
}

#[test]
fn place_is_not_kept_on_terms_that_are_being_written() {
    let mut script = held();
    script.joins(2, 120);
    ends_turn(&mut script);
    script.says(&[KeeperOutput::Renew { terms: terms(120) }]);
    script.tell(KeeperInput::Leave { caller: 2 });
    script.says(&[KeeperOutput::Release]);
}

#[test]
fn place_is_not_kept_where_pauses_are_too_long() {
    for (gap, is_kept) in [(ms(999), true), (s(1), false)] {
        let mut script = held_after_pauses(gap);
        ends_turn(&mut script);
        script.says(&[if is_kept { KeeperOutput::Keep } else { KeeperOutput::Release }]);
    }
}

#[test]
fn place_is_kept_again_a_second_after_outsiders_came() {
    for (pause, is_kept) in [(ms(999), false), (s(1), true)] {
        let mut script = held();
        script.tell(KeeperInput::Looked { outsiders: true });
        script.tell(KeeperInput::Looked { outsiders: false });
        script.now += pause;
        ends_turn(&mut script);
        script.says(&[if is_kept { KeeperOutput::Keep } else { KeeperOutput::Release }]);
    }
}

#[test]
fn place_is_not_kept_while_outsiders_wait() {
    let mut script = held();
    script.tell(KeeperInput::Looked { outsiders: true });
    script.now += s(2);
    ends_turn(&mut script);
    script.says(&[KeeperOutput::Release]);
}

#[test]
fn kept_place_is_released_at_once_for_outsiders() {
    let mut script = held();
    ends_turn(&mut script);
    script.says(&[KeeperOutput::Keep]);
    script.tell(KeeperInput::Looked { outsiders: true });
    script.says(&[KeeperOutput::KeptEnds(KeptEnd::Outsiders), KeeperOutput::Release]);
}

#[test]
fn kept_place_is_released_at_once_when_it_is_revoked() {
    let mut script = held();
    ends_turn(&mut script);
    script.says(&[KeeperOutput::Keep]);
    script.tell(KeeperInput::Expiring);
    script.says(&[KeeperOutput::KeptEnds(KeptEnd::Revoked), KeeperOutput::Release]);
}

#[test]
fn usage_counts_for_twice_the_longest_keeping() {
    let mut usage = Usage::default();
    assert!(!usage.counts(s(10)));
    usage.turn_ended(s(10), s(1));
    assert!(usage.counts(s(12) - ms(1)) && !usage.counts(s(12)));
}

#[test]
fn outsiders_count_for_twice_as_long_as_they_bar() {
    let mut usage = Usage::default();
    usage.outsiders_came(s(20));
    assert!(usage.counts(s(22) - ms(1)) && !usage.counts(s(22)));
    // More of them change nothing meanwhile.
    usage.outsiders_came(ms(20_500));
    assert!(!usage.counts(s(22)));
    // Right after the bar, it is twice as long: two seconds.
    usage.outsiders_came(s(21));
    assert!(usage.counts(s(25) - ms(1)) && !usage.counts(s(25)));
    // Once it is forgotten, the next one is short again.
    usage.outsiders_came(s(25));
    assert!(!usage.counts(s(27)));
}
