//! Two models' samples of the same problems, paired problem by problem.

use crate::benchmarks;
use crate::samples::{Benchmark, ProblemCounts};
use std::collections::HashMap;

/// Two models' samples of the same problems, in A's order.
pub struct Matched {
    /// Name of the benchmark.
    pub name: String,
    /// A's samples.
    pub a: Benchmark,
    /// B's samples, in A's order of problems.
    pub b: Benchmark,
}

/// Pairs the benchmarks of two models and brings B's problems into A's order.
pub fn matched(a: Vec<Benchmark>, b: Vec<Benchmark>) -> anyhow::Result<Vec<Matched>> {
    benchmarks::require_distinct(&a)?;
    benchmarks::require_distinct(&b)?;
    // One benchmark on either side is the same one, whatever the files are called.
    if let ([only_a], [only_b]) = (a.as_slice(), b.as_slice()) {
        let [x, y] = [only_a, only_b].map(|side| benchmarks::canonical(&side.name));
        if x != y && benchmarks::is_known(&x) && benchmarks::is_known(&y) {
            bad_input!(
                "found samples of {} in A and of {} in B, wanted the same problems on both sides",
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
                bad_input!("benchmark {} is in A but not in B ({})", x.name, list(b.iter().map(|y| &y.name)))
            }
        }
    }
    for y in &b {
        if !a.iter().any(|x| benchmarks::canonical(&x.name) == benchmarks::canonical(&y.name)) {
            bad_input!("benchmark {} is in B but not in A ({})", y.name, list(a.iter().map(|x| &x.name)));
        }
    }
    Ok(out)
}

/// The first few names, and how many more there are.
pub fn list<'a>(names: impl Iterator<Item = &'a String>) -> String {
    let names: Vec<&str> = names.map(String::as_str).collect();
    let shown = names.iter().take(8).copied().collect::<Vec<_>>().join(", ");
    if names.len() > 8 { format!("{shown} and {} more", names.len() - 8) } else { shown }
}

/// Brings B's problems of one benchmark into A's order.
/// Fails on other problems, other reference answers, another grader or other clusters.
pub fn align(name: String, a: Benchmark, b: &Benchmark) -> anyhow::Result<Matched> {
    let by_id = |side: &'_ Benchmark| -> HashMap<String, usize> {
        side.problems.iter().enumerate().map(|(i, p)| (p.id.clone(), i)).collect()
    };
    let (in_a, in_b) = (by_id(&a), by_id(b));
    let only = |side: &Benchmark, other: &HashMap<String, usize>| {
        let missing: Vec<&String> =
            side.problems.iter().map(|p| &p.id).filter(|id| !other.contains_key(*id)).collect();
        let listed = list(missing.iter().copied());
        (!missing.is_empty()).then(|| format!("{} only in {}: {listed}", missing.len(), side.path.display()))
    };
    let parts: Vec<String> = [only(&a, &in_b), only(b, &in_a)].into_iter().flatten().collect();
    if !parts.is_empty() {
        bad_input!("the two sides have different problems; {}", parts.join("; "));
    }
    let problems: Vec<ProblemCounts> = a.problems.iter().map(|p| b.problems[in_b[&p.id]].clone()).collect();
    // Names may be mere numbers, which every data set has.
    for (p, q) in a.problems.iter().zip(&problems) {
        if let (Some(x), Some(y)) = (&p.reference, &q.reference)
            && x != y
        {
            bad_input!(
                "problem {}: found reference answer {x:?} in {} and {y:?} in {}, wanted the same problems on both sides",
                p.id,
                a.path.display(),
                b.path.display()
            );
        }
        if let (Some(x), Some(y)) = (&p.verifier, &q.verifier)
            && x != y
        {
            bad_input!(
                "problem {}: found {} graded by {x} and {} by {y}, wanted one grader on both sides: the difference would be that of the graders. `fgrpo eval` into the folders grades them anew without sampling",
                p.id,
                a.path.display(),
                b.path.display()
            );
        }
        if p.cluster != q.cluster {
            bad_input!(
                "problem {}: found the cluster {:?} in {} and {:?} in {}, wanted one cluster",
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
