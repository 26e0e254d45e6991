//! `completions`, which all tools have.

use clap::{Args, Command, CommandFactory};
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
    /// Shell to generate completions for
    shell: Shell,
}

/// Prints the script of the tool of this name.
pub(crate) fn print_completions<T: CommandFactory>(
    tool: &'static str,
    options: &CompletionsOptions,
) -> Result<(), Failure> {
    let mut script = Vec::new();
    generate(options.shell, &mut shown(tool, &T::command()), tool, &mut script);
    output::print(&String::from_utf8_lossy(&script))
}

/// The commands and options that the tool's help shows. The scripts would offer hidden ones too.
fn shown(tool: &'static str, all: &Command) -> Command {
    let commands = all.get_subcommands().filter(|command| !command.is_hide_set());
    Command::new(tool)
        .version(env!("CARGO_PKG_VERSION"))
        .after_long_help(all.get_after_long_help().cloned().unwrap_or_default())
        .args(all.get_arguments().cloned())
        .subcommands(commands.cloned())
}
