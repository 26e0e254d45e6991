//! The scripts of Redisson's locks. An owner may have a lock more than once.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::scripted::{Call, taken_by};
use crate::lockd::daemon::{Daemon, WantedTerm};
use crate::lockd::locks::Held;
use crate::lockd::refusal::Refusal;
use crate::lockd::resp::Reply;
use crate::lockd::scripts::Behaviour;
use crate::lockd::session::{Answer, Answered, Session};
use crate::lockd::users::{LockName, User};

/// When to ask again for a lock that another daemon holds.
const AGAIN_AFTER: Duration = Duration::from_millis(100);

/// What a request for a lock comes to.
enum Taken {
    /// It is the owner's, perhaps once more.
    Held(Arc<Held>),
    /// Another one has it; how long at most, as a reply.
    Taken(Reply),
}

/// Takes a lock, or once more.
fn take(
    session: &Session,
    user: &User,
    call: &Call,
) -> Result<impl Future<Output = Result<Taken, Refusal>> + Send + use<>, Refusal> {
    let (name, owner) = (call.name(user)?, call.argument(2)?.clone());
    let time = call.milliseconds(1)?;
    let time =
        time.ok_or_else(|| Refusal::error("a lease of Redisson is a time, not zero or less"))?;
    let daemon = Arc::clone(&session.daemon);
    let wanted = session.wanted(name.clone(), owner.clone(), WantedTerm::For(time));
    Ok(async move {
        if let Some(held) = daemon.locks.find(name.in_table(), &owner)
            && daemon.extend(&held, time).await?
        {
            held.use_again();
            daemon.note(&held);
            return Ok(Taken::Held(held));
        }
        Ok(match daemon.take(wanted).await? {
            Some(held) => Taken::Held(held),
            None => Taken::Taken(left_of_holder(&daemon, &name).await?),
        })
    })
}

/// How long the holder of a lock has it. Redisson waits until then, unless it hears of a
/// release before.
async fn left_of_holder(daemon: &Daemon, name: &LockName) -> Result<Reply, Refusal> {
    if let Some(held) = daemon.locks.holders(name.in_table()).first() {
        return Ok(Reply::milliseconds(held.left()));
    }
    let elsewhere = daemon.holder_elsewhere(name).await?;
    // No message comes from there, nor of one that was released just now.
    let left = elsewhere.map_or(AGAIN_AFTER, |(_, left)| left.min(AGAIN_AFTER));
    Ok(Reply::milliseconds(left))
}

/// Nothing, or how long the holder has it.
pub(super) fn lock(session: &Session, user: &User, behaviour: Behaviour, call: &Call) -> Answered {
    if behaviour == Behaviour::RedissonOnce {
        let name = call.name(user)?;
        if session.daemon.locks.find(name.in_table(), call.argument(2)?).is_some() {
            let text = String::from_utf8_lossy(call.argument(3)?).into_owned();
            return Ok(Reply::Error(text).into());
        }
    }
    let taken = take(session, user, call)?;
    Answer::later(async move {
        Ok(match taken.await? {
            Taken::Held(_) => Reply::Null,
            Taken::Taken(left) => left,
        })
    })
}

/// -1 and a fencing token, or how long the holder has it and -1.
pub(super) fn fenced(session: &Session, user: &User, call: &Call) -> Answered {
    let (daemon, taken) = (Arc::clone(&session.daemon), take(session, user, call)?);
    Answer::later(async move {
        let held = match taken.await? {
            Taken::Held(held) => held,
            Taken::Taken(left) => return Ok(Reply::Array(vec![left, Reply::Integer(-1)])),
        };
        match held.token().await {
            Ok(token) => Ok(Reply::Array(vec![Reply::Integer(-1), Reply::Integer(token)])),
            Err(error) => {
                // The client does not know that it holds it.
                if held.use_less() == 0 {
                    daemon.drop_lock(&held);
                }
                Err(error)
            }
        }
    })
}

/// The lock whose token a key names.
pub(super) fn lock_of_token(key: &[u8]) -> Option<&[u8]> {
    let name = key.strip_prefix(b"redisson_lock_token:")?;
    // A name with braces gets no others.
    Some(name.strip_prefix(b"{").and_then(|name| name.strip_suffix(b"}")).unwrap_or(name))
}

