//! The runs of a page: their names, their groups (runs that differ only in seeds), and the problem sets that they share.

use super::input::{Run, distinct};
use fgrpo_eval::figure::{Colour, Curve};
use fgrpo_eval::record::{Evaluation, same_graders};
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
    /// Names and groups the runs, without those without a line yet. Sets of the same name whose evaluations can't be
    /// compared are renamed.
    pub(super) fn new(mut all: Vec<Run>) -> Self {
        make_names_unique(&mut all);
        let (empty, mut all): (Vec<Run>, Vec<Run>) = all.into_iter().partition(Run::is_empty);
        let mut caveats = without_copies(&mut all);
        let groups = groups(&all);
        caveats.extend(rename_different_sets(&mut all));
        caveats.extend(other_inputs(&all));
        caveats.extend(not_finished(&all, &empty));
        Self { groups, all, caveats }
    }

    /// Returns the runs of a group that count on a set: the finished ones, or all evaluated ones if all are unfinished.
    fn seeds<'a>(&'a self, group: &'a Group, set: &str) -> Vec<&'a Run> {
        let evaluated = self.of(group).filter(|run| run.sets().contains(&set));
        let (finished, others): (Vec<&Run>, Vec<&Run>) =
            evaluated.partition(|run| run.unfinished().is_none());
        if finished.is_empty() { others } else { finished }
    }

    /// Returns the groups evaluated on a set, each with the evaluations at the last step that all its seeds have.
    pub(super) fn ends<'a>(&'a self, set: &'a str) -> Vec<End<'a>> {
        let end = |group: &'a Group| {
            let [end] = at_last_common([self.seeds(group, set)], set);
            (!end.is_empty()).then_some((group, end))
        };
        self.groups.iter().filter_map(end).collect()
    }

    /// Returns the evaluations by which `group` is compared with `base`: the ends of both, or if one isn't finished, those at
    /// the last step that all seeds of both have. If both have seeds in common, only these count.
    pub(super) fn compared<'a>(
        &'a self,
        base: &'a Group,
        group: &'a Group,
        set: &'a str,
    ) -> [Vec<Seed<'a>>; 2] {
        let [a, b] = [base, group].map(|group| self.seeds(group, set));
        // Seeds may have different starts.
        let common = |runs: &[&'a Run], others: &[&Run]| -> Vec<&'a Run> {
            let is_common = |run: &&Run| others.iter().any(|other| seeds(other).eq(seeds(run)));
            runs.iter().copied().filter(is_common).collect()
        };
        let paired = [common(&a, &b), common(&b, &a)];
        let both = if paired[0].is_empty() { [a, b] } else { paired };
        if both.iter().flatten().all(|run| run.unfinished().is_none()) {
            return both.map(|seeds| at_last_common([seeds], set)).map(|[end]| end);
        }
        at_last_common(both, set)
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

    pub(super) fn sets(&self) -> Vec<&str> {
        distinct(self.all.iter().flat_map(Run::sets))
    }

    /// Returns the ks that the last evaluations of a set have in common, ascending. They include those without a value because
    /// samples could not be scored.
    pub(super) fn shared_ks(&self, set: &str) -> Vec<usize> {
        let ks = |(_, end): Seed<'_>| -> BTreeSet<usize> {
            end.all.pass_at_k.keys().chain(end.all.left_out.keys()).copied().collect()
        };
        let ends = self.ends(set).into_iter().flat_map(|(_, end)| end).map(ks);
        ends.reduce(|all, ks| &all & &ks).unwrap_or_default().into_iter().collect()
    }

    /// Returns a curve for each group, through the points that `points` reads from a run. With several seeds, the curve
    /// is their mean at the xs that all seeds have, and the single runs are faint curves in the background.
    pub(super) fn curves(&self, points: impl Fn(&Run) -> Vec<(f64, f64)>) -> Vec<Curve> {
        let mut curves = Vec::new();
        for group in &self.groups {
            let by_run = self.of(group).map(|run| (run, points(run))).filter(|(_, p)| !p.is_empty());
            let (seeds, points): (Vec<&Run>, Vec<_>) = by_run.unzip();
            let mean = mean_curve(&points);
            if seeds.len() > 1 {
                let faint = |(run, points): (&Run, _)| Curve {
                    faint: true,
                    ..Curve::new(&run.name, group.colour(), points)
                };
                curves.extend(seeds.into_iter().zip(points).map(faint));
            }
            if !mean.is_empty() {
                curves.push(Curve::new(&group.name, group.colour(), mean));
            }
        }
        curves
    }
}

