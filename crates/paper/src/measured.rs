//! pass@k of the paper's settings from results, with intervals.
//!
//! Values are means over problems and, where a setting was trained with several seeds, over seeds. Intervals are
//! `estimate`'s bootstrap over both; two settings are compared on the same draws of problems.

use super::data::{Item, Quantity, Setting, Substitute, benchmarks};
use super::settings::name;
use super::sources::{Source, Sources};
use fgrpo_eval::benchmarks::{Average, canonical, paper as averages};
use fgrpo_eval::compare::{self, LEVEL, Settings};
use fgrpo_eval::estimate::{Curve, Measured, RESAMPLES, resamples};
use fgrpo_eval::samples::{Benchmark, ProblemCounts};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;

/// A value in percent and its 95 % interval.
pub(super) type Percent = (f64, (f64, f64));

/// Value and interval for a file of values.
pub(super) fn columns((value, (low, high)): Percent) -> [String; 3] {
    [value, low, high].map(|v| format!("{v:.3}"))
}

/// pass@k over problems and seeds.
#[derive(Debug, Clone)]
pub(super) struct Estimate {
    measured: Measured,
    /// Its benchmarks with the ids of their problems.
    problems: Vec<(String, Rc<BTreeSet<String>>)>,
}

impl Estimate {
    /// Mean over problems and seeds, in percent.
    pub(super) fn value(&self) -> f64 {
        100.0 * self.measured.value
    }

    /// The 95 % interval.
    pub(super) fn interval(&self) -> (f64, f64) {
        let [low, high] = self.measured.interval;
        (100.0 * low, 100.0 * high)
    }

    /// Value and interval.
    pub(super) fn percent(&self) -> Percent {
        (self.value(), self.interval())
    }

    /// 100 minus the value, with its interval.
    pub(super) fn lost(&self) -> Percent {
        let (low, high) = self.interval();
        (100.0 - self.value(), (100.0 - high, 100.0 - low))
    }

    /// This minus another, resample by resample.
    ///
    /// # Errors
    /// The benchmarks whose problems differ.
    pub(super) fn minus(&self, other: &Self) -> Result<Self, String> {
        let unlike = self.unlike(other);
        if !unlike.is_empty() {
            return Err(format!("different problems: {}", unlike.join(", ")));
        }
        Ok(Self { measured: self.measured.minus(&other.measured), problems: self.problems.clone() })
    }

    /// The benchmarks on which this and another have different problems, with their numbers.
    fn unlike(&self, other: &Self) -> Vec<String> {
        let differing = self.problems.iter().zip(&other.problems).filter(|((_, a), (_, b))| a != b);
        let said = differing.map(|((of, a), (_, b))| {
            let both = a.intersection(b).count();
            format!("{of} ({} and {} problems, {both} in both)", a.len(), b.len())
        });
        said.collect()
    }

    /// The paper's benchmarks in this that have another number of problems than in the paper.
    fn of_other_size(&self) -> Vec<String> {
        let other = |(of, ids): &(String, Rc<BTreeSet<String>>)| {
            let wanted = benchmarks().iter().find(|b| b.name == *of)?.problems?;
            let found = ids.len() as u64;
            (found != wanted).then(|| format!("{of} ({found} problems, the paper {wanted})"))
        };
        self.problems.iter().filter_map(other).collect()
    }

    fn mean(all: &[Self]) -> Self {
        let each: Vec<&Measured> = all.iter().map(|e| &e.measured).collect();
        let problems = all.iter().flat_map(|e| e.problems.clone()).collect();
        Self { measured: Measured::mean(&each), problems }
    }
}

