//! Warnings about a run, shown before the plots. Each states its threshold.

use super::difference::paired;
use super::input::{Metrics, Run};
use crate::output::format::{number, percent};
use fgrpo_eval::samples::MOST_UNSCORABLE;

/// Returns the warnings about a run, including the notes from reading it.
pub(super) fn of(run: &Run) -> Vec<String> {
    let mut warnings: Vec<String> = run.notes.clone();
    warnings.extend(evaluation(run));
    let recent = &run.files.metrics[run.files.metrics.len() - run.files.metrics.len().min(20)..];
    let mean = |value: &dyn Fn(&Metrics) -> Option<f64>| {
        let values: Vec<f64> = recent.iter().filter_map(value).filter(|v| v.is_finite()).collect();
        (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
    };
    if let Some(active) = mean(&|m| m.active_fraction.0).filter(|a| *a < 0.1) {
        warnings.push(format!(
            "Only {} of groups were active over the last {} steps (below 10 %): nearly all completions of a group agree, so there is little left to learn from. {}",
            percent(active),
            recent.len(),
            inactive_advice(recent)
        ));
    }
    if let (Some(first), Some(last)) =
        (run.files.metrics.iter().find_map(|m| m.entropy.0), mean(&|m| m.entropy.0))
        && first > 0.0
        && last < 0.05 * first
    {
        warnings.push(format!(
            "Entropy fell to {} of where it began ({} to {}): the policy has collapsed, or nearly so. A lower learning rate is the first thing to try.",
            percent(last / first),
            number(first),
            number(last)
        ));
    }
    if let Some(truncated) = mean(&|m| m.truncated_fraction.0).filter(|t| *t > 0.1) {
        warnings.push(format!(
            "{} of completions hit the length limit over the last {} steps (above 10 %): they are graded as they are.",
            percent(truncated),
            recent.len()
        ));
    }
    let total = |key: &str| run.files.metrics.iter().filter_map(|m| m.verdicts.get(key)).sum::<u64>() as f64;
    let all: f64 = ["correct", "wrong", "unparsed", "unscorable"].into_iter().map(total).sum();
    if all > 0.0 && total("unscorable") > MOST_UNSCORABLE * all {
        warnings.push(format!(
            "The verifier came to no verdict on {} of completions (above 1 %): they were left out of their groups.",
            percent(total("unscorable") / all)
        ));
    }
    let skipped: u64 = run.files.metrics.iter().map(|m| m.skipped_updates).sum();
    if skipped > 0 {
        warnings.push(format!(
            "{} updates were skipped because loss or gradient was not finite.",
            number(skipped as f64)
        ));
    }
    warnings
}

/// Returns advice for groups whose completions are all correct or all wrong.
fn inactive_advice(recent: &[Metrics]) -> &'static str {
    let total = |key: &str| recent.iter().filter_map(|m| m.verdicts.get(key)).sum::<u64>() as f64;
    let correct = total("correct");
    let graded = correct + total("wrong") + total("unparsed");
    match correct / graded {
        share if share.is_nan() => "Larger groups, or problems of another difficulty.",
        0.0 => {
            "No completion was correct: first check how the reference answers are read (`fgrpo data show`), the verifier, and whether the prompt \
             asks for the form of answer that it reads; then easier problems, or demonstrations first."
        }
        share if share < 0.1 => {
            "Nearly all were wrong: easier problems, larger groups, or demonstrations first."
        }
        share if share > 0.9 => "Nearly all were correct: harder problems, or an earlier stop.",
        _ => "Some problems are always solved and the others never: problems in between, or larger groups.",
    }
}

/// Warns if more than 1 % of the samples of the last evaluation could not be scored, and if pass@1 rose and pass@k fell between
/// the first and the last evaluation, both significantly (95 % intervals over problems exclude 0).
fn evaluation(run: &Run) -> Vec<String> {
    let mut warnings = Vec::new();
    for set in run.sets() {
        let Some(last) = run.evals_of(set).next_back() else { continue };
        let samples = (last.all.problems * last.samples) as f64;
        if last.all.unscorable as f64 > MOST_UNSCORABLE * samples {
            warnings.extend(last.warning().map(|warning| format!("{set}, step {}: {warning}.", last.step)));
        }
        let Some(first) = run.start_of(last) else { continue };
        let Some(&k) = last.all.pass_at_k.keys().next_back().filter(|k| **k > 1) else { continue };
        let ends = |k| Some((first.pass_at(k)?, last.pass_at(k)?));
        let (Some(one), Some(many)) = (ends(1), ends(k)) else { continue };
        let change = |k| paired(&first.by_problem(k), &last.by_problem(k));
        let (Some(change_one), Some(change_many)) = (change(1), change(k)) else { continue };
        if change_one.low > 0.0 && change_many.high < 0.0 && change_one.significant && change_many.significant
        {
            warnings.push(format!(
                "Sharpening on {set}: pass@1 rose from {} to {} while pass@{k} fell from {} to {}. The policy finds fewer of the problems it could once solve.",
                percent(one.0), percent(one.1), percent(many.0), percent(many.1)
            ));
        }
    }
    warnings
}
