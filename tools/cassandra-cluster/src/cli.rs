//! The command line of the program `cassandra-cluster`.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command as Process, ExitCode};

use lexopt::{Arg, Parser, ValueExt};

use crate::launch::{self, ProgramSource, SUPERVISE};
use crate::links::Link;
use crate::node::EXECUTE_NODE;
use crate::options::validate_name;
use crate::paths::ClusterPaths;
use crate::protocol::{self, NodeState, OldData, Request, Status};
use crate::tied::execute_tied;
use crate::{
    Authentication, Cluster, ClusterError, ClusterOptions, CommitLog, Compiler, Network, cluster,
    supervisor,
};

const HELP: &str = "\
Starts a real Apache Cassandra cluster of 1 to 5 nodes on loopback addresses.

Usage: cassandra-cluster COMMAND [OPTIONS]

Commands:
  up N                  start N nodes that run until `down`
  run N -- PROGRAM ...  run a program with N nodes, and stop them when it exits
  down                  stop the nodes
  status [--json]       show the nodes and which other nodes each one sees up
  kill I                kill node I, to simulate a crash
  start I               start node I again, and wait until all nodes see it
  pause I               freeze node I
  resume I              resume node I
  cut I J               hold back messages from node I to J; needs `--relay`
  join                  join all cut links
  logs I [-f]           show the log of node I; with -f, follow it
  nodetool I ARGS ...   run Cassandra's nodetool for node I

Options of all commands (before the arguments of `run` and `nodetool`):
  --name NAME           the name of the cluster [default: default]
  --help                show this help

Options of `up` and `run`:
  --commitlog KIND      when writes reach the disk: periodic, group or batch
                        [default: periodic]
  --auth                require clients to log in; the superuser is cassandra
                        with the password cassandra
  --compiler KIND       how Java compiles hot code: quick for tests; full, as in
                        production, for measurements [default: quick]
  --disposable          keep schema changes in memory: faster, but a killed node
                        can't be restarted
  --first-host N        give the nodes the addresses 127.0.0.N and following
                        [default: 1]
  --datacenters N       spread nodes over datacenter1 to datacenterN, in turn
                        [default: 1]
  --relay               relay messages between nodes through the supervisor, on
                        127.1.0.N and following, so that links can be cut
  --heap MIB            the heap size of each node, 256 to 4096 [default: 256]
  --set KEY=VALUE       set a line of cassandra.yaml; may be repeated
  --clock I=SECONDS     set node I's clock ahead, or back if negative; may be
                        repeated; needs the JDK's compiler
  --keep                `up` only: keep the data of the previous run

Exit codes: 0 success, 1 the request failed (the cluster is not running, for
example), 2 invalid arguments, 3 the cluster could not be started. `run` exits
with the program's code.

All files are below target/cassandra-cluster, or below $CASSANDRA_CLUSTER_DIR.
Java 17 ($JAVA_HOME or $PATH) is required, and Maven for the first start.
";

const FAILED: u8 = 1;
const USAGE: u8 = 2;
const NOT_STARTED: u8 = 3;

/// Runs the command in the arguments of this process, and returns the exit code.
pub fn main() -> ExitCode {
    let result = match parse(Parser::from_env()) {
        Ok(command) => execute(command),
        Err(error) => {
            print_error(&format!("{error}; see `cassandra-cluster --help`"));
            return ExitCode::from(USAGE);
        }
    };
    result.unwrap_or_else(|error| {
        print_error(&error.to_string());
        ExitCode::from(exit_code(&error))
    })
}

