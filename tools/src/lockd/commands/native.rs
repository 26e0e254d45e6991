//! The commands of the daemon itself.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use uuid::Uuid;

use crate::lockd::daemon::{Mode, Wanted, WantedTerm};
use crate::lockd::locks::{Held, Term};
use crate::lockd::refusal::Refusal;
use crate::lockd::resp::Reply;
use crate::lockd::session::{Answer, Answered, Session};
use crate::lockd::users::User;
use crate::lockd::words::Words;

/// How long `LOCK` waits if it does not say so: clients whose sockets have a timeout of five
/// seconds must have the answer before.
const WAIT_DEFAULT: Duration = Duration::from_secs(4);

/// The words behind the name in `LOCK`.
#[derive(Debug)]
struct LockWords {
    wait: Option<Duration>,
    ttl: Option<Duration>,
    grace: Duration,
    owner: Option<Bytes>,
    mode: Mode,
    hold: Option<Duration>,
    min_hold: Duration,
    fence: bool,
    label: Option<String>,
}

impl LockWords {
    fn read(words: &mut Words<'_>) -> Result<Self, Refusal> {
        let mut read = LockWords {
            wait: Some(WAIT_DEFAULT),
            ttl: None,
            grace: Duration::ZERO,
            owner: None,
            mode: Mode::Exclusive,
            hold: None,
            min_hold: Duration::ZERO,
            fence: false,
            label: None,
        };
        while let Some(word) = words.next() {
            match word.to_ascii_uppercase().as_slice() {
                b"WAIT" => read.wait = Some(words.milliseconds()?),
                b"NOWAIT" => read.wait = None,
                b"TTL" => read.ttl = Some(words.milliseconds()?),
                b"GRACE" => read.grace = words.milliseconds()?,
                b"OWNER" => read.owner = Some(words.word()?.clone()),
                b"SHARED" => read.mode = Mode::Shared,
                b"MAX" => read.mode = Mode::Limited(most(words)?),
                b"HOLD" => read.hold = Some(words.milliseconds()?),
                b"MINHOLD" => read.min_hold = words.milliseconds()?,
                b"FENCE" => read.fence = true,
                b"LABEL" => read.label = Some(words.text()?.to_owned()),
                _ => return Err(Refusal::error("syntax error")),
            }
        }
        if read.ttl.is_some() && !read.grace.is_zero() {
            return Err(Refusal::error(
                "a lock with TTL ends by itself: GRACE is for those without",
            ));
        }
        Ok(read)
    }
}

fn most(words: &mut Words<'_>) -> Result<u32, Refusal> {
    let most = u32::try_from(words.number()?).ok().filter(|most| *most > 0);
    most.ok_or_else(|| Refusal::error("MAX takes a number of holders, 1 or more"))
}

/// `LOCK name ..`: waits for a lock.
pub(in crate::lockd) fn lock(session: &Session, user: &User, words: &mut Words<'_>) -> Answered {
    let name = user.lock(words.word()?)?;
    let LockWords { wait, ttl, grace, owner, mode, hold, min_hold, fence, label } =
        LockWords::read(words)?;
    let term = match ttl {
        Some(ttl) => WantedTerm::For(ttl),
        None => WantedTerm::Bound { connection: session.id, grace },
    };
    let owner = owner.unwrap_or_else(|| Bytes::from(Uuid::new_v4().simple().to_string()));
    let free = session.wanted(name, owner, term);
    let wanted = Wanted { mode, wait, max_hold: hold, min_hold, label, ..free };
    let daemon = Arc::clone(&session.daemon);
    Answer::later(async move {
        let Some(held) = daemon.take(wanted).await? else { return Ok(Reply::Null) };
        let token = if fence { Some(held.token().await?) } else { None };
        Ok(granted(&held, token))
    })
}

/// The answer to a holder.
fn granted(held: &Held, token: Option<i64>) -> Reply {
    Reply::Map(vec![
        ("owner", Reply::Bulk(held.owner.clone())),
        ("token", token.map_or(Reply::Null, Reply::Integer)),
        ("valid_ms", Reply::milliseconds(held.left())),
    ])
}

