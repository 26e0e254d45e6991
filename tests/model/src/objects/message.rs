//! Messages between clients. Those from one to another arrive in the order in which they were sent,
//! unless one is late.

use super::{Moment, Objects};
use crate::core::object::io::Input;
use crate::core::turns::{Response, TimedRequest};
use crate::search::Tell;

/// A message on its way.
#[derive(Clone, Debug)]
pub(super) struct Frame {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) content: Content,
    pub(super) is_late: bool,
}

#[derive(Clone, Debug)]
pub(super) enum Content {
    /// To a keeper.
    Request(TimedRequest),
    /// To a guest.
    Response(Response),
}

impl Frame {
    pub(super) fn is_on_the_way_of(&self, other: &Frame) -> bool {
        (self.from, self.to) == (other.from, other.to)
    }
}

impl Objects {
    pub(super) fn deliver(&self, moment: &mut Moment, frame: &Frame) {
        let from = moment.clients[frame.from].id.client;
        let input = match frame.content {
            Content::Request(request) => Input::Request { guest: from, name: None, request },
            Content::Response(response) => Input::Response { keeper: from, response },
        };
        self.receive(moment, frame.to, input);
    }
}

impl Tell for Frame {
    fn tell(&self) -> String {
        let Frame { from, to, content, is_late } = self;
        let late = if *is_late { " (late)" } else { "" };
        let content = match content {
            Content::Request(request) => format!("{:?}", request.request),
            Content::Response(response) => format!("{response:?}"),
        };
        let name = content.split([' ', '{']).next().unwrap_or_default();
        format!("{from}>{to} {name}{late}")
    }
}
