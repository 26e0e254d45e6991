//! The commands about the connection and the daemon, as clients send them when they connect.

use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;

use crate::lockd::boot::Boot;
use crate::lockd::hub::Kind;
use crate::lockd::refusal::Refusal;
use crate::lockd::resp::{Reply, Version};
use crate::lockd::session::{Answer, Answered, Session};
use crate::lockd::users::User;
use crate::lockd::words::{Words, number};

/// The version of Redis whose locks clients find here: some look at it.
const REDIS_VERSION: &str = "7.0.0";

/// `HELLO [version [AUTH name password] [SETNAME name]]`.
pub(in crate::lockd) fn hello(session: &mut Session, words: &mut Words<'_>) -> Answered {
    let version = match words.next() {
        None => session.version,
        Some(word) => match number(word) {
            Ok(2) => Version::Two,
            Ok(3) => Version::Three,
            Ok(_) | Err(_) => return Err(Refusal::of("NOPROTO", "unsupported protocol version")),
        },
    };
    while let Some(word) = words.next() {
        match word.to_ascii_uppercase().as_slice() {
            b"AUTH" => {
                let (name, password) = (words.text()?, words.word()?);
                // Clients send `HELLO 3 AUTH default password` whatever the server wants.
                let user = session.daemon.users.login(Some(name), password)?;
                session.set_user(Some(user));
            }
            b"SETNAME" => session.client_name = words.text()?.to_owned(),
            _ => return Err(Refusal::error("syntax error in HELLO")),
        }
    }
    session.user()?;
    session.version = version;
    let protocol = if version == Version::Two { 2 } else { 3 };
    Ok(Reply::Map(vec![
        ("server", Reply::text("bakery-lockd")),
        ("version", Reply::text(REDIS_VERSION)),
        ("proto", Reply::Integer(protocol)),
        ("id", Reply::number(session.id)),
        ("mode", Reply::text("standalone")),
        ("role", Reply::text("master")),
        ("modules", Reply::Array(Vec::new())),
    ])
    .into())
}

/// `AUTH [name] password`.
pub(in crate::lockd) fn auth(session: &mut Session, words: &mut Words<'_>) -> Answered {
    let first = words.word()?;
    let second = words.next();
    words.end()?;
    let (name, password) = match second {
        None => (None, first),
        Some(password) => {
            let name = str::from_utf8(first).map_err(|_| Refusal::error("a name is UTF-8 text"))?;
            (Some(name), password)
        }
    };
    let user = session.daemon.users.login(name, password)?;
    session.set_user(Some(user));
    Ok(Reply::OK.into())
}

/// `RESET`: as after connecting. Locks stay.
pub(in crate::lockd) fn reset(session: &mut Session) -> Answer {
    let daemon = &session.daemon;
    if let Ok(user) = session.user() {
        for kind in [Kind::Name, Kind::Pattern] {
            for channel in daemon.hub.subscriptions(session.id, kind) {
                daemon.hub.unsubscribe(session.id, (kind, &user.prefix), &channel);
            }
        }
    }
    session.version = Version::default();
    session.set_user(None);
    Reply::Simple("RESET").into()
}

/// `SUBSCRIBE channel ..`, `PSUBSCRIBE pattern ..`.
pub(in crate::lockd) fn subscribe(
    session: &Session,
    user: &User,
    words: &mut Words<'_>,
    kind: Kind,
) -> Answered {
    let mut replies = Vec::new();
    let mut channel = Some(words.word()?);
    while let Some(name) = channel {
        let count = session.daemon.hub.subscribe(session.id, (kind, &user.prefix), name);
        replies.push(subscription(kind.subscribe(), Reply::Bulk(name.clone()), count));
        channel = words.next();
    }
    Ok(Answer::Several(replies))
}

/// `UNSUBSCRIBE [channel ..]`, `PUNSUBSCRIBE [pattern ..]`: from all of them, if it names none.
pub(in crate::lockd) fn unsubscribe(
    session: &Session,
    user: &User,
    words: &mut Words<'_>,
    kind: Kind,
) -> Answered {
    let hub = &session.daemon.hub;
    let mut channels: Vec<Bytes> = Vec::new();
    while let Some(name) = words.next() {
        channels.push(name.clone());
    }
    if channels.is_empty() {
        channels = hub.subscriptions(session.id, kind);
    }
    let mut replies = Vec::new();
    for name in channels {
        let count = hub.unsubscribe(session.id, (kind, &user.prefix), &name);
        replies.push(subscription(kind.unsubscribe(), Reply::Bulk(name), count));
    }
    if replies.is_empty() {
        replies.push(subscription(kind.unsubscribe(), Reply::Null, 0));
    }
    Ok(Answer::Several(replies))
}

