//! The laptop's scale: small runs of what stands in for the paper's models, and what they are measured for after training,
//! beside their own evaluations: problems out of domain, the diversity of correct solutions, and the NLL of the start's rare
//! correct solutions.
//!
//! Out of domain are problems whose values go up to 299, where training stays below 100: the same instructions, digits and
//! lengths of working, on numbers that it has never seen. Longer problems would not fit the policy's positions, and it has
//! no tokens for mazes.

use super::data::{Fixed, Item, Measure, Substitute};
use super::made::Made;
use super::make::with_substitute;
use super::runs::{self, Options, Scale, Training, words};
use super::settings;
use super::sources::Sources;
use super::substitute::LARGER;
use anyhow::Context;
use fgrpo_eval::bad_input;
use fgrpo_eval::dataset::Problem;
use fgrpo_eval::diversity;
use fgrpo_eval::io::files::write_whole;
use fgrpo_eval::io::shell::quoted;
use fgrpo_train::config::{ArithmeticConfig, TaskConfig};
use fgrpo_train::evaluation::nll;
use fgrpo_train::problem::generated;
use fgrpo_train::run::checkpoint;
use fgrpo_train::run::duration::Estimator;
use std::path::{Path, PathBuf};

/// Values of problems out of domain go up to this.
const LARGEST: u64 = 299;
/// Problems of an evaluation after training.
const PROBLEMS: usize = 64;
/// Samples of an evaluation after training.
pub const SAMPLES: u64 = 256;

/// Problems that are asked after training, by the name of their evaluation: held out, of the domain and out of it, and those
/// that were trained on.
const HELD_OUT: &str = "arithmetic";
const TRAINED: &str = "arithmetic-train";

/// What the list says an item is made of.
pub(super) fn in_words(item: &'static Item, options: &Options) -> anyhow::Result<String> {
    let runs = runs::of(item, Scale::Laptop, options)?.len();
    Ok(format!("{runs} runs of {}", Substitute::of(item).config))
}

/// What makes an item on a laptop.
pub struct Plan {
    item: &'static Item,
    /// The trainings.
    pub runs: Vec<Training>,
    stand: Substitute,
    /// The folder of the evaluations after training, beside the runs.
    folder: PathBuf,
}

/// An evaluation of a checkpoint on a file of arithmetic, with [`SAMPLES`] of each problem and without a system prompt.
pub struct Evaluation {
    /// The checkpoint.
    pub checkpoint: PathBuf,
    /// The problems.
    pub data: PathBuf,
    /// Their name in results.
    pub name: &'static str,
    /// The evaluation's folder.
    pub out: PathBuf,
}

impl Plan {
    /// The plan of an item.
    ///
    /// # Errors
    /// Changes that are no settings.
    pub fn of(item: &'static Item, options: &Options) -> anyhow::Result<Self> {
        let runs = runs::of(item, Scale::Laptop, options)?;
        let beside = runs.first().and_then(|r| r.folder.parent()).unwrap_or(Path::new("."));
        let folder = beside.join("evaluations");
        Ok(Self { item, runs, stand: Substitute::of(item).changed(&options.set), folder })
    }

    /// What would be done as commands, and how long the training takes, a line for each.
    ///
    /// # Errors
    /// A task or model that can't be read; a folder that holds another run.
    pub fn lines(&self) -> anyhow::Result<Vec<String>> {
        let all = runs::seconds(&mut Estimator::default(), &self.runs, Scale::Laptop)?;
        let took = |seconds: &Option<f64>| seconds.map_or_else(|| "done".to_owned(), words);
        let runs = self.runs.iter().zip(&all);
        let mut lines: Vec<String> =
            runs.map(|(run, seconds)| format!("{}    # {}", run.command(), took(seconds))).collect();
        lines.extend(self.lines_after());
        let total = words(all.iter().flatten().sum());
        lines.push(format!("{total} of training in all on this machine, when it does nothing else"));
        Ok(lines)
    }

    /// Makes the item of its finished trainings, with the evaluations that it needs besides, which `evaluate` makes or
    /// resumes.
    ///
    /// # Errors
    /// What an evaluation fails with.
    pub fn make(&self, evaluate: &mut dyn FnMut(&Evaluation) -> anyhow::Result<()>) -> anyhow::Result<Made> {
        let from: Vec<String> = self.runs.iter().map(|r| r.folder.display().to_string()).collect();
        let mut sources = Sources::open(&from)?;
        self.measure(&mut sources, evaluate)?;
        with_substitute(self.item, &sources, Some(&self.stand))
    }

    /// Whether the item has a column of something.
    fn has(&self, is: &dyn Fn(&Fixed) -> bool) -> bool {
        self.item.columns.iter().any(|c| is(&c.fixed) || c.parts.iter().any(is))
    }

    fn measures(&self, measure: Measure) -> bool {
        self.has(&|f| f.measure == Some(measure))
    }

