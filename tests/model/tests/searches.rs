//! The searches that every test run can afford. The others take minutes, by one command:
//! `cargo run --package bakery-lock-model -- long`.

use bakery_lock_model::search::{self, Expected, Length, Search};

// Goal: the shipped protocol keeps its promises in every history of a few contenders.
// Method: go through all of them, and fail when one breaks a promise, or when something that must
// happen in them never does. Turns and objects have tests of their own, which run in parallel.
#[test]
fn protocol_keeps_its_promises() {
    run(|search| {
        let is_other = search.is_of_turns() || search.is_of_objects();
        search.expected == Expected::Holds && !is_other
    });
}

#[test]
fn turns_keep_their_promises() {
    run(|search| search.expected == Expected::Holds && search.is_of_turns());
}

#[test]
fn objects_keep_their_promises() {
    run(|search| search.expected == Expected::Holds && search.is_of_objects());
}

// Goal: a flaw does not go unnoticed, or else the searches would show nothing.
// Method: plant one bug after the other in the protocol, and fail when a search finds nothing.
#[test]
fn every_flaw_is_caught() {
    run(|search| search.expected == Expected::Caught);
}

// Goal: no seeded bug of the protocol is forgotten.
// Method: compare the list of seeded bugs with the searches that there are.
#[test]
fn every_flaw_has_a_search() {
    assert_eq!(search::without_a_search(), [""; 0]);
}

// Goal: the shortcut that makes the searches short hides nothing.
// Method: search the same with and without it, and compare all that contenders get into together.
#[test]
fn reduction_loses_nothing() {
    let [(few, with), (many, without)] = search::reduced_and_not();
    println!("{few} states stand for {many}");
    assert_eq!(with, without);
    assert!(few * 10 < many, "{few} states instead of {many} are not worth the argument");
}

fn run(is_due: impl Fn(&Search) -> bool) {
    let mut searches = 0;
    for search in search::all() {
        if search.length == Length::Short && is_due(&search) {
            println!("{}", search.name);
            let finding = search.run();
            println!("    {finding}");
            if let Some(violation) = &finding.violation {
                println!("{violation}");
            }
            assert_eq!(search.complaint(&finding), None, "{}", search.name);
            searches += 1;
        }
    }
    assert!(searches > 5, "{searches} searches show little");
}