/// `UNLOCK name owner`: 1, or 0 if this owner does not hold it.
pub(in crate::lockd) fn unlock(session: &Session, user: &User, words: &mut Words<'_>) -> Answered {
    let (name, owner) = (user.lock(words.word()?)?, words.word()?.clone());
    words.end()?;
    let daemon = Arc::clone(&session.daemon);
    Answer::later(async move { daemon.release_of(&name, &owner).await.map(Reply::flag) })
}

/// `RENEW name owner TTL ms`: how long it is held, or 0 if it is not.
pub(in crate::lockd) fn renew(session: &Session, user: &User, words: &mut Words<'_>) -> Answered {
    let held = named(session, user, words)?;
    if !words.word()?.eq_ignore_ascii_case(b"TTL") {
        return Err(Refusal::error("syntax error"));
    }
    let ttl = words.milliseconds()?;
    words.end()?;
    let Some(held) = held else { return Ok(Reply::Integer(0).into()) };
    let daemon = Arc::clone(&session.daemon);
    Answer::later(async move {
        let is_held = daemon.extend(&held, ttl).await?;
        Ok(if is_held { Reply::milliseconds(held.left()) } else { Reply::Integer(0) })
    })
}

/// `TOKEN name owner`: a fencing token, or nothing if this owner does not hold it.
pub(in crate::lockd) fn token(session: &Session, user: &User, words: &mut Words<'_>) -> Answered {
    let held = named(session, user, words)?;
    words.end()?;
    let Some(held) = held else { return Ok(Reply::Null.into()) };
    Answer::later(async move { Ok(Reply::Integer(held.token().await?)) })
}

/// `HELD name owner`: for how many milliseconds, 0 if it is not.
pub(in crate::lockd) fn held(session: &Session, user: &User, words: &mut Words<'_>) -> Answered {
    let held = named(session, user, words)?;
    words.end()?;
    Ok(held.map_or(Reply::Integer(0), |held| Reply::milliseconds(held.left())).into())
}

/// `ATTACH name owner`: binds a lock to this connection, that of another one or of one that has
/// ended; as `LOCK`, or nothing if it is not held.
pub(in crate::lockd) fn attach(session: &Session, user: &User, words: &mut Words<'_>) -> Answered {
    let held = named(session, user, words)?;
    let mut grace = Duration::ZERO;
    if words.len() > 0 {
        if !words.word()?.eq_ignore_ascii_case(b"GRACE") {
            return Err(Refusal::error("syntax error"));
        }
        grace = words.milliseconds()?;
    }
    words.end()?;
    let term = Term::Bound { connection: session.id, grace };
    let attached = held.filter(|held| session.daemon.set_term(held, term));
    Ok(attached.map_or(Reply::Null, |held| granted(&held, None)).into())
}

/// `WHO name`: state, owner, how long it is held at least in milliseconds, and label.
pub(in crate::lockd) fn who(session: &Session, user: &User, words: &mut Words<'_>) -> Answered {
    let name = user.lock(words.word()?)?;
    words.end()?;
    let daemon = Arc::clone(&session.daemon);
    Answer::later(async move {
        let holder = daemon.look(name.in_table()).await?;
        let (state, who, left) = match holder {
            Some(holder) => {
                let left = holder.remaining.unwrap_or_default();
                ("held", Reply::text(holder.owner.as_str()), Reply::milliseconds(left))
            }
            None => ("free", Reply::Null, Reply::Integer(0)),
        };
        let owners = daemon.locks.holders(name.in_table());
        let owners = owners.iter().map(|held| Reply::Bulk(held.owner.clone())).collect();
        Ok(Reply::Array(vec![Reply::text(state), who, left, Reply::Array(owners)]))
    })
}

/// `LOCKSTATUS`: whether locks can be had now.
pub(in crate::lockd) fn status(session: &Session, words: &mut Words<'_>) -> Answered {
    words.end()?;
    let daemon = Arc::clone(&session.daemon);
    Answer::later(async move {
        Ok(match daemon.unready().await {
            None => Reply::Simple("LOCKREADY"),
            Some(reason) => Reply::Status(format!("NOLOCK {reason}")),
        })
    })
}

/// The lock that a command names, if it is held.
fn named(
    session: &Session,
    user: &User,
    words: &mut Words<'_>,
) -> Result<Option<Arc<Held>>, Refusal> {
    let (name, owner) = (user.lock(words.word()?)?, words.word()?);
    Ok(session.daemon.locks.find(name.in_table(), owner))
}