#[derive(Debug, PartialEq, Eq)]
enum Command {
    Help,
    Up(ClusterOptions, OldData),
    Run(ClusterOptions, Vec<OsString>),
    Down(String),
    Status(String, Format),
    Node(String, NodeCommand, u8),
    Cut(String, Link),
    Join(String),
    Logs(String, u8, Follow),
    Nodetool(String, u8, Vec<String>),
    Supervise(PathBuf, String),
    ExecuteNode(Vec<String>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NodeCommand {
    Kill,
    Start,
    Pause,
    Resume,
}

#[derive(Debug, PartialEq, Eq)]
enum Format {
    Text,
    Json,
}

#[derive(Debug, PartialEq, Eq)]
enum Follow {
    Yes,
    No,
}

fn execute(command: Command) -> Result<ExitCode, ClusterError> {
    match command {
        Command::Help => print(HELP)?,
        Command::Up(options, old_data) => up(&options, old_data)?,
        Command::Run(options, program) => return run(options, &program),
        Command::Down(name) => down(&name)?,
        Command::Status(name, format) => show_status(&name, &format)?,
        Command::Node(name, command, number) => {
            let request = match command {
                NodeCommand::Kill => Request::Kill(number),
                NodeCommand::Start => Request::Start(number),
                NodeCommand::Pause => Request::Pause(number),
                NodeCommand::Resume => Request::Resume(number),
            };
            cluster::send(&ClusterPaths::find(&name)?, &request)?;
        }
        Command::Cut(name, link) => {
            cluster::send(&ClusterPaths::find(&name)?, &Request::Cut(link))?;
        }
        Command::Join(name) => {
            cluster::send(&ClusterPaths::find(&name)?, &Request::Join)?;
        }
        Command::Logs(name, number, follow) => show_log(&name, number, &follow)?,
        Command::Nodetool(name, number, arguments) => {
            return nodetool(&name, number, &arguments);
        }
        Command::Supervise(root, name) => {
            supervisor::supervise(ClusterPaths::below(&root, &name)?)?;
        }
        Command::ExecuteNode(arguments) => return Err(execute_node(&arguments)),
    }
    Ok(ExitCode::SUCCESS)
}

fn up(options: &ClusterOptions, old_data: OldData) -> Result<(), ClusterError> {
    options.validate()?;
    let paths = ClusterPaths::find(&options.name)?;
    let request = Request::Up(options.clone(), old_data);
    let _connection = launch::open(&paths, ProgramSource::Current, &request)?;
    let nodes: Vec<String> = options.numbers().map(|n| options.cql(n).to_string()).collect();
    print(&format!("{}\n", nodes.join(",")))
}

fn run(options: ClusterOptions, program: &[OsString]) -> Result<ExitCode, ClusterError> {
    let (name, arguments) = program.split_first().expect("the parser requires a program");
    let _lease = Cluster::lease_with(options, ProgramSource::Current)?;
    let status = Process::new(name)
        .args(arguments)
        .status()
        .map_err(ClusterError::io(format!("run {}", name.display())))?;
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).map_or(FAILED, |code| code).into())
}

fn down(name: &str) -> Result<(), ClusterError> {
    let paths = ClusterPaths::find(name)?;
    let Some(mut stream) = protocol::connect(&paths)? else {
        return Err(ClusterError::NotRunning { name: name.to_owned() });
    };
    if let Some(protocol::Reply::Failed(failure)) = protocol::exchange(&stream, &Request::Down)? {
        return Err(failure.into());
    }
    // The connection closes when the supervisor exits. An error means that it crashed.
    let _ = stream.read_to_end(&mut Vec::new());
    Ok(())
}

fn show_status(name: &str, format: &Format) -> Result<(), ClusterError> {
    let status = cluster::status(&ClusterPaths::find(name)?)?;
    match format {
        Format::Text => print(&describe(&status)),
        Format::Json => {
            let json = serde_json::to_string_pretty(&status)
                .map_err(|error| ClusterError::io("write the status")(error.into()))?;
            print(&format!("{json}\n"))
        }
    }
}

fn describe(status: &Status) -> String {
    let until = if status.stays { "until `down`" } else { "until its last lease ends" };
    let mut text = format!(
        "cluster {}: runs {until}, leases: {}, commit log {:?}, authentication {:?}\n",
        status.options.name,
        status.leases,
        status.options.commit_log,
        status.options.authentication,
    );
    for node in &status.nodes {
        let state = match &node.state {
            NodeState::Running { pid } => format!("running, process {pid}"),
            NodeState::Paused { pid } => format!("paused, process {pid}"),
            NodeState::Killed => "killed".to_owned(),
            NodeState::Died { how } => format!("died: {how}"),
        };
        let sees: Vec<String> = node.sees.iter().map(u8::to_string).collect();
        let sees = if sees.is_empty() { "none".to_owned() } else { sees.join(" ") };
        text += &format!(
            "node {}  {}  jmx {}  {state}; sees up: {sees}\n",
            node.number, node.cql, node.jmx
        );
    }
    for link in &status.cut_links {
        text += &format!("cut link: node {} to node {}\n", link.from, link.to);
    }
    text
}

