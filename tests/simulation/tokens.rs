//! Fencing tokens of an object grow.

use std::time::Duration;

use super::batch::{Invariant, assert_kept};
use super::log::{Log, Token};

/// A token that was asked for after another one was given, and is not above it.
pub(crate) fn check(log: &Log, object: &str) -> Option<String> {
    let of_object = log.tokens.iter().filter(|token| token.object == object);
    let mut given: Vec<&Token> = of_object.clone().collect();
    given.sort_unstable_by_key(|token| token.given);
    for token in of_object {
        let before = given.iter().take_while(|before| before.given <= token.asked);
        // Its own is never among them: what is asked for is given later.
        let largest = before.filter(|before| **before != token).max_by_key(|before| before.value);
        if let Some(largest) = largest.filter(|largest| largest.value >= token.value) {
            return Some(format!("tokens do not grow: {largest:?}, then {token:?}"));
        }
    }
    None
}

// Goal: a token is above all that were given before it was asked for.
// Method: the histories of all seeds.
#[test]
fn tokens_grow() {
    assert_kept(Invariant::Tokens);
}

// Goal: the check finds tokens that don't grow, and lets those be that were drawn together.
// Method: made-up tokens.
#[test]
fn a_token_that_does_not_grow_is_found() {
    let token = |asked, given, value| {
        let [asked, given] = [asked, given].map(Duration::from_millis);
        Token { client: 0, object: "a".to_owned(), asked, given, value }
    };
    let found = |tokens: &[Token]| {
        let log = Log { tokens: tokens.to_vec(), ..Log::default() };
        check(&log, "a").is_some()
    };
    assert!(!found(&[token(1, 2, 10), token(2, 4, 11), token(1, 5, 9)]));
    assert!(!found(&[token(1, 4, 12), token(2, 3, 11)]));
    assert!(found(&[token(1, 2, 10), token(2, 4, 10)]));
    assert!(found(&[token(1, 2, 10), token(1, 3, 12), token(4, 5, 11)]));
}
