//! Addresses of nodes.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use thiserror::Error;

/// The port of an address without one.
const PORT_DEFAULT: u16 = 9042;

/// The same for masters.
const PORT_OF_MASTERS: u16 = 6379;

/// A node as it is connected to: a host name or an IP address, and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Node {
    /// An IPv6 address is in brackets.
    host: String,
    port: u16,
    /// Whether it was an IPv6 address without brackets, whose end may have been meant as a port.
    is_bare: bool,
}

/// A list of nodes, separated by commas. One comma at its end is ignored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Nodes(pub(super) Vec<Node>);

/// The same for Redis servers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct MasterNodes(pub(super) Vec<Node>);

/// A text that is not the address of a node.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(super) enum NodeError {
    /// Nothing stands between two commas.
    #[error("the address of a node is empty")]
    Empty,
    /// It has another form.
    #[error(
        "{text:?} is not the address of a node: use HOST, HOST:PORT, an IPv6 address alone as in \
         fd00::1, or with a port as in [fd00::1]:9042"
    )]
    Form {
        /// The text.
        text: String,
    },
}

impl Node {
    /// What to know about the form of the address where it can't be connected to.
    pub(super) fn hint(&self) -> &'static str {
        if self.is_bare { " (for another port of an IPv6 address, use [ADDRESS]:PORT)" } else { "" }
    }
}

impl FromStr for Node {
    type Err = NodeError;

    fn from_str(text: &str) -> Result<Self, NodeError> {
        Node::parse(text, PORT_DEFAULT)
    }
}

impl Node {
    fn parse(text: &str, usual: u16) -> Result<Self, NodeError> {
        let text = text.trim();
        let (host, port) = match text.parse() {
            Ok(IpAddr::V6(address)) => (format!("[{address}]"), Some(usual)),
            Ok(IpAddr::V4(address)) => (address.to_string(), Some(usual)),
            Err(_) if text.is_empty() => return Err(NodeError::Empty),
            Err(_) => {
                split(text, usual).ok_or_else(|| NodeError::Form { text: text.to_owned() })?
            }
        };
        let port = port.filter(|port| *port > 0);
        let port = port.ok_or_else(|| NodeError::Form { text: text.to_owned() })?;
        Ok(Node { host, port, is_bare: text.parse::<Ipv6Addr>().is_ok() })
    }

    /// The address of a Redis server as a URL. A login is in it, so it is not to be shown.
    pub(super) fn url(&self, user: Option<&str>, password: Option<&str>) -> String {
        let login = match (user, password) {
            (None, None) => String::new(),
            (user, password) => {
                let [user, password] = [user, password].map(|it| escaped(it.unwrap_or_default()));
                format!("{user}:{password}@")
            }
        };
        format!("redis://{login}{self}")
    }
}

/// A text as a URL has it.
fn escaped(text: &str) -> String {
    let escape = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => char::from(byte).to_string(),
        other => format!("%{other:02X}"),
    };
    text.bytes().map(escape).collect()
}

/// The host and the port of a text that is not an IP address.
fn split(text: &str, usual: u16) -> Option<(String, Option<u16>)> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (address, port) = rest.split_once(']')?;
            (format!("[{}]", address.parse::<Ipv6Addr>().ok()?), port)
        }
        None => {
            let (host, port) = text.split_at(text.find(':').unwrap_or(text.len()));
            let is_name = !host.is_empty() && !host.contains(is_unfit);
            (is_name.then(|| host.to_owned())?, port)
        }
    };
    let port = match port.strip_prefix(':') {
        Some(port) => port.parse().ok(),
        None => port.is_empty().then_some(usual),
    };
    Some((host, port))
}