/// A run with one of its evaluations.
pub(super) type Seed<'a> = (&'a Run, &'a Evaluation);

/// A group with at least one evaluation, each of another run.
pub(super) type End<'a> = (&'a Group, Vec<Seed<'a>>);

/// Returns the evaluations of these groups of runs at the last step at which all of them were evaluated on a set. The groups are
/// empty if no step is common.
fn at_last_common<'a, const N: usize>(groups: [Vec<&'a Run>; N], set: &'a str) -> [Vec<Seed<'a>>; N] {
    let at = |run: &'a Run, step| Some((run, run.evals_of(set).find(|e| e.step == step)?));
    let all: Vec<&Run> = groups.iter().flatten().copied().collect();
    let mut steps = all.iter().flat_map(|run| run.evals_of(set)).map(|e| e.step).collect::<Vec<_>>();
    steps.sort_unstable();
    let common = steps.into_iter().rfind(|step| all.iter().all(|run| at(run, *step).is_some()));
    groups.map(|group| group.into_iter().filter_map(|run| at(run, common?)).collect())
}

/// Names the runs that aren't finished, and says how they are compared. The files of `empty` are still empty. A page about a
/// single run needs no such sentence.
fn not_finished(all: &[Run], empty: &[Run]) -> Option<String> {
    let evaluated = |run: &Run| {
        let (steps, last) = (run.unfinished()?, run.last_evaluated()?);
        Some(format!("{} (evaluated up to step {last} of {steps})", run.name))
    };
    let nothing = |run: &Run| format!("{} (nothing logged yet, left out)", run.name);
    let names: Vec<String> = all.iter().filter_map(evaluated).chain(empty.iter().map(nothing)).collect();
    (!names.is_empty() && all.len() + empty.len() > 1).then(|| {
        format!(
            "Not finished: {}. Methods are compared at the last step that both have. An unfinished seed is left out of the tables if another seed of its method is finished.",
            names.join(", ")
        )
    })
}

