//! `fgrpo theory mass` and `sampled-mass`: the mass of a categorical policy in one surrogate step.

use super::{each, number};
use crate::output::table::{Format, Render};
use fgrpo_core::group::Rewards;
use fgrpo_core::theory::mass::{Policy, Step, subset_change};
use fgrpo_core::theory::sampled;
use fgrpo_eval::failure::OrBadInput;
use fgrpo_eval::table::Table;
use serde_json::{Value, json};
use std::fmt::Write;

/// A categorical policy on the command line.
#[derive(Debug, clap::Args)]
pub(crate) struct PolicyArgs {
    /// Probabilities of all actions, which add up to 1.
    #[arg(
        long,
        value_name = "P,...",
        value_delimiter = ',',
        required_unless_present = "logits",
        conflicts_with = "logits",
        allow_negative_numbers = true
    )]
    probabilities: Vec<f64>,
    /// Logits of all actions, instead of --probabilities.
    #[arg(long, value_name = "Z,...", value_delimiter = ',', allow_negative_numbers = true)]
    logits: Vec<f64>,
    /// Indices of the correct actions.
    #[arg(long, value_name = "ACTION,...", value_delimiter = ',', required = true)]
    correct: Vec<usize>,
    /// Reward of a correct action.
    #[arg(long, default_value_t = 1.0, allow_negative_numbers = true)]
    reward_correct: f64,
    /// Reward of a wrong action.
    #[arg(long, default_value_t = 0.0, allow_negative_numbers = true)]
    reward_wrong: f64,
}

impl PolicyArgs {
    fn policy(&self) -> anyhow::Result<(Policy, Rewards)> {
        let actions = self.probabilities.len().max(self.logits.len());
        let correct = members("correct", &self.correct, actions)?;
        let policy = if self.logits.is_empty() {
            Policy::new(self.probabilities.clone(), correct)
        } else {
            Policy::from_logits(&self.logits, correct)
        };
        let (correct, wrong) = (self.reward_correct, self.reward_wrong);
        let rewards = Rewards { correct, wrong, threshold: None };
        rewards.check().or_bad_input()?;
        Ok((policy.or_bad_input()?, rewards))
    }
}

fn members(name: &str, indices: &[usize], actions: usize) -> anyhow::Result<Vec<bool>> {
    let mut member = vec![false; actions];
    for &i in indices {
        match member.get_mut(i) {
            Some(m) => *m = true,
            None => bad_input!("--{name}: expected actions below {actions}, found {i}"),
        }
    }
    Ok(member)
}

pub(super) fn mass(
    policy: &PolicyArgs,
    sample: &[usize],
    lr: f64,
    subset: &[usize],
    as_json: bool,
) -> anyhow::Result<()> {
    let (policy, rewards) = policy.policy()?;
    let step = Step::new(&policy, sample, rewards, lr).or_bad_input()?;
    let (balance, change) = (step.mass_balance(), step.unsampled_correct());
    let mut value = json!({
        "q_pos": step.q_pos, "q_neg": step.q_neg, "p_pos": step.p_pos, "p_neg": step.p_neg,
        "q_unsampled_pos": step.q_unsampled_pos, "s_r": step.baseline,
        "s_pos_2": step.sampled_pos2, "s_neg_2": step.sampled_neg2,
        "u_pos_2": step.unsampled_pos2, "u_neg_2": step.unsampled_neg2,
        "delta_q_pos": {
            "promotion": balance.promotion, "demotion": balance.demotion, "coupling": balance.coupling,
            "total": balance.total(),
        },
        "delta_q_unsampled_pos": {
            "direct_drift": change.direct_drift, "from_promotion": change.from_promotion,
            "from_demotion": change.from_demotion, "from_baseline": change.from_baseline,
            "normalization_coupling": change.normalization_coupling(), "total": change.total(),
        },
        "logit_change": step.logit_change,
    });
    if !subset.is_empty() {
        let member = members("subset", subset, policy.probabilities().len())?;
        let change = subset_change(&policy, &step.logit_change, |i| member[i]).or_bad_input()?;
        value["delta_subset"] =
            json!({"direct": change.direct, "normalization": change.normalization, "total": change.total()});
    }
    if as_json {
        outln!("{value}");
    } else {
        out!("{}", explained(&value));
    }
    Ok(())
}