/// Whether a character is in no host name.
fn is_unfit(c: char) -> bool {
    c.is_whitespace() || c.is_control() || "[]/@\"'".contains(c)
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

impl FromStr for Nodes {
    type Err = NodeError;

    fn from_str(text: &str) -> Result<Self, NodeError> {
        list(text, PORT_DEFAULT).map(Nodes)
    }
}

impl FromStr for MasterNodes {
    type Err = NodeError;

    fn from_str(text: &str) -> Result<Self, NodeError> {
        list(text, PORT_OF_MASTERS).map(MasterNodes)
    }
}

fn list(text: &str, usual: u16) -> Result<Vec<Node>, NodeError> {
    let text = text.trim();
    let nodes = text.strip_suffix(',').unwrap_or(text).split(',');
    nodes.map(|node| Node::parse(node, usual)).collect()
}

impl Default for Nodes {
    fn default() -> Self {
        let port = PORT_DEFAULT;
        Nodes(vec![Node { host: Ipv4Addr::LOCALHOST.to_string(), port, is_bare: false }])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masters_have_a_port_of_their_own_and_a_login() {
        let MasterNodes(masters) = "r1,r2:7000".parse().expect("they are addresses");
        let urls: Vec<_> = masters.iter().map(|master| master.url(None, None)).collect();
        assert_eq!(urls, ["redis://r1:6379", "redis://r2:7000"]);
        assert_eq!(masters[0].url(None, Some("p@ss")), "redis://:p%40ss@r1:6379");
        assert_eq!(masters[0].url(Some("me"), Some("é/")), "redis://me:%C3%A9%2F@r1:6379");
    }

    #[test]
    fn addresses_have_a_port_or_the_default_one() {
        for (text, address) in [
            ("db1", "db1:9042"),
            ("db1.example.org:19042", "db1.example.org:19042"),
            ("10.0.0.1", "10.0.0.1:9042"),
            ("10.0.0.1:1", "10.0.0.1:1"),
            (" db1 ", "db1:9042"),
            ("::1", "[::1]:9042"),
            ("[::1]", "[::1]:9042"),
            ("[::1]:19042", "[::1]:19042"),
            ("fd00::1", "[fd00::1]:9042"),
            ("fd00::1:1", "[fd00::1:1]:9042"),
            ("fd00::1:9042", "[fd00::1:9042]:9042"),
            ("::ffff:10.0.0.1", "[::ffff:10.0.0.1]:9042"),
        ] {
            let node: Node = text.parse().unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(node.to_string(), address, "{text}");
            assert_eq!(
                node.to_string().parse::<Node>().map(|it| it.to_string()),
                Ok(address.into())
            );
            assert_eq!(
                node.hint().is_empty(),
                !text.contains("::") || text.contains('['),
                "{text}"
            );
        }
    }

    #[test]
    fn other_forms_are_refused_with_the_valid_ones() {
        for text in [
            ":9042",
            "db1:",
            "db1:0",
            "db1:port",
            "db1:65536",
            "db1:1:2",
            "fd00::1:99999",
            "[::1",
            "[::1]x",
            "[::1]:",
            "[db1]",
            "[10.0.0.1]:1",
            "[]",
            "http://db1",
            "a b",
            "fe80::1%eth0",
        ] {
            let error = text.parse::<Node>().expect_err(text).to_string();
            assert!(error.contains(text) && error.contains("[fd00::1]:9042"), "{error}");
        }
    }

    #[test]
    fn comma_at_the_end_is_ignored() {
        let list = |text: &str| {
            let Nodes(nodes) = text.parse()?;
            Ok(nodes.iter().map(Node::to_string).collect::<Vec<_>>().join(" "))
        };
        assert_eq!(list("db1,[::1]:1, db2 ,"), Ok("db1:9042 [::1]:1 db2:9042".to_owned()));
        for text in ["", ",", "db1,,db2", ",db1", "db1,,"] {
            assert_eq!(list(text), Err(NodeError::Empty), "{text}");
        }
        assert_eq!(Nodes::default(), "127.0.0.1".parse().expect("it is an address"));
    }
}
