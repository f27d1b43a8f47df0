//! The laptop's scale: small runs of what stands in for the paper's models, and what they are measured for after training,
//! beside their own evaluations: problems out of domain, the diversity of correct solutions, and the NLL of the start's rare
//! correct solutions.
//!
//! Out of domain are problems whose values go up to 299, where training stays below 100: the same instructions, digits and
//! lengths of working, on numbers that it has never seen. Longer problems would not fit the policy's positions, and it has
//! no tokens for mazes.

use super::data::{Fixed, Item, Measure, Substitute};
use super::runs::{self, Estimator, Training, words};
use super::sources::Sources;
use super::substitute::LARGER;
use super::{Args, Scale, from_results, settings};
use crate::commands::eval;
use crate::commands::{diversity, nll};
use anyhow::Context;
use fgrpo_eval::bad_input;
use fgrpo_eval::dataset::Problem;
use fgrpo_eval::io::files::write_whole;
use fgrpo_eval::io::json;
use fgrpo_eval::io::shell::quoted;
use fgrpo_eval::kind::TaskKind;
use fgrpo_train::config::{ArithmeticConfig, TaskConfig};
use fgrpo_train::problem::arithmetic;
use fgrpo_train::run::checkpoint;
use std::path::{Path, PathBuf};

/// Values of problems out of domain go up to this.
const LARGEST: u64 = 299;
/// Problems and samples of an evaluation after training.
const PROBLEMS: usize = 64;
const SAMPLES: u64 = 256;

/// Problems that are asked after training, by the name of their evaluation: held out, of the domain and out of it, and those
/// that were trained on.
const HELD_OUT: &str = "arithmetic";
const TRAINED: &str = "arithmetic-train";

/// What the list says an item is made of.
pub(super) fn in_words(item: &'static Item, args: &Args) -> anyhow::Result<String> {
    let runs = runs::of(item, Scale::Laptop, args)?.len();
    Ok(format!("{runs} runs of {}", Substitute::of(item).config))
}

/// Makes the runs that are missing, then the item.
///
/// # Errors
/// What a run fails with; a stop on request.
pub(super) fn run(item: &'static Item, args: &Args) -> anyhow::Result<()> {
    let runs = runs::of(item, Scale::Laptop, args)?;
    let after = After::of(item, &runs);
    if args.dry_run {
        let all = Estimator::default().seconds(&runs, Scale::Laptop)?;
        for (run, seconds) in runs.iter().zip(&all) {
            outln!("{}    # {}", run.command(), seconds.map_or_else(|| "done".to_owned(), words));
        }
        after.print();
        outln!(
            "{} of training in all on this machine, when it does nothing else",
            words(all.iter().flatten().sum())
        );
        return Ok(());
    }
    runs::train_all(&runs)?;
    let from: Vec<String> = runs.iter().map(|r| r.folder.display().to_string()).collect();
    let mut sources = Sources::open(&from)?;
    after.measure(item, &mut sources)?;
    from_results(item, &sources, args, Some(&Substitute::of(item).changed(&args.set)))
}

/// What an item needs of its runs after training.
struct After<'a> {
    runs: &'a [Training],
    /// The folder of these evaluations, beside the runs.
    folder: PathBuf,
    out_of_domain: bool,
    diversity: bool,
    nll: bool,
}

impl<'a> After<'a> {
    fn of(item: &Item, runs: &'a [Training]) -> Self {
        let beside = runs.first().and_then(|r| r.folder.parent()).unwrap_or(Path::new("."));
        let has =
            |is: &dyn Fn(&Fixed) -> bool| item.columns.iter().any(|c| is(&c.fixed) || c.parts.iter().any(is));
        Self {
            runs,
            folder: beside.join("evaluations"),
            out_of_domain: !item.is_maze() && has(&|f| f.of.as_deref() == Some("OOD")),
            diversity: has(&|f| f.measure == Some(Measure::Embeddings)),
            nll: has(&|f| f.measure == Some(Measure::Nll)),
        }
    }

    /// The evaluation of a checkpoint on some problems; `name` is the folder's of the checkpoint's run.
    fn evaluation(&self, checkpoint: &Path, asked: &str, name: &str) -> eval::Args {
        eval::Args {
            model: Some(checkpoint.display().to_string()),
            data: Some(self.folder.join(format!("{asked}.jsonl"))),
            task: Some(TaskKind::Math),
            system: Some(String::new()),
            n: Some(SAMPLES),
            name: Some(asked.to_owned()),
            out: Some(self.folder.join(name).join(asked)),
            ..eval::Args::default()
        }
    }

