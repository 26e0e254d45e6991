//! Calls to servers by gRPC.

use std::time::Duration;

use anyhow::Result;
use futures_util::stream::{self, StreamExt};
use prost::Message;
use tokio::sync::oneshot;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status, Streaming};
use tonic_prost::ProstCodec;

/// The server closes connections on which a client pings more often.
const PING_EVERY: Duration = Duration::from_secs(5);

/// How long an answer to a ping may take.
pub(crate) const PONG_MAX: Duration = Duration::from_secs(2);

/// A server that is gone is asked again a moment later, which may be another one.
pub(crate) const RETRY_AFTER: Duration = Duration::from_millis(20);

/// A message to a server.
pub(crate) trait Asked: Message + Clone + Send + Sync + 'static {
    /// The method that takes it.
    const PATH: &str;

    /// What it is answered with.
    type Answer: Message + Default + Send + Sync + 'static;
}

/// How to reach a server.
pub(crate) fn endpoint(url: &str) -> Result<Endpoint> {
    Ok(Endpoint::from_shared(url.to_owned())?
        .connect_timeout(Duration::from_secs(1))
        .http2_keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PONG_MAX)
        .keep_alive_while_idle(true))
}

/// One request, one answer.
pub(crate) async fn call<Q: Asked>(channel: &Channel, request: Q) -> Result<Q::Answer, Status> {
    let mut client = ready(channel).await?;
    let codec = ProstCodec::<Q, Q::Answer>::default();
    let path = PathAndQuery::from_static(Q::PATH);
    Ok(client.unary(Request::new(request), path, codec).await?.into_inner())
}

/// One request, many answers.
pub(crate) async fn stream<Q: Asked>(
    channel: &Channel,
    request: Q,
) -> Result<Answers<Q::Answer>, Status> {
    let mut client = ready(channel).await?;
    let codec = ProstCodec::<Q, Q::Answer>::default();
    let path = PathAndQuery::from_static(Q::PATH);
    let (open, closed) = oneshot::channel::<()>();
    let until_closed = stream::once(closed).filter_map(async |_| None);
    let requests = stream::once(async { request }).chain(until_closed);
    let answers = client.streaming(Request::new(requests), path, codec).await?.into_inner();
    Ok(Answers { answers, _open: open })
}

/// The answers of a stream. Dropped, both of its directions end, which ends the call.
pub(crate) struct Answers<A> {
    answers: Streaming<A>,
    _open: oneshot::Sender<()>,
}

impl<A> Answers<A> {
    pub(crate) async fn next(&mut self) -> Result<Option<A>, Status> {
        self.answers.message().await
    }
}

async fn ready(channel: &Channel) -> Result<Grpc<Channel>, Status> {
    let mut client = Grpc::new(channel.clone());
    client.ready().await.map_err(|error| Status::from_error(error.into()))?;
    Ok(client)
}
