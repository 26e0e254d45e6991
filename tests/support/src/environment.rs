//! What the environment asks of a test.

use std::env;
use std::str::FromStr;

use rand::SeedableRng;
use rand::rngs::StdRng;

/// Chooses what tests leave to chance.
const SEED: &str = "BAKERY_LOCK_TEST_SEED";

/// How many times more often long tests repeat what they do.
const FACTOR: &str = "BAKERY_LOCK_TEST_FACTOR";

/// The seed of what a test leaves to chance: the environment's, or another one each time. A test
/// that fails prints it.
pub fn seed() -> u64 {
    seed_named(SEED, rand::random)
}

/// The same with an environment variable, and a default, of its own. Call it on the test's thread.
pub fn seed_named(variable: &'static str, default: impl FnOnce() -> u64) -> u64 {
    let seed = number(variable).unwrap_or_else(default);
    crate::failure::note_seed(variable, seed);
    seed
}

/// What a test leaves to chance, from its [`seed`].
pub fn chance() -> StdRng {
    StdRng::seed_from_u64(seed())
}

/// How often a long test repeats what it does: this many times, or a multiple of it that the
/// environment says.
pub fn repeats(times: usize) -> usize {
    times * number::<usize>(FACTOR).unwrap_or(1)
}

/// The number in an environment variable, if it is set.
pub fn number<T: FromStr>(variable: &str) -> Option<T> {
    let said = env::var(variable).ok()?;
    Some(said.parse().unwrap_or_else(|_| panic!("{variable} has to be a number")))
}
