//! Writes the results of an evaluation folder: tables on stdout, `summary.json`, `report.html`.

use super::Flags;
use super::examples;
use crate::output::table::{Format, Render};
use crate::report::sampled::{Set, samples_page};
use fgrpo_core::stats::measure::Measure;
use fgrpo_eval::clusters;
use fgrpo_eval::estimate::{
    Curve, Measured, RESAMPLES, Report, choose_ks, powers_of_two, resamples, resamples_of_all,
};
use fgrpo_eval::evaluate::Evaluated;
use fgrpo_eval::folder::Folder;
use fgrpo_eval::io::json;
use fgrpo_eval::plan::Plan;
use fgrpo_eval::record::Average;
use fgrpo_eval::samples::{Benchmark, SCORED};
use fgrpo_eval::table::{Table, percent};
use serde_json::{Value, json};

/// Prints the tables of the plan's data sets and writes the summary of the whole folder. If there are several parts, the last
/// table is the average over all problems, or over the parts if `average` selects this.
pub(crate) fn write(
    flags: &Flags,
    folder: &Folder,
    evaluated: &Evaluated,
    plan: &Plan,
    average: Option<Average>,
) -> anyhow::Result<()> {
    let mut all = evaluated.counts.clone();
    if let Some(field) = &flags.cluster {
        clusters::assign(&mut all, &[folder.file(SCORED)], field)?;
    }
    let mut reports: Vec<(&Benchmark, Report)> = Vec::new();
    for b in &all {
        let fewest = b.fewest();
        // The place in the plan selects the bootstrap's random stream, so the folder's other data sets don't change it.
        let place = plan.parts.iter().position(|p| p.name == b.name);
        // Values of k beyond the number of stored samples are left out until there are enough.
        let (feasible, beyond): (Vec<u64>, Vec<u64>) = plan.ks.iter().partition(|&&k| k <= fewest);
        let ks = if feasible.is_empty() && !beyond.is_empty() {
            Vec::new()
        } else {
            choose_ks(&feasible, fewest)?
        };
        if !beyond.is_empty() && place.is_some() {
            let few = b.problems.iter().filter(|p| p.samples < beyond[0]).count();
            say!(
                "{}: no pass@{}: {few} of {} problems have fewer than {} scored samples (the minimum is {fewest})",
                b.name,
                beyond.iter().map(u64::to_string).collect::<Vec<_>>().join(", @"),
                b.problems.len(),
                beyond[0]
            );
        }
        if ks.is_empty() {
            if beyond.is_empty() {
                say!("{}: a problem has no scored sample yet, so there is no pass@k", b.name);
            }
            continue;
        }
        let mut report = Report::of(b, &ks, &flags.cover, RESAMPLES, 0, place.unwrap_or(0) as u64)?;
        report.instructions = evaluated.followed(&b.name);
        let planned = place.map_or(0, |place| plan.parts[place].problems.len());
        report.problems_without_samples = planned.saturating_sub(b.problems.len());
        reports.push((b, report));
    }
    let summary: Vec<&Report> = reports.iter().map(|(_, report)| report).collect();
    folder.write("summary.json", (serde_json::to_string_pretty(&summary)? + "\n").as_bytes())?;
    folder.write("report.html", page(flags, folder, evaluated, &reports, plan)?.as_bytes())?;
    reports.iter_mut().for_each(|(_, report)| report.by_problem.clear());
    let ours: Vec<&(&Benchmark, Report)> =
        plan.parts.iter().filter_map(|p| reports.iter().find(|(b, _)| b.name == p.name)).collect();
    let together = average_of_parts(&ours, plan, average);
    let format = flags.format();
    if format == Format::Json {
        let reports: Vec<&Report> = ours.iter().map(|(_, report)| report).collect();
        let value = match (reports.as_slice(), &together) {
            ([only], _) => json!(only),
            (_, Some(curve)) => {
                let mut value = json!(curve);
                value["benchmarks"] = json!(reports);
                value
            }
            (_, None) => json!({"benchmarks": reports}),
        };
        outln!("{value}");
        return Ok(());
    }
    for (b, report) in &ours {
        if ours.len() > 1 {
            outln!("{}", b.name);
        }
        out!("{}", table(report, format).render(format));
        if ours.len() > 1 {
            outln!();
        }
        for note in notes(report) {
            say!("{}: {note}", b.name);
        }
    }
    if let Some(curve) = together {
        outln!("{}", curve.name);
        let mut table = header("", "@", curve.points.keys(), &[]);
        table.push(row("pass".to_owned(), &curve, has_intervals(format)));
        out!("{}", table.render(format));
    }
    Ok(())
}

