//! `fgrpo theory`: the paper's formulas as commands, each as a table, JSON or a figure.

pub(crate) mod figures;

use crate::output::plot::Figure;
use crate::output::table::{Format, Table};
use clap::Subcommand;
use fgrpo_core::theory::mass::{Policy, Rewards, Step, subset_change};
use fgrpo_core::theory::{advantage, sampled, tail_miss};
use fgrpo_train::bad_input;
use fgrpo_train::failure::OrBadInput;
use serde_json::{Value, json};
use std::fmt::Write;
use std::path::PathBuf;

/// The paper's formulas: tail misses, mass balance, advantage curves.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Which formula.
    #[command(subcommand)]
    pub formula: Formula,
}

/// How a formula's values are printed or drawn.
#[derive(Debug, clap::Args)]
pub struct Output {
    /// Print one JSON value.
    #[arg(long)]
    pub json: bool,
    /// Draw a figure into this file, .svg or .png.
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
}

/// The formulas.
#[derive(Debug, Subcommand)]
pub enum Formula {
    /// Probability that a group is active and yet misses a rare correct subset.
    #[command(after_help = "Examples:\n  fgrpo theory tail-miss --mu 0.64 --tau 6.3e-5 --n 1024,131072\n  \
        fgrpo theory tail-miss --plot tail-miss.svg                              the paper's three panels\n  \
        fgrpo theory tail-miss --mu 0.64 --tau 6.3e-5 --plot simulation.svg      the simulation's own curve")]
    TailMiss {
        /// Probability of a correct completion; for a figure, one panel each.
        #[arg(long, value_delimiter = ',', allow_negative_numbers = true)]
        mu: Vec<f64>,
        /// Probability of the rare correct subset, at most mu.
        #[arg(long, allow_negative_numbers = true)]
        tau: Option<f64>,
        /// Group sizes.
        #[arg(long, value_delimiter = ',')]
        n: Vec<u64>,
        /// Curves of a figure without --tau: rho = tau / mu.
        #[arg(long, value_delimiter = ',', default_values_t = [0.1, 0.03, 0.01, 0.001], allow_negative_numbers = true)]
        rho: Vec<f64>,
        /// How the values are printed or drawn.
        #[command(flatten)]
        output: Output,
    },
    /// Probability that a group holds both correct and wrong completions.
    #[command(after_help = "Example:\n  fgrpo theory active --mu 0.2 --n 2,8,32")]
    Active {
        /// Probability of a correct completion.
        #[arg(long, allow_negative_numbers = true)]
        mu: f64,
        /// Group sizes.
        #[arg(long, value_delimiter = ',', required_unless_present = "plot")]
        n: Vec<u64>,
        /// How the values are printed or drawn.
        #[command(flatten)]
        output: Output,
    },
    /// The group size at which a tail miss is likeliest.
    #[command(after_help = "Example:\n  fgrpo theory peak --mu 0.64 --tau 6.3e-5")]
    Peak {
        /// Probability of a correct completion.
        #[arg(long, allow_negative_numbers = true)]
        mu: f64,
        /// Probability of the rare correct subset, less than mu.
        #[arg(long, allow_negative_numbers = true)]
        tau: f64,
        /// How the values are printed or drawn.
        #[command(flatten)]
        output: Output,
    },
    /// One surrogate step on a categorical policy: where the mass goes, term by term.
    #[command(
        after_help = "Example:\n  fgrpo theory mass --probabilities 0.6,0.1,0.3 --correct 0,1 --sample 0,2 --lr 0.1\n\n\
        Actions are numbered from 0. A repeated action in --sample counts for N but adds no mass."
    )]
    Mass {
        /// The policy and its rewards.
        #[command(flatten)]
        policy: PolicyArgs,
        /// The actions drawn, repeats included.
        #[arg(long, value_delimiter = ',', required = true)]
        sample: Vec<usize>,
        /// Learning rate.
        #[arg(long, default_value_t = 1.0, allow_negative_numbers = true)]
        lr: f64,
        /// Show the change of these actions' mass as well.
        #[arg(long, value_delimiter = ',')]
        subset: Vec<usize>,
        /// How the values are printed or drawn.
        #[command(flatten)]
        output: Output,
    },
    /// Expected distinct mass sampled, given the number of correct completions.
    #[command(after_help = "Example:\n  fgrpo theory sampled-mass --logits 5,3,3,0,0 --correct 0,1,2 --n 4")]
    SampledMass {
        /// The policy and its rewards.
        #[command(flatten)]
        policy: PolicyArgs,
        /// Group size.
        #[arg(long)]
        n: u64,
        /// Numbers of correct completions; all from 0 to N that can happen, when left out.
        #[arg(long, short, value_delimiter = ',')]
        k: Vec<u64>,
        /// How the values are printed or drawn.
        #[command(flatten)]
        output: Output,
    },
    /// Focal-weighted advantages by success rate.
    #[command(after_help = "Examples:\n  fgrpo theory advantage --success-rate 0.25 --gamma 0.5\n  \
        fgrpo theory advantage --success-rate 0.25 --gamma 0.5 --n 8      as the trainer computes it\n  \
        fgrpo theory advantage --plot advantage.svg                       the paper's figure")]
    Advantage {
        /// Success rates, from 0 to 1.
        #[arg(long, value_delimiter = ',', required_unless_present = "plot", allow_negative_numbers = true)]
        success_rate: Vec<f64>,
        /// Focal exponents.
        #[arg(long, value_delimiter = ',', allow_negative_numbers = true)]
        gamma: Vec<f64>,
        /// Group size: the trainer's value (sample deviation, eps 1e-6) instead of the population's.
        #[arg(long)]
        n: Option<u64>,
        /// How the values are printed or drawn.
        #[command(flatten)]
        output: Output,
    },
    /// Learning-rate multiplier that shrinks updates as much as the focal weight does on average.
    #[command(after_help = "Example:\n  fgrpo theory low-lr --gamma 0.5")]
    LowLr {
        /// Focal exponents.
        #[arg(long, value_delimiter = ',', required_unless_present = "plot", allow_negative_numbers = true)]
        gamma: Vec<f64>,
        /// How the values are printed or drawn.
        #[command(flatten)]
        output: Output,
    },
}

