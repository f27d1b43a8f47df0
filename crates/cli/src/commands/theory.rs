//! `fgrpo theory`: evaluates the paper's formulas and prints a table or JSON, or draws a figure.

mod mass;

use crate::chart::alone;
use crate::output::table::{Format, Render};
use clap::Subcommand;
use fgrpo_core::theory::{advantage, tail_miss};
use fgrpo_eval::failure::OrBadInput;
use fgrpo_eval::figure::Figure;
use fgrpo_eval::table::Table;
use fgrpo_paper::theory as figures;
pub(crate) use mass::PolicyArgs;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Evaluate the paper's formulas: tail misses, mass, advantages.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    formula: Formula,
    /// Print one JSON value.
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Formula {
    /// Probability that a group is active but misses a rare correct subset.
    #[command(after_help = "Examples:\n  fgrpo theory tail-miss --mu 0.64 --tau 6.3e-5 --n 1024,131072\n  \
        fgrpo theory tail-miss --plot tail-miss.svg                              # the paper's three panels\n  \
        fgrpo theory tail-miss --mu 0.64 --tau 6.3e-5 --plot simulation.svg      # the simulation's own curve")]
    TailMiss {
        /// Probability of a correct completion; a figure has a panel for each value.
        #[arg(long, value_delimiter = ',', allow_negative_numbers = true)]
        mu: Vec<f64>,
        /// Probability of the rare correct subset, at most mu.
        #[arg(long, allow_negative_numbers = true)]
        tau: Option<f64>,
        /// Group sizes.
        #[arg(long, value_delimiter = ',')]
        n: Vec<u64>,
        /// Values of rho = tau / mu, one curve each, for a figure without --tau.
        #[arg(
            long,
            value_delimiter = ',',
            default_values_t = [0.1, 0.03, 0.01, 0.001],
            allow_negative_numbers = true,
            conflicts_with = "tau"
        )]
        rho: Vec<f64>,
        /// Draw a figure to this .svg file.
        #[arg(long, value_name = "FILE")]
        plot: Option<PathBuf>,
    },
    /// Probability that a group has both correct and wrong completions.
    #[command(after_help = "Example:\n  fgrpo theory active --mu 0.2 --n 2,8,32")]
    Active {
        /// Probability of a correct completion.
        #[arg(long, allow_negative_numbers = true)]
        mu: f64,
        /// Group sizes.
        #[arg(long, value_delimiter = ',', required = true)]
        n: Vec<u64>,
    },
    /// Group size with the largest tail-miss probability.
    #[command(after_help = "Example:\n  fgrpo theory peak --mu 0.64 --tau 6.3e-5")]
    Peak {
        /// Probability of a correct completion.
        #[arg(long, allow_negative_numbers = true)]
        mu: f64,
        /// Probability of the rare correct subset, less than mu.
        #[arg(long, allow_negative_numbers = true)]
        tau: f64,
    },
    /// Changes of probability mass in one surrogate step on a categorical policy, term by term.
    #[command(
        after_help = "Example:\n  fgrpo theory mass --probabilities 0.6,0.1,0.3 --correct 0,1 --sample 0,2 --lr 0.1\n\n\
        Actions are numbered from 0. A repeated action in --sample counts for N but adds no mass."
    )]
    Mass {
        #[command(flatten)]
        policy: PolicyArgs,
        /// Drawn actions, including repeats.
        #[arg(long, value_delimiter = ',', required = true)]
        sample: Vec<usize>,
        /// Learning rate.
        #[arg(long, default_value_t = 1.0, allow_negative_numbers = true)]
        lr: f64,
        /// Also show the change of the mass of these actions.
        #[arg(long, value_delimiter = ',')]
        subset: Vec<usize>,
    },
    /// Expected distinct mass sampled, given the number of correct completions.
    #[command(after_help = "Example:\n  fgrpo theory sampled-mass --logits 5,3,3,0,0 --correct 0,1,2 --n 4")]
    SampledMass {
        #[command(flatten)]
        policy: PolicyArgs,
        /// Group size.
        #[arg(long)]
        n: u64,
        /// Numbers of correct completions [default: all possible numbers from 0 to N].
        #[arg(long, short, value_delimiter = ',')]
        k: Vec<u64>,
    },
    /// Focal-weighted advantages at given success rates.
    #[command(after_help = "Examples:\n  fgrpo theory advantage --success-rate 0.25 --gamma 0.5\n  \
        fgrpo theory advantage --success-rate 0.25 --gamma 0.5 --n 8      # as the trainer computes it\n  \
        fgrpo theory advantage --plot advantage.svg                       # the paper's figure")]
    Advantage {
        /// Success rates, from 0 to 1.
        #[arg(long, value_delimiter = ',', required_unless_present = "plot", allow_negative_numbers = true)]
        success_rate: Vec<f64>,
        /// Focal exponents.
        #[arg(long, value_delimiter = ',', allow_negative_numbers = true)]
        gamma: Vec<f64>,
        /// Group size, to compute the trainer's value (sample deviation, eps 1e-6) instead of the population's.
        #[arg(long)]
        n: Option<u64>,
        /// Draw a figure to this .svg file.
        #[arg(long, value_name = "FILE")]
        plot: Option<PathBuf>,
    },
    /// Learning-rate multiplier that equals the average effect of the focal weight.
    #[command(after_help = "Example:\n  fgrpo theory low-lr --gamma 0.5")]
    LowLr {
        /// Focal exponents.
        #[arg(long, value_delimiter = ',', required = true, allow_negative_numbers = true)]
        gamma: Vec<f64>,
    },
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let json = args.json;
    match &args.formula {
        Formula::TailMiss { mu, tau, n, rho, plot } => tail_misses(mu, *tau, n, rho, plot.as_deref(), json),
        Formula::Active { mu, n } => {
            let active =
                |&n: &u64| Ok(vec![json!(n), json!(tail_miss::active_probability(*mu, n).or_bad_input()?)]);
            say(json, 1, &["n", "active"], &each(n, active)?)
        }
        Formula::Peak { mu, tau } => {
            let peak = tail_miss::peak(*mu, *tau).or_bad_input()?;
            say(json, 0, &["n", "tail_miss"], &[vec![json!(peak.n), json!(peak.tail_miss)]])
        }
        Formula::Mass { policy, sample, lr, subset } => mass::mass(policy, sample, *lr, subset, json),
        Formula::SampledMass { policy, n, k } => mass::sampled_masses(policy, *n, k, json),
        Formula::Advantage { success_rate, gamma, n, plot } => {
            advantages(success_rate, gamma, *n, plot.as_deref(), json)
        }
        Formula::LowLr { gamma } => {
            let multiplier =
                |&g: &f64| Ok(vec![json!(g), json!(advantage::low_lr_multiplier(g).or_bad_input()?)]);
            say(json, 1, &["gamma", "multiplier"], &each(gamma, multiplier)?)
        }
    }
}

