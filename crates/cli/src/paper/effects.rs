//! What the focal weight changes: each focal setting against its baseline, as a difference with its interval and by the paper's test.

use super::beside::Effect;
use super::layout::Shown;
use super::measured::Measured;
use super::numbers::{Asked, Measure, Printed, Setting};
use super::problems::Problems;
use super::settings::name;

/// Each focal setting against its baseline; where the paper's table has no baseline, against every setting without a focal weight. Rows on
/// different problems have none.
pub(super) fn effects(
    table: &Printed,
    rows: &[Shown],
    settings: &[Setting],
    measured: &mut Measured<'_>,
    problems: &mut Problems<'_>,
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
            problems.are_same((&reference.setting, &a), (&focal.setting, &b));
            let Ok(difference) = b.minus(&a) else { continue };
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
