//! The commands of Redis that lock clients send. It keeps locks, not data.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::redisson;
use crate::lockd::daemon::{Daemon, WantedTerm};
use crate::lockd::locks::Held;
use crate::lockd::peer::Peer;
use crate::lockd::refusal::Refusal;
use crate::lockd::resp::Reply;
use crate::lockd::session::{Answer, Answered, Session};
use crate::lockd::users::{LockName, User};
use crate::lockd::words::Words;

/// `SET name owner NX PX ms` takes a lock that is free, `SET name owner XX PX ms` extends it, and
/// so does `IFEQ owner`.
pub(in crate::lockd) fn set(session: &Session, user: &User, words: &mut Words<'_>) -> Answered {
    let (name, owner) = (user.lock(words.word()?)?, words.word()?.clone());
    let (mut time, mut takes) = (None, None);
    let mut of_owner = None;
    while let Some(word) = words.next() {
        match word.to_ascii_uppercase().as_slice() {
            b"NX" if takes.is_none() => takes = Some(true),
            b"XX" if takes.is_none() => takes = Some(false),
            b"IFEQ" if takes.is_none() => {
                of_owner = Some(words.word()?.clone());
                takes = Some(false);
            }
            b"PX" if time.is_none() => time = Some(words.milliseconds()?),
            b"EX" if time.is_none() => {
                let seconds = u32::try_from(words.number()?).ok().filter(|it| *it > 0);
                let seconds = seconds.ok_or_else(|| words.invalid_expire())?;
                time = Some(Duration::from_secs(u64::from(seconds)));
            }
            _ => return Err(Refusal::error("syntax error")),
        }
    }
    match (takes, time) {
        (Some(true), time) => take(session, name, owner, time, Reply::OK, Reply::Null),
        (Some(false), Some(time)) => {
            let daemon = Arc::clone(&session.daemon);
            let Some(held) =
                daemon.locks.find(name.in_table(), of_owner.as_ref().unwrap_or(&owner))
            else {
                return Ok(Reply::Null.into());
            };
            Answer::later(async move {
                Ok(if daemon.extend(&held, time).await? { Reply::OK } else { Reply::Null })
            })
        }
        (Some(false) | None, _) => Err(Refusal::error(
            "this daemon keeps locks, not data: use SET with NX to take a lock, with XX and PX to \
             extend it",
        )),
    }
}

/// `SETNX name owner`: 1, or 0 if it is taken.
pub(in crate::lockd) fn set_if_free(
    session: &Session,
    user: &User,
    words: &mut Words<'_>,
) -> Answered {
    let (name, owner) = (user.lock(words.word()?)?, words.word()?.clone());
    words.end()?;
    take(session, name, owner, None, Reply::Integer(1), Reply::Integer(0))
}

fn take(
    session: &Session,
    name: LockName,
    owner: Bytes,
    time: Option<Duration>,
    granted: Reply,
    taken: Reply,
) -> Answered {
    let term = match time {
        Some(time) => WantedTerm::For(time),
        None => endless(session)?,
    };
    let (daemon, wanted) = (Arc::clone(&session.daemon), session.wanted(name, owner, term));
    Answer::later(
        async move { Ok(if daemon.take(wanted).await?.is_some() { granted } else { taken }) },
    )
}

/// The term of a lock that is to have no end.
fn endless(session: &Session) -> Result<WantedTerm, Refusal> {
    match session.peer {
        Peer::Process(_) => Ok(WantedTerm::Process),
        Peer::Address(_) | Peer::Unseen if session.daemon.limits.endless_over_tcp => {
            Ok(WantedTerm::Bound { connection: session.id, grace: Duration::ZERO })
        }
        Peer::Address(_) => Err(Refusal::error(
            "a lock without a time to live would stay after its client died: give it PX, \
             use the Unix socket, or start the daemon with --endless-over-tcp, which ends it with \
             its connection",
        )),
        Peer::Unseen => Err(Refusal::error(
            "a lock without a time to live would stay after its client died, whose process can't \
             be seen from the daemon's container: give it PX, or start the daemon in the same \
             process namespace, or with --endless-over-tcp",
        )),
    }
}

/// Who holds a lock: here its owner, elsewhere `~` and the holder as others see it.
async fn owner(daemon: &Daemon, name: &LockName) -> Result<Option<(Bytes, Duration)>, Refusal> {
    if let Some(held) = daemon.locks.holders(name.in_table()).first() {
        return Ok(Some((held.owner.clone(), held.left())));
    }
    let elsewhere = daemon.holder_elsewhere(name).await?;
    Ok(elsewhere.map(|(who, left)| (Bytes::from(format!("~{who}")), left)))
}

