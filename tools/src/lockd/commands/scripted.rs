//! `EVAL` and its kin: carries out what scripts are known to do.

#![allow(clippy::wildcard_enum_match_arm, reason = "few of many behaviours differ at a time")]

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;

use super::redisson;
use crate::lockd::daemon::{Daemon, WantedTerm};
use crate::lockd::locks::Held;
use crate::lockd::refusal::Refusal;
use crate::lockd::resp::Reply;
use crate::lockd::scripts::{Behaviour, digest, hex, parse_digest};
use crate::lockd::session::{Answer, Answered, Session};
use crate::lockd::users::{LockName, User};
use crate::lockd::words::{Words, number};

/// A call of a script.
pub(super) struct Call {
    pub(super) keys: Vec<Bytes>,
    pub(super) arguments: Vec<Bytes>,
}

impl Call {
    fn read(words: &mut Words<'_>) -> Result<Self, Refusal> {
        let count = words.number()?;
        let keys = usize::try_from(count).ok().filter(|count| *count <= words.len());
        let keys = keys
            .ok_or_else(|| Refusal::error("Number of keys can't be greater than number of args"))?;
        let mut all: Vec<Bytes> = Vec::with_capacity(words.len());
        while let Some(word) = words.next() {
            all.push(word.clone());
        }
        let arguments = all.split_off(keys);
        Ok(Call { keys: all, arguments })
    }

    /// The name of the first lock.
    pub(super) fn name(&self, user: &User) -> Result<LockName, Refusal> {
        user.lock(self.keys.first().ok_or_else(too_few)?)
    }

    /// The names of all locks.
    pub(super) fn names(&self, user: &User) -> Result<Vec<LockName>, Refusal> {
        if self.keys.is_empty() {
            return Err(too_few());
        }
        self.keys.iter().map(|key| user.lock(key)).collect()
    }

    /// An argument, counted from 1 as scripts do.
    pub(super) fn argument(&self, number: usize) -> Result<&Bytes, Refusal> {
        self.arguments.get(number - 1).ok_or_else(too_few)
    }

    /// An argument in milliseconds; `None` if it is zero or less.
    pub(super) fn milliseconds(&self, at: usize) -> Result<Option<Duration>, Refusal> {
        let milliseconds = number(self.argument(at)?)?;
        let positive = u64::try_from(milliseconds).ok().filter(|it| *it > 0);
        Ok(positive.map(Duration::from_millis))
    }

    /// An argument in seconds; `None` if it is zero or less.
    fn seconds(&self, at: usize) -> Result<Option<Duration>, Refusal> {
        let seconds = u32::try_from(number(self.argument(at)?)?).ok().filter(|it| *it > 0);
        Ok(seconds.map(|seconds| Duration::from_secs(u64::from(seconds))))
    }
}

fn too_few() -> Refusal {
    Refusal::error("this script takes more keys or arguments")
}

/// `EVAL script count key .. argument ..`.
pub(in crate::lockd) fn eval(
    session: &Session,
    user: &Arc<User>,
    words: &mut Words<'_>,
) -> Answered {
    let text = words.word()?;
    let known = session.daemon.scripts.of_text(text);
    let behaviour = known.map_err(|digest| {
        session.daemon.counts.unknown_scripts.fetch_add(1, Ordering::Relaxed);
        let digest = hex(&digest);
        Refusal::error(&format!(
            "script {digest} is not known to this lock daemon, which runs none: let it start with \
             --script {digest}=BEHAVIOUR if the script is one of a lock"
        ))
    })?;
    run(session, user, behaviour, &Call::read(words)?)
}

/// `EVALSHA digest count key .. argument ..`.
pub(in crate::lockd) fn eval_known(
    session: &Session,
    user: &Arc<User>,
    words: &mut Words<'_>,
) -> Answered {
    let digest = parse_digest(words.word()?);
    let known = digest.and_then(|digest| session.daemon.scripts.of_digest(&digest));
    let behaviour =
        known.ok_or_else(|| Refusal::of("NOSCRIPT", "No matching script. Please use EVAL."))?;
    run(session, user, behaviour, &Call::read(words)?)
}

