//! Assigns the results of an item to its rows, and computes the value of each quantity.

use super::config_text;
use super::data::{Item, Measure, Quantity, Setting, paper};
use super::measured::{Estimate, pass_at_k};
use super::results::{Found, Results, Run};
use super::settings::{self, named};
use fgrpo_core::stats::measure;
use fgrpo_eval::benchmarks::{Average, canonical, paper as averages};
use fgrpo_eval::compare::{self, Settings};
use fgrpo_eval::io::files;
use fgrpo_eval::names::Named;
use fgrpo_eval::samples::Benchmark;
use fgrpo_eval::table::percent;
use fgrpo_train::config::{Config, TaskConfig};
use fgrpo_train::run::folder::{Change, differences};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

pub(super) const MAZE: &str = "maze-17.toml";
/// Keys that may differ between the runs of one row: seeds, and keys that only affect the location, number or speed of
/// results. Keys of `eval` may differ too, except `eval.temperature`.
const FREE: &str = "seed sft.seed sft.eval_every sft.eval_problems sft.save_every rollout.max_cached_tokens \
    rollout.server update.micro_batch_tokens update.max_skipped grade save log compute";
/// Keys whose values are paths, which may differ between machines.
pub(super) const PLACES: [(&str, &str); 3] = [("model", "path"), ("task", "data"), ("task", "held_out")];

/// Runs on the tasks of this project that replace the paper's models.
pub(super) struct Replacement {
    /// Description of the trained runs.
    what: String,
    /// The paper's benchmark or average, and the benchmark that replaces it. `None` if mazes replace mazes.
    place: Option<(String, String)>,
}

/// The results of a table or figure, assigned to settings.
pub(super) struct Rows {
    /// The paper's settings, followed by settings of runs that the paper doesn't have.
    pub(super) settings: Vec<Setting>,
    /// The results of each setting.
    results: Vec<Vec<Found>>,
    averages: Vec<Average>,
    /// The task of this project that replaces the paper's, if the results are on one.
    pub(super) replacement: Option<Replacement>,
    /// Results that weren't used, each with the reason.
    pub(super) notes: Vec<String>,
}

impl Replacement {
    /// Returns the replacement to which these results belong, or `None` if they are results of the paper's models and
    /// mazes.
    fn of(item: &Item, results: &Results) -> anyhow::Result<Option<Self>> {
        let runs: Vec<&Run> = results.all.iter().filter_map(|f| f.run.as_ref()).collect();
        let names = || results.all.iter().filter_map(|f| Some(&f.benchmark.as_ref()?.name));
        let stand_in =
            paper().stand_ins.iter().find(|s| !runs.is_empty() && names().all(|name| *name == s.benchmark));
        let Some(benchmark) =
            stand_in.map(|s| s.benchmark.clone()).filter(|benchmark| !item.is_maze() || benchmark == "maze")
        else {
            return Ok(None);
        };
        let count = runs.len();
        if !item.is_maze() {
            let (what, place) =
                (format!("{count} runs on {benchmark}"), Some((item.in_domain().to_owned(), benchmark)));
            return Ok(Some(Self { what, place }));
        }
        let size = |config: &Config| match &config.task {
            TaskConfig::Maze(maze) => format!("{0}x{0} mazes after {1} steps", maze.size, config.steps),
            _ => String::new(),
        };
        let sizes: BTreeSet<String> = runs.iter().map(|run| size(&run.config)).collect();
        let papers = BTreeSet::from([size(&Config::parse(config_text(MAZE), &[])?)]);
        let what = format!("{} ({count} runs)", Vec::from_iter(sizes.clone()).join(", "));
        Ok((sizes != papers).then_some(Self { what, place: None }))
    }

    /// Returns the benchmark that replaces one of the paper's benchmarks, if any.
    pub(super) fn place(&self, benchmark: &str) -> Option<&str> {
        self.place.as_ref().filter(|p| p.0 == benchmark).map(|p| p.1.as_str())
    }