/// `GET name`: the owner.
pub(in crate::lockd) fn get(session: &Session, user: &User, words: &mut Words<'_>) -> Answered {
    let key = words.word()?;
    words.end()?;
    if let Some(lock) = redisson::lock_of_token(key) {
        return redisson::token(session, &user.lock(lock)?);
    }
    let name = user.lock(key)?;
    let daemon = Arc::clone(&session.daemon);
    Answer::later(async move {
        Ok(owner(&daemon, &name).await?.map_or(Reply::Null, |(owner, _)| Reply::Bulk(owner)))
    })
}

/// `EXISTS name ..`: how many are held.
pub(in crate::lockd) fn exists(session: &Session, user: &User, words: &mut Words<'_>) -> Answered {
    let mut names = vec![user.lock(words.word()?)?];
    while let Some(word) = words.next() {
        names.push(user.lock(word)?);
    }
    let daemon = Arc::clone(&session.daemon);
    Answer::later(async move {
        let mut count = 0;
        for name in names {
            count += i64::from(owner(&daemon, &name).await?.is_some());
        }
        Ok(Reply::Integer(count))
    })
}

/// `PTTL name`: for how many milliseconds it is held, -2 if it is not.
pub(in crate::lockd) fn remaining(
    session: &Session,
    user: &User,
    words: &mut Words<'_>,
) -> Answered {
    left(session, user, words, Reply::milliseconds)
}

/// `TTL name`: the same in seconds.
pub(in crate::lockd) fn remaining_seconds(
    session: &Session,
    user: &User,
    words: &mut Words<'_>,
) -> Answered {
    left(session, user, words, |left| Reply::number(left.as_millis().div_ceil(1_000)))
}

fn left(
    session: &Session,
    user: &User,
    words: &mut Words<'_>,
    shown: fn(Duration) -> Reply,
) -> Answered {
    let name = user.lock(words.word()?)?;
    words.end()?;
    let daemon = Arc::clone(&session.daemon);
    Answer::later(async move {
        Ok(owner(&daemon, &name).await?.map_or(Reply::Integer(-2), |(_, left)| shown(left)))
    })
}

/// `HEXISTS name owner`: whether this owner holds it, as Redisson asks.
pub(in crate::lockd) fn has_owner(
    session: &Session,
    user: &User,
    words: &mut Words<'_>,
) -> Answered {
    let (name, owner) = (user.lock(words.word()?)?, words.word()?);
    words.end()?;
    Ok(Reply::flag(session.daemon.locks.find(name.in_table(), owner).is_some()).into())
}

/// `HGET name owner`: how often this owner has it, as Redisson asks.
pub(in crate::lockd) fn uses(session: &Session, user: &User, words: &mut Words<'_>) -> Answered {
    let (name, owner) = (user.lock(words.word()?)?, words.word()?);
    words.end()?;
    let held = session.daemon.locks.find(name.in_table(), owner);
    Ok(held.map_or(Reply::Null, |held| Reply::text(held.uses().to_string())).into())
}

/// `DELEX name IFEQ owner`: 1 if it was released, else 0.
pub(in crate::lockd) fn delete_if(
    session: &Session,
    user: &User,
    words: &mut Words<'_>,
) -> Answered {
    let name = user.lock(words.word()?)?;
    if !words.word()?.eq_ignore_ascii_case(b"IFEQ") {
        return Err(Refusal::error("syntax error"));
    }
    let owner = words.word()?.clone();
    words.end()?;
    let daemon = Arc::clone(&session.daemon);
    Answer::later(async move { daemon.release_of(&name, &owner).await.map(Reply::flag) })
}

/// `DEL name ..`: how many were released. Only those who took a lock may release it without its
/// owner's name: the same process, or the same address.
pub(in crate::lockd) fn delete(session: &Session, user: &User, words: &mut Words<'_>) -> Answered {
    let mut own: Vec<Arc<Held>> = Vec::new();
    let mut word = Some(words.word()?);
    while let Some(key) = word {
        session.daemon.latches.forget(&user.prefix, key);
        let name = user.lock(key)?;
        let held = session.daemon.locks.holders(name.in_table());
        own.extend(held.into_iter().filter(|held| held.peer.is_same(session.peer)));
        word = words.next();
    }
    let daemon = Arc::clone(&session.daemon);
    Answer::later(async move {
        let mut count = 0;
        for held in own {
            count += i64::from(daemon.release(&held).await?);
        }
        Ok(Reply::Integer(count))
    })
}
