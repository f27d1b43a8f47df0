//! The runs of a page: their names, their groups (runs that differ only in seeds), and the problem sets that they share.

use super::input::{Run, distinct};
use fgrpo_eval::figure::{Colour, Curve};
use fgrpo_eval::record::Evaluation;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

#[derive(Debug)]
pub(super) struct Runs {
    pub(super) all: Vec<Run>,
    pub(super) groups: Vec<Group>,
    /// Sentences about runs that can't be compared or are left out.
    pub(super) caveats: Vec<String>,
}

/// Runs that differ only in seeds, drawn in one colour.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Group {
    pub(super) name: String,
    /// Indices of the runs.
    #[serde(skip)]
    pub(super) runs: Vec<usize>,
    pub(super) colour: usize,
}

impl Group {
    pub(super) fn colour(&self) -> Colour {
        Colour::Group(self.colour)
    }
}

impl Runs {
    /// Names and groups the runs. Sets of the same name but with different problems are renamed.
    pub(super) fn new(mut all: Vec<Run>) -> Self {
        make_names_unique(&mut all);
        let mut caveats = without_copies(&mut all);
        caveats.extend(rename_different_sets(&mut all));
        caveats.extend(other_inputs(&all));
        let groups = groups(&all);
        for group in groups.iter().filter(|group| group.runs.len() > 1) {
            let ends = common_ends(&group.runs.iter().map(|&i| &all[i]).collect::<Vec<_>>());
            group.runs.iter().for_each(|&i| all[i].common_ends.clone_from(&ends));
        }
        Self { groups, all, caveats }
    }

    /// Returns whether there is more than one group.
    pub(super) fn several(&self) -> bool {
        self.groups.len() > 1
    }

    pub(super) fn of<'a>(&'a self, group: &'a Group) -> impl Iterator<Item = &'a Run> {
        group.runs.iter().map(|&i| &self.all[i])
    }

    pub(super) fn first(&self, group: &Group) -> &Run {
        &self.all[group.runs[0]]
    }

    pub(super) fn firsts(&self) -> Vec<&Run> {
        self.groups.iter().map(|g| self.first(g)).collect()
    }

    pub(super) fn sets(&self) -> Vec<&str> {
        sets(&self.all)
    }

    /// Returns the ks that the last evaluations of a set have in common, ascending.
    pub(super) fn shared_ks(&self, set: &str) -> Vec<usize> {
        let ks = |e: &Evaluation| e.all.pass_at_k.keys().copied().collect::<Vec<_>>();
        let mut last = self.all.iter().filter_map(|r| r.evals_of(set).next_back()).map(ks);
        let first = last.next().unwrap_or_default();
        last.fold(first, |all, ks| all.into_iter().filter(|k| ks.contains(k)).collect())
    }

    /// Returns a curve for each group, through the points that `points` reads from a run. With several seeds, the curve
    /// is their mean at the xs that all seeds have, and the single runs are faint curves in the background.
    pub(super) fn curves(&self, points: impl Fn(&Run) -> Vec<(f64, f64)>) -> Vec<Curve> {
        let mut curves = Vec::new();
        for group in &self.groups {
            let by_run: Vec<(&Run, Vec<(f64, f64)>)> =
                self.of(group).map(|run| (run, points(run))).filter(|(_, p)| !p.is_empty()).collect();
            let mean = mean_curve(&by_run.iter().map(|e| &e.1[..]).collect::<Vec<_>>());
            if by_run.len() > 1 {
                let faint = |(run, points): (&Run, _)| Curve {
                    faint: true,
                    ..Curve::new(&run.name, group.colour(), points)
                };
                curves.extend(by_run.into_iter().map(faint));
            }
            if !mean.is_empty() {
                curves.push(Curve::new(&group.name, group.colour(), mean));
            }
        }
        curves
    }
}