fn show_log(name: &str, number: u8, follow: &Follow) -> Result<(), ClusterError> {
    let path = ClusterPaths::find(name)?.node_log(number);
    if !path.exists() {
        let message = format!("node {number} of cluster {name} has no log");
        return Err(ClusterError::Refused(message));
    }
    let mut tail = Process::new("tail");
    tail.args(["-n", "+1"]);
    match follow {
        Follow::Yes => tail.arg("-F"),
        Follow::No => &mut tail,
    };
    Err(ClusterError::io("run tail")(tail.arg("--").arg(path).exec()))
}

fn nodetool(name: &str, number: u8, arguments: &[String]) -> Result<ExitCode, ClusterError> {
    let paths = ClusterPaths::find(name)?;
    let options = cluster::status(&paths)?.options;
    let status = cluster::nodetool(&paths, &options, number, arguments)?
        .status()
        .map_err(ClusterError::io("run nodetool"))?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::from(FAILED) })
}

fn execute_node(arguments: &[String]) -> ClusterError {
    match arguments {
        [parent, program, arguments @ ..] => execute_tied(parent, program, arguments),
        _ => ClusterError::InvalidOptions(format!("{EXECUTE_NODE} is for the supervisor only")),
    }
}

/// Writes to standard output. A closed pipe is not an error.
fn print(text: &str) -> Result<(), ClusterError> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(ClusterError::io("write to standard output")(error))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

fn print_error(message: &str) {
    eprintln!("cassandra-cluster: {message}");
}

fn exit_code(error: &ClusterError) -> u8 {
    match error {
        ClusterError::InvalidOptions(_) => USAGE,
        ClusterError::OptionsDiffer(_)
        | ClusterError::Refused(_)
        | ClusterError::NotRunning { .. }
        | ClusterError::SupervisorGone { .. }
        | ClusterError::Nodetool { .. } => FAILED,
        ClusterError::MissingProgram { .. }
        | ClusterError::WrongJava { .. }
        | ClusterError::Artifacts(_)
        | ClusterError::Build(_)
        | ClusterError::NotStarted(_)
        | ClusterError::Io { .. } => NOT_STARTED,
    }
}

fn parse(mut parser: Parser) -> Result<Command, lexopt::Error> {
    let command = match parser.next()? {
        Some(Arg::Value(command)) => command.string()?,
        Some(Arg::Short('h') | Arg::Long("help")) | None => return Ok(Command::Help),
        Some(other @ (Arg::Short(_) | Arg::Long(_))) => return Err(other.unexpected()),
    };
    if command == EXECUTE_NODE {
        let arguments: Result<_, _> = parser.raw_args()?.map(ValueExt::string).collect();
        return Ok(Command::ExecuteNode(arguments?));
    }
    if command == SUPERVISE {
        return Ok(Command::Supervise(parser.value()?.into(), parser.value()?.string()?));
    }
    let Some(arguments) = parse_arguments(&mut parser, &command)? else {
        return Ok(Command::Help);
    };
    let Arguments { options, old_data, format, follow, .. } = arguments;
    let name = options.name.clone();
    let number = arguments.number;
    let node = || number.ok_or_else(|| format!("{command} needs a node number"));
    Ok(match command.as_str() {
        "up" => Command::Up(with_nodes(options, number)?, old_data),
        "run" if arguments.rest.is_empty() => return Err("run needs a program".into()),
        "run" => Command::Run(with_nodes(options, number)?, arguments.rest),
        "down" => Command::Down(name),
        "status" => Command::Status(name, format),
        "kill" => Command::Node(name, NodeCommand::Kill, node()?),
        "start" => Command::Node(name, NodeCommand::Start, node()?),
        "pause" => Command::Node(name, NodeCommand::Pause, node()?),
        "resume" => Command::Node(name, NodeCommand::Resume, node()?),
        "cut" => {
            let to = arguments.second.ok_or("cut needs two node numbers")?;
            Command::Cut(name, Link { from: node()?, to })
        }
        "join" => Command::Join(name),
        "logs" => Command::Logs(name, node()?, follow),
        "nodetool" => {
            let rest: Result<_, _> = arguments.rest.into_iter().map(ValueExt::string).collect();
            Command::Nodetool(name, node()?, rest?)
        }
        _ => return Err(format!("unknown command {command:?}").into()),
    })
}

