//! What is the same for all tools: reading arguments, starting a runtime, reporting failures.

use std::env::args_os;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, CommandFactory, Parser};
use tokio::runtime;

use crate::failure::Failure;
use crate::output::{self, visible};

/// The exit code for invalid arguments.
const USAGE: u8 = 2;

/// Runs a tool, and returns its exit code.
///
/// The exit codes of the subcommands in `runners` are those of a command that they run: if one of
/// them can't be started, the exit code is 125.
pub fn start<T: Parser>(
    name: &str,
    runners: &[&str],
    run: impl AsyncFnOnce(T) -> Result<ExitCode, Failure>,
) -> ExitCode {
    let is_runner = || subcommand::<T>().is_some_and(|it| runners.contains(&it.as_str()));
    let done = match T::try_parse() {
        Ok(arguments) => match runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime.block_on(run(arguments)),
            Err(cause) => {
                let failure = Failure::system("the runtime can't be started")(cause);
                Err(if is_runner() { failure.before_a_command() } else { failure })
            }
        },
        // Help or version.
        Err(error) if !error.use_stderr() => printed(&error),
        Err(error) => {
            // If standard error is closed, there is no reader for the error.
            let _ = readable::<T>(error).print();
            return ExitCode::from(if is_runner() { Failure::BEFORE_COMMAND } else { USAGE });
        }
    };
    match done {
        Ok(code) => code,
        Err(failure) if failure.is_broken_pipe() => ExitCode::SUCCESS,
        Err(failure) => {
            output::report(name, &failure);
            failure.exit_code()
        }
    }
}

/// The subcommand, also of invalid arguments: the first that is neither an option nor its value.
fn subcommand<T: CommandFactory>() -> Option<String> {
    let command = T::command();
    let options = command.get_arguments().filter(|it| it.get_action().takes_values());
    let with_value: Vec<_> = options.filter_map(Arg::get_long).collect();
    let mut arguments = args_os().skip(1).map(|it| it.to_string_lossy().into_owned());
    while let Some(argument) = arguments.next() {
        if !argument.starts_with('-') {
            return Some(argument);
        }
        if argument.strip_prefix("--").is_some_and(|name| with_value.contains(&name)) {
            arguments.next();
        }
    }
    None
}

/// Writes help or version to standard output.
fn printed(text: &clap::Error) -> Result<ExitCode, Failure> {
    text.print().and_then(|()| io::stdout().flush()).map_err(Failure::Output)?;
    Ok(ExitCode::SUCCESS)
}

/// An error that names what is not UTF-8, and shows only the beginning of what is long.
fn readable<T: CommandFactory>(mut error: clap::Error) -> clap::Error {
    if error.kind() == ErrorKind::InvalidUtf8 {
        let odd = args_os().find(|argument| argument.to_str().is_none()).unwrap_or_default();
        return T::command().error(error.kind(), format!("the argument {odd:?} is not UTF-8"));
    }
    for kind in [ContextKind::InvalidValue, ContextKind::InvalidArg, ContextKind::InvalidSubcommand]
    {
        if let Some(ContextValue::String(text)) = error.get(kind) {
            let text = ContextValue::String(beginning(text));
            error.insert(kind, text);
        }
    }
    error
}

/// The beginning of a text, safe to print.
fn beginning(text: &str) -> String {
    const CHARS_MAX: usize = 100;
    match text.char_indices().nth(CHARS_MAX) {
        Some((end, _)) => format!("{}… ({} bytes)", visible(&text[..end]), text.len()),
        None => visible(text),
    }
}
