//! Records the rounds and places of this process' contenders from the trace events of the library.

use std::collections::BTreeMap;
use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tracing::field::{Field, Visit};
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, filter};

use super::history::{End, Moment, Place, Round};
use super::monotonic::now;

/// Where the library reports what goes into and comes out of the machine of an object.
const TARGET: &str = "bakery_lock::driver::object_task";

/// Cassandra cuts off up to a second of a TTL.
const TTL_ROUNDING: Duration = Duration::from_secs(1);

/// Records the rounds of all contenders of this process from now on, one of each object. Their rows
/// count for their TTL, less its rounding and the clock skew. The registry's lock has a TTL of its
/// own.
pub fn record_rounds(max_clock_skew: Duration) -> Arc<Mutex<Recorder>> {
    let recorder = Arc::new(Mutex::new(Recorder::new(max_clock_skew)));
    let only_objects = |metadata: &Metadata<'_>| metadata.target() == TARGET;
    let layer = RecorderLayer(Arc::clone(&recorder)).with_filter(filter::filter_fn(only_objects));
    Registry::default().with(layer).try_init().expect("a program records once");
    recorder
}

/// What was recorded.
#[derive(Debug)]
pub struct Recorder {
    max_clock_skew: Duration,
    /// Where the contender of each object is.
    contenders: BTreeMap<String, Stage>,
    /// What the keeper of each object gives turns of.
    keepers: BTreeMap<String, Keeping>,
    moments: Vec<(String, Moment)>,
}

/// What a keeper gives turns of.
#[derive(Debug)]
enum Keeping {
    /// The turn of another keeper.
    Guest,
    /// A place in the table.
    Place {
        place: Place,
        /// The number of the last turn.
        last: u64,
        /// When the machine had its last input.
        input: u64,
        /// The same by the machine's look at the clock: by that it decides.
        looked: u64,
        /// That look when it knew that another contender waits in the table.
        known: Option<u64>,
    },
}

/// Where a contender is.
#[derive(Debug, Default)]
enum Stage {
    #[default]
    Outside,
    Entering {
        announced: u64,
        /// The operation that is outstanding, and until when its rows stand if it is acknowledged.
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
    fn new(max_clock_skew: Duration) -> Self {
        let (contenders, keepers) = (BTreeMap::new(), BTreeMap::new());
        Recorder { max_clock_skew, contenders, keepers, moments: Vec::new() }
    }

    /// Takes the rounds and places that were finished so far, each with its object.
    pub fn take(&mut self) -> Vec<(String, Moment)> {
        std::mem::take(&mut self.moments)
    }

    /// Whether the turn that callers had last of an object is borrowed of another keeper.
    pub fn is_sublease(&self, object: &str) -> bool {
        matches!(self.keepers.get(object), Some(Keeping::Guest))
    }

    /// Takes an event as the library prints it, with the machine's look at the clock, if it is an
    /// input.
    fn event(&mut self, object: &str, text: &str, time: u64, looked: Option<u64>) {
        self.place_event(object, text, time, looked);
        self.contender_event(object, text, time);
    }

    fn place_event(&mut self, object: &str, text: &str, time: u64, look: Option<u64>) {
        if text.starts_with("output Granted") && text.contains("origin: Keeper") {
            self.keepers.insert(object.to_owned(), Keeping::Guest);
        } else if text.starts_with("output Report(Held") {
            let place = Place { held: time, last_turn: time, beside: 0 };
            let keeping = Keeping::Place { place, last: 0, input: time, looked: 0, known: None };
            self.keepers.insert(object.to_owned(), keeping);
        }
        let keeping = self.keepers.get_mut(object);
        let Some(Keeping::Place { place, last, input, looked, known }) = keeping else {
            return;
        };
        if let Some(look) = look {
            (*input, *looked) = (time, look);
        }
        if text.starts_with("output Report(OutsidersWait") {
            known.get_or_insert(*looked);
        } else if text.starts_with("output Granted") || text.contains("response: Granted") {
            // One that is repeated is given once.
            let number = turn_number(text);
            if number > *last {
                (place.last_turn, *last) = (*input, number);
                place.beside = known.map_or(0, |known| *looked - known);
            }
        } else if text.starts_with("output Write") && text.contains("change: Delete") {
            let place = Moment::Place(*place);
            self.moments.push((object.to_owned(), place));
            self.keepers.remove(object);
        }
    }

    fn contender_event(&mut self, object: &str, text: &str, time: u64) {
        let stage = self.contenders.entry(object.to_owned()).or_default();
        let is_exchange = text.starts_with("output Exchange");
        if text.starts_with("output Write") && text.contains("change: Put") || is_exchange {
            // A question of one in the queue writes rows that it has, and prolongs nothing.
            if !(is_exchange && stage.has_drawn()) {
                stage.put(text, time, time + lease(text, self.max_clock_skew));
            }
        } else if text.starts_with("output Write") {
            assert!(text.contains("change: Delete"), "an unknown write: {text}");
            let stage = std::mem::take(stage);
            // A stopped client had given up when its rows were gone, and tells it later.
            let gave_up = |deadline| End::GaveUp(time.min(deadline));
            self.moments.extend(stage.round(gave_up).map(|round| (object.to_owned(), round)));
        } else if text.starts_with("output Report(Held") {
            let stage = std::mem::replace(stage, Stage::Inside);
            let round = stage.round(|_| End::Granted(time));
            self.moments.extend(round.map(|round| (object.to_owned(), round)));
        } else if text.starts_with("input Written") && text.contains("outcome: Applied")
            || text.starts_with("input Read") && text.contains("seen: Ok")
        {
            stage.applied(&op(text), time);
        }
    }
}

impl Stage {
    fn put(&mut self, text: &str, time: u64, stands_until: u64) {
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
            *writing = Some((op(text), stands_until));
            if has_ticket && drawn.is_none() {
                *drawing = Some(op(text));
            }
        }
    }