/// Section of the output: JSON key, title, and the keys of the rows with their meaning.
type Section = (&'static str, &'static str, &'static [(&'static str, &'static str)]);

/// Sections of the output of `theory mass`.
const MASS: [Section; 4] = [
    (
        "",
        "before the step",
        &[
            ("q_pos", "Q_pos: mass of the correct actions"),
            ("q_neg", "Q_neg: mass of the wrong actions"),
            ("p_pos", "P_pos: mass of the distinct correct actions drawn"),
            ("p_neg", "P_neg: mass of the distinct wrong actions drawn"),
            ("q_unsampled_pos", "Q_u,pos: mass of the correct actions not drawn"),
            ("s_r", "S_R: the baseline, R_c P_pos + R_w P_neg"),
            ("s_pos_2", "S_+,2: sum of p^2 over the correct actions drawn"),
            ("s_neg_2", "S_-,2: sum of p^2 over the wrong actions drawn"),
            ("u_pos_2", "U_pos,2: sum of p^2 over the correct actions not drawn"),
            ("u_neg_2", "U_neg,2: sum of p^2 over the wrong actions not drawn"),
        ],
    ),
    (
        "delta_q_pos",
        "change of the correct mass, Q_pos",
        &[
            ("promotion", "drawn correct actions gain"),
            ("demotion", "drawn wrong actions lose"),
            ("coupling", "the baseline moves the actions not drawn"),
            ("total", "to first order in the learning rate"),
        ],
    ),
    (
        "delta_q_unsampled_pos",
        "change of the correct mass not drawn, Q_u,pos",
        &[
            ("direct_drift", "the baseline lowers their own logits"),
            ("from_promotion", "what drawn correct actions gain is taken from them"),
            ("from_demotion", "what drawn wrong actions lose goes to them"),
            ("from_baseline", "what the baseline takes from all actions not drawn"),
            ("normalization_coupling", "the three terms above together"),
            ("total", "direct drift and coupling"),
        ],
    ),
    (
        "delta_subset",
        "change of the mass of --subset",
        &[
            ("direct", "the subset's own logits"),
            ("normalization", "what all logits take from it"),
            ("total", "both"),
        ],
    ),
];

/// Formats the values with their meaning, and with bars for the terms of a change.
fn explained(value: &Value) -> String {
    let mut text = String::new();
    for (key, title, rows) in MASS {
        let table = if key.is_empty() { value } else { &value[key] };
        let values: Vec<f64> = rows.iter().filter_map(|(name, _)| table[*name].as_f64()).collect();
        if values.is_empty() {
            continue;
        }
        let bars = if key.is_empty() { vec![String::new(); values.len()] } else { bars(&values) };
        let _ = writeln!(text, "{}{title}", if text.is_empty() { "" } else { "\n" });
        for (((name, meaning), value), bar) in rows.iter().zip(&values).zip(bars) {
            let _ = writeln!(text, "  {name:<22} {:>12}  {bar}{meaning}", number(*value));
        }
    }
    text
}

/// Width of a bar in characters, to each side of 0.
const CELLS: f64 = 8.0;

/// Draws a bar for each value, to the left for negative values. The largest value has the full width.
fn bars(values: &[f64]) -> Vec<String> {
    let largest = values.iter().map(|v| v.abs()).fold(f64::MIN_POSITIVE, f64::max);
    let bar = |v: &f64| {
        let cells = (v.abs() / largest * CELLS).round() as usize;
        let side = |cells: usize| "\u{2588}".repeat(cells);
        let (left, right) =
            if *v < 0.0 { (side(cells), String::new()) } else { (String::new(), side(cells)) };
        format!("{left:>width$}\u{2502}{right:<width$}  ", width = CELLS as usize)
    };
    values.iter().map(bar).collect()
}

pub(super) fn sampled_masses(policy: &PolicyArgs, n: u64, k: &[u64], as_json: bool) -> anyhow::Result<()> {
    let (policy, rewards) = policy.policy()?;
    let all: Vec<u64> = if k.is_empty() {
        if n > 1_000_000 {
            bad_input!(
                "--n: expected at most 1000000 without --k (the table has a row for each k), found {n}"
            );
        }
        let possible = policy.correct();
        let (low, high) =
            (if possible.contains(&false) { 0 } else { n }, if possible.contains(&true) { n } else { 0 });
        (low..=high).collect()
    } else {
        k.to_vec()
    };
    let rows = each(&all, |&k| Ok((k, sampled::sampled_mass(&policy, n, k, rewards).or_bad_input()?)))?;
    if as_json {
        let entries = rows.iter();
        let list =
            entries.map(|(k, m)| json!({"k": k, "p_pos": m.correct, "p_neg": m.wrong, "s_r": m.baseline}));
        outln!("{}", list.collect::<Value>());
        return Ok(());
    }
    let mut table = Table::new(["k", "E[P_pos|X=k]", "E[P_neg|X=k]", "E[S_R|X=k]"]);
    for (k, m) in &rows {
        table.push([k.to_string(), number(m.correct), number(m.wrong), number(m.baseline)]);
    }
    out!("{}", table.render(Format::Text));
    Ok(())
}
