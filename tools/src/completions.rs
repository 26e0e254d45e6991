//! `completions`, which all tools have.

use clap::{Args, CommandFactory};
use clap_complete::{Shell, generate};

use crate::failure::Failure;
use crate::output;

/// Print a script with which a shell completes this tool's commands and options
///
/// Needs no database.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Example, with this tool's name:\n  \
                        TOOL completions bash > /etc/bash_completion.d/TOOL")]
pub(crate) struct CompletionsOptions {
    /// Whose script
    shell: Shell,
}

/// Prints the script of a tool.
pub(crate) fn print_completions<T: CommandFactory>(
    options: &CompletionsOptions,
) -> Result<(), Failure> {
    let mut command = T::command();
    let name = command.get_name().to_owned();
    let mut script = Vec::new();
    generate(options.shell, &mut command, name, &mut script);
    output::print(&String::from_utf8_lossy(&script))
}
