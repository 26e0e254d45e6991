//! What programs log.

use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex, PoisonError};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::{DefaultGuard, set_default};
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::{Layer, Registry};

/// All that this thread logs as long as this value lives: of any level, with all fields, by all
/// crates.
#[must_use = "without it nothing is heard"]
pub struct Log {
    said: Arc<Mutex<Said>>,
    _listening: DefaultGuard,
}

impl Log {
    /// Listens from now on.
    pub fn listen() -> Self {
        let said = Arc::default();
        let subscriber = Registry::default().with(Listener(Arc::clone(&said)));
        Log { said, _listening: set_default(subscriber) }
    }

    /// What was said so far.
    pub fn text(&self) -> String {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).0.clone()
    }
}

#[derive(Default)]
struct Said(String);

impl Visit for Said {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = write!(self.0, " {field}={value:?}");
    }
}

struct Listener(Arc<Mutex<Said>>);

impl Listener {
    fn note(&self, target: &str, record: impl FnOnce(&mut Said)) {
        let mut said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        said.0.push_str(target);
        record(&mut said);
        said.0.push('\n');
    }
}

impl<S: Subscriber> Layer<S> for Listener {
    fn on_new_span(&self, span: &Attributes<'_>, _: &Id, _: Context<'_, S>) {
        self.note(span.metadata().target(), |said| span.record(said));
    }

    fn on_record(&self, _: &Id, values: &Record<'_>, _: Context<'_, S>) {
        self.note("", |said| values.record(said));
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        self.note(event.metadata().target(), |said| event.record(said));
    }
}