/// A categorical policy on the command line.
#[derive(Debug, clap::Args)]
pub struct PolicyArgs {
    /// Probability of every action; they add up to 1.
    #[arg(
        long,
        value_name = "P,...",
        value_delimiter = ',',
        required_unless_present = "logits",
        conflicts_with = "logits",
        allow_negative_numbers = true
    )]
    pub probabilities: Vec<f64>,
    /// Logit of every action, instead.
    #[arg(long, value_name = "Z,...", value_delimiter = ',', allow_negative_numbers = true)]
    pub logits: Vec<f64>,
    /// The correct actions.
    #[arg(long, value_name = "ACTION,...", value_delimiter = ',', required = true)]
    pub correct: Vec<usize>,
    /// Reward of a correct action.
    #[arg(long, default_value_t = 1.0, allow_negative_numbers = true)]
    pub reward_correct: f64,
    /// Reward of a wrong action.
    #[arg(long, default_value_t = 0.0, allow_negative_numbers = true)]
    pub reward_wrong: f64,
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
        let rewards = Rewards { correct: self.reward_correct, wrong: self.reward_wrong };
        Ok((policy.or_bad_input()?, rewards.checked().or_bad_input()?))
    }
}

fn members(name: &str, indices: &[usize], actions: usize) -> anyhow::Result<Vec<bool>> {
    let mut member = vec![false; actions];
    for &i in indices {
        match member.get_mut(i) {
            Some(m) => *m = true,
            None => bad_input!("--{name}: found action {i}, wanted one of 0..{actions}"),
        }
    }
    Ok(member)
}