/// `SCRIPT LOAD|EXISTS|FLUSH`.
pub(in crate::lockd) fn script(session: &Session, words: &mut Words<'_>) -> Answered {
    let scripts = &session.daemon.scripts;
    Ok(match words.word()?.to_ascii_uppercase().as_slice() {
        b"LOAD" => {
            let text = words.word()?;
            // One that is not known is refused when it is called.
            let _ = scripts.of_text(text);
            Reply::text(hex(&digest(text)))
        }
        b"EXISTS" => {
            let mut found = Vec::new();
            while let Some(word) = words.next() {
                let known = parse_digest(word).and_then(|digest| scripts.of_digest(&digest));
                found.push(Reply::flag(known.is_some()));
            }
            Reply::Array(found)
        }
        b"FLUSH" => {
            scripts.forget();
            Reply::OK
        }
        _ => return Err(Refusal::error("unknown subcommand of SCRIPT")),
    }
    .into())
}

fn run(session: &Session, user: &Arc<User>, behaviour: Behaviour, call: &Call) -> Answered {
    use Behaviour as B;
    match behaviour {
        B::Release
        | B::ReleaseOrFree
        | B::ReleaseOrWhy
        | B::ReleaseOrNothing
        | B::ReleaseAndPublish
        | B::ReleaseOrError => release(session, user, behaviour, call),
        B::ReleaseByTaker => release_by_taker(session, user, call),
        B::Extend | B::ExtendOrNothing | B::ExtendOrWhy | B::ExtendSeconds | B::ExtendOrAdd => {
            extend(session, user, behaviour, call)
        }
        B::Left | B::LeftOrThree | B::LeftSeconds => left(session, user, behaviour, call),
        B::OwnerAndLeft => owner_and_left(session, user, call),
        B::TakeAll => take_all(session, user, call),
        B::ExtendAll => extend_all(session, user, call),
        B::ReleaseAll => release_all(session, user, call),
        B::TakeOrExtend
        | B::TakeOrExtendOrError
        | B::TakeIfYes
        | B::TakeOver
        | B::TakeOrZero
        | B::TakeSeconds => take(session, user, behaviour, call),
        B::RedissonLock | B::RedissonOnce => redisson::lock(session, user, behaviour, call),
        B::RedissonFenced => redisson::fenced(session, user, call),
        B::RedissonUnlock => redisson::unlock(session, user, call),
        B::RedissonRenew => redisson::renew(session, user, call),
        B::RedissonRenewOne => redisson::renew_one(session, user, call),
        B::RedissonExpire => redisson::expire(session, user, call),
        B::RedissonProbe => Ok(Reply::Null.into()),
        B::RedissonForce => redisson::force(session, user, call),
    }
}

/// The lock of the first key and the first argument, if that owner holds it.
fn own(daemon: &Daemon, name: &LockName, call: &Call) -> Result<Option<Arc<Held>>, Refusal> {
    Ok(daemon.locks.find(name.in_table(), call.argument(1)?))
}

fn release(session: &Session, user: &User, behaviour: Behaviour, call: &Call) -> Answered {
    let (daemon, name) = (Arc::clone(&session.daemon), call.name(user)?);
    let owner = call.argument(1)?.clone();
    let channel = match behaviour {
        Behaviour::ReleaseAndPublish => Some((call.argument(2)?.clone(), call.keys[0].clone())),
        _ => None,
    };
    Answer::later(async move {
        if daemon.release_of(&name, &owner).await? {
            if let Some((channel, message)) = channel {
                daemon.hub.publish(name.prefix(), &channel, &message);
            }
            return Ok(Reply::Integer(1));
        }
        Ok(match behaviour {
            Behaviour::ReleaseOrNothing | Behaviour::ReleaseAndPublish => Reply::Null,
            Behaviour::ReleaseOrFree if !is_taken(&daemon, &name).await? => Reply::Integer(-1),
            Behaviour::ReleaseOrWhy if !is_taken(&daemon, &name).await? => Reply::Integer(-1),
            Behaviour::ReleaseOrWhy => Reply::Integer(-2),
            Behaviour::ReleaseOrError if is_taken(&daemon, &name).await? => another_owner(),
            Behaviour::ReleaseOrError => Reply::OK,
            _ => Reply::Integer(0),
        })
    })
}

