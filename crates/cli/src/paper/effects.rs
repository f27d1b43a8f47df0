//! What the focal weight changes: each focal setting against its baseline, as a difference with its interval and by the paper's test.

use super::beside::Effect;
use super::measured::{Measured, Shown};
use super::numbers::{Asked, Measure, Printed, Setting};
use super::settings::name;
use crate::analysis::benchmarks::{Average, canonical};
use crate::analysis::compare::{self, LEVEL, Method, Plan};
use fgrpo_train::evaluation::samples::Benchmark;
use std::collections::HashMap;

/// Each focal setting against its baseline; where the paper's table has no baseline, against every setting without a focal weight.
pub(super) fn effects(
    table: &Printed,
    rows: &[Shown],
    settings: &[Setting],
    measured: &mut Measured<'_>,
) -> Vec<Effect> {
    let mut asked: Vec<&Asked> = Vec::new();
    for row in rows {
        for (column, cell) in row.cells.iter().enumerate() {
            let of = table.columns[row.columns[column]].fixed.of.as_deref();
            let average = ["Math", "OOD"].iter().any(|a| of == Some(a));
            let few = row.cells.len() <= 2 || table.number == 5;
            if average || few {
                let passes = cell.iter().map(|(a, _)| a).filter(|a| a.measure == Measure::Pass);
                asked.extend(passes.filter(|a| !asked.contains(a)).collect::<Vec<_>>());
            }
        }
    }
    let printed = table.settings();
    let mut all = Vec::new();
    for focal in asked.iter().filter(|a| a.setting.gamma > 0.0) {
        let baseline = focal.setting.baseline();
        let references = asked.iter().filter(|a| {
            let same = Asked { setting: focal.setting.clone(), ..(**a).clone() } == **focal;
            let other =
                !printed.contains(&baseline) && a.setting.gamma == 0.0 && a.setting.n == focal.setting.n;
            same && a.setting.method != "Base" && (a.setting == baseline || other)
        });
        for reference in references {
            let (Ok(a), Ok(b)) = (measured.pass(reference), measured.pass(focal)) else { continue };
            let difference = b.minus(&a);
            let paper = table.value(focal).zip(table.value(reference)).map(|(f, r)| f - r);
            all.push(Effect {
                what: format!(
                    "{} against {}",
                    name(&focal.setting, settings),
                    name(&reference.setting, settings)
                ),
                of: format!("{}, pass@{}", measured.place(&focal.of), focal.k),
                here: difference.value,
                interval: difference.interval(),
                paper,
            });
        }
    }
    all
}

/// p-values of the paired subsampling test, by benchmark or average and k; empty where it can't be made: the two sides need the same
/// problems, one model each, and twice as many samples as k.
pub(super) fn p_values(
    baseline: Vec<Benchmark>,
    focal: Vec<Benchmark>,
    ks: &[u64],
    averages: &[Average],
) -> HashMap<(String, u64), f64> {
    let in_both = |own: Vec<Benchmark>, other: &[String]| -> Vec<Benchmark> {
        let shared = own.into_iter().filter(|b| other.contains(&canonical(&b.name)));
        shared.map(|b| Benchmark { name: canonical(&b.name), ..b }).collect()
    };
    let names = |all: &[Benchmark]| all.iter().map(|b| canonical(&b.name)).collect::<Vec<_>>();
    let (of_baseline, of_focal) = (names(&baseline), names(&focal));
    let (baseline, focal) = (in_both(baseline, &of_focal), in_both(focal, &of_baseline));
    let fewest = baseline.iter().chain(&focal).map(Benchmark::fewest).min().unwrap_or(0);
    let ks: Vec<u64> = ks.iter().copied().filter(|k| 2 * k <= fewest).collect();
    if ks.is_empty() {
        return HashMap::new();
    }
    let name = baseline[0].name.clone();
    let Ok(mut pairs) = compare::matched(baseline, focal) else { return HashMap::new() };
    if let [only] = pairs.as_mut_slice() {
        only.name = name;
    }
    let Ok((m, ks)) = compare::plan_sizes(&pairs, None, &ks) else { return HashMap::new() };
    let plan = Plan { ks, m, method: Method::Exact, iterations: 0, resamples: 100, seed: 0, level: 0.95 };
    let compared = compare::compare_all(&pairs, &plan, averages).into_iter();
    compared.map(|c| ((c.name, c.k), c.p_value)).collect()
}

/// Whether a p-value is significant.
pub(super) fn is_significant(p: f64) -> bool {
    p < LEVEL
}
