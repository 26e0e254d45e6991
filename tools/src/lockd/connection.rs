//! A connection: reads commands and writes replies, in their order.
//!
//! A command behind one that waits is carried out at once; only its reply waits. Otherwise
//! `UNLOCK a` behind `LOCK b` would wait for the lock that it is to give up.

use std::future::{Future, poll_fn};
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use futures_util::stream::FuturesOrdered;
use futures_util::{FutureExt, StreamExt};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::task::yield_now;

use super::daemon::Daemon;
use super::hub::{Outbox, Overflow};
use super::locks::ConnectionId;
use super::order::{Busy, Order};
use super::pace::Pace;
use super::peer::Peer;
use super::resp::{Reply, Request, encode, next_request};
use super::session::{Answer, Session};

/// How long commands are carried out before others have a chance.
const TURN_MAX: Duration = Duration::from_micros(25);

/// What it costs, besides the commands themselves, to read some and to write their answers.
const EXCHANGE_COST: Duration = Duration::from_micros(15);

/// How many commands a client may have under way, without waiting for answers, at no cost.
const UNDER_WAY_FREE: usize = 4;

/// What one more of them costs: it is work of other tasks, and may be some for the database.
const UNDER_WAY_COST: Duration = Duration::from_micros(100);

/// What is read at once.
const READ_MAX: usize = 4 * 1024;

/// Buffers that have grown beyond this are given back once they are empty.
const KEPT_MAX: usize = 16 * 1024;

/// A reply that is there, or is waited for.
enum Pending {
    Ready(Option<Reply>),
    Waiting(Pin<Box<dyn Future<Output = Reply> + Send>>, Option<Busy>),
}

impl Future for Pending {
    type Output = Reply;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Reply> {
        match &mut *self {
            Pending::Ready(reply) => Poll::Ready(reply.take().unwrap_or(Reply::Null)),
            Pending::Waiting(reply, busy) => {
                let reply = reply.as_mut().poll(context);
                if reply.is_ready() {
                    *busy = None;
                }
                reply
            }
        }
    }
}

/// Serves a client until it has gone.
pub(super) async fn serve(
    daemon: Arc<Daemon>,
    id: ConnectionId,
    peer: Peer,
    read: impl AsyncRead + Unpin,
    write: impl AsyncWrite + Unpin,
) {
    let outbox = daemon.hub.join(id);
    let session = Session::new(Arc::clone(&daemon), id, peer);
    let mut connection = Connection {
        session,
        pending: FuturesOrdered::new(),
        order: Order::default(),
        pace: Pace::default(),
        stopped: None,
        input: BytesMut::new(),
        output: BytesMut::new(),
        state: State::Open,
    };
    // Whatever ended it, what it held ends too.
    let _ = connection.run(&outbox, read, write).await;
    // First what waits: it may hold a lock a moment later.
    drop(connection);
    daemon.connection_ended(id);
}

struct Connection {
    session: Session,
    pending: FuturesOrdered<Pending>,
    order: Order,
    pace: Pace,
    /// A command that waits for one before it.
    stopped: Option<Request>,
    input: BytesMut,
    output: BytesMut,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    /// The client sends nothing more.
    Closed,
    /// No further command is carried out.
    Last,
}

impl Connection {
    async fn run(
        &mut self,
        outbox: &Outbox,
        mut read: impl AsyncRead + Unpin,
        mut write: impl AsyncWrite + Unpin,
    ) -> std::io::Result<()> {
        loop {
            let has_more = !self.pace.must_wait() && self.carry_out();
            let others_first = has_more || self.pace.must_wait();
            let is_done = !others_first && self.pending.is_empty() && self.output.is_empty();
            if self.state != State::Open && is_done && self.stopped.is_none() {
                return write.shutdown().await;
            }
            let has_room = self.has_room() && !others_first;
            let (has_space, began, mut had_a_chance) = (self.has_space(), Instant::now(), false);
            tokio::select! {
                biased;
                written = write.write_buf(&mut self.output), if !self.output.is_empty() => {
                    written?;
                    give_back(&mut self.output);
                }
                Some(reply) = self.pending.next(), if !self.pending.is_empty() => {
                    self.put(&reply);
                    // Those that are there as well are written with it.
                    while let Some(Some(reply)) = next_at_once(&mut self.pending) {
                        self.put(&reply);
                    }
                }
                () = self.order.changed(), if self.stopped.is_some() => {}
                message = outbox.next(has_space) => match message {
                    Ok(message) => self.put(&message),
                    Err(Overflow) => {
                        let counts = &self.session.daemon.counts;
                        counts.slow_readers.fetch_add(1, Ordering::Relaxed);
                        return Ok(());
                    }
                },
                () = yield_now(), if others_first => had_a_chance = true,
                count = read_some(&mut read, &mut self.input),
                    if has_room && self.state == State::Open =>
                {
                    if count? == 0 {
                        self.state = State::Closed;
                        self.session.closed.cancel();
                    }
                }
            }
            self.pace.waited(began.elapsed(), had_a_chance);
        }
    }