/// Releases a lock whoever owns it, for the one who took it.
fn release_by_taker(session: &Session, user: &User, call: &Call) -> Answered {
    let (daemon, name) = (Arc::clone(&session.daemon), call.name(user)?);
    let (channel, message) = (call.argument(1)?.clone(), call.keys[0].clone());
    let own = taken_by(session, &name);
    Answer::later(async move {
        let Some(held) = own else { return Ok(Reply::Null) };
        if !daemon.release(&held).await? {
            return Ok(Reply::Null);
        }
        daemon.hub.publish(name.prefix(), &channel, &message);
        Ok(Reply::Integer(1))
    })
}

/// The lock of a name, if the other end of this connection took it.
pub(super) fn taken_by(session: &Session, name: &LockName) -> Option<Arc<Held>> {
    let holders = session.daemon.locks.holders(name.in_table());
    holders.into_iter().find(|held| held.peer.is_same(session.peer))
}

fn another_owner() -> Reply {
    Reply::Error("ERROR".to_owned())
}

/// Whether someone holds a lock: here, or by one look in the table.
async fn is_taken(daemon: &Daemon, name: &LockName) -> Result<bool, Refusal> {
    let is_here = !daemon.locks.holders(name.in_table()).is_empty();
    Ok(is_here || daemon.holder_elsewhere(name).await?.is_some())
}

fn extend(session: &Session, user: &User, behaviour: Behaviour, call: &Call) -> Answered {
    let (daemon, name) = (Arc::clone(&session.daemon), call.name(user)?);
    let held = own(&daemon, &name, call)?;
    let mut time = match behaviour {
        Behaviour::ExtendSeconds => call.seconds(2)?,
        _ => call.milliseconds(2)?,
    };
    if behaviour == Behaviour::ExtendOrAdd
        && call.arguments.get(2).is_none_or(|word| word.as_ref() == b"0")
        && let (Some(time), Some(held)) = (&mut time, &held)
    {
        *time += held.left();
    }
    Answer::later(async move {
        // With no time left the lock stays as it is: no answer says that it was extended.
        let is_extended = match (&held, time) {
            (Some(held), Some(time)) => daemon.extend(held, time).await?,
            (Some(_), None) | (None, _) => false,
        };
        if is_extended {
            return Ok(Reply::Integer(1));
        }
        Ok(match behaviour {
            Behaviour::ExtendOrNothing => Reply::Null,
            Behaviour::ExtendOrWhy if is_taken(&daemon, &name).await? => Reply::Integer(-1),
            _ => Reply::Integer(0),
        })
    })
}

fn left(session: &Session, user: &User, behaviour: Behaviour, call: &Call) -> Answered {
    let name = call.name(user)?;
    let held = own(&session.daemon, &name, call)?;
    Ok(match (held, behaviour) {
        (Some(held), Behaviour::LeftSeconds) => Reply::number(held.left().as_secs()),
        (Some(held), _) => Reply::milliseconds(held.left()),
        (None, Behaviour::LeftOrThree) => Reply::Integer(-3),
        (None, Behaviour::LeftSeconds) => another_owner(),
        (None, _) => Reply::Integer(0),
    }
    .into())
}

fn owner_and_left(session: &Session, user: &User, call: &Call) -> Answered {
    let name = call.name(user)?;
    let holders = session.daemon.locks.holders(name.in_table());
    Ok(match holders.first() {
        Some(held) => {
            Reply::Array(vec![Reply::Bulk(held.owner.clone()), Reply::milliseconds(held.left())])
        }
        None => Reply::Array(vec![Reply::Null, Reply::Integer(-2)]),
    }
    .into())
}

