//! What the commands print, for people and as JSON.
//!
//! CONTRIBUTING.md tells how to accept a change.

use bakery_lock::LockClient;
use tokio::time::sleep;

use crate::command::Tool;
use crate::lockctl::{client, s};

const NAME: &str = "users::snap";

/// What differs from run to run, and what is printed here instead.
const DIFFERS: [(&str, &str); 9] = [
    (r"\d{4}-\d{2}-\d{2}T[0-9:.]+Z", "[time]"),
    (r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "[client]"),
    (r#"(_seconds": ?)\d+"#, "${1}[seconds]"),
    (r#"("round": ?)\d+"#, "${1}[round]"),
    // Rows tell it from the first renewal on.
    (r#"("held_since": ?)(null|"\[time\]")"#, "${1}[time or null]"),
    (r#"(pid(?:": ?| ))\d+"#, "${1}[pid]"),
    (r" +\d+m?\d*s\b", " [age]"),
    // Columns are as wide as what is in them.
    (r"(\S)  +", "$1  "),
    (r"(?m)^(holds|waits)  (\S+)  \d+", "$1  $2  [pid]"),
];

/// The same of measurements.
const FIGURES: [(&str, &str); 10] = [
    // On a slow machine only.
    ("waits are nearly as long as a block of .*\n", ""),
    ("[0-9a-f]{16}::", "[run]::"),
    (r#"("run": )"[0-9a-f]{16}""#, "${1}[run]"),
    (r#"(seed(?:": | ))\d+"#, "${1}[seed]"),
    (r#"(": )(?:null|\d+(?:\.\d+)?)"#, "${1}[figure]"),
    (r"\d+ (grants|of them|tries|failed|were|holds|tokens|between)", "[figure] $1"),
    (r"\d+(?:\.\d+)? m?s\b", "[time]"),
    // Columns are as wide as what is in them.
    (r"(\S)  +", "$1  "),
    (
        r"(?m)^(\d)  [\d.]+  [\d.]+  (.*)  [\d.-]+  [\d.-]+$",
        "$1  [figure]  [figure]  $2  [figure]  [figure]",
    ),
    (r"(?m)^  +\{", "    {"),
];

// Goal: no output changes by accident, and each change of one is seen in review.
// Method: compare what the commands print about one holder and one waiter with the last accepted.
#[tokio::test]
async fn output_is_as_accepted() {
    let tool = Tool::initialized("output").await;
    let mut said = Vec::new();
    for command in
        ["add web1 web2 web3", "remove web3", "remove web3 --json", "list", "list --json"]
    {
        let answer = tool.run(&words(command)).await;
        said.push(format!("$ lock-hosts {command}\n{}{}", answer.stdout, answer.stderr));
    }
    accepted(&tool, "output-lock-hosts", &said, &DIFFERS);

    let [holder, waiter]: [LockClient; 2] =
        [client(&tool, "web1").await, client(&tool, "web2").await];
    let guard =
        holder.request(NAME).label("nightly job").ttl(s(120)).acquire().await.expect("it is free");
    let waiting = tokio::spawn(waiter.request(NAME).ttl(s(120)).timeout(s(60)).acquire());
    sleep(s(1)).await;
    said.clear();
    for command in [
        "show free",
        "show free --json",
        "show users::snap",
        "show users::snap --json",
        "list",
        "list --json",
        "revoke free --why hangs",
        "revoke free --why hangs --json",
        "revoke users::snap --why hangs",
        "revoke users::snap --why hangs --json",
    ] {
        let answer = tool.lockctl(&words(command)).await;
        said.push(format!("$ lockctl {command}\n{}{}", answer.stdout, answer.stderr));
    }
    accepted(&tool, "output-lockctl", &said, &DIFFERS);
    drop(guard);
    waiting.abort();
}

// Goal: the same for the commands that take locks themselves: words and keys stay, figures don't
// count.
#[tokio::test]
async fn output_of_measurements_is_as_accepted() {
    let tool = Tool::initialized("measured").await;
    tool.done(&["add", "web1"]).await;
    let mut said = Vec::new();
    for command in [
        "verify --host web1 --for 2s --processes 2",
        "verify --host web1 --for 2s --processes 2 --json",
        "bench --host web1 --clients 1,2 --for 1s --warm-up 200ms",
        "bench --host web1 --clients 1,2 --for 1s --warm-up 200ms --json",
    ] {
        let answer = tool.lockctl(&words(command)).await;
        said.push(format!("$ lockctl {command}\n{}{}", answer.stdout, answer.stderr));
    }
    accepted(&tool, "output-lockctl-measurements", &said, &FIGURES);
}

fn words(command: &str) -> Vec<&str> {
    command.split(' ').collect()
}

fn accepted(tool: &Tool, name: &str, said: &[String], differs: &[(&str, &str)]) {
    let text = said.join("\n").replace(&tool.keyspace, "[keyspace]");
    insta::with_settings!({
        prepend_module_to_snapshot => false, omit_expression => true, filters => differs.to_vec()
    }, {
        insta::assert_snapshot!(name, text);
    });
}