    fn has_room(&self) -> bool {
        let limits = &self.session.daemon.limits;
        let is_free = self.pending.len() < limits.waits && self.stopped.is_none();
        is_free && self.has_space()
    }

    /// Whether more may wait for the client to read it.
    fn has_space(&self) -> bool {
        self.output.len() < self.session.daemon.limits.unread
    }

    /// Carries out the commands that have come, for a moment; whether there may be more.
    fn carry_out(&mut self) -> bool {
        let began = Instant::now();
        let has_more = self.carry_out_until(began + TURN_MAX);
        self.pace.worked(began.elapsed());
        has_more
    }

    fn carry_out_until(&mut self, end: Instant) -> bool {
        let limits = self.session.daemon.limits.request;
        if let Some(request) = self.stopped.take() {
            self.begin(request);
        }
        let mut exchange = EXCHANGE_COST;
        while self.state != State::Last && self.has_room() {
            match next_request(&mut self.input, limits) {
                Ok(Some(request)) => {
                    self.begin(request);
                    self.pace.worked(std::mem::take(&mut exchange));
                }
                Ok(None) => {
                    give_back(&mut self.input);
                    return false;
                }
                Err(error) => {
                    self.reply(Reply::Error(format!("ERR {error}")));
                    self.state = State::Last;
                }
            }
            if Instant::now() >= end {
                return true;
            }
        }
        false
    }

    /// Carries out a command, unless it must wait for one before it.
    fn begin(&mut self, request: Request) {
        if self.order.stops(&request) {
            self.stopped = Some(request);
            return;
        }
        match self.session.execute(&request) {
            Answer::Now(reply) => self.reply(reply),
            Answer::Several(replies) => {
                for reply in replies {
                    self.reply(reply);
                }
            }
            Answer::Later(reply) => {
                let busy = self.order.begin(&request);
                self.pending.push_back(Pending::Waiting(reply, busy));
                if self.pending.len() > UNDER_WAY_FREE {
                    self.pace.worked(UNDER_WAY_COST);
                }
            }
            Answer::Last(reply) => {
                self.reply(reply);
                self.state = State::Last;
            }
        }
    }

    fn reply(&mut self, reply: Reply) {
        if self.pending.is_empty() {
            self.put(&reply);
        } else {
            self.pending.push_back(Pending::Ready(Some(reply)));
        }
    }

    fn put(&mut self, reply: &Reply) {
        if let Reply::Error(text) = reply {
            let code = text.split(' ').next().unwrap_or_default();
            self.session.daemon.counts.refused.count(code);
        }
        encode(reply, self.session.version, &mut self.output);
    }
}

/// Reads what has come; how much it was.
///
/// It comes by way of the stack, so that a connection which sends nothing has no buffer.
async fn read_some(
    read: &mut (impl AsyncRead + Unpin),
    input: &mut BytesMut,
) -> std::io::Result<usize> {
    poll_fn(|context| {
        let mut bytes = [MaybeUninit::uninit(); READ_MAX];
        let mut bytes = ReadBuf::uninit(&mut bytes);
        ready!(Pin::new(&mut *read).poll_read(context, &mut bytes))?;
        input.extend_from_slice(bytes.filled());
        Poll::Ready(Ok(bytes.filled().len()))
    })
    .await
}

/// The next reply, if it is there.
fn next_at_once(pending: &mut FuturesOrdered<Pending>) -> Option<Option<Reply>> {
    pending.next().now_or_never()
}

/// Gives back the memory of a buffer that is empty and large.
fn give_back(buffer: &mut BytesMut) {
    if buffer.is_empty() && buffer.capacity() > KEPT_MAX {
        *buffer = BytesMut::new();
    }
}
