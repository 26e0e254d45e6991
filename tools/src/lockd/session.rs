//! One connection's side of the conversation: who it is, and which command does what.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bakery_lock::CancellationToken;
use bytes::Bytes;

use super::commands::{connection, native, redis, scripted};
use super::daemon::{Daemon, Mode, Wanted, WantedTerm};
use super::hub::Kind;
use super::locks::ConnectionId;
use super::peer::Peer;
use super::refusal::Refusal;
use super::resp::{Reply, Request, Version};
use super::users::{LockName, User};
use super::words::Words;

/// The longest name of a command.
const COMMAND_MAX: usize = 16;

/// What a command comes to.
pub(super) enum Answer {
    Now(Reply),
    /// Several replies, one after the other.
    Several(Vec<Reply>),
    /// Once something has happened. Commands behind it are carried out meanwhile.
    Later(Pin<Box<dyn Future<Output = Reply> + Send>>),
    /// The connection ends with it.
    Last(Reply),
}

/// A command's result.
pub(super) type Answered = Result<Answer, Refusal>;

impl Answer {
    /// What a future comes to.
    pub(super) fn later(
        work: impl Future<Output = Result<Reply, Refusal>> + Send + 'static,
    ) -> Answered {
        Ok(Answer::Later(Box::pin(async { work.await.unwrap_or_else(Reply::from) })))
    }
}

impl From<Reply> for Answer {
    fn from(reply: Reply) -> Self {
        Answer::Now(reply)
    }
}

/// One connection.
pub(super) struct Session {
    pub(super) daemon: Arc<Daemon>,
    pub(super) id: ConnectionId,
    pub(super) peer: Peer,
    pub(super) version: Version,
    /// `None` until it has logged in.
    user: Option<Arc<User>>,
    pub(super) client_name: String,
    /// Cancelled when the client has closed the connection: it wants no lock any more.
    pub(super) closed: CancellationToken,
}

impl Session {
    pub(super) fn new(daemon: Arc<Daemon>, id: ConnectionId, peer: Peer) -> Self {
        let user = daemon.users.anyone();
        let (version, client_name) = (Version::default(), String::new());
        let closed = CancellationToken::new();
        Session { daemon, id, peer, version, user, client_name, closed }
    }

    /// Carries out a command, or begins to.
    pub(super) fn execute(&mut self, request: &Request) -> Answer {
        self.answer(request).unwrap_or_else(|refusal| Answer::Now(refusal.into()))
    }

    fn answer(&mut self, request: &Request) -> Answered {
        let (command, arguments) = request.split_first().expect("a request is not empty");
        let name = command.to_ascii_lowercase();
        let name = str::from_utf8(&name).ok().filter(|name| name.len() <= COMMAND_MAX);
        let name = name.unwrap_or("?");
        self.daemon.counts.commands.count(name);
        let words = &mut Words::new(name, arguments);
        match name {
            "hello" => connection::hello(self, words),
            "auth" => connection::auth(self, words),
            "quit" => Ok(Answer::Last(Reply::OK)),
            "reset" => Ok(connection::reset(self)),
            _ => {
                let user = self.user()?;
                self.answer_of_user(&user, name, words)
            }
        }
    }

    fn answer_of_user(&mut self, user: &Arc<User>, name: &str, words: &mut Words<'_>) -> Answered {
        match name {
            "lock" => native::lock(self, user, words),
            "unlock" => native::unlock(self, user, words),
            "renew" => native::renew(self, user, words),
            "token" => native::token(self, user, words),
            "held" => native::held(self, user, words),
            "attach" => native::attach(self, user, words),
            "who" => native::who(self, user, words),
            "lockstatus" => native::status(self, words),
            "set" => redis::set(self, user, words),
            "setnx" => redis::set_if_free(self, user, words),
            "get" => redis::get(self, user, words),
            "exists" => redis::exists(self, user, words),
            "pttl" => redis::remaining(self, user, words),
            "ttl" => redis::remaining_seconds(self, user, words),
            "hexists" => redis::has_owner(self, user, words),
            "hget" => redis::uses(self, user, words),
            "delex" => redis::delete_if(self, user, words),
            "del" | "unlink" => redis::delete(self, user, words),
            "eval" => scripted::eval(self, user, words),
            "evalsha" => scripted::eval_known(self, user, words),
            "script" => scripted::script(self, words),
            "subscribe" => connection::subscribe(self, user, words, Kind::Name),
            "psubscribe" => connection::subscribe(self, user, words, Kind::Pattern),
            "unsubscribe" => connection::unsubscribe(self, user, words, Kind::Name),
            "punsubscribe" => connection::unsubscribe(self, user, words, Kind::Pattern),
            "publish" => connection::publish(self, user, words),
            "info" => Ok(connection::info(self).into()),
            _ => connection::other(self, name, words),
        }
    }

    /// Who it is, once it has logged in.
    pub(super) fn user(&self) -> Result<Arc<User>, Refusal> {
        let user = self.user.as_ref().map(Arc::clone);
        user.ok_or_else(|| Refusal::of("NOAUTH", "Authentication required."))
    }

    /// A request for a lock alone, if it is free.
    pub(super) fn wanted(&self, name: LockName, owner: Bytes, term: WantedTerm) -> Wanted {
        Wanted {
            name,
            owner,
            peer: self.peer,
            mode: Mode::Exclusive,
            wait: None,
            term,
            max_hold: None,
            min_hold: Duration::ZERO,
            label: None,
            closed: self.closed.clone(),
        }
    }

    /// It has logged in, or begins again.
    pub(super) fn set_user(&mut self, user: Option<Arc<User>>) {
        self.user = user.or_else(|| self.daemon.users.anyone());
    }
}
