//! The results of an item's settings: which row they belong to, which models replace the paper's, and the value of each
//! quantity.

use super::config_text;
use super::data::{Item, Quantity, Setting, StandIn, paper};
use super::measured::{Estimate, pass_at_k};
use super::results::{Found, Results};
use super::settings::{self, named};
use fgrpo_eval::benchmarks::{Average, canonical, paper as averages};
use fgrpo_eval::compare::{self, Settings};
use fgrpo_eval::io::files;
use fgrpo_eval::samples::Benchmark;
use fgrpo_eval::table::percent;
use fgrpo_train::config::{Config, TaskConfig};
use fgrpo_train::run::folder::differences;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

pub(super) const MAZE: &str = "maze-17.toml";
/// Keys that may differ between the runs of one row: seeds, and what changes only where results lie, how many they are or how fast they
/// come. A key includes those below it.
const FREE: [&str; 14] = [
    "seed",
    "sft.seed",
    "sft.eval_every",
    "sft.eval_problems",
    "sft.save_every",
    "rollout.max_cached_tokens",
    "rollout.server",
    "update.micro_batch_tokens",
    "update.max_skipped",
    "grade",
    "eval",
    "save",
    "log",
    "compute",
];
/// Below a free key, but what is measured depends on it.
const FIXED: &str = "eval.temperature";
/// Files and folders, which may stand elsewhere on another machine.
const PLACES: [(&str, &str); 3] = [("model", "path"), ("task", "data"), ("task", "held_out")];

/// Runs of our own tasks in place of the paper's models.
pub(super) struct Replacement {
    /// What was trained, in words.
    pub(super) what: String,
    /// The paper's benchmark or average, and ours in its place; none for mazes in place of mazes.
    place: Option<(String, String)>,
}

/// The results of an item by its settings.
pub(super) struct Rows {
    /// The paper's settings, then those of further runs.
    pub(super) settings: Vec<Setting>,
    /// The results of each setting.
    found: Vec<Vec<Found>>,
    averages: Vec<Average>,
    /// Set where the results are of our own tasks.
    pub(super) replacement: Option<Replacement>,
    /// What was not used, and why.
    pub(super) notes: Vec<String>,
}

impl Replacement {
    /// What these results replace; none if they are of the paper's own models and mazes.
    fn of(item: &Item, results: &Results) -> anyhow::Result<Option<Self>> {
        let runs: Vec<_> = results.all.iter().filter_map(|f| Some((f, f.run.as_ref()?))).collect();
        let Some((first, _)) = runs.first() else { return Ok(None) };
        let count = runs.len();
        if item.is_maze() {
            let size = |config: &Config| match &config.task {
                TaskConfig::Maze(maze) => Some((maze.size, config.steps)),
                _ => None,
            };
            let papers = size(&Config::parse(config_text(MAZE), &[])?);
            let found: BTreeSet<_> = runs.iter().filter_map(|(_, run)| size(&run.config)).collect();
            let each = found.iter().map(|(size, steps)| format!("{size}x{size} mazes after {steps} steps"));
            let what = format!("{} ({count} runs)", each.collect::<Vec<_>>().join(", "));
            let other = found.iter().any(|size| Some(*size) != papers);
            return Ok(other.then_some(Self { what, place: None }));
        }
        let of = first.benchmarks[0].name.as_str();
        let Some(stand) = paper().stand_ins().find(|s| s.of == of) else { return Ok(None) };
        let mut names = results.all.iter().flat_map(|f| &f.benchmarks).map(|b| &b.name);
        let place = Some((item.in_domain().to_owned(), stand.of.clone()));
        Ok(names.all(|name| *name == stand.of).then(|| Self { what: format!("{count} runs on {of}"), place }))
    }

    /// Our benchmark in place of the paper's, if there is one.
    pub(super) fn place(&self, of: &str) -> Option<&str> {
        self.place.as_ref().filter(|p| p.0 == of).map(|p| p.1.as_str())
    }