    /// Gives results on this project's tasks the names of the paper's benchmarks and models.
    fn rename(&self, results: &mut Results, model: Option<&String>) {
        for result in &mut results.all {
            let benchmark = result.benchmark.iter_mut().map(|b| &mut b.name);
            for name in benchmark.chain(result.reported.iter_mut().map(|r| &mut r.1)) {
                if let Some((papers, _)) = self.place.as_ref().filter(|p| p.1 == *name) {
                    name.clone_from(papers);
                }
            }
            if let Some(run) = &mut result.run {
                run.setting.model = model.cloned();
            }
        }
    }

    /// Returns a note for the reader about the replacement.
    pub(super) fn note(&self, item: &Item) -> String {
        let papers = if item.is_maze() {
            "17x17 mazes after 20,000 steps"
        } else {
            "language models and their benchmarks"
        };
        let more = item.laptop.as_ref().map_or_else(String::new, |more| format!(" {more}"));
        let what = &self.what;
        format!(
            "here: {what}; the paper: {papers}. The values measure other things; compare the effects.{more}"
        )
    }
}

impl Rows {
    /// Assigns each result to its setting. `trained` describes the runs that replace the paper's models.
    pub(super) fn of(item: &Item, mut results: Results, trained: Option<&str>) -> anyhow::Result<Self> {
        let mut settings = item.settings();
        let mut replacement = Replacement::of(item, &results)?;
        if let Some(replacement) = &mut replacement {
            replacement.what = trained.map_or(replacement.what.clone(), str::to_owned);
            replacement.rename(&mut results, settings.first().and_then(|s| s.model.as_ref()));
            // The evaluation of a run before its first step measures the base model.
            if let Some(base) = settings.iter().find(|s| s.method == "Base")
                && let Some(start) = results.all.iter().find_map(Found::start)
            {
                let blank = Found::new(&settings::name(base, &settings), &start.path);
                results.all.push(Found { benchmark: Some(start), ..blank });
            }
        }
        if replacement.is_some() || item.is_maze() {
            let runs = results.all.iter().filter_map(|f| f.run.as_ref());
            let mut further: Vec<&Setting> =
                runs.map(|r| &r.setting).filter(|s| !settings.contains(s)).collect();
            further.sort_by(|a, b| {
                a.method.cmp(&b.method).then(a.gamma.total_cmp(&b.gamma)).then(a.n.cmp(&b.n))
            });
            further.dedup();
            settings.extend(further.into_iter().cloned().collect::<Vec<_>>());
        }
        let mut rows = Self {
            results: settings.iter().map(|_| Vec::new()).collect(),
            averages: averages(item.table().trained_on),
            settings,
            replacement,
            notes: results.notes,
        };
        let table = item.table();
        let fixed = table.columns.iter().map(|c| &c.fixed).chain(table.rows.iter().map(|r| &r.fixed));
        let names = fixed.chain([&item.fixed]).filter_map(|f| f.benchmark.as_ref()).chain(&item.benchmarks);
        let benchmarks =
            names.chain(rows.averages.iter().flat_map(|a| &a.members)).map(|name| canonical(name));
        let benchmarks: BTreeSet<String> = benchmarks.collect();
        for result in results.all {
            let summary =
                result.benchmark.as_ref().map(|b| (b.name.clone(), b.path.clone(), b.unscorable_share()));
            let row = rows.add(result)?;
            let Some((benchmark, path, unscorable)) = summary.filter(|_| row) else { continue };
            if !benchmarks.contains(&canonical(&benchmark)) {
                rows.note(format!("not used: samples of {benchmark}, which {} has no place for", item.name));
            }
            if unscorable > 0.0 {
                let (share, path) = (percent(unscorable), path.display());
                rows.note(format!(
                    "{benchmark}: {share} % of the samples are unscorable and left out ({path})"
                ));
            }
        }
        for (setting, row) in rows.settings.iter().zip(&rows.results) {
            require_one_configuration(&rows.name(setting), row)?;
        }
        Ok(rows)
    }

