//! Pairs two models' samples problem by problem.

use crate::benchmarks;
use crate::io::harmless::shortened;
use crate::prompts::{self, asked};
use crate::samples::{Benchmark, ProblemCounts};
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::slice;

/// Two models' samples of the same problems.
pub struct Matched {
    /// Name of the benchmark.
    pub name: String,
    /// A's samples.
    pub a: Benchmark,
    /// B's samples, with the problems in A's order.
    pub b: Benchmark,
}

/// Pairs the benchmarks of two models and brings B's problems into A's order.
pub fn matched(a: Vec<Benchmark>, b: Vec<Benchmark>) -> anyhow::Result<Vec<Matched>> {
    benchmarks::require_distinct(&a)?;
    benchmarks::require_distinct(&b)?;
    // A single benchmark on each side is the same benchmark, whatever the files are called.
    if let ([only_a], [only_b]) = (a.as_slice(), b.as_slice()) {
        let [x, y] = [only_a, only_b].map(|side| benchmarks::canonical(&side.name));
        if x != y && benchmarks::is_known(&x) && benchmarks::is_known(&y) {
            bad_input!(
                "A has samples of {} and B of {}; give samples of the same benchmark",
                only_a.name,
                only_b.name
            );
        }
        let name = if only_a.name == only_b.name { only_a.name.clone() } else { String::new() };
        return Ok(vec![align(name, only_a.clone(), only_b)?]);
    }
    let by_name: HashMap<String, &Benchmark> =
        b.iter().map(|x| (benchmarks::canonical(&x.name), x)).collect();
    let mut out = Vec::new();
    for x in &a {
        match by_name.get(&benchmarks::canonical(&x.name)) {
            Some(y) => out.push(align(x.name.clone(), x.clone(), y)?),
            None => {
                bad_input!(
                    "benchmark {} is in A but not in B, which has {}",
                    x.name,
                    list(b.iter().map(|y| &y.name))
                )
            }
        }
    }
    for y in &b {
        if !a.iter().any(|x| benchmarks::canonical(&x.name) == benchmarks::canonical(&y.name)) {
            bad_input!(
                "benchmark {} is in B but not in A, which has {}",
                y.name,
                list(a.iter().map(|x| &x.name))
            );
        }
    }
    Ok(out)
}

/// Joins the first eight names and states how many more there are.
pub fn list<'a>(names: impl Iterator<Item = &'a String>) -> String {
    let names: Vec<String> = names.map(|name| shortened(&name.replace('\n', " "), 60)).collect();
    let text = names.iter().take(8).map(String::as_str).collect::<Vec<_>>().join(", ");
    if names.len() > 8 { format!("{text} and {} more", names.len() - 8) } else { text }
}

/// Maps each problem of `prompts` to the problem of `questions` whose question its prompt contains. Both are indices.
fn same_problems(prompts: &Benchmark, questions: &Benchmark) -> HashMap<usize, usize> {
    let asks = |p: &ProblemCounts| p.question.clone().unwrap_or_default();
    let questions: Vec<String> = questions.problems.iter().map(asks).collect();
    let find = |prompt: &str| asked(prompt, questions.iter().map(String::as_str).enumerate());
    let pairs = prompts.problems.iter().map(|p| find(p.question.as_deref()?)).enumerate();
    pairs.filter_map(|(at, same)| Some((at, same?))).collect()
}

/// Returns B with the ids of A's problems, if the ids differ and the questions show which problems are the same. Dumps of
/// other programs have prompts in place of questions.
fn with_ids_of<'b>(a: &Benchmark, b: &'b Benchmark) -> Cow<'b, Benchmark> {
    let ids = HashSet::<&str>::from_iter(a.problems.iter().map(|p| p.id.as_str()));
    if b.problems.iter().all(|p| ids.contains(p.id.as_str())) {
        return Cow::Borrowed(b);
    }
    let (mut a, mut named) = (a.clone(), b.clone());
    prompts::add_questions(slice::from_mut(&mut a));
    prompts::add_questions(slice::from_mut(&mut named));
    let mut pairs: Vec<(usize, usize)> = same_problems(&a, &named).into_iter().collect();
    if pairs.len() < a.problems.len() {
        pairs = same_problems(&named, &a).into_iter().map(|(in_b, in_a)| (in_a, in_b)).collect();
    }
    // If a question matches two problems, problems aren't matched by question.
    let different = HashSet::<usize>::from_iter(pairs.iter().map(|pair| pair.0)).len();
    if different < pairs.len() || pairs.len() != b.problems.len() {
        return Cow::Borrowed(b);
    }
    for (in_a, in_b) in pairs {
        named.problems[in_b].id.clone_from(&a.problems[in_a].id);
    }
    Cow::Owned(named)
}

/// Brings B's problems of one benchmark into A's order. Problems are matched by id, or else by question.
///
/// Returns an error if the two sides have different problems, reference answers, graders or clusters.
pub fn align(name: String, a: Benchmark, b: &Benchmark) -> anyhow::Result<Matched> {
    let b = &*with_ids_of(&a, b);
    let by_id = |side: &'_ Benchmark| -> HashMap<String, usize> {
        side.problems.iter().enumerate().map(|(i, p)| (p.id.clone(), i)).collect()
    };
    let (in_a, in_b) = (by_id(&a), by_id(b));
    let only = |side: &Benchmark, other: &HashMap<String, usize>| {
        let missing: Vec<&String> =
            side.problems.iter().map(|p| &p.id).filter(|id| !other.contains_key(*id)).collect();
        let text = list(missing.iter().copied());
        (!missing.is_empty()).then(|| format!("{} only in {}: {text}", missing.len(), side.path.display()))
    };
    let parts: Vec<String> = [only(&a, &in_b), only(b, &in_a)].into_iter().flatten().collect();
    if !parts.is_empty() {
        bad_input!("the two sides have different problems: {}", parts.join("; "));
    }
    let problems: Vec<ProblemCounts> = a.problems.iter().map(|p| b.problems[in_b[&p.id]].clone()).collect();
    // Ids may be row indices, which agree between unrelated data sets, so the reference answers must agree too.
    for (p, q) in a.problems.iter().zip(&problems) {
        if let (Some(x), Some(y)) = (&p.reference, &q.reference)
            && x != y
        {
            bad_input!(
                "problem {}: the reference answer is {x:?} in {} and {y:?} in {}; give samples of the same problems",
                p.id,
                a.path.display(),
                b.path.display()
            );
        }
        if let (Some(x), Some(y)) = (&p.verifier, &q.verifier)
            && x != y
        {
            bad_input!(
                "problem {}: {} was graded by {x} and {} by {y}, so the difference may come from the graders; `fgrpo eval` into the same folders grades again without sampling",
                p.id,
                a.path.display(),
                b.path.display()
            );
        }
        if p.cluster != q.cluster {
            bad_input!(
                "problem {}: the cluster is {:?} in {} and {:?} in {}",
                p.id,
                p.cluster.as_deref().unwrap_or_default(),
                a.path.display(),
                q.cluster.as_deref().unwrap_or_default(),
                b.path.display()
            );
        }
    }
    let b = Benchmark { name: b.name.clone(), path: b.path.clone(), problems };
    Ok(Matched { name, a, b })
}