/// pass@k of one benchmark over seeds; the reason where there is none. `index` is its place in an average.
pub(super) fn pass_at_k(seeds: &[&Benchmark], k: u64, index: u64) -> Result<Estimate, String> {
    let Some(first) = seeds.first() else { return Err("no samples".to_owned()) };
    let by_id = |b: &&'_ Benchmark| -> BTreeMap<String, ProblemCounts> {
        b.problems.iter().map(|p| (p.id.clone(), p.clone())).collect()
    };
    let problems: Vec<BTreeMap<String, ProblemCounts>> = seeds.iter().map(by_id).collect();
    if let Some(at) = problems.iter().position(|m| !m.keys().eq(problems[0].keys())) {
        let (a, b) = (first.path.display(), seeds[at].path.display());
        return Err(format!("{a} and {b} hold different problems"));
    }
    for b in seeds {
        let planned = |p: &&ProblemCounts| p.planned();
        let ends = b.problems.iter().min_by_key(planned).zip(b.problems.iter().max_by_key(planned));
        if let Some((few, many)) = ends.filter(|(few, many)| few.planned() < many.planned()) {
            return Err(format!(
                "{}: problem {} has {} samples and problem {} has {}, wanted equal numbers: finish the evaluation",
                b.path.display(),
                few.id,
                few.planned(),
                many.id,
                many.planned()
            ));
        }
    }
    let fewest = seeds.iter().map(|b| b.fewest()).min().unwrap_or(0);
    if fewest < k {
        return Err(format!("pass@{k} needs {k} scored samples of every problem, found {fewest}"));
    }
    let in_order: Vec<Vec<&ProblemCounts>> = problems.iter().map(|m| m.values().collect()).collect();
    let mut found = Curve::over_seeds(&first.name, &in_order, &[k], RESAMPLES, resamples(0, index));
    let measured = found.points.remove(&k).expect("it was asked for");
    let ids = Rc::new(problems[0].keys().cloned().collect());
    Ok(Estimate { measured, problems: vec![(canonical(&first.name), ids)] })
}

/// The results of an item's settings, from which each value is measured once.
pub(super) struct Matched<'a> {
    pub(super) settings: Vec<Setting>,
    sources: &'a Sources,
    /// The results of each setting.
    rows: Vec<Vec<&'a Source>>,
    stand: Option<&'a Substitute>,
    averages: Vec<Average>,
    known: HashMap<String, Result<Rc<Estimate>, String>>,
    tested: HashMap<String, HashMap<(String, u64), f64>>,
    /// By two rows: benchmarks whose problems differ.
    unlike: BTreeMap<(usize, usize), BTreeSet<String>>,
    /// By row: benchmarks with another number of problems than in the paper.
    of_other_size: BTreeMap<usize, BTreeSet<String>>,
}

impl<'a> Matched<'a> {
    pub(super) fn new(
        item: &Item,
        settings: Vec<Setting>,
        sources: &'a Sources,
        stand: Option<&'a Substitute>,
    ) -> Self {
        Self {
            rows: sources.rows(&settings, stand.is_some()),
            averages: averages(item.table().trained_on),
            settings,
            sources,
            stand,
            known: HashMap::new(),
            tested: HashMap::new(),
            unlike: BTreeMap::new(),
            of_other_size: BTreeMap::new(),
        }
    }

    fn at(&self, setting: &Setting) -> Option<usize> {
        self.settings.iter().position(|s| s == setting)
    }

    /// The results of a setting.
    pub(super) fn of(&self, setting: &Setting) -> &[&'a Source] {
        self.at(setting).map_or(&[], |at| &self.rows[at])
    }

