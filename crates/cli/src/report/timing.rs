//! Where the time went.

use super::chart::lines::Lines;
use super::chart::{Format, Scale, Words, stack};
use super::input::{Metrics, Run};
use super::page::{Group, curves, escape, groups};
use fgrpo_train::run::metrics::Seconds;
use std::fmt::Write;

/// Seconds of one phase of a step.
type Phase = fn(&Seconds<Option<f64>>) -> Option<f64>;

/// The phases in the order of the loop, with their colour classes.
const PHASES: [(&str, &str, Phase); 5] = [
    ("rollout", "c0", |s| s.rollout),
    ("grade", "c4", |s| s.grade),
    ("update", "c1", |s| s.update),
    ("evaluate", "c3", |s| s.evaluate),
    ("save", "c2", |s| s.save),
];

/// Stacks are drawn for so many groups of runs.
const SINGLE: usize = 6;

/// The section; empty where no step carries its time.
pub(super) fn section(runs: &[Run]) -> String {
    let groups = groups(runs);
    let mut figures = String::new();
    for group in groups.iter().take(SINGLE) {
        figures.push_str(&phases(&runs[group.runs[0]], group, groups.len() > 1));
    }
    for (title, field) in [
        ("Rollout throughput", (|m| m.rollout_tokens_per_second) as fn(&Metrics) -> Option<f64>),
        ("Update throughput", |m| m.update_tokens_per_second),
    ] {
        let curves = curves(runs, &groups, |run| {
            run.metrics.iter().filter_map(|m| Some((m.step as f64, field(m)?))).collect()
        });
        let words = Words {
            title: title.into(),
            note: String::new(),
            x: "step".into(),
            y: "tokens per second".into(),
            legend: Vec::new(),
        };
        figures.push_str(
            &Lines {
                words,
                curves,
                x: Scale::Linear,
                y: Scale::Linear,
                format: Format::Number,
                show: vec![0.0],
            }
            .html(),
        );
    }
    if figures.is_empty() {
        return String::new();
    }
    format!("{}<div class=\"grid2\">{figures}</div>", table(runs, &groups))
}

fn seconds(m: &Metrics, phase: Phase) -> f64 {
    phase(&m.seconds).unwrap_or(0.0)
}

/// Time that the phases of a step took.
fn known(m: &Metrics) -> f64 {
    PHASES.iter().map(|p| seconds(m, p.2)).sum()
}

/// Time of a step: as recorded, or the sum of its phases.
fn total(m: &Metrics) -> f64 {
    seconds(m, |s| s.total).max(known(m))
}

/// Time that all RL steps of a run took.
pub(super) fn total_seconds(run: &Run) -> f64 {
    run.metrics.iter().map(total).sum()
}

/// A length of time as people say it.
pub(super) fn duration(seconds: f64) -> String {
    let whole = seconds.round() as u64;
    match whole {
        0..=59 => format!("{seconds:.1} s"),
        60..=3_599 => format!("{} min {} s", whole / 60, whole % 60),
        _ => format!("{} h {} min", whole / 3_600, whole % 3_600 / 60),
    }
}

/// Each phase's values, and what no phase accounts for.
fn parts(run: &Run) -> Vec<stack::Part> {
    let part = |name: &str, class: &str, values: Vec<f64>| stack::Part {
        name: name.into(),
        class: class.into(),
        values,
    };
    let mut parts: Vec<stack::Part> = PHASES
        .iter()
        .map(|(name, class, of)| part(name, class, run.metrics.iter().map(|m| seconds(m, *of)).collect()))
        .collect();
    let other = |m: &Metrics| (total(m) - known(m)).max(0.0);
    parts.push(part("other", "muted", run.metrics.iter().map(other).collect()));
    parts.retain(|p| p.values.iter().any(|v| *v > 0.0));
    parts
}

fn phases(run: &Run, group: &Group, several: bool) -> String {
    let steps: Vec<f64> = run.metrics.iter().map(|m| m.step as f64).collect();
    let words = Words {
        title: if several { format!("Time of a step: {}", group.name) } else { "Time of a step".into() },
        note: String::new(),
        x: "step".into(),
        y: "seconds".into(),
        legend: Vec::new(),
    };
    let html = stack::html(&words, &steps, &parts(run), false);
    html.replacen("<figure>", &format!("<figure class=\"g{}\">", group.colour), usize::from(several))
}

fn table(runs: &[Run], groups: &[Group]) -> String {
    let mut html = String::from(
        "<div class=\"card scroll\"><table><thead><tr><th>run</th><th>steps</th><th>total</th><th>a step</th>",
    );
    for name in PHASES.iter().map(|p| p.0).chain(["other"]) {
        let _ = write!(html, "<th>{name}</th>");
    }
    html.push_str("</tr></thead><tbody>");
    for group in groups {
        for run in group.runs.iter().map(|&i| &runs[i]) {
            let all = total_seconds(run);
            if all <= 0.0 {
                continue;
            }
            let _ = write!(
                html,
                "<tr class=\"g{}\"><td><span class=\"{}\"><i class=\"key\"></i></span>{}</td><td>{}</td><td>{}</td><td>{}</td>",
                group.colour,
                group.key(),
                escape(&run.name),
                run.metrics.len(),
                duration(all),
                duration(all / run.metrics.len() as f64),
            );
            let parts = parts(run);
            for name in PHASES.iter().map(|p| p.0).chain(["other"]) {
                let part = parts.iter().find(|p| p.name == name).map_or(0.0, |p| p.values.iter().sum());
                let _ = write!(
                    html,
                    "<td>{}</td>",
                    Format::Percent.text((part / all * 1_000.0).round() / 1_000.0)
                );
            }
            html.push_str("</tr>");
        }
    }
    html + "</tbody></table></div><p></p>"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_as_people_say_them() {
        assert_eq!(duration(4.25), "4.2 s");
        assert_eq!(duration(125.0), "2 min 5 s");
        assert_eq!(duration(7_260.0), "2 h 1 min");
    }
}
