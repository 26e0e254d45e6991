//! What the tools say about themselves: help, completions and manual pages.
//!
//! CONTRIBUTING.md tells how to accept a change of the help.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::Command as Process;

use bakery_lock_tools::lock_hosts::LockHosts;
use bakery_lock_tools::lockctl::Lockctl;
use bakery_lock_tools::lockd::Lockd;
use clap::{Command, CommandFactory};

use crate::command::{Answer, lock_hosts, lockctl, lockd};

type Tool = fn(&[&str]) -> Process;

fn tools() -> [(Tool, Command); 3] {
    [(lock_hosts, LockHosts::command()), (lockctl, Lockctl::command()), (lockd, Lockd::command())]
}

fn run(tool: Tool, arguments: &[&str]) -> Answer {
    tool(arguments).output().expect("the tool starts").into()
}

/// The commands of a tool that its help shows, and the tool itself: each as its arguments.
fn commands(of: &Command) -> Vec<Vec<&str>> {
    let shown = of.get_subcommands().filter(|command| !command.is_hide_set());
    let below = shown.flat_map(|command| {
        let name = command.get_name();
        commands(command).into_iter().map(move |rest| [&[name], &rest[..]].concat())
    });
    [vec![]].into_iter().chain(below).collect()
}

// Goal: no help changes by accident, and each change of one is seen in review.
// Method: compare both helps of each command that clap knows with the last accepted ones.
#[test]
fn help_is_as_accepted() {
    for (tool, tree) in tools() {
        for command in commands(&tree) {
            let text = ["-h", "--help"].map(|help| {
                let answer = run(tool, &[&command[..], &[help]].concat());
                assert_eq!((answer.code, answer.stderr.as_str()), (Some(0), ""), "{command:?}");
                format!(
                    "$ {} {help}\n{}",
                    [&[tree.get_name()], &command[..]].concat().join(" "),
                    answer.stdout
                )
            });
            let name = [&["help", tree.get_name()], &command[..]].concat().join("-");
            accepted(&name, &text.join("\n"));
        }
    }
}

/// Compares a text with the last accepted one.
fn accepted(name: &str, text: &str) {
    insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true }, {
        insta::assert_snapshot!(name, text);
    });
}

// Goal: as for the help. One shell's script names what all of them name, and one page of a tool
// what its other pages are made of.
#[test]
fn scripts_and_pages_are_as_accepted() {
    let directory = Directory::new("bakery-lock-accepted");
    for (tool, tree) in tools() {
        let name = tree.get_name();
        let script = run(tool, &["completions", "fish"]);
        accepted(&format!("completions-{name}"), &script.stdout);
        run(tool, &["man", "--dir", directory.path()]);
        let page = fs::read_to_string(directory.0.join(format!("{name}.1")));
        let version = format!("{name} {}", env!("CARGO_PKG_VERSION"));
        let page = page.expect("there is a page").replace(&version, &format!("{name} [version]"));
        accepted(&format!("man-{name}"), &page);
    }
    // Hidden, so that the help of all commands does not have it.
    accepted("help-man", &run(lock_hosts, &["man", "--help"]).stdout);
}

// Goal: each shell gets a script with all commands but the hidden ones, and the one for bash is
// valid.
#[test]
fn shells_get_completions() {
    for (tool, tree) in tools() {
        for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
            let answer = run(tool, &["completions", shell]);
            assert_eq!((answer.code, answer.stderr.as_str()), (Some(0), ""), "{shell}");
            for command in commands(&tree).concat() {
                assert!(answer.stdout.contains(command), "{shell} lacks {command}");
            }
            for hidden in tree.get_subcommands().filter(|command| command.is_hide_set()) {
                let about = hidden.get_about().expect("each command tells what it does");
                assert!(!answer.stdout.contains(&about.to_string()), "{shell} offers {hidden}");
                let name = hidden.get_name();
                assert!(!answer.stdout.contains(&format!(" {name} ")), "{shell} offers {name}");
            }
        }
        let script = run(tool, &["completions", "bash"]).stdout;
        let checked = Process::new("bash").args(["-n", "-c", &script]).output();
        assert!(checked.expect("bash starts").status.success());
        let unknown = run(tool, &["completions", "csh"]);
        assert_eq!(unknown.code, Some(2), "{unknown:?}");
    }
}

// Goal: packagers get a manual page for each command, and are told where none can be written.
#[test]
fn manual_pages_are_written() {
    let directory = Directory::new("bakery-lock-man");
    for (tool, tree) in tools() {
        let pages = directory.0.join(tree.get_name());
        let dir = pages.to_str().expect("the path is text");
        let answer = run(tool, &["man", "--dir", dir]);
        assert_eq!((answer.code, answer.stderr.as_str()), (Some(0), ""), "{answer:?}");
        for command in commands(&tree) {
            let name = [&[tree.get_name()], &command[..]].concat().join("-");
            let page = fs::read_to_string(pages.join(format!("{name}.1")));
            let page = page.expect("there is a page");
            assert!(page.contains(".SH SYNOPSIS") && page.contains(".TH"), "{name}: {page}");
        }
        let file = format!("{dir}/{}.1", tree.get_name());
        let answer = run(tool, &["man", "--dir", &file]);
        assert_eq!(answer.code, Some(1), "{answer:?}");
        assert!(answer.stderr.contains("the manual pages can't be written to"), "{answer:?}");
    }
}

// Goal: what can't be written is no success, and no panic.
// Method: a full device.
#[test]
fn help_that_can_not_be_written_is_a_failure() {
    for (tool, _) in tools() {
        for arguments in [
            &["--help"][..],
            &["-h"],
            &["--version"],
            &["help", "completions"],
            &["completions", "--help"],
            &["completions", "bash"],
            &["man", "--help"],
        ] {
            let full = File::options().write(true).open("/dev/full").expect("Linux has it");
            let answer = tool(arguments).stdout(full).output().expect("the tool starts");
            let answer = Answer::from(answer);
            assert_eq!(answer.code, Some(1), "{arguments:?}: {answer:?}");
            let said = "standard output can't be written: no space left on device";
            assert!(answer.stderr.contains(said), "{arguments:?}: {answer:?}");
        }
    }
}

/// A directory of one test, which is removed at its end.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        Directory(std::env::temp_dir().join(format!("{name}-{}", std::process::id())))
    }

    fn path(&self) -> &str {
        self.0.to_str().expect("the path is text")
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
