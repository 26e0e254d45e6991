//! What the environment asks of a test.

use std::env;
use std::str::FromStr;

/// The number in an environment variable, if it is set.
pub fn number<T: FromStr>(variable: &str) -> Option<T> {
    let said = env::var(variable).ok()?;
    Some(said.parse().unwrap_or_else(|_| panic!("{variable} has to be a number")))
}