/// Runs `fgrpo theory`.
///
/// # Errors
/// Bad input for arguments outside a formula's domain; a failure where a figure can't be written.
pub fn run(args: &Args) -> anyhow::Result<()> {
    match &args.formula {
        Formula::TailMiss { mu, tau, n, rho, output } => tail_misses(mu, *tau, n, rho, output),
        Formula::Active { mu, n, output } => actives(*mu, n, output),
        Formula::Peak { mu, tau, output } => {
            let peak = tail_miss::peak(*mu, *tau).or_bad_input()?;
            plot(output, || figures::tail_miss_curve(*mu, *tau))?;
            let value = json!({"n": peak.n, "tail_miss": peak.tail_miss});
            say(output, value, ["n", "tail miss"], [[peak.n.to_string(), number(peak.tail_miss)]])
        }
        Formula::Mass { policy, sample, lr, subset, output } => mass(policy, sample, *lr, subset, output),
        Formula::SampledMass { policy, n, k, output } => sampled_masses(policy, *n, k, output),
        Formula::Advantage { success_rate, gamma, n, output } => advantages(success_rate, gamma, *n, output),
        Formula::LowLr { gamma, output } => {
            let rows = each(gamma, |&g| Ok((g, advantage::low_lr_multiplier(g).or_bad_input()?)))?;
            plot(output, || figures::low_lr(gamma))?;
            let value = one_or_list(&rows, |(_, m)| json!({"multiplier": m}), |(g, _)| json!({"gamma": g}));
            say(output, value, ["gamma", "multiplier"], rows.iter().map(|(g, m)| [g.to_string(), number(*m)]))
        }
    }
}

fn tail_misses(mu: &[f64], tau: Option<f64>, n: &[u64], rho: &[f64], output: &Output) -> anyhow::Result<()> {
    let rows = match (mu, tau) {
        (mu, Some(tau)) if mu.len() == 1 => {
            plot(output, || figures::tail_miss_curve(mu[0], tau))?;
            each(n, |&n| {
                let active = tail_miss::active_probability(mu[0], n).or_bad_input()?;
                Ok((n, active, tail_miss::tail_miss_probability(mu[0], tau, n).or_bad_input()?))
            })?
        }
        (_, Some(_)) => bad_input!("--tau: found with {} values of --mu, wanted exactly one", mu.len()),
        (mu, None) if output.plot.is_some() => {
            if !n.is_empty() {
                bad_input!("--n: a table of group sizes needs --tau");
            }
            let mu = if mu.is_empty() { &[0.8, 0.5, 0.2] } else { mu };
            return plot(output, || figures::tail_miss_panels(mu, rho));
        }
        (_, None) => {
            bad_input!("--tau: missing; wanted --mu, --tau and --n, or --plot FILE for the paper's panels")
        }
    };
    if rows.is_empty() {
        if output.plot.is_none() {
            bad_input!("--n: missing; wanted group sizes, such as --n 2,8,32");
        }
        return Ok(());
    }
    let value = one_or_list(
        &rows,
        |(_, active, miss)| json!({"active": active, "tail_miss": miss}),
        |(n, ..)| json!({"n": n}),
    );
    say(
        output,
        value,
        ["n", "active", "tail miss"],
        rows.iter().map(|(n, active, miss)| [n.to_string(), number(*active), number(*miss)]),
    )
}

fn actives(mu: f64, n: &[u64], output: &Output) -> anyhow::Result<()> {
    let rows = each(n, |&n| Ok((n, tail_miss::active_probability(mu, n).or_bad_input()?)))?;
    plot(output, || figures::active_curve(mu))?;
    let value = one_or_list(&rows, |(_, p)| json!({"active": p}), |(n, _)| json!({"n": n}));
    say(output, value, ["n", "active"], rows.iter().map(|(n, p)| [n.to_string(), number(*p)]))
}

fn mass(
    policy: &PolicyArgs,
    sample: &[usize],
    lr: f64,
    subset: &[usize],
    output: &Output,
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
    plot(output, || figures::mass_terms(&step))?;
    if output.json {
        outln!("{value}");
    } else {
        out!("{}", explained(&value));
    }
    Ok(())
}

