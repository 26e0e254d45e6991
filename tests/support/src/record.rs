//! Records the rounds of this process' contenders from the trace events of the library.

use std::collections::BTreeMap;
use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tracing::field::{Field, Visit};
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, filter};

use super::history::{End, Moment, Round};
use super::monotonic::now;

/// Where the library tells what goes into and comes out of its protocol.
const TARGET: &str = "bakery_lock::engine::runner";

/// Records the rounds of all contenders of this process from now on, one of each object, whose
/// rows stand for a lease.
pub fn record_rounds(lease: Duration) -> Arc<Mutex<Recorder>> {
    let lease = u64::try_from(lease.as_nanos()).expect("a lease is short");
    let recorder = Recorder { lease, contenders: BTreeMap::new(), rounds: Vec::new() };
    let recorder = Arc::new(Mutex::new(recorder));
    let only_runner = |metadata: &Metadata<'_>| metadata.target() == TARGET;
    let layer = RecorderLayer(Arc::clone(&recorder)).with_filter(filter::filter_fn(only_runner));
    Registry::default().with(layer).try_init().expect("a program records once");
    recorder
}

/// What was recorded.
#[derive(Debug)]
pub struct Recorder {
    /// In nanoseconds, from the moment at which a write is sent.
    lease: u64,
    /// Where the contender of each object is.
    contenders: BTreeMap<String, Stage>,
    rounds: Vec<(String, Moment)>,
}

/// Where a contender is.
#[derive(Debug, Default)]
enum Stage {
    #[default]
    Outside,
    Entering {
        announced: u64,
        /// The operation that is outstanding, and when it was sent.
        writing: Option<(String, u64)>,
        /// The operation that writes the ticket.
        drawing: Option<String>,
        drawn: Option<u64>,
        /// Until when what was acknowledged stands.
        deadline: u64,
    },
    Inside,
}

impl Recorder {
    /// Takes the rounds that were finished so far, each with its object.
    pub fn take(&mut self) -> Vec<(String, Moment)> {
        std::mem::take(&mut self.rounds)
    }

    /// Takes an event as the library prints it.
    fn event(&mut self, object: &str, text: &str, time: u64) {
        let stage = self.contenders.entry(object.to_owned()).or_default();
        if text.starts_with("output Write") && text.contains("change: Put") {
            stage.put(text, time);
        } else if text.starts_with("output Write") {
            assert!(text.contains("change: Delete"), "an unknown write: {text}");
            let stage = std::mem::take(stage);
            // A stopped client had given up when its rows were gone, and tells it later.
            let gave_up = |deadline| End::GaveUp(time.min(deadline));
            self.rounds.extend(stage.round(gave_up).map(|round| (object.to_owned(), round)));
        } else if text.starts_with("output Event(Held") {
            let stage = std::mem::replace(stage, Stage::Inside);
            let round = stage.round(|_| End::Granted(time));
            self.rounds.extend(round.map(|round| (object.to_owned(), round)));
        } else if text.starts_with("input Written") && text.contains("outcome: Applied") {
            stage.applied(&op(text), time, self.lease);
        }
    }
}

impl Stage {
    fn put(&mut self, text: &str, time: u64) {
        let has_ticket = text.contains("ticket: Some");
        if matches!(self, Stage::Outside) {
            assert!(!has_ticket, "an announcement has no ticket: {text}");
            // Nothing stands before it is acknowledged, and nothing lapses.
            let (announced, deadline) = (time, u64::MAX);
            let (writing, drawing, drawn) = (None, None, None);
            *self = Stage::Entering { announced, writing, drawing, drawn, deadline };
        }
        // Renewals of a holder are not part of its round.
        if let Stage::Entering { writing, drawing, drawn, .. } = self {
            *writing = Some((op(text), time));
            if has_ticket && drawn.is_none() {
                *drawing = Some(op(text));
            }
        }
    }

    fn applied(&mut self, op: &str, time: u64, lease: u64) {
        let Stage::Entering { writing, drawing, drawn, deadline, .. } = self else {
            return;
        };
        if let Some((_, sent)) = writing.take_if(|(writing, _)| writing == op)
            && time < *deadline
        {
            *deadline = sent + lease;
        }
        if drawing.take_if(|drawing| drawing == op).is_some() {
            *drawn = Some(time);
        }
    }