    fn has_drawn(&self) -> bool {
        matches!(self, Stage::Entering { drawn: Some(_), .. })
    }

    fn applied(&mut self, op: &str, time: u64) {
        let Stage::Entering { writing, drawing, drawn, deadline, .. } = self else {
            return;
        };
        if let Some((_, stands_until)) = writing.take_if(|(writing, _)| writing == op)
            && time < *deadline
        {
            *deadline = stands_until;
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

/// The number of the turn that an event is about.
fn turn_number(text: &str) -> u64 {
    let (_, rest) = text.split_once(" number: ").expect("a turn has a number");
    let (number, _) = rest.split_once(' ').expect("it is the last of a turn");
    number.parse().expect("it is a number")
}

/// The operation that an event is about, as it is printed.
fn op(text: &str) -> String {
    let (_, rest) = text.split_once("op: OpId(").expect("a write and its answer have an id");
    let (op, _) = rest.split_once(')').expect("an id is in brackets");
    op.to_owned()
}

/// How long the rows of a write count, in nanoseconds.
fn lease(text: &str, max_clock_skew: Duration) -> u64 {
    let (_, rest) = text.split_once("ttl_seconds: ").expect("rows have a ttl");
    let seconds: String = rest.chars().take_while(char::is_ascii_digit).collect();
    let ttl = Duration::from_secs(seconds.parse().expect("a ttl is a number of seconds"));
    let lease = ttl - TTL_ROUNDING - max_clock_skew;
    u64::try_from(lease.as_nanos()).expect("a lease is short")
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
            let event = format!("{} {}", text.message, text.subject);
            recorder.event(&text.object, &event, time, text.looked);
        }
    }
}

/// The fields of an event, printed.
#[derive(Default)]
struct Text {
    object: String,
    message: String,
    subject: String,
    looked: Option<u64>,
}

impl Visit for Text {
    fn record_u128(&mut self, field: &Field, value: u128) {
        if field.name() == "boot" {
            self.looked = Some(u64::try_from(value).expect("nanoseconds since boot"));
        }
    }

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

