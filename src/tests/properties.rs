//! What holds of any rows and any numbers.
//!
//! The table is open to every writer of the database: to later versions, to tools, to people,
//! so rows may hold anything that their types allow. Whatever they hold, nothing panics, and where
//! a contender is not known to be harmless, it blocks.
//!
//! ```sh
//! cargo test --lib properties
//! PROPTEST_CASES=10000000 cargo test --release --lib properties
//! ```
//!
//! The second one tries ten million cases of each property, which takes about an hour of processor
//! time. Each run tries other cases. What fails is made smaller and printed in full.

mod contender;
mod design;
mod fence;
mod lease;
mod queue;
mod rows;
mod snapshot;

use proptest::prelude::ProptestConfig;
use proptest::strategy::Strategy;
use proptest::test_runner::{TestCaseResult, TestRunner};

/// Cases of each property where `PROPTEST_CASES` does not say how many.
const CASES: u32 = 1_000;

/// Tries a property on case after case.
pub(crate) fn for_all<S: Strategy>(cases: &S, property: impl Fn(S::Value) -> TestCaseResult) {
    if let Err(failure) = TestRunner::new(config()).run(cases, property) {
        panic!("{failure}");
    }
}

fn config() -> ProptestConfig {
    let config = ProptestConfig {
        // A file of seeds would be worth little: a seed means another case as soon as a strategy is
        // changed. What is found becomes a test of its own, with the rows written out.
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    match std::env::var_os("PROPTEST_CASES") {
        Some(_) => config,
        None => ProptestConfig { cases: CASES, ..config },
    }
}
