//! The switch that plants a bug in the protocol, for the simulation in `tests/simulation`. Only
//! that program is compiled with it.

use crate::core::bakery::SeededBug;

/// The names of the bugs that can be planted.
#[must_use]
pub fn bugs() -> Vec<String> {
    all().map(|bug| format!("{bug:?}")).collect()
}

/// Plants a bug on this thread from now on.
///
/// # Panics
///
/// When no bug has this name.
pub fn plant(name: &str) {
    let bug = all().find(|bug| format!("{bug:?}") == name);
    SeededBug::plant(Some(bug.expect("the name is one of `bugs`")));
}

fn all() -> impl Iterator<Item = SeededBug> {
    let of_rows_and_turns = SeededBug::OF_CONTENDERS.into_iter().chain(SeededBug::OF_TURNS);
    of_rows_and_turns.chain(SeededBug::OF_WAITING)
}
