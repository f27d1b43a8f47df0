//! Renders the status page, which shows the server's models and work as HTML that refreshes itself.

use crate::catalogue::Registry;
use crate::metrics::{Count, Gauge, Metrics};
use std::fmt::Write;

const STYLE: &str = "body{font:15px system-ui;margin:2rem auto;max-width:44rem;padding:0 1rem}\
table{border-collapse:collapse;width:100%}td,th{text-align:left;padding:.3rem .6rem;border-bottom:1px solid #8884}\
td:last-child{text-align:right;font-variant-numeric:tabular-nums}:root{color-scheme:light dark}";

/// Escapes text for HTML.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn table(title: &str, rows: impl Iterator<Item = (String, String)>) -> String {
    let mut html = format!("<h2>{title}</h2><table>");
    for (name, value) in rows {
        let _ = write!(html, "<tr><td>{}</td><td>{}</td></tr>", escaped(&name), escaped(&value));
    }
    html + "</table>"
}

pub(crate) fn page(registry: Registry<'_>, metrics: &Metrics, gauges: &[Gauge]) -> String {
    let rate = |tokens: Count, time: Count| metrics.get(tokens) / metrics.get(time).max(1e-9);
    let rates = [
        ("", "Sampled tokens per second of sampling", rate(Count::SampledTokens, Count::SampleTime)),
        ("", "Trained tokens per second of training", rate(Count::TrainedTokens, Count::TrainTime)),
    ];
    let values = gauges.iter().copied().chain(rates).chain(metrics.counters());
    let work = table("Work", values.map(|(_, help, value)| (help.to_owned(), format!("{value:.0}"))));
    let models = registry.catalogue.models.iter().map(|(id, model)| {
        let rank = model.lora.as_ref().filter(|_| !registry.served.full);
        (id.clone(), rank.map_or("all weights".into(), |lora| format!("LoRA, rank {}", lora.rank)))
    });
    let (name, served) = (escaped(&registry.served.name), registry.served);
    format!(
        "<!doctype html><html lang=en><meta charset=utf-8><meta http-equiv=refresh content=5><title>{name} - fgrpo serve</title><style>{STYLE}</style>\
         <h1>{name}</h1><p>{}, {} positions, vocabulary {}</p>{work}{}",
        escaped(&served.architecture),
        served.bounds.positions,
        served.bounds.vocab_size,
        table("Models", models)
    )
}