    /// All results that are of a setting.
    pub(super) fn used(&self) -> impl Iterator<Item = &'a Source> {
        self.rows.iter().flatten().copied()
    }

    pub(super) fn name(&self, setting: &Setting) -> String {
        name(setting, &self.settings)
    }

    /// pass@k, or why there is none.
    pub(super) fn pass(&mut self, of: &Quantity) -> Result<Rc<Estimate>, String> {
        let key = format!("{of:?}");
        if !self.known.contains_key(&key) {
            let found = self.measure(of).map(Rc::new);
            self.known.insert(key.clone(), found);
        }
        self.known[&key].clone()
    }

    /// The benchmark or average that stands for the paper's.
    pub(super) fn place<'b>(&'b self, of: &'b str) -> &'b str {
        self.stand.map_or(of, |stand| stand.place(of))
    }

    fn measure(&self, quantity: &Quantity) -> Result<Estimate, String> {
        let (who, of) = (self.name(&quantity.setting), self.place(&quantity.of));
        if quantity.setting.method == "Base" && self.stand.is_some() {
            let start = self.sources.start().ok_or_else(|| format!("{who}: no run evaluated its start"))?;
            if canonical(&start.name) != of {
                return Err(format!("{who}: the start was evaluated on {} alone", start.name));
            }
            return pass_at_k(&[&start], quantity.k, 0);
        }
        let sources = self.of(&quantity.setting);
        if sources.is_empty() {
            return Err(format!("{who}: no results"));
        }
        let average = self.averages.iter().find(|a| a.name == of);
        let members = average.map_or_else(|| vec![canonical(of)], |a| a.members.clone());
        let each = members.iter().enumerate().map(|(i, member)| {
            let all = sources.iter().flat_map(|s| &s.benchmarks);
            let seeds: Vec<&Benchmark> = all.filter(|b| canonical(&b.name) == *member).collect();
            if seeds.is_empty() {
                return Err(format!("{who}: no samples of {member}"));
            }
            pass_at_k(&seeds, quantity.k, i as u64).map_err(|why| format!("{who}, {member}: {why}"))
        });
        Ok(Estimate::mean(&each.collect::<Result<Vec<_>, _>>()?))
    }

    /// Whether a focal setting differs from its baseline, both trained once, by the paper's test.
    pub(super) fn differs(&mut self, focal: &Quantity, ks: &[u64]) -> bool {
        let key = format!("{:?}", focal.setting);
        if !self.tested.contains_key(&key) {
            let found = self.p_values(&focal.setting, ks).unwrap_or_default();
            self.tested.insert(key.clone(), found);
        }
        let of = self.place(&focal.of);
        let of = if ["Math", "OOD"].contains(&of) { of.to_owned() } else { canonical(of) };
        self.tested[&key].get(&(of, focal.k)).is_some_and(|&p| p < LEVEL)
    }

    /// p-values of the paired subsampling test between a focal setting and its baseline, by benchmark or average and k; none
    /// where it can't be made: the two sides need the same problems, one model each, and twice as many samples as k.
    fn p_values(&self, focal: &Setting, ks: &[u64]) -> Option<HashMap<(String, u64), f64>> {
        let of = |setting: &Setting| -> BTreeMap<String, Vec<&Benchmark>> {
            let mut all: BTreeMap<String, Vec<&Benchmark>> = BTreeMap::new();
            for b in self.of(setting).iter().flat_map(|s| &s.benchmarks) {
                all.entry(canonical(&b.name)).or_default().push(b);
            }
            all.retain(|_, seeds| seeds.len() == 1);
            all
        };
        let (a, b) = (of(&focal.baseline()), of(focal));
        let in_both = |own: &BTreeMap<String, Vec<&Benchmark>>, other: &BTreeMap<String, Vec<&Benchmark>>| {
            let shared = own.iter().filter(|(name, _)| other.contains_key(*name));
            shared.map(|(name, b)| Benchmark { name: name.clone(), ..b[0].clone() }).collect::<Vec<_>>()
        };
        let (baseline, focal) = (in_both(&a, &b), in_both(&b, &a));
        let fewest = baseline.iter().chain(&focal).map(Benchmark::fewest).min()?;
        let ks: Vec<u64> = ks.iter().copied().filter(|k| 2 * k <= fewest).collect();
        let name = baseline.first().filter(|_| !ks.is_empty())?.name.clone();
        let mut pairs = compare::matched(baseline, focal).ok()?;
        if let [only] = pairs.as_mut_slice() {
            only.name = name;
        }
        let compared = compare::compare(&pairs, &Settings::test_alone(ks, None), &self.averages).ok()?;
        Some(compared.into_iter().filter_map(|c| Some(((c.name, c.k), c.p_value?))).collect())
    }

    /// Notes on which benchmarks the problems of two rows' values differ, and returns whether they do.
    pub(super) fn note_unlike(&mut self, a: (&Setting, &Estimate), b: (&Setting, &Estimate)) -> bool {
        let (Some(i), Some(j)) = (self.at(a.0), self.at(b.0)) else { return false };
        // In the table's order, so that each pair is said once.
        let unlike = if i <= j { a.1.unlike(b.1) } else { b.1.unlike(a.1) };
        let differ = !unlike.is_empty();
        if differ {
            self.unlike.entry((i.min(j), i.max(j))).or_default().extend(unlike);
        }
        differ
    }

    /// Notes which benchmarks of a row's value have another number of problems than in the paper, and returns whether
    /// any has.
    pub(super) fn note_other_size(&mut self, setting: &Setting, value: &Estimate) -> bool {
        let (other, at) = (value.of_other_size(), self.at(setting));
        let differ = !other.is_empty();
        if let Some(at) = at.filter(|_| differ) {
            self.of_other_size.entry(at).or_default().extend(other);
        }
        differ
    }

    /// What was not compared, in sentences.
    pub(super) fn notes(&self) -> Vec<String> {
        let joined = |all: &BTreeSet<String>| all.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        let row = |at: usize| self.name(&self.settings[at]);
        let unlike = self.unlike.iter().map(|((a, b), of)| {
            let of = joined(of);
            format!("{} and {} are not compared where their problems differ: {of}", row(*a), row(*b))
        });
        let mut rows: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (at, of) in &self.of_other_size {
            rows.entry(joined(of)).or_default().push(row(*at));
        }
        let others = rows.into_iter().map(|(of, rows)| {
            let rows = rows.join(", ");
            format!("not compared with the paper's values, which are on other problems: {of} of {rows}")
        });
        unlike.chain(others).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn benchmark(correct: &[u64]) -> Benchmark {
        let problem = |(i, &c): (usize, &u64)| ProblemCounts::counted(i.to_string(), 10, c);
        let problems = correct.iter().enumerate().map(problem).collect();
        Benchmark { name: "x".into(), path: "x".into(), problems }
    }

    fn value(correct: &[u64]) -> Estimate {
        pass_at_k(&[&benchmark(correct)], 1, 0).unwrap()
    }

    #[test]
    fn values_are_means_over_problems_and_seeds() {
        let (a, b) = (benchmark(&[0, 10]), benchmark(&[5, 5]));
        let found = pass_at_k(&[&a, &b], 1, 0).unwrap();
        assert!((found.value() - 50.0).abs() < 1e-9);
        let (low, high) = found.interval();
        assert!(low < 50.0 && high > 50.0);
    }

    #[test]
    fn a_difference_is_of_the_same_draws() {
        // Each problem is better by one sample of ten: the difference has no spread, though the values have.
        let difference = value(&[1, 5, 10]).minus(&value(&[0, 4, 9])).unwrap();
        let (low, high) = difference.interval();
        for bound in [difference.value(), low, high] {
            assert!((bound - 10.0).abs() < 1e-9, "{bound}");
        }
        let why = value(&[1]).minus(&value(&[1, 2])).unwrap_err();
        assert_eq!(why, "different problems: x (1 and 2 problems, 1 in both)");
    }

    #[test]
    fn what_has_no_value_says_why() {
        let (a, mut uneven) = (benchmark(&[1, 2]), benchmark(&[1, 2]));
        assert!(pass_at_k(&[&a], 11, 0).unwrap_err().contains("needs 11 scored samples"));
        assert!(pass_at_k(&[&a, &benchmark(&[1])], 1, 0).unwrap_err().contains("different problems"));
        uneven.problems[1].samples = 7;
        let why = pass_at_k(&[&uneven], 1, 0).unwrap_err();
        assert!(why.contains("problem 1 has 7 samples and problem 0 has 10"), "{why}");
    }
}
