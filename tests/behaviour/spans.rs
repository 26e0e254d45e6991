//! Spans of acquisitions.

use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Instrument, Subscriber, info_span};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

use super::{OBJECT, client, paused_runtime, store};

/// What is seen of spans, line by line.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<Vec<String>>>);

impl Seen {
    fn add(&self, line: String) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(line);
    }
}

#[derive(Default)]
struct Fields(String);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0 += &format!(" {}={value:?}", field.name());
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Seen {
    fn on_new_span(&self, span: &Attributes<'_>, _: &Id, _: Context<'_, S>) {
        let mut fields = Fields::default();
        span.record(&mut fields);
        self.add(format!("{}{}", span.metadata().name(), fields.0));
    }

    fn on_record(&self, span: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let mut fields = Fields::default();
        values.record(&mut fields);
        let name = context.span(span).map_or("", |span| span.name());
        self.add(format!("{name} gets{}", fields.0));
    }

    fn on_follows_from(&self, span: &Id, from: &Id, context: Context<'_, S>) {
        let name = |id| context.span(id).map_or("", |span| span.name());
        self.add(format!("{} follows from {}", name(span), name(from)));
    }
}

// Goal: the span of an acquisition follows from that of its caller, and has the name, the label and
// the token of the lock.
// Method: a subscriber of this thread alone.
#[test]
fn span_of_a_lock_follows_from_that_of_its_caller() {
    let seen = Seen::default();
    let subscriber = tracing_subscriber::registry().with(seen.clone());
    let _recording = tracing::subscriber::set_default(subscriber);
    let token = paused_runtime().block_on(async {
        let client = client(&store(), "a").await;
        let request = client.request(OBJECT).label("nightly run");
        let guard = request.acquire().instrument(info_span!("handler")).await;
        let guard = guard.expect("the lock is free");
        let token = guard.fencing_token().await.expect("it is held");
        guard.unlock().await.expect("it was held");
        token
    });
    let seen = seen.0.lock().unwrap_or_else(PoisonError::into_inner);
    for expected in [
        format!("lock object=\"{OBJECT}\" label=\"nightly run\" patience=Wait"),
        "lock follows from handler".to_owned(),
        format!("lock gets token={token}"),
    ] {
        assert!(seen.contains(&expected), "{expected} is missing: {seen:#?}");
    }
}