fn subscription(kind: &str, channel: Reply, count: usize) -> Reply {
    Reply::Push(vec![Reply::text(kind), channel, Reply::number(count)])
}

/// `PUBLISH channel message`: to how many it went. Of this daemon's clients only.
pub(in crate::lockd) fn publish(session: &Session, user: &User, words: &mut Words<'_>) -> Answered {
    let (channel, message) = (words.word()?, words.word()?);
    words.end()?;
    let count = session.daemon.hub.publish(&user.prefix, channel, message);
    Ok(Reply::number(count).into())
}

/// `INFO`: for people, and for clients that wait until nothing is loading.
pub(in crate::lockd) fn info(session: &Session) -> Reply {
    let daemon = &session.daemon;
    let (counts, locks) = (&daemon.counts, daemon.locks.counts());
    let uptime = Boot::now().since(daemon.started).as_secs();
    let lines = [
        "# Server".to_owned(),
        format!("redis_version:{REDIS_VERSION}"),
        format!("lockd_version:{}", env!("CARGO_PKG_VERSION")),
        "redis_mode:standalone".to_owned(),
        format!("process_id:{}", std::process::id()),
        format!("uptime_in_seconds:{uptime}"),
        "# Clients".to_owned(),
        format!("connected_clients:{}", daemon.hub.connections()),
        "# Persistence".to_owned(),
        "loading:0".to_owned(),
        "# Stats".to_owned(),
        format!("total_connections_received:{}", counts.connections.load(Ordering::Relaxed)),
        format!("total_commands_processed:{}", counts.commands.total()),
        "# Replication".to_owned(),
        "role:master".to_owned(),
        "connected_slaves:0".to_owned(),
        "# Locks".to_owned(),
        format!("locks_held:{}", locks.own()),
        format!("locks_adopted:{}", locks.adopted),
        format!("locks_granted:{}", counts.granted.load(Ordering::Relaxed)),
        format!("locks_expired:{}", counts.expired.load(Ordering::Relaxed)),
        format!("locks_lost:{}", counts.lost.load(Ordering::Relaxed)),
        format!("commands_refused:{}", counts.refused.total()),
        format!("table_operations:{}", daemon.client.statistics().operations()),
        format!("journal_bytes:{}", daemon.journal.size()),
    ];
    Reply::text(lines.map(|line| format!("{line}\r\n")).concat())
}

/// Commands that clients send on their way.
pub(in crate::lockd) fn other(
    session: &mut Session,
    name: &str,
    words: &mut Words<'_>,
) -> Answered {
    Ok(match name {
        "ping" => pong(session, words.next()),
        "echo" => Reply::Bulk(words.word()?.clone()),
        "select" => match words.number()? {
            0 => Reply::OK,
            _ => return Err(Refusal::error("DB index is out of range: there is one, 0")),
        },
        "readonly" | "readwrite" | "asking" => Reply::OK,
        "time" => time(),
        "role" => {
            Reply::Array(vec![Reply::text("master"), Reply::Integer(0), Reply::Array(Vec::new())])
        }
        "command" => Reply::Array(Vec::new()),
        "config" => config(words)?,
        "client" => client(session, words)?,
        "wait" => Reply::Integer(0),
        _ => return Err(Refusal::error(&format!("unknown command '{name}'"))),
    }
    .into())
}

/// To one that is subscribed, RESP2 says it as a message.
fn pong(session: &Session, text: Option<&Bytes>) -> Reply {
    let text = text.map(|text| Reply::Bulk(text.clone()));
    if session.version == Version::Two && session.daemon.hub.is_subscribed(session.id) {
        return Reply::Array(vec![Reply::text("pong"), text.unwrap_or_else(|| Reply::text(""))]);
    }
    text.unwrap_or(Reply::Simple("PONG"))
}

fn time() -> Reply {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    let parts = [now.as_secs().to_string(), now.subsec_micros().to_string()];
    Reply::Array(parts.map(Reply::text).into())
}

fn config(words: &mut Words<'_>) -> Result<Reply, Refusal> {
    match words.word()?.to_ascii_uppercase().as_slice() {
        b"GET" => Ok(Reply::Map(Vec::new())),
        _ => Err(Refusal::error("only CONFIG GET is known, which finds nothing")),
    }
}

fn client(session: &mut Session, words: &mut Words<'_>) -> Result<Reply, Refusal> {
    match words.word()?.to_ascii_uppercase().as_slice() {
        b"SETNAME" => {
            session.client_name = words.text()?.to_owned();
            Ok(Reply::OK)
        }
        b"GETNAME" => Ok(Reply::text(session.client_name.clone())),
        b"SETINFO" => Ok(Reply::OK),
        b"ID" => Ok(Reply::number(session.id)),
        _ => Err(Refusal::error("unknown subcommand of CLIENT")),
    }
}
