//! Fencing tokens of an object grow.

use super::batch::{Invariant, assert_kept};
use super::history::{Drawn, disorder};
use super::log::{Log, nanos};

/// A token that was asked for after another one was given, and is not above it.
pub(crate) fn check(log: &Log, object: &str) -> Option<String> {
    let of_object = log.tokens.iter().filter(|token| token.object == object);
    let drawn = of_object.map(|token| {
        let (asked, given) = (nanos(token.asked), nanos(token.given));
        Drawn { asked, given, value: token.value }
    });
    disorder(&drawn.collect::<Vec<_>>()).map(|found| format!("tokens do not grow: {found:?}"))
}

// Goal: a token is above all that were given before it was asked for.
// Method: the histories of all seeds.
#[test]
fn tokens_grow() {
    assert_kept(Invariant::Tokens);
}