    fn note(&mut self, note: String) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// Adds a result to its row and returns true, or notes that no row fits and returns false.
    fn add(&mut self, result: Found) -> anyhow::Result<bool> {
        let (name, path) = (&result.name, result.path.display());
        let fits: Vec<Setting> = named(name, &result.path, &self.settings).into_iter().cloned().collect();
        let rows = fits.iter().map(|s| self.name(s)).collect::<Vec<_>>().join(", ");
        let setting = match &result.run {
            None => fits.first().cloned().filter(|_| fits.len() == 1),
            Some(run) => {
                let mut setting = run.setting.clone();
                if setting.model.as_deref().is_none_or(|m| paper().model(m).is_none()) {
                    let has_models = self.settings.first().is_some_and(|s| s.model.is_some());
                    setting.model = settings::model_of(name, &result.path).filter(|_| has_models).cloned();
                }
                if let ([named], true) = (fits.as_slice(), result.has_name)
                    && *named != setting
                {
                    bad_input!(
                        "{name}={path}: the run is of {} with gamma {} and group size {}, not of {rows}",
                        setting.method,
                        setting.gamma,
                        setting.n
                    );
                }
                Some(setting)
            }
        };
        if let Some(at) = setting.and_then(|setting| self.at(&setting)) {
            self.results[at].push(result);
            return Ok(true);
        }
        if fits.len() > 1 && result.has_name {
            bad_input!("{name}={path}: the name fits several rows: {rows}");
        }
        let note = if fits.len() > 1 && result.run.is_none() {
            format!("not used: {name} ({path}), whose name fits several rows; NAME=PATH says which: {rows}")
        } else {
            format!("not used: {name} ({path}), which is no row")
        };
        self.note(note);
        Ok(false)
    }

    fn at(&self, setting: &Setting) -> Option<usize> {
        self.settings.iter().position(|s| s == setting)
    }

    pub(super) fn results(&self, setting: &Setting) -> &[Found] {
        self.at(setting).map_or(&[], |at| &self.results[at])
    }

    /// Returns the shortest name that distinguishes a setting from the other settings.
    pub(super) fn name(&self, setting: &Setting) -> String {
        settings::name(setting, &self.settings)
    }

    /// Returns a line for each setting with the paths of its results, and then the notes.
    pub(super) fn lines(&self) -> Vec<String> {
        let line = |(setting, results): (&Setting, &Vec<Found>)| {
            let mut places: Vec<String> = results.iter().map(|f| f.path.display().to_string()).collect();
            places.dedup();
            let places = if places.is_empty() { "nothing".to_owned() } else { places.join(", ") };
            format!("{}: {places}", self.name(setting))
        };
        self.settings.iter().zip(&self.results).map(line).chain(self.notes.iter().cloned()).collect()
    }

    /// Returns the samples of a setting on a benchmark, one entry per seed.
    pub(super) fn seeds(&self, setting: &Setting, benchmark: &str) -> Vec<&Benchmark> {
        let all = self.results(setting).iter().filter_map(|f| f.benchmark.as_ref());
        all.filter(|b| canonical(&b.name) == canonical(benchmark)).collect()
    }

    /// Returns the canonical names of an average's benchmarks, or only `benchmark` itself if it isn't an average or if
    /// `has` is true for it.
    fn members(&self, benchmark: &str, has: impl Fn(&str) -> bool) -> Vec<String> {
        let average = self.averages.iter().find(|a| a.name == benchmark).filter(|_| !has(benchmark));
        average.map_or_else(|| vec![canonical(benchmark)], |a| a.members.clone())
    }

    /// Computes pass@k, or returns the reason why it is missing.
    pub(super) fn pass(&self, Quantity { setting, benchmark, k, .. }: &Quantity) -> Result<Estimate, String> {
        if self.results(setting).is_empty() {
            return Err("no results".to_owned());
        }
        let members = self.members(benchmark, |benchmark| !self.seeds(setting, benchmark).is_empty());
        let estimates =
            members.iter().enumerate().map(|(i, member)| match self.seeds(setting, member).as_slice() {
                [] => Err(format!("no samples of {member}")),
                seeds => pass_at_k(seeds, *k, i as u64).map_err(|why| format!("{member}: {why}")),
            });
        Ok(Estimate::mean(&estimates.collect::<Result<Vec<_>, _>>()?))
    }