/// Returns the last step at which all runs were evaluated, by set.
fn common_ends(runs: &[&Run]) -> BTreeMap<String, u64> {
    let evaluated = |set: &str, step| runs.iter().all(|run| run.evals_of(set).any(|e| e.step == step));
    let end = |&set: &&str| runs[0].evals_of(set).map(|e| e.step).rfind(|step| evaluated(set, *step));
    let sets = runs[0].sets().into_iter();
    sets.filter_map(|set| Some((set.to_owned(), end(&set)?))).collect()
}

/// Averages curves at the xs that all of them have.
fn mean_curve(curves: &[&[(f64, f64)]]) -> Vec<(f64, f64)> {
    let [first, rest @ ..] = curves else { return Vec::new() };
    let rest: Vec<BTreeMap<u64, f64>> =
        rest.iter().map(|points| points.iter().map(|p| (p.0.to_bits(), p.1)).collect()).collect();
    let at = |&(x, y): &(f64, f64)| {
        let others = rest.iter().map(|r| r.get(&x.to_bits()).copied()).sum::<Option<f64>>()?;
        Some((x, (y + others) / curves.len() as f64))
    };
    first.iter().filter_map(at).collect()
}

/// Returns a sentence for each run that names the same data and model as an earlier run, if the files behind these names have changed.
fn other_inputs(all: &[Run]) -> Vec<String> {
    let of = |(i, run): (usize, &Run)| {
        let (other, why) =
            all[..i].iter().find_map(|other| Some((&other.name, other.files.other_inputs(&run.files)?)))?;
        Some(format!("{other} and {} can't be compared: {why}.", run.name))
    };
    all.iter().enumerate().filter_map(of).collect()
}

/// Removes copies of a run, because they aren't further seeds: of the runs with the same settings and seeds, only the longest
/// remains. Returns a sentence for each removed run.
fn without_copies(all: &mut Vec<Run>) -> Vec<String> {
    let mut unique: Vec<Run> = Vec::new();
    let mut left_out: Vec<(String, String)> = Vec::new();
    for run in all.drain(..) {
        let same = |other: &&mut Run| {
            !run.settings.is_empty() && settings_and_seeds(other).eq(settings_and_seeds(&run))
        };
        let Some(other) = unique.iter_mut().find(same) else {
            unique.push(run);
            continue;
        };
        let last = |run: &Run| run.files.metrics.last().map(|line| line.step);
        let is_longer = last(&run) > last(other);
        let shorter = if is_longer { std::mem::replace(other, run) } else { run };
        left_out.push((shorter.name, other.name.clone()));
    }
    *all = unique;
    left_out
        .into_iter()
        .map(|(copy, other)| format!("{copy} is left out: it has the configuration and the seed of {other}."))
        .collect()
}

/// Returns the settings that determine a run's result, including seeds.
fn settings_and_seeds(run: &Run) -> impl Iterator<Item = (&String, &String)> {
    run.settings.iter().filter(|(key, _)| *key != "out")
}

fn groups(runs: &[Run]) -> Vec<Group> {
    let mut groups: Vec<(Option<BTreeMap<&str, &str>>, Group)> = Vec::new();
    for (i, run) in runs.iter().enumerate() {
        let key = (!run.settings.is_empty()).then(|| without_seeds(run));
        match groups.iter_mut().find(|g| key.is_some() && g.0 == key) {
            Some((_, group)) => group.runs.push(i),
            None => groups.push((key, Group { name: run.name.clone(), runs: vec![i], colour: groups.len() })),
        }
    }
    let mut groups: Vec<Group> = groups.into_iter().map(|g| g.1).collect();
    let names: Vec<String> = (0..groups.len()).map(|i| name(runs, &groups, i)).collect();
    for (group, name) in groups.iter_mut().zip(names) {
        group.name = name;
    }
    groups
}