    /// Makes an evaluation, or resumes it; returns its folder.
    fn evaluate(
        &self,
        run: &Training,
        checkpoint: &Path,
        asked: &str,
        name: &str,
    ) -> anyhow::Result<PathBuf> {
        let TaskConfig::Arithmetic(config) = &run.config.task else {
            bad_input!("{}: found another task than arithmetic", run.folder.display());
        };
        let larger = ArithmeticConfig { largest: LARGEST, ..config.clone() };
        let (train, held_out) = arithmetic::problems(if asked == LARGER { &larger } else { config })?;
        let problems = if asked == TRAINED { train } else { held_out };
        let row = |p: &Problem| {
            serde_json::json!({"problem": p.question(), "answer": p.truth.gold()}).to_string() + "\n"
        };
        let lines: String = problems.iter().take(PROBLEMS).map(row).collect();
        let args = self.evaluation(checkpoint, asked, name);
        let (Some(data), Some(out)) = (&args.data, &args.out) else { unreachable!("both are given") };
        std::fs::create_dir_all(self.folder.join(name))
            .with_context(|| format!("creating {}", self.folder.display()))?;
        write_whole(data, lines.as_bytes())?;
        say!("{}", out.display());
        eval::run(&args, &[])?;
        Ok(out.clone())
    }

    /// The evaluations of a run.
    fn asked(&self) -> impl Iterator<Item = &'static str> {
        self.out_of_domain.then_some(LARGER).into_iter().chain(self.diversity.then_some(HELD_OUT))
    }

    /// Measures what is needed, and adds it to the results.
    ///
    /// # Errors
    /// What an evaluation fails with; a stop on request.
    fn measure(&self, item: &Item, sources: &mut Sources) -> anyhow::Result<()> {
        let shown = item.settings();
        let mut folders = Vec::new();
        let mut models = Vec::new();
        for run in self.runs {
            let name = settings::name(&run.setting, &shown);
            let last = || match checkpoint::list(&run.folder.join("checkpoints"))?.pop() {
                Some((_, path)) => Ok(path),
                None => bad_input!("{}: found no checkpoint, wanted the last one", run.folder.display()),
            };
            for asked in self.asked() {
                let out = self.evaluate(run, &last()?, asked, &folder_name(run))?;
                if asked == LARGER {
                    sources.add(&name, &out)?;
                } else {
                    folders.push((name.clone(), out));
                }
            }
            if self.nll {
                models.push((name, last()?));
            }
        }
        if self.diversity {
            let (names, folders): (Vec<String>, Vec<PathBuf>) = folders.into_iter().unzip();
            let mut found: super::reports::Diversity = json::of_value(serde_json::json!(
                fgrpo_eval::diversity::measure(&diversity::Args::of(folders).settings())?
            ))?;
            found.folders = names;
            sources.reports.add_diversity(Measure::Embeddings, found);
        }
        if self.nll {
            let start = self.start()?;
            let folder = self.evaluate(&self.runs[0], &start, TRAINED, "start")?;
            let found = nll::measure(&nll::Args::of(folder, start, models))?;
            sources.reports.add_nll(json::of_value(serde_json::json!(found))?);
        }
        Ok(())
    }

    /// The start of the runs, which share a supervised stage.
    fn start(&self) -> anyhow::Result<PathBuf> {
        let cache = self.folder.with_file_name("sft-cache");
        let entries =
            std::fs::read_dir(&cache).with_context(|| format!("{}: cannot list", cache.display()))?;
        let mut found: Vec<PathBuf> = entries.filter_map(|e| e.ok().map(|e| e.path())).collect();
        found.retain(|p| p.join("model.safetensors").is_file());
        match found.as_slice() {
            [only] => Ok(only.clone()),
            all => {
                bad_input!("{}: found {} starts, wanted the one of these runs", cache.display(), all.len())
            }
        }
    }

    /// Prints the commands that measure the same.
    fn print(&self) {
        let line = |checkpoint: &Path, asked: &str, name: &str| {
            let args = self.evaluation(checkpoint, asked, name);
            let path = |path: Option<&PathBuf>| {
                quoted(&path.map_or_else(String::new, |p| p.display().to_string())).to_string()
            };
            outln!(
                "fgrpo eval --model {} --data {} --task math --system '' -n {SAMPLES} --name {asked} --out {}",
                path(Some(&checkpoint.to_owned())),
                path(args.data.as_ref()),
                path(args.out.as_ref())
            );
        };
        for run in self.runs {
            let checkpoint = checkpoint::path(&run.folder.join("checkpoints"), run.config.steps);
            self.asked().for_each(|asked| line(&checkpoint, asked, &folder_name(run)));
        }
        if self.nll {
            line(Path::new("START"), TRAINED, "start");
            outln!("fgrpo nll --leave-out-long of the start's samples under each model");
        }
        if self.diversity {
            outln!("fgrpo diversity of the evaluations");
        }
    }
}

fn folder_name(run: &Training) -> String {
    run.folder.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