    const S: u64 = 1_000_000_000;
    /// With a clock skew of a second a lease of ten seconds.
    const PUT_ENTERING: &str =
        "output Write { op: OpId(1), change: Put, ticket: None, ttl_seconds: 12 }";
    const ENTERED: &str = "input Written { op: OpId(1), outcome: Applied }";
    const PUT_TICKET: &str =
        "output Write { op: OpId(2), change: Put, ticket: Some(1), ttl_seconds: 12 }";
    const DRAWN: &str = "input Written { op: OpId(2), outcome: Applied }";
    const HELD: &str = "output Report(Held)";
    const DELETE: &str = "output Write { op: OpId(3), change: Delete }";

    /// The rounds of events at these seconds.
    fn rounds(events: &[(&str, &str, u64)]) -> Vec<(String, Moment)> {
        let max_clock_skew = Duration::from_secs(1);
        let mut recorder = Recorder::new(max_clock_skew);
        for (object, text, seconds) in events {
            recorder.event(object, text, *seconds * S, None);
        }
        let is_round = |(_, moment): &(String, Moment)| matches!(moment, Moment::Round(_));
        recorder.take().into_iter().filter(is_round).collect()
    }

    fn round(object: &str, drawn: Option<u64>, end: End) -> (String, Moment) {
        let drawn = drawn.map(|seconds| seconds * S);
        let end = match end {
            End::Granted(seconds) => End::Granted(seconds * S),
            End::GaveUp(seconds) => End::GaveUp(seconds * S),
        };
        (object.to_owned(), Moment::Round(Round { announced: S, drawn, end }))
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
        assert_eq!(rounds(&events), expected);
    }

    // Goal: a client that gives up after its rows were gone, gave up when they went; a write that
    // is acknowledged too late does not bring them back.
    // Method: made-up events, a lease of ten seconds.
    #[test]
    fn late_client_gave_up_with_its_lease() {
        let begin = [("a", PUT_ENTERING, 1), ("a", ENTERED, 2), ("a", PUT_TICKET, 5)];
        let gave_up = |drawn, time| [round("a", drawn, End::GaveUp(time))];
        let late = |acknowledged, end| {
            rounds(&[&begin[..], &[("a", DRAWN, acknowledged), ("a", DELETE, end)]].concat())
        };
        assert_eq!(late(6, 9), gave_up(Some(6), 9));
        assert_eq!(late(6, 40), gave_up(Some(6), 15));
        assert_eq!(late(12, 40), gave_up(Some(12), 11));
        let unacknowledged = [("a", PUT_ENTERING, 1), ("a", DELETE, 40)];
        assert_eq!(rounds(&unacknowledged), gave_up(None, 40));
    }

    // Goal: where writes and reads are one request, the answer to that acknowledges the write, and
    // questions of waiters prolong nothing.
    // Method: made-up events; the lease is over before the contender gives up.
    #[test]
    fn exchanges_count_as_writes_but_for_questions() {
        let asked = |op: u32, ticket: &str| {
            format!(
                "output Exchange {{ op: OpId({op}), change: Put, ticket: {ticket}, \
                 ttl_seconds: 12 }}"
            )
        };
        let read = |op: u32| format!("input Read {{ op: OpId({op}), seen: Ok(rows) }}");
        let events = [
            (asked(1, "None"), 1),
            (read(1), 2),
            (asked(2, "Some(1)"), 3),
            (read(2), 4),
            (asked(3, "Some(1)"), 9),
            (read(3), 10),
            (DELETE.to_owned(), 40),
        ];
        let events: Vec<_> = events.iter().map(|(text, at)| ("a", text.as_str(), *at)).collect();
        assert_eq!(rounds(&events), [round("a", Some(4), End::GaveUp(3 + 10))]);
    }

    // Goal: rows with a shorter TTL are gone sooner, as those of the registry's lock.
    // Method: made-up events of two objects at the same times.
    #[test]
    fn each_object_has_its_own_ttl() {
        let short = "output Write { op: OpId(1), change: Put, ticket: None, ttl_seconds: 5 }";
        for (put, lease) in [(PUT_ENTERING, 10), (short, 3)] {
            let events = [("a", put, 1), ("a", ENTERED, 2), ("a", DELETE, 40)];
            assert_eq!(rounds(&events), [round("a", None, End::GaveUp(1 + lease))]);
        }
    }
}
