//! Prints the libraries' `tracing` events as lines on stderr.

use std::fmt::{Debug, Write};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Starts printing the events of this project's crates. Further calls do nothing.
pub fn listen() {
    // An error means that a subscriber exists, for example in a program that embeds this one.
    let _ = tracing::subscriber::set_global_default(Notes);
}

struct Notes;

impl Subscriber for Notes {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::INFO && metadata.target().starts_with("fgrpo")
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = match *event.metadata().level() {
            Level::INFO => String::new(),
            _ => "warning: ".to_owned(),
        };
        event.record(&mut Message(&mut line));
        say!("{line}");
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

struct Message<'a>(&'a mut String);

impl Visit for Message<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            let _ = write!(self.0, "{value:?}");
        }
    }
}