    /// Names the paper's benchmarks and models in results of our own.
    fn rename(&self, results: &mut Results, model: Option<&String>) {
        let rename = |name: &mut String| {
            if let Some((papers, _)) = self.place.as_ref().filter(|p| p.1 == *name) {
                name.clone_from(papers);
            }
        };
        for found in &mut results.all {
            found.benchmarks.iter_mut().for_each(|b| rename(&mut b.name));
            found.reported.iter_mut().for_each(|r| rename(&mut r.1));
            if let Some(run) = &mut found.run {
                run.setting.model = model.cloned();
            }
        }
    }

    /// A note for the reader.
    pub(super) fn note(&self, item: &Item) -> String {
        let papers = match item.is_maze() {
            true => "17x17 mazes after 20,000 steps",
            false => "language models and their benchmarks",
        };
        let more = item.laptop.as_ref().map_or_else(String::new, |more| format!(" {more}"));
        let what = &self.what;
        format!(
            "here: {what}; the paper: {papers}. The values measure other things; compare the effects.{more}"
        )
    }
}

impl Rows {
    /// Finds the setting of each result; `stand` is what was trained in place of the paper's models.
    pub(super) fn of(item: &Item, mut results: Results, stand: Option<&StandIn>) -> anyhow::Result<Self> {
        let mut settings = item.settings();
        let model = settings.first().and_then(|s| s.model.clone());
        let mut replacement = Replacement::of(item, &results)?;
        if let (Some(replacement), Some(stand)) = (&mut replacement, stand) {
            replacement.what.clone_from(&stand.what);
        }
        if let Some(replacement) = &replacement {
            replacement.rename(&mut results, model.as_ref());
            // What runs evaluated before their first step is the base model.
            if let Some(base) = settings.iter().find(|s| s.method == "Base")
                && let Some(start) = results.all.iter().find_map(Found::start)
            {
                let (name, path) = (settings::name(base, &settings), start.path.clone());
                results.all.push(Found { benchmarks: vec![start], ..Found::new(&name, &path) });
            }
        }
        if replacement.is_some() || item.is_maze() {
            let runs = results.all.iter().filter_map(|f| f.run.as_ref());
            let mut further: Vec<Setting> = Vec::new();
            for setting in runs.map(|r| &r.setting).filter(|s| !settings.contains(s)) {
                if !further.contains(setting) {
                    further.push(setting.clone());
                }
            }
            further.sort_by(|a, b| {
                a.method.cmp(&b.method).then(a.gamma.total_cmp(&b.gamma)).then(a.n.cmp(&b.n))
            });
            settings.extend(further);
        }
        let mut rows = Self {
            found: settings.iter().map(|_| Vec::new()).collect(),
            averages: averages(item.table().trained_on),
            settings,
            replacement,
            notes: results.notes,
        };
        for found in results.all {
            rows.add(found)?;
        }
        for (setting, row) in rows.settings.iter().zip(&rows.found) {
            require_one_configuration(&rows.name(setting), row)?;
        }
        rows.note_unused(item);
        Ok(rows)
    }

    /// Adds a result to its row, or notes that it has none.
    fn add(&mut self, found: Found) -> anyhow::Result<()> {
        let (name, path) = (&found.name, found.path.display());
        let fits: Vec<Setting> = named(name, &found.path, &self.settings).into_iter().cloned().collect();
        let rows = fits.iter().map(|s| self.name(s)).collect::<Vec<_>>().join(", ");
        let own = match &found.run {
            None => fits.first().cloned().filter(|_| fits.len() == 1),
            Some(run) => {
                let mut own = run.setting.clone();
                let known = own.model.as_deref().is_some_and(|m| paper().model(m).is_some());
                if !known {
                    own.model = match self.settings.first().and_then(|s| s.model.as_ref()) {
                        Some(_) => settings::model_of(name, &found.path).cloned(),
                        None => None,
                    };
                }
                if let ([named], true) = (fits.as_slice(), found.given)
                    && *named != own
                {
                    bad_input!(
                        "--from {name}={path}: found a run of {} with gamma {} and group size {}, wanted one of {rows}",
                        own.method,
                        own.gamma,
                        own.n
                    );
                }
                Some(own)
            }
        };
        match own.and_then(|own| self.at(&own)) {
            Some(at) => self.found[at].push(found),
            None if fits.len() > 1 && found.given => {
                bad_input!("--from {name}={path}: the name fits several rows, {rows}; wanted one of them")
            }
            None if fits.len() > 1 && found.run.is_none() => self.notes.push(format!(
                "not used: {name} ({path}), whose name fits several rows; NAME=PATH says which: {rows}"
            )),
            None => self.notes.push(format!("not used: {name} ({path}), which is no row")),
        }
        Ok(())
    }