/// `GET` of the token of a lock: one that was issued to its holder, or nothing if it is free.
pub(super) fn token(session: &Session, name: &LockName) -> Answered {
    let holders = session.daemon.locks.holders(name.in_table());
    let Some(held) = holders.into_iter().next() else { return Ok(Reply::Null.into()) };
    Answer::later(async move {
        let token = match held.last_token() {
            Some(token) => token,
            None => held.token().await?,
        };
        Ok(Reply::text(token.to_string()))
    })
}

/// 1 if it is free now, 0 if its owner still has it, nothing if it had not. Asked again with the
/// same latch, the same.
pub(super) fn unlock(session: &Session, user: &User, call: &Call) -> Answered {
    let name = call.name(user)?;
    let (time, owner) = (call.milliseconds(2)?, call.argument(3)?.clone());
    // Before version 3.24 there is none.
    let latch = match call.keys.get(2) {
        Some(latch) => Some((latch.clone(), call.milliseconds(5)?.unwrap_or_default())),
        None => None,
    };
    let daemon = Arc::clone(&session.daemon);
    if let Some((latch, _)) = &latch
        && let Some(before) = daemon.latches.result(name.prefix(), latch)
    {
        return Ok(Reply::Integer(before).into());
    }
    Answer::later(async move {
        let Some(held) = daemon.locks.find(name.in_table(), &owner) else {
            return Ok(Reply::Null);
        };
        let note = |result| {
            if let Some((latch, time)) = latch {
                daemon.latches.note(name.prefix(), latch, result, time);
            }
        };
        if held.use_less() > 0 {
            if let Some(time) = time {
                // Its time is that of the lock before, at least: it was asked for the same.
                daemon.extend(&held, time).await?;
            }
            daemon.note(&held);
            note(0);
            return Ok(Reply::Integer(0));
        }
        // Before the release: a client that asks again must not hear that it holds nothing.
        note(1);
        daemon.release(&held).await?;
        Ok(Reply::Integer(1))
    })
}

/// Of each lock 1 or 0: whether it was extended.
pub(super) fn renew(session: &Session, user: &User, call: &Call) -> Answered {
    let names = call.names(user)?;
    let time = call.milliseconds(1)?;
    let owners: Vec<Bytes> = call.arguments.iter().skip(1).cloned().collect();
    let daemon = Arc::clone(&session.daemon);
    Answer::later(async move {
        let mut results = Vec::with_capacity(names.len());
        for (name, owner) in names.iter().zip(owners) {
            let held = daemon.locks.find(name.in_table(), &owner);
            let is_extended = match (held, time) {
                (Some(held), Some(time)) => daemon.extend(&held, time).await?,
                (Some(_), None) | (None, _) => false,
            };
            results.push(Reply::flag(is_extended));
        }
        Ok(Reply::Array(results))
    })
}

/// 1 if it was extended, else 0.
pub(super) fn renew_one(session: &Session, user: &User, call: &Call) -> Answered {
    let (name, time) = (call.name(user)?, call.milliseconds(1)?);
    let held = session.daemon.locks.find(name.in_table(), call.argument(2)?);
    extend(session, held, time)
}

/// The same, whoever owns it, for the one who took it.
pub(super) fn expire(session: &Session, user: &User, call: &Call) -> Answered {
    let (name, time) = (call.name(user)?, call.milliseconds(1)?);
    extend(session, taken_by(session, &name), time)
}

fn extend(session: &Session, held: Option<Arc<Held>>, time: Option<Duration>) -> Answered {
    let daemon = Arc::clone(&session.daemon);
    let (Some(held), Some(time)) = (held, time) else { return Ok(Reply::Integer(0).into()) };
    Answer::later(async move { Ok(Reply::flag(daemon.extend(&held, time).await?)) })
}

/// 1 if it was held here, whoever had it, else 0.
pub(super) fn force(session: &Session, user: &User, call: &Call) -> Answered {
    let name = call.name(user)?;
    let daemon = Arc::clone(&session.daemon);
    Answer::later(async move {
        let mut is_released = false;
        for held in daemon.locks.holders(name.in_table()) {
            is_released |= daemon.release(&held).await?;
        }
        Ok(Reply::flag(is_released))
    })
}
