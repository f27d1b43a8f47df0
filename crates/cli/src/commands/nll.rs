//! `fgrpo nll`: the likelihood, under trained models, of correct solutions that were rare under the base model.

use super::eval::flags::{Flags, Source};
use super::eval::make_plan;
use crate::args::named::named_path;
use crate::args::places;
use crate::output::table::{Format, Render};
use fgrpo_eval::folder::PROMPTS;
use fgrpo_eval::prompts::PromptRecord;
use fgrpo_eval::table::Table;
use fgrpo_train::evaluation::nll::{self, Nll, Settings};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Score rare solutions of a base model under trained models.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    fgrpo nll eval-base --base base/ --model GRPO=grpo/ --model F-GRPO=f-grpo/\n  \
    fgrpo nll eval-base --base base/ --model trained=run/checkpoints/step-000800 -- --task math --data train.jsonl\n\n\
    The paper: 256 training prompts, 800 samples each of the base model, the top 1 % of the correct ones.")]
pub(crate) struct Args {
    /// Evaluation folder of the base model.
    folder: PathBuf,
    /// Checkpoint of the base model.
    #[arg(long, value_name = "DIR")]
    base: PathBuf,
    /// A trained model, NAME=DIR; repeatable. The others are compared with the first.
    #[arg(long = "model", value_name = "NAME=DIR", required = true, value_parser = named_path)]
    models: Vec<(String, PathBuf)>,
    /// Fraction of the correct samples that counts as rare.
    #[arg(long, value_name = "SHARE", default_value_t = 0.01)]
    share: f64,
    /// Minimum number of distinct, complete correct samples of a problem. Problems with fewer are left out.
    #[arg(long, value_name = "SAMPLES", default_value_t = 100)]
    pool: usize,
    /// Size of a problem's rare subset.
    #[arg(long, value_name = "SAMPLES", default_value_t = 5)]
    least: usize,
    /// Leave out samples whose text is too long for the models once it is tokenised again [default: fail].
    #[arg(long)]
    leave_out_long: bool,
    /// After --, flags of fgrpo eval or a training configuration that select problems of the folder [default: all]. The prompts are the folder's.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "EVAL FLAGS")]
    rest: Vec<String>,
    /// Print one JSON value.
    #[arg(long)]
    json: bool,
}

/// Returns the prompts of the folder's problems, or of the problems that the flags select. Flags that change the prompt
/// are allowed only for samples of other programs, because the folder doesn't know their prompts.
fn records(args: &Args, base: &Path) -> anyhow::Result<Vec<PromptRecord>> {
    let prompts = nll::prompts(&args.folder)?;
    if args.rest.is_empty() {
        if prompts.is_empty() {
            bad_input!(
                "{}: {} is missing; name the data set and the prompt by flags of fgrpo eval after --",
                args.folder.display(),
                PROMPTS
            );
        }
        return Ok(prompts);
    }
    let (mut flags, training) = Flags::of_words(&args.rest)?.resolved()?;
    (flags.n, flags.ks) = (flags.n.or(Some(1)), None);
    let plan = make_plan(
        &flags,
        &flags.configuration(training.as_ref(), &[])?,
        &Source::Checkpoint(base.to_owned()),
    )?;
    let by_problem: BTreeMap<&str, &PromptRecord> = prompts.iter().map(|r| (r.problem.as_str(), r)).collect();
    let made_elsewhere = nll::identity(&args.folder)?["source"] == "samples";
    let mut records = Vec::new();
    for record in plan.parts.iter().flat_map(|part| part.problems.iter().map(|p| part.record(p))) {
        let Some(&original) = by_problem.get(record.problem.as_str()) else {
            records.push(record);
            continue;
        };
        let other = (&original.messages, original.thinking) != (&record.messages, record.thinking);
        if other && flags.asks_for_a_prompt() && !made_elsewhere {
            bad_input!(
                "--preset, --system, --thinking: the prompt differs from that of the samples in {}; omit these flags, because the folder has the prompts",
                args.folder.display()
            );
        }
        records.push(if flags.asks_for_a_prompt() { record } else { original.clone() });
    }
    Ok(records)
}

fn measure(args: &Args) -> anyhow::Result<Nll> {
    if !(args.share > 0.0 && args.share <= 1.0) {
        bad_input!("--share: expected a number above 0 and at most 1, found {}", args.share);
    }
    let base = places::model("--base", args.base.clone())?;
    let model = |(name, path): &(String, PathBuf)| -> anyhow::Result<_> {
        Ok((name.clone(), places::model("--model", path.clone())?))
    };
    let settings = Settings {
        folder: args.folder.clone(),
        base: base.clone(),
        models: args.models.iter().map(model).collect::<anyhow::Result<_>>()?,
        share: args.share,
        pool: args.pool,
        subset: args.least,
        leave_out_long: args.leave_out_long,
    };
    nll::measure(&settings, &records(args, &base)?)
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let report = measure(args)?;
    if args.json {
        outln!("{}", serde_json::to_string(&report)?);
        return Ok(());
    }
    let mut table = Table::new(["model", "NLL of the rare", "increase", "mass higher", "share higher"]);
    let number = |v: f64| format!("{v:.4}");
    let none = String::new;
    table.push(["base".to_owned(), number(report.base_nll), none(), none(), none()]);
    let count = |c: Option<usize>| c.map_or_else(none, |c| format!("{c} of {}", report.prompts));
    for m in &report.models {
        let counts = [count(m.mass_higher), count(m.share_higher)];
        table.push([m.model.clone(), number(m.nll), number(m.increase)].into_iter().chain(counts));
    }
    out!("{}", table.render(Format::Text));
    say!(
        "{} rare of {} distinct correct samples; higher: than {}",
        report.rare,
        report.correct,
        args.models[0].0
    );
    Ok(())
}
