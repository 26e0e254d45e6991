//! Options of peers as text, for the command line and for settings.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use thiserror::Error;

use super::PeerOptions;
use super::bind::{AUTO, Bind};

/// Why a text gives no [`PeerOptions`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ParsePeersError {
    /// What to listen at is no IP address.
    #[error(
        "{text:?} is no address to listen at: use an IP address and a port, as 0.0.0.0:7100, or \
         auto"
    )]
    NotAnAddress {
        /// What it is.
        text: String,
    },
    /// An address has no port.
    #[error("{text:?} has no port: use an address and a port, as {text}:7100")]
    NoPort {
        /// The address; IPv6 in brackets.
        text: String,
    },
    /// What to advertise is not `host:port`.
    #[error(
        "{text:?} can't be advertised: use a host or an IP address, and a port above 0, as \
         web1:7100"
    )]
    NotAdvertisable {
        /// What it is.
        text: String,
    },
    /// The system chooses the port, so that no address with it can be known beforehand.
    #[error(
        "with auto or port 0 the system chooses the port, so none can be advertised: choose one"
    )]
    UnknownPort,
    /// It listens at all addresses of the machine, and none of them was given for others.
    #[error("{bind} is no address for others: advertise one, as {bind},web1:7100")]
    NotAdvertised {
        /// Where it listens.
        bind: SocketAddr,
    },
}

/// Reads `auto`, `BIND` or `BIND,ADVERTISED`, as `--peers` takes it: [`PeerOptions::auto`], or
/// where the client listens, as [`PeerOptions::new`], and where others reach it, as
/// [`PeerOptions::advertised`]. The rest is as by default.
///
/// # Example
///
/// ```
/// use bakery_lock::PeerOptions;
///
/// # fn main() -> Result<(), bakery_lock::ParsePeersError> {
/// let peers: PeerOptions = "0.0.0.0:7100,web1.internal:7100".parse()?;
/// assert_eq!(peers.to_string(), "0.0.0.0:7100,web1.internal:7100");
/// let error = "0.0.0.0:7100".parse::<PeerOptions>().expect_err("others can't connect to it");
/// assert!(error.to_string().contains("advertise one"));
/// # Ok(())
/// # }
/// ```
impl FromStr for PeerOptions {
    type Err = ParsePeersError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (bind, advertised) = match text.split_once(',') {
            Some((bind, advertised)) => (bind.trim(), Some(advertised.trim())),
            None => (text.trim(), None),
        };
        let bind = bind.parse()?;
        let options = PeerOptions::with_bind(bind);
        match (bind, advertised) {
            (Bind::At(bind), None) if bind.ip().is_unspecified() => {
                Err(ParsePeersError::NotAdvertised { bind })
            }
            (Bind::At(bind), Some(_)) if bind.port() == 0 => Err(ParsePeersError::UnknownPort),
            (Bind::Auto, Some(_)) => Err(ParsePeersError::UnknownPort),
            (Bind::At(_), Some(advertised)) => Ok(options.advertised(advertisable(advertised)?)),
            (_, None) => Ok(options),
        }
    }
}

/// The form that [`FromStr`] reads: where the client listens, and where others reach it.
impl fmt::Display for PeerOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.advertised {
            Some(advertised) => write!(f, "{},{advertised}", self.bind),
            None => write!(f, "{}", self.bind),
        }
    }
}

impl FromStr for Bind {
    type Err = ParsePeersError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == AUTO {
            return Ok(Bind::Auto);
        }
        if let Some(text) = without_port(text) {
            return Err(ParsePeersError::NoPort { text });
        }
        let address = text.parse().map(Bind::At);
        address.map_err(|_| ParsePeersError::NotAnAddress { text: text.to_owned() })
    }
}

#[cfg(feature = "serde")]
impl TryFrom<String> for Bind {
    type Error = ParsePeersError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

fn advertisable(text: &str) -> Result<&str, ParsePeersError> {
    if let Some(text) = without_port(text) {
        return Err(ParsePeersError::NoPort { text });
    }
    let is_host = |host: &str| {
        let is_name = !host.is_empty() && !host.contains([':', ',', '/', '[', ']']);
        is_name && !host.contains(char::is_whitespace)
    };
    let is_fit = match (text.parse::<SocketAddr>(), text.rsplit_once(':')) {
        (Ok(address), _) => address.port() > 0 && !address.ip().is_unspecified(),
        (Err(_), Some((host, port))) => is_host(host) && port.parse::<u16>().is_ok_and(|it| it > 0),
        (Err(_), None) if is_host(text) => {
            return Err(ParsePeersError::NoPort { text: text.to_owned() });
        }
        (Err(_), None) => false,
    };
    let unfit = || ParsePeersError::NotAdvertisable { text: text.to_owned() };
    if is_fit { Ok(text) } else { Err(unfit()) }
}

/// An IP address alone, as it stands before a port.
fn without_port(text: &str) -> Option<String> {
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    match bare.parse().ok()? {
        IpAddr::V4(address) => Some(address.to_string()),
        IpAddr::V6(address) => Some(format!("[{address}]")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_shown() {
        for text in [
            "auto",
            "127.0.0.1:0",
            "10.1.2.3:7100",
            "[::1]:7100",
            "0.0.0.0:7100,web1.internal:7100",
            "0.0.0.0:7100,10.1.2.3:31000",
            "[::]:7100,[fd00::7]:7100",
        ] {
            let peers: PeerOptions = text.parse().unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(peers.to_string(), text);
            assert!(peers.serves_guests, "others may take turns");
        }
        let spaced: PeerOptions = " 0.0.0.0:7100, web1:7100 ".parse().expect("spaces do no harm");
        assert_eq!(spaced.to_string(), "0.0.0.0:7100,web1:7100");
    }

    #[test]
    fn each_error_says_what_is_wrong() {
        let error = |text: &str| text.parse::<PeerOptions>().expect_err(text).to_string();
        let says = |text: &str, part: &str| {
            let error = error(text);
            assert!(error.contains(part), "{text}: {error}");
        };
        for text in ["", "web1:7100", ":7100", "127.0.0.1:70000", "127.0.0.1:", "here", "auto:1"] {
            says(text, "is no address to listen at");
        }
        says("127.0.0.1", "has no port: use an address and a port, as 127.0.0.1:7100");
        says("::1", "as [::1]:7100");
        says("[::1]", "as [::1]:7100");
        says("0.0.0.0:7100", "advertise one, as 0.0.0.0:7100,web1:7100");
        says("[::]:7100", "advertise one");
        says("127.0.0.1:0,web1:7100", "the system chooses the port");
        says("auto,web1:7100", "the system chooses the port");
        says("0.0.0.0:7100,web1", "\"web1\" has no port");
        says("0.0.0.0:7100,10.0.0.1", "as 10.0.0.1:7100");
        says("0.0.0.0:7100,fd00::7", "as [fd00::7]:7100");
        for advertised in [
            "",
            "web1:0",
            "web1:port",
            ":7100",
            "0.0.0.0:7100",
            "10.0.0.1:0",
            "web1:7100,web2:7100",
            "we b1:7100",
            "http://web1:7100",
            "[web1]:7100",
        ] {
            says(&format!("0.0.0.0:7100,{advertised}"), "can't be advertised");
        }
    }
}