/// Returns the name of a group: its method, and the settings that differ from other groups with the same method.
fn name(runs: &[Run], groups: &[Group], i: usize) -> String {
    let (group, run) = (&groups[i], &runs[groups[i].runs[0]]);
    let seeds = if group.runs.len() > 1 { format!(" ({} seeds)", group.runs.len()) } else { String::new() };
    let Some(method) = run.method().filter(|_| groups.len() > 1 || group.runs.len() > 1) else {
        return format!("{}{seeds}", group.name);
    };
    let like: Vec<&Run> =
        groups.iter().map(|g| &runs[g.runs[0]]).filter(|r| r.method().as_ref() == Some(&method)).collect();
    if like.len() == 1 {
        return format!("{method}{seeds}");
    }
    let settings: Vec<String> = differing(&like)
        .into_iter()
        .filter(|key| is_setting(key))
        .map(|key| {
            let value = run.setting(&key).unwrap_or("\u{2013}");
            format!("{} {value}", key.rsplit('.').next().unwrap_or(&key).replace('_', " "))
        })
        .collect();
    match settings.len() {
        1..=3 => format!("{method}, {}{seeds}", settings.join(", ")),
        // Too many settings differ, so the name is the folder.
        _ => format!("{method}, {}{seeds}", group.name),
    }
}

/// Returns the keys whose values differ between runs.
pub(super) fn differing(runs: &[&Run]) -> Vec<String> {
    let keys: BTreeSet<&String> = runs.iter().flat_map(|r| r.settings.keys()).collect();
    let differs = |key: &&String| runs.windows(2).any(|w| w[0].settings.get(*key) != w[1].settings.get(*key));
    keys.into_iter().filter(differs).cloned().collect()
}

/// Returns whether a key is a setting of the method or task, not a seed or the output folder.
pub(super) fn is_setting(key: &str) -> bool {
    // The seed of a task decides its problems.
    let seed = key == "seed" || (key.ends_with(".seed") && !key.starts_with("task."));
    !seed && key != "out"
}

fn without_seeds(run: &Run) -> BTreeMap<&str, &str> {
    run.settings.iter().filter(|(k, _)| is_setting(k)).map(|(k, v)| (k.as_str(), v.as_str())).collect()
}

fn sets(runs: &[Run]) -> Vec<&str> {
    distinct(runs.iter().flat_map(Run::sets))
}

/// Returns the settings that determine the evaluated problems, for files whose evaluations don't identify them.
fn problem_settings(run: &Run) -> BTreeMap<&str, &str> {
    let decides = |key: &str| key == "eval.problems" || key.starts_with("task.");
    run.settings.iter().filter(|(k, _)| decides(k)).map(|(k, v)| (k.as_str(), v.as_str())).collect()
}

/// Returns a number for the inputs of each run besides its configuration. Runs with equal numbers can be compared.
fn inputs(runs: &[Run]) -> Vec<usize> {
    let (mut alike, mut numbers): (Vec<Vec<&Run>>, Vec<usize>) = (Vec::new(), Vec::new());
    for run in runs {
        let can_join =
            |others: &Vec<&Run>| others.iter().all(|other| other.files.other_inputs(&run.files).is_none());
        let at = alike.iter().position(can_join).unwrap_or(alike.len());
        alike.resize_with(alike.len().max(at + 1), Vec::new);
        alike[at].push(run);
        numbers.push(at);
    }
    numbers
}