/// Averages curves at the xs that all of them have.
pub(super) fn mean_curve(curves: &[Vec<(f64, f64)>]) -> Vec<(f64, f64)> {
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

/// Returns whether runs with equal settings also had the same inputs: data, start, graders, and files of the algorithm. An input
/// that a run doesn't record agrees with any.
fn same_inputs(a: &Run, b: &Run) -> bool {
    let inputs = |run: &Run| run.files.sessions.last().map(|s| s.inputs.clone()).unwrap_or_default();
    let (of_a, of_b) = (inputs(a), inputs(b));
    let same = |a: &String, b: &String| a.is_empty() || b.is_empty() || a == b;
    same_graders(&of_a.graders, &of_b.graders)
        && same(&of_a.estimator, &of_b.estimator)
        && same(&of_a.teacher, &of_b.teacher)
        && a.files.other_inputs(&b.files).is_none()
        && a.sets().iter().all(|set| are_comparable(a, b, set))
}

/// Removes copies of a run, because they aren't further seeds: of the runs with the same settings, seeds and inputs, only the
/// longest remains. Returns a sentence for each removed run.
fn without_copies(all: &mut Vec<Run>) -> Vec<String> {
    let mut unique: Vec<Run> = Vec::new();
    let mut left_out = Vec::new();
    for run in all.drain(..) {
        let same = |other: &&mut Run| {
            !run.settings.is_empty()
                && settings_and_seeds(other).eq(settings_and_seeds(&run))
                && same_inputs(other, &run)
        };
        let Some(other) = unique.iter_mut().find(same) else {
            unique.push(run);
            continue;
        };
        let last = |run: &Run| run.files.metrics.last().map(|line| line.step);
        let is_longer = last(&run) > last(other);
        let shorter = if is_longer { std::mem::replace(other, run) } else { run };
        left_out.push(format!(
            "{} is left out: it has the configuration and the seed of {}.",
            shorter.name, other.name
        ));
    }
    *all = unique;
    left_out
}

/// Returns the settings that determine a run's result, including seeds.
fn settings_and_seeds(run: &Run) -> impl Iterator<Item = (&String, &String)> {
    run.settings.iter().filter(|(key, _)| *key != "out")
}

fn groups(runs: &[Run]) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for (i, run) in runs.iter().enumerate() {
        let is_seed = |other: &Run| without_seeds(other) == without_seeds(run) && same_inputs(other, run);
        let fits = |group: &&mut Group| group.runs.iter().all(|&other| is_seed(&runs[other]));
        match groups.iter_mut().find(|group| !run.settings.is_empty() && fits(group)) {
            Some(group) => group.runs.push(i),
            None => groups.push(Group { name: run.name.clone(), runs: vec![i], colour: groups.len() }),
        }
    }
    let names: Vec<String> = (0..groups.len()).map(|i| name(runs, &groups, i)).collect();
    for (group, name) in groups.iter_mut().zip(names) {
        group.name = name;
    }
    groups
}