struct Arguments {
    options: ClusterOptions,
    old_data: OldData,
    format: Format,
    follow: Follow,
    number: Option<u8>,
    /// The second node number of `cut`.
    second: Option<u8>,
    /// The program and arguments of `run`, or the arguments of `nodetool`.
    rest: Vec<OsString>,
}

/// Parses the arguments of a command; `None` if they include `--help`.
fn parse_arguments(parser: &mut Parser, command: &str) -> Result<Option<Arguments>, lexopt::Error> {
    let starts_cluster = matches!(command, "up" | "run");
    let takes_number = !matches!(command, "down" | "status" | "join");
    let takes_rest = matches!(command, "run" | "nodetool");
    let mut arguments = Arguments {
        options: ClusterOptions::default(),
        old_data: OldData::Discard,
        format: Format::Text,
        follow: Follow::No,
        number: None,
        second: None,
        rest: Vec::new(),
    };
    let options = &mut arguments.options;
    while let Some(argument) = parser.next()? {
        match argument {
            Arg::Short('h') | Arg::Long("help") => return Ok(None),
            Arg::Long("name") => options.name = parser.value()?.string()?,
            Arg::Long("commitlog") if starts_cluster => {
                options.commit_log = parser.value()?.parse_with(commit_log)?;
            }
            Arg::Long("compiler") if starts_cluster => {
                options.compiler = parser.value()?.parse_with(compiler)?;
            }
            Arg::Long("disposable") if starts_cluster => options.disposable = true,
            Arg::Long("auth") if starts_cluster => {
                options.authentication = Authentication::Password;
            }
            Arg::Long("first-host") if starts_cluster => {
                options.first_host = parser.value()?.parse()?;
            }
            Arg::Long("datacenters") if starts_cluster => {
                options.datacenters = parser.value()?.parse()?;
            }
            Arg::Long("relay") if starts_cluster => options.network = Network::Relayed,
            Arg::Long("heap") if starts_cluster => options.heap_mib = parser.value()?.parse()?,
            Arg::Long("set") if starts_cluster => {
                let (key, value) = parser.value()?.parse_with(setting)?;
                options.settings.insert(key, value);
            }
            Arg::Long("clock") if starts_cluster => {
                let (number, seconds_ahead) = parser.value()?.parse_with(clock_offset)?;
                options.clock_offsets.insert(number, seconds_ahead);
            }
            Arg::Long("keep") if command == "up" => arguments.old_data = OldData::Keep,
            Arg::Long("json") if command == "status" => arguments.format = Format::Json,
            Arg::Short('f') if command == "logs" => arguments.follow = Follow::Yes,
            Arg::Value(value) if takes_number && arguments.number.is_none() => {
                arguments.number = Some(value.parse()?);
            }
            Arg::Value(value) if command == "cut" && arguments.second.is_none() => {
                arguments.second = Some(value.parse()?);
            }
            Arg::Value(value) if takes_rest => {
                arguments.rest.push(value);
                arguments.rest.extend(parser.raw_args()?);
            }
            other @ (Arg::Short(_) | Arg::Long(_) | Arg::Value(_)) => {
                return Err(other.unexpected());
            }
        }
    }
    validate_name(&options.name).map_err(|error| error.to_string())?;
    Ok(Some(arguments))
}

fn with_nodes(
    options: ClusterOptions,
    number: Option<u8>,
) -> Result<ClusterOptions, lexopt::Error> {
    let nodes = number.ok_or("the number of nodes is missing")?;
    let options = ClusterOptions { nodes, ..options };
    options.validate().map_err(|error| error.to_string())?;
    Ok(options)
}

fn commit_log(text: &str) -> Result<CommitLog, &'static str> {
    match text {
        "periodic" => Ok(CommitLog::Periodic),
        "group" => Ok(CommitLog::Group),
        "batch" => Ok(CommitLog::Batch),
        _ => Err("must be periodic, group or batch"),
    }
}

fn setting(text: &str) -> Result<(String, String), &'static str> {
    let (key, value) = text.split_once('=').ok_or("must be KEY=VALUE")?;
    Ok((key.to_owned(), value.to_owned()))
}

fn compiler(text: &str) -> Result<Compiler, &'static str> {
    match text {
        "quick" => Ok(Compiler::Quick),
        "full" => Ok(Compiler::Full),
        _ => Err("must be quick or full"),
    }
}