fn tail_misses(
    mu: &[f64],
    tau: Option<f64>,
    n: &[u64],
    rho: &[f64],
    path: Option<&Path>,
    json: bool,
) -> anyhow::Result<()> {
    let rows = match (mu, tau) {
        (mu, Some(tau)) if mu.len() == 1 => {
            let rows = each(n, |&n| {
                let active = tail_miss::active_probability(mu[0], n).or_bad_input()?;
                let miss = tail_miss::tail_miss_probability(mu[0], tau, n).or_bad_input()?;
                Ok(vec![json!(n), json!(active), json!(miss)])
            })?;
            plot(path, || figures::tail_miss_curve(mu[0], tau))?;
            rows
        }
        (_, Some(_)) => bad_input!("--tau requires exactly one value of --mu, found {}", mu.len()),
        (mu, None) if path.is_some() => {
            if !n.is_empty() {
                bad_input!("--n requires --tau");
            }
            let mu = if mu.is_empty() { &[0.8, 0.5, 0.2] } else { mu };
            return plot(path, || figures::tail_miss_panels(mu, rho));
        }
        (_, None) => {
            bad_input!("--mu, --tau and --n are required, or --plot FILE for the paper's panels")
        }
    };
    if rows.is_empty() && path.is_none() {
        bad_input!("--n is required: group sizes, such as --n 2,8,32");
    }
    say(json, 1, &["n", "active", "tail_miss"], &rows)
}