/// Averages all parts of a mix, at the values of k that they have in common.
fn average_of_parts(parts: &[&(&Benchmark, Report)], plan: &Plan, average: Option<Average>) -> Option<Curve> {
    if parts.len() < 2 || parts.len() < plan.parts.len() {
        return None;
    }
    let mean = Curve::mean("mean of the parts", &parts.iter().map(|(_, r)| &r.all).collect::<Vec<_>>());
    if average == Some(Average::Parts) {
        return Some(mean);
    }
    let ks: Vec<u64> = mean.points.into_keys().collect();
    let benchmarks = parts.iter().map(|(b, _)| *b);
    Some(Curve::pooled("all problems", benchmarks, &ks, RESAMPLES, resamples_of_all(0)))
}

/// Makes a table of pass@k with intervals, then the subjects, then maj@k.
fn table(report: &Report, format: Format) -> Table {
    let intervals = has_intervals(format);
    let percents: Vec<u64> = report.cover.iter().flat_map(|cover| cover.points.keys().copied()).collect();
    let mut table = header("", "@", report.all.points.keys(), &percents);
    table.push(row_with_cover("pass".to_owned(), report, intervals));
    for subject in &report.subjects {
        table.push(row(format!("  {}", subject.name), subject, intervals));
    }
    if let Some(majority) = &report.maj_at_k {
        let head = ["majority".to_owned(), report.all.problems().to_string()];
        table.push(head.into_iter().chain(majority.values().map(|&v| percent(v))));
    }
    table.fill();
    table
}

/// Makes a table of pass@k without rows. Columns: the row's name, its problems, each k, and each value of cover@tau.
pub(crate) fn header<'a>(
    first: &str,
    prefix: &str,
    ks: impl IntoIterator<Item = &'a u64>,
    percents: &[u64],
) -> Table {
    let ks = ks.into_iter().map(|k| format!("{prefix}{k}"));
    let covers = percents.iter().map(|&percent| Measure::Cover(percent).to_string());
    Table::new([first.to_owned(), "problems".to_owned()].into_iter().chain(ks).chain(covers))
}

/// Makes the row of a report: pass@k, and cover@tau if it was requested.
pub(crate) fn row_with_cover(name: String, report: &Report, intervals: bool) -> Vec<String> {
    let mut cells = row(name, &report.all, intervals);
    let covers = report.cover.iter().flat_map(|cover| cover.points.values());
    cells.extend(covers.map(|m| cell(m.value, intervals.then_some(m.interval))));
    cells
}

/// Makes a row of a [`header`] table: pass@k in percent, with or without intervals.
pub(crate) fn row(name: String, curve: &Curve, intervals: bool) -> Vec<String> {
    let cells = curve.points.values().map(|m| cell(m.value, intervals.then_some(m.interval)));
    [name, curve.problems().to_string()].into_iter().chain(cells).collect()
}

/// Makes a cell: a fraction in percent, with its interval if there is one.
pub(crate) fn cell(value: f64, interval: Option<[f64; 2]>) -> String {
    match interval {
        Some([low, high]) => format!("{} [{}, {}]", percent(value), percent(low), percent(high)),
        None => percent(value),
    }
}

fn has_intervals(format: Format) -> bool {
    matches!(format, Format::Text | Format::Markdown)
}