fn clock_offset(text: &str) -> Result<(u8, i32), &'static str> {
    let parsed = text.split_once('=').and_then(|(number, seconds_ahead)| {
        Some((number.parse().ok()?, seconds_ahead.parse().ok()?))
    });
    parsed.ok_or("must be I=SECONDS")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn parsed(line: &str) -> Result<Command, String> {
        parse(Parser::from_args(line.split_whitespace())).map_err(|error| error.to_string())
    }

    #[test]
    fn up_takes_all_options() {
        let line = "up 3 --commitlog batch --auth --name x-1 --first-host=11 --keep \
                    --relay --datacenters 2 --heap 512 --set paxos_variant=v2 --set a=b=c \
                    --clock 3=+3 --clock 1=-2 --compiler full \
                    --disposable";
        let options = ClusterOptions {
            name: "x-1".to_owned(),
            nodes: 3,
            first_host: 11,
            datacenters: 2,
            commit_log: CommitLog::Batch,
            authentication: Authentication::Password,
            network: Network::Relayed,
            heap_mib: 512,
            compiler: Compiler::Full,
            disposable: true,
            settings: BTreeMap::from([
                ("paxos_variant".to_owned(), "v2".to_owned()),
                ("a".to_owned(), "b=c".to_owned()),
            ]),
            clock_offsets: BTreeMap::from([(1, -2), (3, 3)]),
        };
        assert_eq!(parsed(line), Ok(Command::Up(options, OldData::Keep)));
        let plain = ClusterOptions { nodes: 1, ..ClusterOptions::default() };
        assert_eq!(parsed("up 1"), Ok(Command::Up(plain, OldData::Discard)));
    }

    #[test]
    fn commands_take_node_number_and_cluster_name() {
        let name = || "default".to_owned();
        assert_eq!(parsed("kill 2"), Ok(Command::Node(name(), NodeCommand::Kill, 2)));
        let pause = Command::Node("x".to_owned(), NodeCommand::Pause, 1);
        assert_eq!(parsed("pause 1 --name x"), Ok(pause));
        assert_eq!(parsed("logs 1 -f"), Ok(Command::Logs(name(), 1, Follow::Yes)));
        assert_eq!(parsed("status --json"), Ok(Command::Status(name(), Format::Json)));
        assert_eq!(parsed("down"), Ok(Command::Down(name())));
        assert_eq!(parsed("cut 3 1"), Ok(Command::Cut(name(), Link { from: 3, to: 1 })));
        assert_eq!(parsed("join"), Ok(Command::Join(name())));
    }

    #[test]
    fn options_after_program_belong_to_program() {
        let arguments = ["tablestats", "--name", "x", "-h"].map(str::to_owned).to_vec();
        let nodetool = Command::Nodetool("c".to_owned(), 2, arguments);
        assert_eq!(parsed("nodetool --name c 2 tablestats --name x -h"), Ok(nodetool));
        let program = ["ls", "-l", "--help"].map(OsString::from).to_vec();
        let options = ClusterOptions { nodes: 3, ..ClusterOptions::default() };
        assert_eq!(parsed("run 3 -- ls -l --help"), Ok(Command::Run(options, program)));
    }

    #[test]
    fn help_flag_shows_help_for_all_commands() {
        for line in ["", "--help", "-h", "up --help", "nodetool -h"] {
            assert_eq!(parsed(line), Ok(Command::Help), "{line}");
        }
    }

    #[test]
    fn invalid_arguments_are_rejected() {
        let invalid = [
            "bogus",
            "up",
            "up 0",
            "up 6",
            "up x",
            "up 1 2",
            "up 1 --json",
            "down 1",
            "kill",
            "kill x",
            "kill 1 2",
            "cut 1",
            "cut 1 2 3",
            "join 1",
            "down --relay",
            "status --auth",
            "up 1 --commitlog never",
            "up 1 --compiler slow",
            "up 1 --set paxos",
            "up 1 --clock 2=3",
            "up 1 --clock 1",
            "up 1 --first-host 254 --name Y",
            "down --name ../x",
            "run 1",
            "--json",
            "run 1 --keep",
        ];
        for line in invalid {
            assert!(parsed(line).is_err(), "{line}");
        }
    }
}