fn advantages(
    rates: &[f64],
    gammas: &[f64],
    n: Option<u64>,
    path: Option<&Path>,
    json: bool,
) -> anyhow::Result<()> {
    let plot_gammas = if gammas.is_empty() { vec![0.0, 0.5, 1.0, 2.0] } else { gammas.to_vec() };
    if !rates.is_empty() && gammas.is_empty() {
        bad_input!("--gamma is required: the focal exponent, or 0 for no focal weight");
    }
    let pairs: Vec<(f64, f64)> = rates.iter().flat_map(|&r| gammas.iter().map(move |&g| (r, g))).collect();
    let rows = each(&pairs, |&(rate, gamma)| {
        let advantage = match n {
            Some(n) => advantage::group_advantage(rate, n, gamma),
            None => advantage::population_advantage(rate, gamma),
        };
        let advantage = advantage.or_bad_input()?;
        Ok([rate, gamma, advantage.correct, advantage.wrong, advantage.weight].map(Value::from).into())
    })?;
    plot(path, || figures::advantage_magnitude(&plot_gammas, n))?;
    say(json, 2, &["success_rate", "gamma", "correct", "wrong", "weight"], &rows)
}

fn each<A, B>(all: &[A], value: impl Fn(&A) -> anyhow::Result<B>) -> anyhow::Result<Vec<B>> {
    all.iter().map(value).collect()
}

fn plot(path: Option<&Path>, figure: impl FnOnce() -> anyhow::Result<Figure>) -> anyhow::Result<()> {
    let Some(path) = path else { return Ok(()) };
    alone::check_name(path)?;
    alone::write(&figure()?, path)?;
    say!("wrote {}", path.display());
    Ok(())
}

/// Prints rows with these columns, of which the first `keys` identify a row. As JSON, a single row is an object without the
/// identifying columns, and several rows are a list of objects with them. Without rows, prints nothing.
fn say(as_json: bool, keys: usize, columns: &[&str], rows: &[Vec<Value>]) -> anyhow::Result<()> {
    let object = |row: &Vec<Value>, from: usize| -> Value {
        let cells = columns.iter().zip(row).skip(from);
        Value::Object(cells.map(|(name, cell)| ((*name).to_owned(), cell.clone())).collect())
    };
    match rows {
        [] => {}
        [row] if as_json => outln!("{}", object(row, keys)),
        rows if as_json => outln!("{}", rows.iter().map(|row| object(row, 0)).collect::<Value>()),
        rows => {
            let mut table = Table::new(columns.iter().map(|name| name.replace('_', " ")));
            let cell = |(i, cell): (usize, &Value)| match cell.as_f64() {
                Some(x) if i >= keys && cell.is_f64() => number(x),
                x => x.unwrap_or(f64::NAN).to_string(),
            };
            rows.iter().for_each(|row| table.push(row.iter().enumerate().map(cell)));
            out!("{}", table.render(Format::Text));
        }
    }
    Ok(())
}

/// Formats a number with six significant digits, and with an exponent if it is very small or large.
fn number(x: f64) -> String {
    if x != 0.0 && !(1e-4..1e7).contains(&x.abs()) {
        format!("{x:.5e}")
    } else {
        let digits = 6 - if x == 0.0 { 1 } else { x.abs().log10().floor() as i32 + 1 };
        format!("{x:.*}", digits.clamp(0, 10) as usize)
    }
}