fn page(
    flags: &Flags,
    folder: &Folder,
    evaluated: &Evaluated,
    reports: &[(&Benchmark, Report)],
    plan: &Plan,
) -> anyhow::Result<String> {
    let identity = folder.identity()?.unwrap_or_default();
    // The format version doesn't interest readers.
    let fields =
        json::leaves(&identity, ".").into_iter().filter(|(name, value)| name != "format" && !value.is_null());
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let facts: Vec<(String, String)> = fields.map(|(name, value)| (name, text(value))).collect();
    // A checkpoint's identity is a fingerprint; show its folder instead.
    let model = flags.model.clone().unwrap_or_else(|| {
        let name = identity["model"].as_str().filter(|_| identity["source"] != "checkpoint");
        let folder = folder.file("").file_name().map(|n| n.to_string_lossy().into_owned());
        name.map(str::to_owned).or(folder).unwrap_or_default()
    });
    let sets = reports
        .iter()
        .enumerate()
        .map(|(i, (b, report))| {
            let part = plan.parts.iter().find(|p| p.name == b.name);
            let problems = part.map_or(&[][..], |p| &p.problems);
            let mut by_problem = Table::new(["problem", "samples", "correct", "rate %"]);
            for p in &b.problems {
                let rate = p.correct as f64 / (p.samples as f64).max(1.0);
                by_problem.push([p.id.clone(), p.samples.to_string(), p.correct.to_string(), percent(rate)]);
            }
            // The curve has every power of two, regardless of -k.
            let mut every = powers_of_two(b.fewest());
            every.extend(report.all.points.keys());
            every.sort_unstable();
            every.dedup();
            Ok(Set {
                name: b.name.clone(),
                models: vec![(Curve::of(&model, &b.problems, &every, RESAMPLES, resamples(0, i as u64)), *b)],
                lead: vec![lead(report, b.problems.iter().map(|p| p.planned()).max().unwrap_or(0))],
                notes: notes(report),
                table: table(report, Format::Text),
                by_problem: Some(by_problem),
                examples: examples::of(evaluated, b, problems)?,
            })
        })
        .collect::<anyhow::Result<Vec<_>>>()?;
    let title = format!("Evaluation of {model}");
    samples_page(&title, &facts, &sets, &[&folder.file("").display().to_string()])
}

/// States the result in one sentence.
fn lead(report: &Report, samples: u64) -> String {
    let words = |(k, m): (&u64, &Measured)| {
        let [low, high] = m.interval.map(percent);
        format!("pass@{k} is {} % ({low} to {high})", percent(m.value))
    };
    let points = &report.all.points;
    let ends: Vec<String> = match (points.first_key_value(), points.last_key_value()) {
        (Some(first), Some(last)) if points.len() > 1 => vec![words(first), words(last)],
        (first, _) => first.map(words).into_iter().collect(),
    };
    format!(
        "{} over {} problems with {samples} samples each; in parentheses the 95 % interval.",
        ends.join(" and "),
        report.all.problems()
    )
}

/// Returns notes on mean reward, instructions, truncation, tokens and unscorable samples.
fn notes(report: &Report) -> Vec<String> {
    let mut notes = Vec::new();
    let (without, problems) = (report.problems_without_samples, report.all.problems());
    if without > 0 {
        let all = problems + without;
        notes.push(format!(
            "UNFINISHED: these values are of {problems} of {all} problems; the others have no sample yet"
        ));
    }
    if let Some(reward) = report.mean_reward {
        let none = report.all.points.first_key_value().is_some_and(|(_, m)| m.value == 0.0);
        let none =
            if none && reward > 0.0 { ": no sample reaches correct_from, so all pass@k are 0" } else { "" };
        notes.push(format!("mean reward {reward:.3}{none}"));
    }
    if let Some(shares) = report.instructions {
        let [a, b, c, d] =
            [shares.prompt_strict, shares.prompt_loose, shares.instruction_strict, shares.instruction_loose]
                .map(percent);
        notes.push(format!(
            "all instructions of {a} % of the samples followed (loosely {b} %), and {c} % of single instructions (loosely {d} %)"
        ));
    }
    if let Some(share) = report.truncated {
        notes.push(format!("{} % of the samples end at the length limit", percent(share)));
    }
    if let Some(tokens) = report.tokens_per_problem {
        notes.push(format!("{tokens:.0} tokens spent per problem"));
    }
    if report.unscorable > 0 {
        let share = report.unscorable as f64 / report.samples as f64;
        notes.push(format!("{} % of the samples are unscorable and left out", percent(share)));
    }
    notes
}

/// Fails if the fraction of a data set's unscorable samples is above `limit`.
pub(crate) fn check_unscorable(b: &Benchmark, limit: f64) -> anyhow::Result<()> {
    let (name, share, path) = (&b.name, b.unscorable_share(), b.path.display());
    if share >= 1.0 {
        anyhow::bail!("no sample of {name} could be graded; the reasons are in {path}");
    }
    if share > limit {
        anyhow::bail!(
            "{} % of the samples of {name} are unscorable, more than the {} % of --max-unscorable; their reasons are in {path}",
            percent(share),
            percent(limit)
        );
    }
    Ok(())
}