    /// The evaluation of a checkpoint on some problems; `name` is the folder's of the checkpoint's run.
    fn evaluation(&self, checkpoint: &Path, asked: &'static str, name: &str) -> Evaluation {
        Evaluation {
            checkpoint: checkpoint.to_owned(),
            data: self.folder.join(format!("{asked}.jsonl")),
            name: asked,
            out: self.folder.join(name).join(asked),
        }
    }

    /// Writes an evaluation's problems.
    fn write_problems(&self, run: &Training, evaluation: &Evaluation) -> anyhow::Result<()> {
        let TaskConfig::Arithmetic(config) = &run.config.task else {
            bad_input!("{}: found another task than arithmetic", run.folder.display());
        };
        let larger = ArithmeticConfig { largest: LARGEST, ..config.clone() };
        let asked = evaluation.name;
        let (train, held_out) = generated::problems(if asked == LARGER { &larger } else { config })?;
        let problems = if asked == TRAINED { train } else { held_out };
        let row = |p: &Problem| {
            serde_json::json!({"problem": p.question(), "answer": p.truth.gold()}).to_string() + "\n"
        };
        let lines: String = problems.iter().take(PROBLEMS).map(row).collect();
        std::fs::create_dir_all(evaluation.out.parent().unwrap_or(&self.folder))
            .with_context(|| format!("creating {}", self.folder.display()))?;
        write_whole(&evaluation.data, lines.as_bytes())
    }

    /// The evaluations of a run.
    fn asked(&self) -> impl Iterator<Item = &'static str> {
        let out_of_domain = !self.item.is_maze() && self.has(&|f| f.of.as_deref() == Some("OOD"));
        let diversity = self.measures(Measure::Embeddings).then_some(HELD_OUT);
        out_of_domain.then_some(LARGER).into_iter().chain(diversity)
    }

    /// Measures what is needed, and adds it to the results.
    ///
    /// # Errors
    /// What an evaluation fails with; a stop on request.
    fn measure(
        &self,
        sources: &mut Sources,
        evaluate: &mut dyn FnMut(&Evaluation) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let mut evaluated =
            |run: &Training, checkpoint: &Path, asked, name: &str| -> anyhow::Result<PathBuf> {
                let evaluation = self.evaluation(checkpoint, asked, name);
                self.write_problems(run, &evaluation)?;
                tracing::info!("{}", evaluation.out.display());
                evaluate(&evaluation)?;
                Ok(evaluation.out)
            };
        let shown = self.item.settings();
        let mut folders = Vec::new();
        let mut models = Vec::new();
        for run in &self.runs {
            let name = settings::name(&run.setting, &shown);
            let last = || match checkpoint::list(&run.folder.join("checkpoints"))?.pop() {
                Some((_, path)) => Ok(path),
                None => bad_input!("{}: found no checkpoint, wanted the last one", run.folder.display()),
            };
            for asked in self.asked() {
                let out = evaluated(run, &last()?, asked, &folder_name(run))?;
                if asked == LARGER {
                    sources.add(&name, &out)?;
                } else {
                    folders.push((name.clone(), out));
                }
            }
            if self.measures(Measure::Nll) {
                models.push((name, last()?));
            }
        }
        if self.measures(Measure::Embeddings) {
            let (names, folders): (Vec<String>, Vec<PathBuf>) = folders.into_iter().unzip();
            let found = diversity::measure(&diversity::Settings::ngrams(folders))?;
            sources
                .reports
                .add_diversity(Measure::Embeddings, diversity::Diversity { folders: names, ..found });
        }
        if self.measures(Measure::Nll) {
            let start = self.start()?;
            let folder = evaluated(&self.runs[0], &start, TRAINED, "start")?;
            let prompts = nll::prompts(&folder)?;
            let settings =
                nll::Settings { leave_out_long: true, ..nll::Settings::new(folder, start, models) };
            sources.reports.add_nll(nll::measure(&settings, &prompts)?);
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

    /// The commands that measure the same.
    fn lines_after(&self) -> Vec<String> {
        let line = |checkpoint: &Path, asked: &'static str, name: &str| {
            let Evaluation { checkpoint, data, out, .. } = self.evaluation(checkpoint, asked, name);
            let [checkpoint, data, out] =
                [checkpoint, data, out].map(|path| quoted(&path.display().to_string()).to_string());
            format!(
                "fgrpo eval --model {checkpoint} --data {data} --task math --system '' -n {SAMPLES} --name {asked} --out {out}"
            )
        };
        let mut lines = Vec::new();
        for run in &self.runs {
            let checkpoint = checkpoint::path(&run.folder.join("checkpoints"), run.config.steps);
            lines.extend(self.asked().map(|asked| line(&checkpoint, asked, &folder_name(run))));
        }
        if self.measures(Measure::Nll) {
            lines.push(line(Path::new("START"), TRAINED, "start"));
            lines.push("fgrpo nll --leave-out-long of the start's samples under each model".to_owned());
        }
        if self.measures(Measure::Embeddings) {
            lines.push("fgrpo diversity of the evaluations".to_owned());
        }
        lines
    }
}

fn folder_name(run: &Training) -> String {
    run.folder.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
