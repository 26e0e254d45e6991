//! Fencing tokens of an object grow.

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