    /// Returns a value from a report, or the reason why it is missing. An average that isn't in a report is the mean over
    /// its benchmarks.
    pub(super) fn reported(&self, quantity: &Quantity) -> Result<f64, String> {
        let measure = quantity.measure;
        let all = |benchmark: &str| -> Vec<f64> {
            let all = self.results(&quantity.setting).iter().filter_map(|f| f.reported.as_ref());
            let matches =
                all.filter(|r| r.0 == measure && (r.1.is_empty() || canonical(&r.1) == canonical(benchmark)));
            matches.map(|r| r.2).collect()
        };
        let (mut sum, mut count) = (0.0, 0.0);
        for member in self.members(&quantity.benchmark, |benchmark| !all(benchmark).is_empty()) {
            match all(&member).as_slice() {
                [] => return Err(format!("no {measure}=FILE has what {} printed", measure.about())),
                [first, rest @ ..] if rest.iter().all(|v| v == first) => {
                    (sum, count) = (sum + first, count + 1.0)
                }
                several => {
                    return Err(format!(
                        "{member} has {} different values; give one report of each model",
                        several.len()
                    ));
                }
            }
        }
        Ok(sum / count)
    }

    /// Returns a value and, if it comes from samples, its estimate, or the reason why the value is missing.
    pub(super) fn value(&self, quantity: &Quantity) -> Result<(f64, Option<Estimate>), String> {
        match quantity.measure {
            Measure::Pass => self.pass(quantity).map(|e| (e.value(), Some(e))),
            _ => Ok((self.reported(quantity)?, None)),
        }
    }

    /// Computes p-values of the paper's paired subsampling test between two settings, by benchmark or average and k. The
    /// test needs the same problems, one model on each side, and twice as many samples as k. Other values are left out.
    pub(super) fn p_values(&self, a: &Setting, b: &Setting, ks: &[u64]) -> BTreeMap<(String, u64), f64> {
        let all = self.results(a).iter().filter_map(|f| Some(canonical(&f.benchmark.as_ref()?.name)));
        let pair = |name: String| match (self.seeds(a, &name).as_slice(), self.seeds(b, &name).as_slice()) {
            (&[a], &[b]) => compare::align(name.clone(), Benchmark { name, ..a.clone() }, b).ok(),
            _ => None,
        };
        let pairs: Vec<_> = all.collect::<BTreeSet<_>>().into_iter().filter_map(pair).collect();
        let fewest = pairs.iter().map(|p| p.a.fewest().min(p.b.fewest())).min().unwrap_or(0);
        let ks: Vec<u64> = ks.iter().copied().filter(|k| 2 * k <= fewest).collect();
        if ks.is_empty() {
            return BTreeMap::new();
        }
        let comparisons = compare::compare(&pairs, &Settings::test_alone(ks, None), &self.averages);
        let entry = |c: compare::Comparison| {
            let measure::Measure::PassAtK(k) = c.measure else { return None };
            Some(((canonical(&c.name), k), c.p_value?))
        };
        comparisons.unwrap_or_default().into_iter().filter_map(entry).collect()
    }
}

/// Returns an error if the runs of one row, whose mean is shown, were trained by different configurations.
fn require_one_configuration(row: &str, results: &[Found]) -> anyhow::Result<()> {
    let table = |config: &Config| -> anyhow::Result<toml::Table> {
        let mut table: toml::Table = config.to_toml().parse()?;
        for key in FREE.split(' ') {
            match key.split_once('.') {
                Some((section, key)) => {
                    drop(table.get_mut(section).and_then(|t| t.as_table_mut()?.remove(key)))
                }
                None => drop(table.remove(key)),
            }
        }
        if let Some(toml::Value::Table(eval)) = table.get_mut("eval") {
            eval.retain(|key, _| key == "temperature");
        }
        for (section, key) in PLACES {
            if let Some(toml::Value::String(path)) = table.get_mut(section).and_then(|t| t.get_mut(key)) {
                *path = files::name(Path::new(path));
            }
        }
        Ok(table)
    };
    let mut runs = results.iter().filter_map(|f| Some((f.path.display(), &f.run.as_ref()?.config)));
    let Some((first, config)) = runs.next() else { return Ok(()) };
    for (other, other_config) in runs {
        let differing = differences(&table(config)?, &table(other_config)?);
        if !differing.is_empty() {
            bad_input!(
                "{row}: {first} and {other} would be seeds of one row, but their configurations differ in more than the seed: {}; give the runs of one configuration, or each alone",
                Change::list(&differing)
            );
        }
    }
    Ok(())
}