/// Renames sets of the same name but with different problems or graders, or of runs with other data or another start, so that the page
/// compares only runs for which all of these are the same. Returns a sentence for each name that was changed.
fn rename_different_sets(runs: &mut [Run]) -> Vec<String> {
    let names: Vec<String> = sets(runs).into_iter().map(str::to_owned).collect();
    let inputs = inputs(runs);
    let mut sentences = Vec::new();
    for name in names {
        // An evaluation that doesn't name its graders agrees with any.
        let known = runs.iter().flat_map(|run| run.evals_of(&name)).find(|e| !e.graders.is_empty());
        let known = known.map_or_else(Vec::new, |e| e.graders.clone());
        // Identifies a run's problems by its evaluations, or else by its settings.
        let identity = |(run, inputs): (&Run, &usize)| {
            let last = run.evals_of(&name).next_back()?;
            let problems = match last.problem_set.as_str() {
                "" => format!("{:?}, {}", problem_settings(run), last.all.per_problem.len()),
                identity => identity.to_owned(),
            };
            let graders = if last.graders.is_empty() { &known } else { &last.graders };
            Some(format!("{problems}, {graders:?}, {inputs}"))
        };
        let identities: Vec<Option<String>> = runs.iter().zip(&inputs).map(identity).collect();
        let kinds: Vec<&String> = distinct(identities.iter().flatten());
        if kinds.len() < 2 {
            continue;
        }
        let first =
            |kind: &String| identities.iter().position(|k| k.as_ref() == Some(kind)).unwrap_or_default();
        let settings: Vec<BTreeMap<&str, &str>> =
            kinds.iter().map(|kind| problem_settings(&runs[first(kind)])).collect();
        let labels: Vec<String> = (0..kinds.len()).map(|i| label(&settings, i)).collect();
        let index = |kind: &Option<String>| kinds.iter().position(|k| Some(*k) == kind.as_ref());
        let sets: Vec<Option<String>> =
            identities.iter().map(|kind| Some(format!("{name}, {}", labels[index(kind)?]))).collect();
        sentences.push(format!(
            "The runs differ in their problems, graders, data or start ({name}: {}), so runs are compared only where all of these are the same.",
            labels.join("; ")
        ));
        for (run, set) in runs.iter_mut().zip(sets) {
            for eval in run.files.evaluations.iter_mut().filter(|e| e.set == name) {
                eval.set = set.clone().unwrap_or_default();
            }
        }
    }
    sentences
}

/// Describes the settings in which the problems at index `i` differ from other problems.
fn label(settings: &[BTreeMap<&str, &str>], i: usize) -> String {
    let kinds: Vec<&str> = settings.iter().filter_map(|s| s.get("task.kind").copied()).collect();
    let alone = |value: &str| kinds.iter().filter(|k| **k == value).count() == 1;
    if let Some(kind) = settings[i].get("task.kind").filter(|k| alone(k)) {
        return (*kind).to_owned();
    }
    let differs = |key: &str| settings.iter().any(|s| s.get(key) != settings[i].get(key));
    let keys: BTreeSet<&str> = settings.iter().flat_map(BTreeMap::keys).copied().collect();
    let parts: Vec<String> = keys
        .into_iter()
        .filter(|key| differs(key))
        .take(3)
        .map(|key| {
            let value = settings[i].get(key).copied().unwrap_or("absent");
            format!("{} {value}", key.rsplit('.').next().unwrap_or(key))
        })
        .collect();
    if parts.is_empty() { format!("problems {}", i + 1) } else { parts.join(", ") }
}

/// Makes the names of runs unique by adding the parent folder, or else a number.
fn make_names_unique(runs: &mut [Run]) {
    let names: Vec<String> = runs.iter().map(|r| r.name.clone()).collect();
    for (i, run) in runs.iter_mut().enumerate() {
        if names.iter().filter(|n| **n == names[i]).count() > 1 {
            let parent = Path::new(&run.path).parent().and_then(Path::file_name);
            if let Some(parent) = parent {
                run.name = format!("{}/{}", parent.to_string_lossy(), run.name);
            }
        }
    }
    let names: Vec<String> = runs.iter().map(|r| r.name.clone()).collect();
    for (i, run) in runs.iter_mut().enumerate() {
        let before = names[..i].iter().filter(|n| **n == names[i]).count();
        if before > 0 {
            run.name = format!("{} ({})", run.name, before + 1);
        }
    }
}
