//! The templates in `templates/*.html`: one for each section, and one for the page around them.
//!
//! Templates escape everything that they print, except [`Markup`], which this program generates.

use crate::output::format::{Markup, escape, number, percent, points, signed};
use anyhow::Context;
use fgrpo_eval::amounts::duration;
use minijinja::value::{Serde, Value};
use minijinja::{AutoEscape, Environment, UndefinedBehavior, escape_formatter};
use serde::Serialize;

/// Names and contents of the templates.
macro_rules! templates {
    ($($name:literal)*) => { [$(($name, include_str!(concat!("templates/", $name)))),*] };
}

#[derive(Debug)]
pub(super) struct Templates(Environment<'static>);

impl Templates {
    pub(super) fn new() -> anyhow::Result<Self> {
        let mut all = Environment::new();
        all.set_auto_escape_callback(|_| AutoEscape::Html);
        all.set_undefined_behavior(UndefinedBehavior::Strict);
        // Templates and plots use the same escaping.
        all.set_formatter(|out, state, value| match value.as_str() {
            Some(text) if !value.is_safe() => Ok(out.write_str(&escape(text))?),
            _ => escape_formatter(out, state, value),
        });
        all.add_filter("number", number);
        all.add_filter("percent", percent);
        all.add_filter("points", points);
        all.add_filter("signed", signed);
        all.add_filter("duration", duration);
        for (name, source) in templates!(
            "about.html" "card.html" "configuration.html" "evaluation.html" "mazes.html" "page.html"
            "parts.html" "rollouts.html" "samples.html" "summary.html" "time.html" "training.html"
        ) {
            all.add_template(name, source).with_context(|| format!("the report's template {name}"))?;
        }
        Ok(Self(all))
    }

    /// Renders the template `name` with the fields of `value`.
    pub(super) fn render(&self, name: &str, value: &impl Serialize) -> anyhow::Result<Markup> {
        let rendered = self.0.get_template(name).and_then(|t| t.render(Value::from(Serde(value))));
        Ok(Markup(rendered.with_context(|| format!("the report's template {name}"))?))
    }
}
