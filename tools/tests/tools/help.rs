//! What the tools say about themselves: help, completions and manual pages.
//!
//! CONTRIBUTING.md tells how to accept a change of the help.

use std::fs;
use std::process::Command as Process;

use bakery_lock_tools::lock_hosts::LockHosts;
use bakery_lock_tools::lockctl::Lockctl;
use clap::{Command, CommandFactory};

use crate::command::{Answer, lock_hosts, lockctl};

type Tool = fn(&[&str]) -> Process;

fn tools() -> [(Tool, Command); 2] {
    [(lock_hosts, LockHosts::command()), (lockctl, Lockctl::command())]
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
            let mut settings = insta::Settings::clone_current();
            settings.set_prepend_module_to_snapshot(false);
            settings.set_omit_expression(true);
            settings.bind(|| insta::assert_snapshot!(name, text.join("\n")));
        }
    }
}

// Goal: each shell gets a script with all commands, and the one for bash is valid.
#[test]
fn shells_get_completions() {
    for (tool, tree) in tools() {
        for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
            let answer = run(tool, &["completions", shell]);
            assert_eq!((answer.code, answer.stderr.as_str()), (Some(0), ""), "{shell}");
            for command in commands(&tree).concat() {
                assert!(answer.stdout.contains(command), "{shell} lacks {command}");
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
    let directory = std::env::temp_dir().join(format!("bakery-lock-man-{}", std::process::id()));
    for (tool, tree) in tools() {
        let pages = directory.join(tree.get_name());
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
    fs::remove_dir_all(&directory).expect("the directory can be removed");
}
