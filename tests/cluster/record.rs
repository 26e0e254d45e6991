//! Records the rounds of this process' contender from the trace events of the library.

use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, filter};

use super::history::{End, Moment, Round, now};

/// Where the library tells what goes into and comes out of its protocol.
const TARGET: &str = "bakery_lock::runner";

/// Records the rounds of the only contender of this process from now on.
pub(crate) fn record_rounds() -> Arc<Mutex<Recorder>> {
    let recorder = Arc::new(Mutex::new(Recorder::default()));
    let only_runner = |metadata: &Metadata<'_>| metadata.target() == TARGET;
    let layer = RecorderLayer(Arc::clone(&recorder)).with_filter(filter::filter_fn(only_runner));
    Registry::default().with(layer).try_init().expect("a program records once");
    recorder
}

/// What was recorded.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    rounds: Vec<Moment>,
    stage: Stage,
}

/// Where the contender is.
#[derive(Debug, Default)]
enum Stage {
    #[default]
    Outside,
    Entering {
        announced: u64,
        /// The operation that writes the ticket.
        drawing: Option<String>,
        drawn: Option<u64>,
    },
    Inside,
}

impl Recorder {
    /// Takes the rounds that were finished so far.
    pub(crate) fn take(&mut self) -> Vec<Moment> {
        std::mem::take(&mut self.rounds)
    }

    /// Takes an event as the library prints it.
    fn event(&mut self, text: &str, time: u64) {
        if text.starts_with("output Write") && text.contains("change: Put") {
            self.put(text, time);
        } else if text.starts_with("output Write") {
            assert!(text.contains("change: Delete"), "an unknown write: {text}");
            self.end(End::GaveUp(time));
            self.stage = Stage::Outside;
        } else if text.starts_with("output Event(Held") {
            self.end(End::Granted(time));
            self.stage = Stage::Inside;
        } else if text.starts_with("input Written") && text.contains("outcome: Applied") {
            self.applied(&op(text), time);
        }
    }

    fn put(&mut self, text: &str, time: u64) {
        let has_ticket = text.contains("ticket: Some");
        match &mut self.stage {
            Stage::Outside => {
                assert!(!has_ticket, "an announcement has no ticket: {text}");
                self.stage = Stage::Entering { announced: time, drawing: None, drawn: None };
            }
            Stage::Entering { drawing, drawn: None, .. } if has_ticket => *drawing = Some(op(text)),
            // Renewals, and announcements that are repeated.
            Stage::Entering { .. } | Stage::Inside => {}
        }
    }

    fn applied(&mut self, op: &str, time: u64) {
        if let Stage::Entering { drawing: Some(drawing), drawn: drawn @ None, .. } = &mut self.stage
            && drawing == op
        {
            *drawn = Some(time);
        }
    }

    /// The round ends, if it has not been granted before.
    fn end(&mut self, end: End) {
        if let Stage::Entering { announced, drawn, .. } = self.stage {
            self.rounds.push(Moment::Round(Round { announced, drawn, end }));
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
        let mut recorder = self.0.lock().expect("recording does not panic twice");
        recorder.event(&format!("{} {}", text.message, text.subject), time);
    }
}

/// The fields of an event, printed.
#[derive(Default)]
struct Text {
    message: String,
    subject: String,
}

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let text = match field.name() {
            "message" => &mut self.message,
            "input" | "output" => &mut self.subject,
            _ => return,
        };
        write!(text, "{value:?}").expect("a string takes everything");
    }
}
