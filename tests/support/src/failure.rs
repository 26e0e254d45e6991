//! What a failing test prints, besides its message: how to repeat it, with its seed, and how busy
//! the machine is at that moment.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Mutex, Once, PoisonError};
use std::{env, fs, panic, thread};

use crate::pace;

/// The seeds of tests, by the names of their threads, as the environment would say them.
static SEEDS: Mutex<BTreeMap<String, String>> = Mutex::new(BTreeMap::new());

/// The name of tokio's threads, which run the tasks that tests spawn.
const TASKS_THREAD: &str = "tokio-rt-worker";

/// Explains each panic of this process from now on.
pub fn explain() {
    static EXPLAINED: Once = Once::new();
    EXPLAINED.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            usual(panic);
            // Shown with what the test has printed.
            println!("{}", explanation());
        }));
    });
}

/// Notes the seed of the test that runs on this thread, which the environment can set.
pub(crate) fn note_seed(variable: &str, seed: u64) {
    explain();
    let mut seeds = SEEDS.lock().unwrap_or_else(PoisonError::into_inner);
    seeds.insert(this_thread(), format!("{variable}={seed} "));
}

fn explanation() -> String {
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().unwrap_or_default();
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let measured = pace::measured();
    let repeat = command(&this_thread());
    format!("the load is {load} on {processors} processors; {measured}\nrepeat it by: {repeat}")
}

/// The command that runs a test alone, with its seed.
fn command(test: &str) -> String {
    let seeds = SEEDS.lock().unwrap_or_else(PoisonError::into_inner);
    let seed = seeds.get(test).map_or("", String::as_str);
    let package = env::var("CARGO_PKG_NAME").unwrap_or_default();
    let program = env::current_exe().unwrap_or_default();
    let program = program.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    // Cargo adds a hash to the name of the program.
    let target = program.rsplit_once('-').map_or(program, |(target, _)| target);
    let target =
        if is_integration_test(target) { format!("--test {target}") } else { "--lib".to_owned() };
    let all = format!("{seed}cargo test --package {package} {target}");
    // A panic of another thread than the test's own does not say whose it is.
    match test {
        "" | "main" | TASKS_THREAD => all,
        _ => format!("{all} -- --include-ignored --exact {test}"),
    }
}

/// Whether a program is made from the package's `tests` folder, or from a package that has nothing
/// but tests, and not from a library.
fn is_integration_test(target: &str) -> bool {
    let package = env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    let tests = Path::new(&package).join("tests");
    package.ends_with(&format!("/tests/{target}"))
        || Path::new(&package).join(target).is_dir()
        || tests.join(target).exists()
        || tests.join(format!("{target}.rs")).exists()
}

/// The harness names the thread of a test after it.
fn this_thread() -> String {
    thread::current().name().unwrap_or_default().to_owned()
}
