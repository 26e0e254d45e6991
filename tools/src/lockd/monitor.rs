//! What monitoring asks over HTTP: `GET /metrics` for Prometheus, and `GET /ready` for whatever
//! sends clients here.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;

use super::daemon::Daemon;
use super::exporter::Exporter;
use super::listen::ACCEPT_AGAIN;

/// Requests that are answered at once. Others wait.
const REQUESTS_MAX: usize = 16;

/// A request must be answered within this time, from the connection to the last byte.
const REQUEST_MAX: Duration = Duration::from_secs(10);

/// Without an answer of the database after this time, no lock can be had.
const HEALTH_MAX: Duration = Duration::from_secs(4);

/// The format of Prometheus.
const METRICS_TYPE: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4");
const TEXT_TYPE: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// Answers what monitoring asks.
#[derive(Clone)]
pub(super) struct Monitor {
    pub(super) daemon: Arc<Daemon>,
    pub(super) exporter: Exporter,
}

type Answer = Response<Full<Bytes>>;

impl Monitor {
    /// Answers requests, over TLS if there is a configuration for it; one for each connection.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future accepts no more; it never returns. It continues while the daemon drains,
    /// which is when `/ready` must say so.
    pub(super) async fn serve(self, listener: TcpListener, tls: Option<Arc<ServerConfig>>) {
        let (tls, places) = (tls.map(TlsAcceptor::from), Arc::new(Semaphore::new(REQUESTS_MAX)));
        loop {
            let place = Arc::clone(&places).acquire_owned().await;
            let Ok((stream, _)) = listener.accept().await else {
                tokio::time::sleep(ACCEPT_AGAIN).await;
                continue;
            };
            let (monitor, tls) = (self.clone(), tls.clone());
            let answering = async move {
                match tls {
                    None => monitor.answer_one(stream).await,
                    Some(tls) => {
                        if let Ok(stream) = tls.accept(stream).await {
                            monitor.answer_one(stream).await;
                        }
                    }
                }
            };
            tokio::spawn(async move {
                // One that takes longer is closed.
                let _ = tokio::time::timeout(REQUEST_MAX, answering).await;
                drop(place);
            });
        }
    }

    async fn answer_one(self, stream: impl AsyncRead + AsyncWrite + Unpin) {
        let service = service_fn(async |request: Request<Incoming>| {
            Ok::<_, Infallible>(self.answer(&request).await)
        });
        let connection =
            http1::Builder::new().keep_alive(false).serve_connection(TokioIo::new(stream), service);
        // The client may have gone.
        let _ = connection.await;
    }

    async fn answer(&self, request: &Request<Incoming>) -> Answer {
        if !self.is_allowed(request.headers().get(AUTHORIZATION)) {
            let mut answer = text(StatusCode::UNAUTHORIZED, "name and password, please\n");
            let how = HeaderValue::from_static("Basic realm=\"bakery-lockd\"");
            answer.headers_mut().insert(WWW_AUTHENTICATE, how);
            return answer;
        }
        match (request.method(), request.uri().path()) {
            (&(Method::GET | Method::HEAD), "/metrics") => {
                let mut answer = text(StatusCode::OK, self.exporter.text(&self.daemon));
                answer.headers_mut().insert(CONTENT_TYPE, METRICS_TYPE);
                answer
            }
            (&(Method::GET | Method::HEAD), "/ready") => self.ready().await,
            _ => text(StatusCode::NOT_FOUND, "there are GET /metrics and GET /ready\n"),
        }
    }

    async fn ready(&self) -> Answer {
        let reason = match tokio::time::timeout(HEALTH_MAX, self.daemon.unready()).await {
            Ok(None) => return text(StatusCode::OK, "ready\n"),
            Ok(Some(reason)) => reason,
            Err(_) => format!("the database did not answer within {HEALTH_MAX:?}"),
        };
        text(StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n"))
    }

    /// Whether it has the name and password of a user, if users have some.
    fn is_allowed(&self, authorization: Option<&HeaderValue>) -> bool {
        let users = &self.daemon.users;
        users.anyone().is_some()
            || authorization.and_then(name_and_password).is_some_and(|(name, password)| {
                users.login(Some(&name), password.as_bytes()).is_ok()
            })
    }
}

/// The name and the password in a header.
fn name_and_password(header: &HeaderValue) -> Option<(String, String)> {
    let (scheme, encoded) = header.to_str().ok()?.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let decoded = BASE64_STANDARD.decode(encoded.trim()).ok()?;
    let (name, password) = str::from_utf8(&decoded).ok()?.split_once(':')?;
    Some((name.to_owned(), password.to_owned()))
}

fn text(status: StatusCode, text: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(text.into()));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, TEXT_TYPE);
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn password_is_read_from_a_header() {
        let read = |text: &'static str| name_and_password(&HeaderValue::from_static(text));
        let shop = Some(("shop".to_owned(), "a:b".to_owned()));
        assert_eq!(read("Basic c2hvcDphOmI="), shop);
        assert_eq!(read("basic  c2hvcDphOmI="), shop);
        for odd in ["", "Basic", "Basic %", "Basic c2hvcA==", "Bearer c2hvcDphOmI=", "Basic /w=="] {
            assert_eq!(read(odd), None, "{odd}");
        }
    }
}