/// A title, and the keys of the rows below it with their meaning.
type Section = (&'static str, &'static str, &'static [(&'static str, &'static str)]);

/// What the rows of `mass` mean, by the key of the JSON value: before the step, and term by term.
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

/// The rows with their meaning; terms also as bars from a common 0.
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

/// Cells to each side of a bar's 0.
const CELLS: f64 = 8.0;

/// A bar for each value, to the left of the middle for negative ones; the largest takes all cells.
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

fn sampled_masses(policy: &PolicyArgs, n: u64, k: &[u64], output: &Output) -> anyhow::Result<()> {
    let (policy, rewards) = policy.policy()?;
    let all: Vec<u64> = if k.is_empty() {
        if n > 1_000_000 {
            bad_input!("--n: found {n}, wanted at most 1000000 without --k (one row per count)");
        }
        let possible = policy.correct();
        let (low, high) =
            (if possible.contains(&false) { 0 } else { n }, if possible.contains(&true) { n } else { 0 });
        (low..=high).collect()
    } else {
        k.to_vec()
    };
    let rows = each(&all, |&k| Ok((k, sampled::sampled_mass(&policy, n, k, rewards).or_bad_input()?)))?;
    plot(output, || figures::sampled_mass(&rows))?;
    let list = rows
        .iter()
        .map(|(k, m)| json!({"k": k, "p_pos": m.correct, "p_neg": m.wrong, "s_r": m.baseline}))
        .collect();
    say(
        output,
        Value::Array(list),
        ["k", "E[P_pos|X=k]", "E[P_neg|X=k]", "E[S_R|X=k]"],
        rows.iter().map(|(k, m)| [k.to_string(), number(m.correct), number(m.wrong), number(m.baseline)]),
    )
}

fn advantages(rates: &[f64], gammas: &[f64], n: Option<u64>, output: &Output) -> anyhow::Result<()> {
    let drawn = if gammas.is_empty() { vec![0.0, 0.5, 1.0, 2.0] } else { gammas.to_vec() };
    plot(output, || figures::advantage_magnitude(&drawn))?;
    if !rates.is_empty() && gammas.is_empty() {
        bad_input!("--gamma: missing; wanted the focal exponent, 0 for none");
    }
    let pairs: Vec<(f64, f64)> = rates.iter().flat_map(|&r| gammas.iter().map(move |&g| (r, g))).collect();
    let rows = each(&pairs, |&(rate, gamma)| {
        let found = match n {
            Some(n) => advantage::group_advantage(rate, n, gamma),
            None => advantage::population_advantage(rate, gamma),
        };
        Ok((rate, gamma, found.or_bad_input()?))
    })?;
    let value = one_or_list(
        &rows,
        |(.., a)| json!({"correct": a.correct, "wrong": a.wrong, "weight": a.weight}),
        |(rate, gamma, _)| json!({"success_rate": rate, "gamma": gamma}),
    );
    say(
        output,
        value,
        ["success rate", "gamma", "correct", "wrong", "weight"],
        rows.iter().map(|(rate, gamma, a)| {
            [rate.to_string(), gamma.to_string(), number(a.correct), number(a.wrong), number(a.weight)]
        }),
    )
}

fn each<A, B>(all: &[A], value: impl Fn(&A) -> anyhow::Result<B>) -> anyhow::Result<Vec<B>> {
    all.iter().map(value).collect()
}

fn plot(output: &Output, figure: impl FnOnce() -> anyhow::Result<Figure>) -> anyhow::Result<()> {
    let Some(path) = &output.plot else { return Ok(()) };
    Figure::check_name(path)?;
    figure()?.write(path)?;
    say!("wrote {}", path.display());
    Ok(())
}

/// One row as its object alone; several as a list of objects that begin with what tells them apart.
fn one_or_list<T>(rows: &[T], value: impl Fn(&T) -> Value, key: impl Fn(&T) -> Value) -> Value {
    match rows {
        [row] => value(row),
        rows => rows
            .iter()
            .map(|row| {
                let mut all = key(row);
                all.as_object_mut()
                    .expect("keys are objects")
                    .extend(value(row).as_object().expect("values are objects").clone());
                all
            })
            .collect(),
    }
}

/// Prints the JSON value or the rows; nothing where a figure was all that was asked for.
fn say<const N: usize>(
    output: &Output,
    value: Value,
    header: [&str; N],
    rows: impl IntoIterator<Item = [String; N]>,
) -> anyhow::Result<()> {
    let mut table = Table::new(header);
    rows.into_iter().for_each(|row| table.push(row));
    if table.rows.is_empty() {
        return Ok(());
    }
    if output.json {
        outln!("{value}");
    } else {
        out!("{}", table.render(Format::Text));
    }
    Ok(())
}

/// Six significant digits, and exponents where they are needed.
fn number(x: f64) -> String {
    if x != 0.0 && !(1e-4..1e7).contains(&x.abs()) {
        format!("{x:.5e}")
    } else {
        let digits = 6 - if x == 0.0 { 1 } else { x.abs().log10().floor() as i32 + 1 };
        format!("{x:.*}", digits.clamp(0, 10) as usize)
    }
}