fn take_all(session: &Session, user: &User, call: &Call) -> Answered {
    let (names, owner) = (call.names(user)?, call.argument(1)?);
    let time = call.milliseconds(2)?.ok_or_else(no_time)?;
    let daemon = Arc::clone(&session.daemon);
    let wanted: Vec<_> = names
        .into_iter()
        .map(|name| session.wanted(name, owner.clone(), WantedTerm::For(time)))
        .collect();
    Answer::later(async move {
        let mut taken = Taken { daemon: &daemon, held: Vec::new() };
        for wanted in wanted {
            match daemon.take(wanted).await? {
                Some(held) => taken.held.push(held),
                None => return Ok(Reply::Integer(0)),
            }
        }
        Ok(Reply::number(std::mem::take(&mut taken.held).len()))
    })
}

/// Some of several locks. Dropped, it gives them back.
struct Taken<'a> {
    daemon: &'a Arc<Daemon>,
    held: Vec<Arc<Held>>,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        for held in &self.held {
            self.daemon.drop_lock(held);
        }
    }
}

fn no_time() -> Refusal {
    Refusal::error("invalid expire time in 'eval' command")
}

/// The locks of all keys, if the owner holds each of them.
fn all_own(session: &Session, user: &User, call: &Call) -> Result<Option<Vec<Arc<Held>>>, Refusal> {
    let (names, owner) = (call.names(user)?, call.argument(1)?);
    let locks = &session.daemon.locks;
    Ok(names.iter().map(|name| locks.find(name.in_table(), owner)).collect())
}

fn extend_all(session: &Session, user: &User, call: &Call) -> Answered {
    let time = call.milliseconds(2)?.ok_or_else(no_time)?;
    let Some(held) = all_own(session, user, call)? else { return Ok(Reply::Integer(0).into()) };
    let daemon = Arc::clone(&session.daemon);
    Answer::later(async move {
        for held in &held {
            if !daemon.extend(held, time).await? {
                return Ok(Reply::Integer(0));
            }
        }
        Ok(Reply::number(held.len()))
    })
}

fn release_all(session: &Session, user: &User, call: &Call) -> Answered {
    let (names, owner) = (call.names(user)?, call.argument(1)?.clone());
    let daemon = Arc::clone(&session.daemon);
    Answer::later(async move {
        let mut released = 0;
        for name in &names {
            released += usize::from(daemon.release_of(name, &owner).await?);
        }
        Ok(Reply::number(released))
    })
}

/// Takes a lock; some extend it if it is theirs.
fn take(session: &Session, user: &User, behaviour: Behaviour, call: &Call) -> Answered {
    let (name, owner) = (call.name(user)?, call.argument(1)?.clone());
    let time = match behaviour {
        Behaviour::TakeSeconds => call.seconds(2)?,
        Behaviour::TakeOver => call.milliseconds(3)?,
        _ => call.milliseconds(2)?,
    };
    let time = time.ok_or_else(no_time)?;
    let daemon = Arc::clone(&session.daemon);
    let own = match behaviour {
        Behaviour::TakeSeconds | Behaviour::TakeOrZero => None,
        Behaviour::TakeOver => {
            let counts = usize::try_from(number(call.argument(2)?)?).unwrap_or(usize::MAX);
            let begin = owner.slice(..counts.min(owner.len()));
            let holders = daemon.locks.holders(name.in_table());
            holders.into_iter().find(|held| held.owner.starts_with(&begin))
        }
        _ => daemon.locks.find(name.in_table(), &owner),
    };
    let may_take = behaviour != Behaviour::TakeIfYes || call.argument(3)?.as_ref() == b"yes";
    let wanted = session.wanted(name, owner.clone(), WantedTerm::For(time));
    Answer::later(async move {
        let is_held = match own {
            Some(held) => {
                let is_extended = daemon.extend(&held, time).await?;
                if is_extended && held.owner != owner {
                    daemon.pass_on(&held, owner)
                } else {
                    is_extended
                }
            }
            None => may_take && daemon.take(wanted).await?.is_some(),
        };
        Ok(match behaviour {
            Behaviour::TakeOrExtend | Behaviour::TakeOrZero if is_held => Reply::Integer(1),
            Behaviour::TakeOrZero => Reply::Integer(0),
            _ if is_held => Reply::OK,
            Behaviour::TakeOrExtendOrError => another_owner(),
            _ => Reply::Null,
        })
    })
}
