//! Questions before what can't be undone.

use std::io::{self, IsTerminal, Write};

use tokio::sync::oneshot;

use crate::failure::Failure;

/// Asks a question at the terminal, to be answered by yes or no.
///
/// # Errors
///
/// [`Failure::Usage`] with `without_terminal` if there is no terminal to ask at; [`Failure::No`]
/// with `refused` unless the answer is yes.
///
/// # Cancel safety
///
/// If the future is dropped, the next line that is typed is lost.
pub(crate) async fn confirm(
    question: &str,
    without_terminal: String,
    refused: &'static str,
) -> Result<(), Failure> {
    if !io::stdin().is_terminal() {
        return Err(Failure::Usage(without_terminal.into()));
    }
    // On standard error, because scripts read standard output.
    let _ = write!(io::stderr(), "{question} [y/N] ");
    let (sender, answer) = oneshot::channel();
    // A thread of its own: a read of the terminal can't be cancelled, and a signal must end the
    // command.
    std::thread::spawn(move || {
        let mut line = String::new();
        let _ = io::stdin().read_line(&mut line);
        let _ = sender.send(line);
    });
    match answer.await {
        Ok(line) if is_yes(&line) => Ok(()),
        Ok(_) | Err(_) => Err(Failure::No(refused.into())),
    }
}

fn is_yes(line: &str) -> bool {
    matches!(line.trim().to_lowercase().as_str(), "y" | "yes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_yes_is_one() {
        assert!(["y\n", "Yes\n", " YES "].into_iter().all(is_yes));
        assert!(!["", "\n", "n\n", "yo\n", "no\n"].into_iter().any(is_yes));
    }
}