    /// Notes benchmarks that the item has no place for, and samples that could not be scored.
    fn note_unused(&mut self, item: &Item) {
        let table = item.table();
        let fixed = table.columns.iter().map(|c| &c.fixed).chain(table.rows.iter().map(|r| &r.fixed));
        let mut wanted: Vec<String> = fixed.chain([&item.fixed]).filter_map(|f| f.of.clone()).collect();
        wanted.extend(self.averages.iter().flat_map(|a| a.members.clone()).chain(item.benchmarks.clone()));
        let wanted: Vec<String> = wanted.iter().map(|of| canonical(of)).collect();
        let mut unknown = BTreeSet::new();
        for b in self.found.iter().flatten().flat_map(|f| &f.benchmarks) {
            if !wanted.contains(&canonical(&b.name)) {
                unknown.insert(format!(
                    "not used: samples of {}, which the {} has no place for",
                    b.name,
                    item.kind()
                ));
            }
            let share = b.unscorable_share();
            if share > 0.0 {
                let (path, share) = (b.path.display(), percent(share));
                let said =
                    format!("{}: {share} % of the samples are unscorable and left out ({path})", b.name);
                self.notes.push(said);
            }
        }
        self.notes.extend(unknown);
    }

    fn at(&self, setting: &Setting) -> Option<usize> {
        self.settings.iter().position(|s| s == setting)
    }

    pub(super) fn results(&self, setting: &Setting) -> &[Found] {
        self.at(setting).map_or(&[], |at| &self.found[at])
    }

    /// The shortest name of a setting among these.
    pub(super) fn name(&self, setting: &Setting) -> String {
        settings::name(setting, &self.settings)
    }

    /// A line for each setting: where its results are.
    pub(super) fn lines(&self) -> Vec<String> {
        let line = |(setting, found): (&Setting, &Vec<Found>)| {
            let places: Vec<String> = found.iter().map(|f| f.path.display().to_string()).collect();
            let places = if places.is_empty() { "nothing".to_owned() } else { places.join(", ") };
            format!("{}: {places}", self.name(setting))
        };
        self.settings.iter().zip(&self.found).map(line).chain(self.notes.iter().cloned()).collect()
    }

    /// The canonical names of the benchmarks behind a benchmark or an average, itself where `has` it.
    fn members(&self, of: &str, has: impl Fn(&str) -> bool) -> Vec<String> {
        let average = self.averages.iter().find(|a| a.name == of).filter(|_| !has(of));
        average.map_or_else(|| vec![canonical(of)], |a| a.members.clone())
    }

    /// pass@k in percent, or why it is missing.
    pub(super) fn pass(&self, quantity: &Quantity) -> Result<Estimate, String> {
        let found = self.results(&quantity.setting);
        if found.is_empty() {
            return Err("no results".to_owned());
        }
        let all = |of: &str| -> Vec<&Benchmark> {
            let benchmarks = found.iter().flat_map(|f| &f.benchmarks);
            benchmarks.filter(|b| canonical(&b.name) == canonical(of)).collect()
        };
        let members = self.members(&quantity.of, |of| !all(of).is_empty());
        let each = members.iter().enumerate().map(|(i, member)| {
            let seeds = all(member);
            if seeds.is_empty() {
                return Err(format!("no samples of {member}"));
            }
            pass_at_k(&seeds, quantity.k, i as u64).map_err(|why| format!("{member}: {why}"))
        });
        Ok(Estimate::mean(&each.collect::<Result<Vec<_>, _>>()?))
    }

