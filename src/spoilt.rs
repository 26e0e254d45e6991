//! The switch that spoils the protocol, for the simulation in `tests/spoilt`. No other program is
//! compiled with it.

use crate::protocol::Mutation;

/// The names of the ways in which the protocol can be spoilt.
#[must_use]
pub fn ways() -> Vec<String> {
    Mutation::ALL.iter().map(|way| format!("{way:?}")).collect()
}

/// Spoils the protocol on this thread from now on.
///
/// # Panics
///
/// When there is no way of this name.
pub fn plant(name: &str) {
    let way = Mutation::ALL.into_iter().find(|way| format!("{way:?}") == name);
    Mutation::plant(Some(way.expect("the name is one of `ways`")));
}
