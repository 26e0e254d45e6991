//! Scripts of callers and guests that need some of the lease.

use super::*;

/// The lease of rows with [`TTL`].
const LEASE: Duration = s(58);

impl Script {
    fn is_given(&mut self, request: u64, number: u64, length: Duration) {
        let granted = Granted { request, turn: turn(number), echo: ms(300), length };
        self.answers(GUEST, Response::Granted(granted));
    }

    fn is_extended(&mut self, sent: Duration, length: Duration) {
        let extended = Extended { turn: turn(2), echo: sent, length };
        self.answers(GUEST, Response::Extended(extended));
    }

    fn renews_for(&mut self, sent: Duration, least: Duration) {
        self.hears(GUEST, sent, Request::Renew { turn: turn(2), least });
    }
}

#[test]
fn caller_waits_until_the_lease_is_as_long_as_it_needs() {
    for (passed, waits) in [(s(18), false), (s(18) + ms(1), true)] {
        let mut script = Script::held();
        let demand = Demand { at_least: LEASE - s(18), ..demand(60) };
        script.tell(KeeperInput::Join { caller: 2, demand });
        script.now += passed;
        script.tell(KeeperInput::Returned { turn: turn(1) });
        if waits {
            script.says(&[KeeperOutput::Renew { terms: terms(60) }]);
            script.is_renewed(terms(60));
        }
        script.said.retain(|output| *output != KeeperOutput::Look);
        script.says(&[KeeperOutput::Grant { caller: 2, turn: turn(2) }]);
    }
}

#[test]
fn caller_that_joins_others_has_their_lease() {
    let mut script = Script::new();
    let shared = Demand { mode: Mode::Shared, ..demand(60) };
    script.tell(KeeperInput::Join { caller: 1, demand: shared });
    script.says(&[KeeperOutput::Acquire { caller: Some(1) }]);
    script.is_held(terms(60));
    script.says(&[KeeperOutput::Grant { caller: 1, turn: turn(1) }]);
    let demand = Demand { at_least: s(100), terms: terms(120), ..shared };
    script.tell(KeeperInput::Join { caller: 2, demand });
    script.says(&[KeeperOutput::Grant { caller: 2, turn: turn(2) }]);
}

#[test]
fn first_sublease_is_as_long_as_the_guest_needs() {
    let mut script = Script::held();
    script.needs(GUEST, 1, ms(300), s(20));
    script.is_queued(GUEST, 1, 0);
    // Its lease counts from the request.
    script.now += s(1);
    script.tell(KeeperInput::Returned { turn: turn(1) });
    script.said.retain(|output| *output != KeeperOutput::Look);
    script.is_given(1, 2, s(20) + ms(500) + s(1));
}

#[test]
fn place_is_renewed_for_a_guest_that_needs_more() {
    let mut script = Script::held();
    script.now += s(10);
    script.needs(GUEST, 1, ms(300), s(48));
    script.is_queued(GUEST, 1, 0);
    script.tell(KeeperInput::Returned { turn: turn(1) });
    script.says(&[KeeperOutput::Renew { terms: terms(60) }]);
    script.is_renewed(terms(60));
    script.said.retain(|output| *output != KeeperOutput::Look);
    script.is_given(1, 2, ms(48_500));
}

#[test]
fn guest_with_too_long_a_need_is_sent_elsewhere() {
    // 56.435 s and 1 % more, and half a second to renew the place.
    let longest = ms(56_430);
    let mut script = Script::held();
    script.needs(OTHER, 1, ms(300), longest);
    script.is_queued(OTHER, 1, 0);
    script.needs(GUEST, 1, ms(300), longest + ms(10));
    script.answers(GUEST, Response::Elsewhere { request: 1 });
    // What a caller wants meanwhile is shorter.
    script.joins(2, 10);
    script.hears(OTHER, ms(300), Request::Withdraw { request: 1 });
    script.tell(KeeperInput::Returned { turn: turn(1) });
    script.says(&[KeeperOutput::Renew { terms: terms(10) }]);
    script.needs(GUEST, 2, ms(300), s(9));
    script.answers(GUEST, Response::Elsewhere { request: 2 });
}

#[test]
fn shorter_terms_send_a_queued_guest_elsewhere() {
    let mut script = Script::held();
    script.joins(2, 10);
    script.needs(GUEST, 1, ms(300), s(30));
    script.is_queued(GUEST, 1, 1);
    script.tell(KeeperInput::Returned { turn: turn(1) });
    script.says(&[KeeperOutput::Renew { terms: terms(10) }]);
    script.is_renewed(terms(10));
    script.says(&[KeeperOutput::Grant { caller: 2, turn: turn(2) }]);
    script.tell(KeeperInput::Returned { turn: turn(2) });
    let response = Response::Elsewhere { request: 1 };
    script.says(&[KeeperOutput::Send { guest: GUEST, response }, KeeperOutput::Release]);
}

#[test]
fn place_is_renewed_for_a_longer_extension() {
    let mut script = Script::with_guest();
    script.now += ms(100);
    script.renews_for(ms(400), s(20));
    script.is_extended(ms(400), ms(20_500));
    script.now += s(18);
    script.renews_for(ms(18_400), s(50));
    // What there is comes at once.
    let Some(KeeperOutput::Renew { terms: same }) = script.said.pop_front() else {
        panic!("the place is renewed");
    };
    assert_eq!(same, terms(60));
    script.is_extended(ms(18_400), (LEASE - s(18) - ms(100)) * 100 / 101);
    // The next one waits for the renewal.
    script.renews_for(ms(18_401), s(50));
    script.says(&[]);
    script.is_renewed(terms(60));
    script.is_extended(ms(18_401), ms(50_500));
}

#[test]
fn revoked_place_is_not_renewed_for_a_guest() {
    let mut script = Script::held();
    script.asks(GUEST, 1, ms(300));
    script.is_queued(GUEST, 1, 0);
    script.tell(KeeperInput::Expiring);
    script.said.clear();
    script.needs(GUEST, 2, ms(300), s(20));
    script.answers(GUEST, Response::Elsewhere { request: 2 });
}