    /// A value that doesn't come from samples, or why it is missing. An average that no report has is the mean over its benchmarks.
    pub(super) fn reported(&self, quantity: &Quantity) -> Result<f64, String> {
        let found = self.results(&quantity.setting);
        let all = |of: &str| -> Vec<f64> {
            let all = found.iter().flat_map(|f| &f.reported).filter(|r| r.0 == quantity.measure);
            all.filter(|r| r.1.is_empty() || canonical(&r.1) == canonical(of)).map(|r| r.2).collect()
        };
        let (mut sum, mut count) = (0.0, 0.0);
        for member in self.members(&quantity.of, |of| !all(of).is_empty()) {
            match all(&member).as_slice() {
                [] => return Err(quantity.measure.how().to_owned()),
                [first, rest @ ..] if rest.iter().all(|v| v == first) => {
                    (sum, count) = (sum + first, count + 1.0)
                }
                several => {
                    return Err(format!("{member}: found {} different values, wanted one", several.len()));
                }
            }
        }
        Ok(sum / count)
    }

    /// p-values of the paper's paired subsampling test between two settings, by benchmark or average and k, where it can
    /// be computed: it needs the same problems, one model on each side, and twice as many samples as k.
    pub(super) fn p_values(&self, a: &Setting, b: &Setting, ks: &[u64]) -> BTreeMap<(String, u64), f64> {
        let once = |setting: &Setting| -> BTreeMap<String, Benchmark> {
            let mut all: BTreeMap<String, Vec<&Benchmark>> = BTreeMap::new();
            for b in self.results(setting).iter().flat_map(|f| &f.benchmarks) {
                all.entry(canonical(&b.name)).or_default().push(b);
            }
            let named = |(name, seeds): (String, Vec<&Benchmark>)| match seeds.as_slice() {
                [only] => Some((name.clone(), Benchmark { name, ..(*only).clone() })),
                _ => None,
            };
            all.into_iter().filter_map(named).collect()
        };
        let (mut a, mut b) = (once(a), once(b));
        a.retain(|name, _| b.contains_key(name));
        b.retain(|name, _| a.contains_key(name));
        let aligned = a.into_iter().zip(b.into_values());
        let pairs: Vec<_> = aligned.filter_map(|((name, a), b)| compare::align(name, a, &b).ok()).collect();
        let fewest = pairs.iter().map(|p| p.a.fewest().min(p.b.fewest())).min().unwrap_or(0);
        let ks: Vec<u64> = ks.iter().copied().filter(|k| 2 * k <= fewest).collect();
        if ks.is_empty() {
            return BTreeMap::new();
        }
        let tested = compare::compare(&pairs, &Settings::test_alone(ks, None), &self.averages);
        let known = |c: compare::Comparison| Some(((canonical(&c.name), c.k), c.p_value?));
        tested.unwrap_or_default().into_iter().filter_map(known).collect()
    }
}

fn is_free(key: &str) -> bool {
    let below =
        |free: &str| key.strip_prefix(free).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    key != FIXED && FREE.into_iter().any(below)
}

/// Fails if runs of one row, of which the mean is shown, were trained by different configurations.
fn require_one_configuration(row: &str, found: &[Found]) -> anyhow::Result<()> {
    let table = |config: &Config| -> anyhow::Result<toml::Table> {
        let mut table: toml::Table = config.to_toml().parse()?;
        for (of, key) in PLACES {
            if let Some(toml::Value::String(path)) = table.get_mut(of).and_then(|t| t.get_mut(key)) {
                *path = files::name(Path::new(path));
            }
        }
        Ok(table)
    };
    let mut runs = found.iter().filter_map(|f| Some((f.path.display(), &f.run.as_ref()?.config)));
    let Some((first, config)) = runs.next() else { return Ok(()) };
    let wanted = table(config)?;
    for (other, config) in runs {
        let mut differing = differences(&wanted, &table(config)?);
        differing.retain(|d| !is_free(d.split(':').next().unwrap_or_default()));
        if !differing.is_empty() {
            bad_input!(
                "{row}: {first} and {other} would be seeds of one row, but their configurations differ in more than the seed: {}; give the runs of one configuration, or --from for each alone",
                differing.join(", ")
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_and_bookkeeping_may_differ_and_nothing_else() {
        for free in ["seed", "sft.seed", "eval.every", "eval.full.k", "save.keep", "compute.threads"] {
            assert!(is_free(free), "{free}");
        }
        for fixed in ["steps", "task.seed", "update.lr", "eval.temperature", "algorithm.aggregation"] {
            assert!(!is_free(fixed), "{fixed}");
        }
    }
}
