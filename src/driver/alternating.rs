//! Two channels, of which neither keeps the other waiting.

use std::future::poll_fn;
use std::task::{Context, Poll};

use tokio::sync::mpsc;

/// What callers of this client ask, and what comes from other clients. Whichever was served last
/// waits while the other one has something.
#[derive(Debug)]
pub(crate) struct Alternating<Own, Others> {
    own: mpsc::UnboundedReceiver<Own>,
    own_is_over: bool,
    /// `None` for a client that is not connected to others.
    others: Option<mpsc::Receiver<Others>>,
    is_turn_of_others: bool,
}

/// What came.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next<Own, Others> {
    /// From this client.
    Own(Own),
    /// Nothing more comes from this client. Said once.
    OwnIsOver,
    /// From another client.
    Others(Others),
}

impl<Own, Others> Alternating<Own, Others> {
    pub(crate) fn new(
        own: mpsc::UnboundedReceiver<Own>,
        others: Option<mpsc::Receiver<Others>>,
    ) -> Self {
        Alternating { own, own_is_over: false, others, is_turn_of_others: false }
    }

    /// Waits until something comes.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub(crate) async fn next(&mut self) -> Next<Own, Others> {
        poll_fn(|context| self.poll_next(context)).await
    }

    /// What has come already, if anything has. The end of a channel is nothing.
    pub(crate) fn at_once(&mut self) -> Option<Next<Own, Others>> {
        let next = if self.is_turn_of_others {
            self.others_at_once().map(Next::Others).or_else(|| self.own_at_once().map(Next::Own))
        } else {
            self.own_at_once().map(Next::Own).or_else(|| self.others_at_once().map(Next::Others))
        };
        if let Some(next) = &next {
            self.is_turn_of_others = !matches!(next, Next::Others(_));
        }
        next
    }

    /// What has come from this client already.
    pub(crate) fn own_at_once(&mut self) -> Option<Own> {
        self.own.try_recv().ok()
    }

    /// Lets nothing more come from this client.
    pub(crate) fn close_own(&mut self) {
        self.own.close();
    }

    /// Lets nothing more come from other clients.
    pub(crate) fn close_others(&mut self) {
        if let Some(others) = &mut self.others {
            others.close();
        }
    }

    /// What has come from other clients already.
    pub(crate) fn others_at_once(&mut self) -> Option<Others> {
        self.others.as_mut()?.try_recv().ok()
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Next<Own, Others>> {
        let next = if self.is_turn_of_others {
            self.poll_others(context).or_else(|| self.poll_own(context))
        } else {
            self.poll_own(context).or_else(|| self.poll_others(context))
        };
        match next {
            Some(next) => {
                self.is_turn_of_others = !matches!(next, Next::Others(_));
                Poll::Ready(next)
            }
            None => Poll::Pending,
        }
    }

    fn poll_own(&mut self, context: &mut Context<'_>) -> Option<Next<Own, Others>> {
        if self.own_is_over {
            return None;
        }
        match self.own.poll_recv(context) {
            Poll::Ready(Some(own)) => Some(Next::Own(own)),
            Poll::Ready(None) => {
                self.own_is_over = true;
                Some(Next::OwnIsOver)
            }
            Poll::Pending => None,
        }
    }

    /// A channel that was closed brings nothing.
    fn poll_others(&mut self, context: &mut Context<'_>) -> Option<Next<Own, Others>> {
        match self.others.as_mut()?.poll_recv(context) {
            Poll::Ready(Some(others)) => Some(Next::Others(others)),
            Poll::Ready(None) | Poll::Pending => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: neither channel keeps the other waiting, however much it brings; nothing is lost when
    // one of them is closed.
    // Method: fill both, and receive all.
    #[tokio::test]
    async fn full_channels_take_turns() {
        let (own, from_own) = mpsc::unbounded_channel();
        let (others, from_others) = mpsc::channel(100);
        for number in 0..4 {
            own.send(number).expect("it is open");
        }
        for letter in ["a", "b", "c", "d", "e", "f"] {
            others.try_send(letter).expect("there is room");
        }
        drop(own);
        let mut alternating = Alternating::new(from_own, Some(from_others));
        let mut came = String::new();
        for _ in 0..11 {
            match alternating.next().await {
                Next::Own(number) => came.push_str(&number.to_string()),
                Next::OwnIsOver => came.push('.'),
                Next::Others(letter) => came.push_str(letter),
            }
        }
        assert_eq!(came, "0a1b2c3d.ef");
        drop(others);
        let more = poll_fn(|context| Poll::Ready(alternating.poll_next(context)));
        assert!(more.await.is_pending(), "both are over");
    }

    // Goal: no message is lost as its reader stops: it is read, or returned to its sender.
    // Method: one that came before the end, and one that comes after it.
    #[test]
    fn no_message_is_lost_at_the_end() {
        let (_own, from_own) = mpsc::unbounded_channel::<()>();
        let (others, from_others) = mpsc::channel(2);
        let mut alternating = Alternating::new(from_own, Some(from_others));
        others.try_send("before").expect("there is room");
        alternating.close_others();
        let unsent = others.try_send("after").expect_err("it takes nothing more");
        assert_eq!(unsent.into_inner(), "after");
        assert_eq!(alternating.others_at_once(), Some("before"));
        assert_eq!(alternating.others_at_once(), None);
    }
}
