//! `model [long] [PART_OF_A_NAME]...`: runs the searches of these names, or all, or only those that
//! take minutes and that no test runs. Tells what they found, and of each flaw the shortest history
//! that shows it. Fails when anything is not as expected.

use std::process::ExitCode;

use bakery_lock_model::search::{self, Length, Search};

fn main() -> ExitCode {
    let mut names: Vec<String> = std::env::args().skip(1).collect();
    let long_only = names.first().is_some_and(|name| name == "long");
    names.drain(..usize::from(long_only));
    let is_meant = |search: &&Search| {
        let named = names.iter().any(|part| search.name.contains(part.as_str()));
        (named || names.is_empty()) && (search.length == Length::Long || !long_only)
    };
    let mut complaints = 0;
    let mut run = 0;
    for search in search::all().iter().filter(is_meant) {
        println!("{}", search.name);
        let finding = search.run();
        println!("    {finding}");
        if let Some(violation) = &finding.violation {
            println!("{violation}");
        }
        if let Some(complaint) = search.complaint(&finding) {
            println!("    WRONG: {complaint}");
            complaints += 1;
        }
        run += 1;
    }
    println!("{run} searches, {complaints} not as expected");
    if complaints == 0 && run > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
