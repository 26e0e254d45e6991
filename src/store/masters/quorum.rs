//! What a request comes to that was sent to all servers.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

use tokio::time::timeout;

use super::link::{CallError, TRY_TIMEOUT};
use super::membership::majority;
use crate::store::{DatabaseError, Outcome};

/// A request without a majority.
#[derive(Clone, Debug, Default)]
pub(super) struct NoQuorum {
    /// How many servers did what was asked for.
    done: usize,
    /// The failures, each with the server's address.
    failures: Vec<(String, CallError)>,
    /// How many have not answered.
    silent: usize,
}

impl NoQuorum {
    /// Some servers answered, and the others failed.
    pub(super) fn new(done: usize, failures: Vec<(String, CallError)>) -> Self {
        NoQuorum { done, failures, silent: 0 }
    }

    /// The error of a write. It was not applied only if every server says so: what a minority has
    /// is seen by some reads, and may reach a majority by a later try.
    pub(super) fn of_write(self) -> DatabaseError {
        let is_refused = self.failures.iter().all(|(_, error)| !error.may_be_applied);
        let outcome = if self.done == 0 && self.silent == 0 && is_refused {
            Outcome::NotApplied
        } else {
            Outcome::Unknown
        };
        DatabaseError::new(outcome, self.text())
    }

    /// The error of a read, which changes nothing.
    pub(super) fn of_read(self) -> DatabaseError {
        DatabaseError::new(Outcome::NotApplied, self.text())
    }

    fn text(&self) -> String {
        let NoQuorum { done, failures, silent } = self;
        let servers = done + failures.len() + silent;
        let mut text = format!("{done} of {servers} masters answered, {silent} are silent");
        for (address, error) in failures {
            text.push_str(&format!("; {address}: {}", error.why));
        }
        text
    }
}

/// Sends requests to all servers at the same time, and returns what the first majority answered.
/// What the others do is not waited for; a server that is left out gets the request all the same.
///
/// # Errors
///
/// [`NoQuorum`] as soon as there can be none, or after the time for a try.
pub(super) async fn quorum<'a, T, F>(
    calls: impl Iterator<Item = (&'a str, F)>,
) -> Result<Vec<T>, NoQuorum>
where
    F: Future<Output = Result<T, CallError>>,
{
    let mut calls: Vec<_> =
        calls.map(|(address, call)| (address, Some(Box::pin(call) as Pin<Box<F>>))).collect();
    let (mut done, mut failures, servers) = (Vec::new(), Vec::new(), calls.len());
    let needed = majority(servers);
    let answered = poll_fn(|cx| {
        for (address, call) in &mut calls {
            let Some(running) = call else { continue };
            if let Poll::Ready(result) = running.as_mut().poll(cx) {
                *call = None;
                match result {
                    Ok(answer) => done.push(answer),
                    Err(error) => failures.push(((*address).to_owned(), error)),
                }
            }
        }
        if done.len() >= needed || failures.len() > servers - needed {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    });
    // What was answered before the limit counts.
    let _ = timeout(TRY_TIMEOUT, answered).await;
    if done.len() >= needed {
        return Ok(done);
    }
    let silent = servers - done.len() - failures.len();
    Err(NoQuorum { done: done.len(), failures, silent })
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    /// What one server does.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Does {
        Answers,
        Refuses,
        Breaks,
        Nothing,
    }
    use Does::{Answers, Breaks, Nothing, Refuses};

    async fn asked(servers: &[Does]) -> Result<usize, NoQuorum> {
        let call = |does: Does| async move {
            match does {
                Answers => ready(Ok(())).await,
                Refuses => Err(CallError::refused("no")),
                Breaks => Err(CallError { may_be_applied: true, why: "broken".to_owned() }),
                Nothing => pending().await,
            }
        };
        let calls = servers.iter().map(|does| ("here", call(*does)));
        quorum(calls).await.map(|answers| answers.len())
    }

    #[tokio::test(start_paused = true)]
    async fn majority_of_answers_is_an_answer() {
        for servers in [
            &[Answers][..],
            &[Answers, Answers, Nothing],
            &[Refuses, Answers, Answers],
            &[Breaks, Answers, Answers, Nothing, Answers],
        ] {
            assert!(asked(servers).await.is_ok(), "{servers:?}");
        }
    }

    // Goal: a write counts as not applied only if no server can have it, now or later.
    #[tokio::test(start_paused = true)]
    async fn write_is_not_applied_only_if_all_refuse() {
        let all = [Answers, Refuses, Breaks, Nothing];
        for one in all {
            for other in all {
                for third in all {
                    let servers = [one, other, third];
                    let count = |does| servers.iter().filter(|it| **it == does).count();
                    let Err(error) = asked(&servers).await else {
                        assert!(count(Answers) >= 2, "{servers:?}");
                        continue;
                    };
                    let expected =
                        if count(Refuses) == 3 { Outcome::NotApplied } else { Outcome::Unknown };
                    assert_eq!(error.clone().of_write().outcome(), expected, "{servers:?}");
                    assert_eq!(error.of_read().outcome(), Outcome::NotApplied);
                }
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn failure_names_the_servers() {
        let error = asked(&[Answers, Refuses, Nothing]).await.expect_err("one answers");
        assert_eq!(error.text(), "1 of 3 masters answered, 1 are silent; here: no");
    }
}
