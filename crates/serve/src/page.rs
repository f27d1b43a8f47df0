//! The status page: what the server has and does, as HTML that renews itself.

use crate::ledger::Ledger;
use crate::metrics::Metrics;
use std::fmt::Write;

const STYLE: &str = "body{font:15px system-ui;margin:2rem auto;max-width:44rem;padding:0 1rem}\
table{border-collapse:collapse;width:100%}td,th{text-align:left;padding:.3rem .6rem;border-bottom:1px solid #8884}\
td:last-child{text-align:right;font-variant-numeric:tabular-nums}:root{color-scheme:light dark}";

/// Text as HTML.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn table(title: &str, rows: &[(String, String)]) -> String {
    let mut html = format!("<h2>{title}</h2><table>");
    for (name, value) in rows {
        let _ = write!(html, "<tr><td>{}</td><td>{}</td></tr>", escaped(name), escaped(value));
    }
    html + "</table>"
}

/// Tokens per second.
fn rate(tokens: u64, seconds: f64) -> String {
    if seconds > 0.0 { format!("{:.0}", tokens as f64 / seconds) } else { "-".into() }
}

pub(crate) fn page(ledger: &Ledger, metrics: &Metrics) -> String {
    let served = ledger.served();
    let row = |name: &str, value: String| (name.to_owned(), value);
    let work = [
        row("requests waiting or running", ledger.waiting().to_string()),
        row("sampled tokens", metrics.sampled_tokens.get().to_string()),
        row(
            "sampled tokens per second of sampling",
            rate(metrics.sampled_tokens.get(), metrics.sample_seconds.get()),
        ),
        row("trained tokens", metrics.trained_tokens.get().to_string()),
        row(
            "trained tokens per second of training",
            rate(metrics.trained_tokens.get(), metrics.train_seconds.get()),
        ),
        row("updates", metrics.updates.get().to_string()),
        row("weight swaps", metrics.swaps.get().to_string()),
        row(
            "requests of HTTP, refused ones",
            format!("{}, {}", metrics.requests.get(), metrics.refused.get()),
        ),
    ];
    let models = ledger.with(|_, catalogue| {
        let rank =
            |lora: Option<usize>| lora.map_or("all weights".to_owned(), |rank| format!("LoRA, rank {rank}"));
        catalogue.models().map(|(id, lora)| (id.to_owned(), rank(lora))).collect::<Vec<_>>()
    });
    let name = escaped(&served.name);
    format!(
        "<!doctype html><html lang=en><meta charset=utf-8><meta http-equiv=refresh content=5><title>{name} - fgrpo serve</title><style>{STYLE}</style>\
         <h1>{name}</h1><p>{}, {} positions, vocabulary {}</p>{}{}",
        escaped(&served.architecture),
        served.bounds.positions,
        served.bounds.vocab_size,
        table("Work", &work),
        table("Models", &models)
    )
}