/// Returns the name of a group: its method, and the settings that differ from other groups with the same method.
fn name(runs: &[Run], groups: &[Group], i: usize) -> String {
    let (group, run) = (&groups[i], &runs[groups[i].runs[0]]);
    let finished = group.runs.iter().filter(|&&i| runs[i].unfinished().is_none()).count();
    let seeds = match group.runs.len() {
        1 => String::new(),
        seeds if (1..seeds).contains(&finished) => format!(" ({seeds} seeds, {finished} finished)"),
        seeds => format!(" ({seeds} seeds)"),
    };
    let Some(method) = run.method().filter(|_| groups.len() > 1 || group.runs.len() > 1) else {
        return format!("{}{seeds}", group.name);
    };
    let like: Vec<&Run> =
        groups.iter().map(|g| &runs[g.runs[0]]).filter(|r| r.method().as_ref() == Some(&method)).collect();
    if like.len() == 1 {
        return format!("{method}{seeds}");
    }
    let keys = differing(&like).into_iter().filter(|key| is_setting(key));
    let settings: Vec<String> = keys.map(|key| run.named_setting(&key)).collect();
    let equals = like.iter().filter(|other| without_seeds(other) == without_seeds(run)).count();
    match settings.len() {
        1..=3 if equals == 1 => format!("{method}, {}{seeds}", settings.join(", ")),
        // Too many settings differ, or only the inputs do, so the name is the folder.
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
pub(crate) fn is_setting(key: &str) -> bool {
    // The seed of a task decides its problems.
    let seed = key == "seed" || (key.ends_with(".seed") && !key.starts_with("task."));
    !seed && key != "out"
}

fn seeds(run: &Run) -> impl Iterator<Item = (&String, &String)> {
    run.settings.iter().filter(|(key, _)| !is_setting(key) && *key != "out")
}

fn without_seeds(run: &Run) -> BTreeMap<&str, &str> {
    run.settings.iter().filter(|(k, _)| is_setting(k)).map(|(k, v)| (k.as_str(), v.as_str())).collect()
}

/// Returns the settings that determine the evaluated problems, for files whose evaluations don't identify them.
fn problem_settings(run: &Run) -> BTreeMap<&str, &str> {
    let decides = |key: &str| key == "eval.problems" || key.starts_with("task.");
    run.settings.iter().filter(|(k, _)| decides(k)).map(|(k, v)| (k.as_str(), v.as_str())).collect()
}

/// Returns whether the last evaluations of a set by two runs can be compared, so that a difference shows the effect of their
/// settings. Without an evaluation of one of them, nothing is compared.
fn are_comparable(a: &Run, b: &Run, set: &str) -> bool {
    let [Some(last), Some(other)] = [a, b].map(|run| run.evals_of(set).next_back()) else { return true };
    last.is_comparable(other)
        && last.all.per_problem.len() == other.all.per_problem.len()
        && (!last.problem_set.is_empty() || problem_settings(a) == problem_settings(b))
        && a.files.other_inputs(&b.files).is_none()
}

/// Renames sets of the same name whose evaluations can't be compared, so that the page compares only runs with the same problems,
/// graders, sampling settings, data and start. Returns a sentence for each name that was changed.
fn rename_different_sets(runs: &mut [Run]) -> Vec<String> {
    let names = distinct(runs.iter().flat_map(Run::sets).map(str::to_owned));
    let mut sentences = Vec::new();
    for name in names {
        // Indices of the runs by kind of evaluation.
        let mut kinds: Vec<Vec<usize>> = Vec::new();
        for i in (0..runs.len()).filter(|&i| runs[i].sets().contains(&name.as_str())) {
            let fits = |kind: &&mut Vec<usize>| {
                kind.iter().all(|&other| are_comparable(&runs[other], &runs[i], &name))
            };
            match kinds.iter_mut().find(fits) {
                Some(kind) => kind.push(i),
                None => kinds.push(vec![i]),
            }
        }
        if kinds.len() < 2 {
            continue;
        }
        let properties: Vec<BTreeMap<&str, String>> =
            kinds.iter().map(|kind| properties(&runs[kind[0]], &name)).collect();
        let labels: Vec<String> = (0..kinds.len()).map(|i| label(&properties, i)).collect();
        sentences.push(format!(
            "The runs differ in their problems, graders, sampling settings, data or start ({name}: {}), so runs are compared only where all of these are the same.",
            labels.join("; ")
        ));
        for (kind, label) in kinds.iter().zip(labels) {
            for &i in kind {
                let evaluations = runs[i].files.evaluations.iter_mut().filter(|e| e.set == name);
                evaluations.for_each(|eval| eval.set = format!("{name}, {label}"));
            }
        }
    }
    sentences
}

/// Returns the properties of a run's evaluations by name: the settings of the problems, the graders, the number of samples and each
/// sampling setting.
fn properties<'a>(run: &'a Run, set: &'a str) -> BTreeMap<&'a str, String> {
    let settings = problem_settings(run).into_iter().map(|(key, value)| (key, value.to_owned()));
    let last = run.evals_of(set).next_back();
    let recorded = last.into_iter().flat_map(|last| {
        let sampling = last.sampling.split(", ").filter_map(|words| words.split_once(' '));
        let graders = (!last.graders.is_empty()).then(|| ("graders", last.graders.join(", ")));
        let samples = ("samples", last.samples.to_string());
        sampling.map(|(key, value)| (key, value.to_owned())).chain(graders).chain([samples])
    });
    settings.chain(recorded).collect()
}

/// Describes the properties in which the evaluations at index `i` differ from others.
fn label(properties: &[BTreeMap<&str, String>], i: usize) -> String {
    let kinds: Vec<&String> = properties.iter().filter_map(|s| s.get("task.kind")).collect();
    let alone = |value: &String| kinds.iter().filter(|k| **k == value).count() == 1;
    if let Some(kind) = properties[i].get("task.kind").filter(|k| alone(k)) {
        return kind.clone();
    }
    let differs = |key: &str| properties.iter().any(|s| s.get(key) != properties[i].get(key));
    let keys: BTreeSet<&str> = properties.iter().flat_map(BTreeMap::keys).copied().collect();
    let parts: Vec<String> = keys
        .into_iter()
        .filter(|key| differs(key))
        .take(3)
        .map(|key| {
            let value = properties[i].get(key).map_or("absent", String::as_str);
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