    /// The round of the client that was entering, and how it ended, which may depend on how long
    /// its rows stood.
    fn round(self, end: impl FnOnce(u64) -> End) -> Option<Moment> {
        match self {
            Stage::Entering { announced, drawn, deadline, .. } => {
                Some(Moment::Round(Round { announced, drawn, end: end(deadline) }))
            }
            Stage::Outside | Stage::Inside => None,
        }
    }
}

/// The operation that an event is about, as it is printed.
fn op(text: &str) -> String {
    let (_, rest) = text.split_once("op: OpId(").expect("a write and its answer have an id");
    let (op, _) = rest.split_once(')').expect("an id is in brackets");
    op.to_owned()
}

struct RecorderLayer(Arc<Mutex<Recorder>>);

impl<S: Subscriber> Layer<S> for RecorderLayer {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        // The time of an input is noted after it came and that of an output before it is sent.
        let time = now();
        let mut text = Text::default();
        event.record(&mut text);
        // Other events are about no object in particular.
        if !text.object.is_empty() {
            let mut recorder = self.0.lock().expect("recording does not panic twice");
            recorder.event(&text.object, &format!("{} {}", text.message, text.subject), time);
        }
    }
}

/// The fields of an event, printed.
#[derive(Default)]
struct Text {
    object: String,
    message: String,
    subject: String,
}

impl Visit for Text {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "object" {
            value.clone_into(&mut self.object);
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let text = match field.name() {
            "message" => &mut self.message,
            "input" | "output" => &mut self.subject,
            _ => return,
        };
        write!(text, "{value:?}").expect("a string takes everything");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PUT_ENTERING: &str = "output Write { op: OpId(1), change: Put, ticket: None }";
    const ENTERED: &str = "input Written { op: OpId(1), outcome: Applied }";
    const PUT_TICKET: &str = "output Write { op: OpId(2), change: Put, ticket: Some(1) }";
    const DRAWN: &str = "input Written { op: OpId(2), outcome: Applied }";
    const HELD: &str = "output Event(Held)";
    const DELETE: &str = "output Write { op: OpId(3), change: Delete }";

    fn rounds(lease: u64, events: &[(&str, &str, u64)]) -> Vec<(String, Moment)> {
        let mut recorder = Recorder { lease, contenders: BTreeMap::new(), rounds: Vec::new() };
        for (object, text, time) in events {
            recorder.event(object, text, *time);
        }
        recorder.take()
    }

    fn round(object: &str, drawn: Option<u64>, end: End) -> (String, Moment) {
        (object.to_owned(), Moment::Round(Round { announced: 1, drawn, end }))
    }

    // Goal: rounds are told apart by their objects, with the ticket's acknowledgement.
    // Method: made-up events of two objects.
    #[test]
    fn rounds_of_two_objects_are_recorded() {
        let events = [
            ("a", PUT_ENTERING, 1),
            ("b", PUT_ENTERING, 1),
            ("a", ENTERED, 2),
            ("a", PUT_TICKET, 3),
            ("b", ENTERED, 3),
            ("b", HELD, 4),
            ("a", DRAWN, 5),
            ("a", HELD, 6),
            ("a", DELETE, 7),
        ];
        let expected = [round("b", None, End::Granted(4)), round("a", Some(5), End::Granted(6))];
        assert_eq!(rounds(100, &events), expected);
    }

    // Goal: a client that gives up after its rows were gone, gave up when they went; a write that
    // is acknowledged too late does not bring them back.
    // Method: made-up events, a lease of ten.
    #[test]
    fn a_late_client_gave_up_with_its_lease() {
        let begin = [("a", PUT_ENTERING, 1), ("a", ENTERED, 2), ("a", PUT_TICKET, 5)];
        let gave_up = |drawn, time| [round("a", drawn, End::GaveUp(time))];
        let late = |acknowledged, end| {
            rounds(10, &[&begin[..], &[("a", DRAWN, acknowledged), ("a", DELETE, end)]].concat())
        };
        assert_eq!(late(6, 9), gave_up(Some(6), 9));
        assert_eq!(late(6, 40), gave_up(Some(6), 15));
        assert_eq!(late(12, 40), gave_up(Some(12), 11));
        let unacknowledged = [("a", PUT_ENTERING, 1), ("a", DELETE, 40)];
        assert_eq!(rounds(10, &unacknowledged), gave_up(None, 40));
    }
}
