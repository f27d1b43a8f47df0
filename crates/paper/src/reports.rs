//! Values that aren't of samples: what `fgrpo nll --json` and `fgrpo diversity --json` print.

use super::data::{Measure, Setting, paper};
use super::settings;
use fgrpo_eval::benchmarks::{Domain, canonical, paper as averages};
use fgrpo_eval::diversity::{Diversity, Row};
use fgrpo_eval::io::{files, json};
use fgrpo_train::evaluation::nll::Nll;
use serde::Deserialize;
use std::path::Path;

/// What of these commands' JSON is read: the models of one, the folders with a row for each benchmark and average of the
/// other.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Printed {
    models: Vec<ModelNll>,
    folders: Vec<String>,
    diversity: Vec<DiversityRow>,
}

#[derive(Deserialize)]
struct ModelNll {
    model: String,
    increase: Option<f64>,
}

#[derive(Deserialize)]
struct DiversityRow {
    benchmark: String,
    values: Vec<Option<f64>>,
}

/// One report: the names of models or folders, and their values by benchmark.
struct Report {
    measure: Measure,
    names: Vec<String>,
    values: Vec<(String, Vec<Option<f64>>)>,
}

/// The reports that were given.
#[derive(Default)]
pub(super) struct Reports(Vec<Report>);

/// The flag of each measure, what it is in words, and the command that prints it.
const FLAGS: [(Measure, &str, &str, &str); 3] = [
    (Measure::Nll, "nll", "NLL", "nll --json"),
    (Measure::Embeddings, "embeddings", "distance", "diversity --by embeddings --json"),
    (Measure::Judge, "judge", "strategy score", "diversity --by judge --json"),
];

/// The setting that a model's name or an evaluation's folder stands for. A folder may hold one benchmark, below the folder
/// of its model.
fn named<'a>(name: &str, settings: &'a [Setting]) -> Option<&'a Setting> {
    let found = Path::new(name).ancestors().find_map(|path| {
        let own = path.file_name()?.to_string_lossy();
        let parent = path.parent().and_then(Path::file_name).unwrap_or_default().to_string_lossy();
        let stem = path.extension().filter(|e| *e == "jsonl").map(|_| files::stem(path));
        let spelled = [path.display().to_string(), format!("{parent}/{own}"), own.into_owned()];
        spelled.into_iter().chain(stem).find_map(|name| settings::named(&name, settings))
    })?;
    let models = name.split('/').filter(|part| paper().model(part).is_some());
    let mut of_another = models.filter(|part| found.model.as_deref().is_some_and(|m| m != *part));
    of_another.next().is_none().then_some(found)
}

impl Reports {
    /// Adds the file of a flag, `nll=`, `embeddings=` or `judge=`; false if the flag is no report's.
    ///
    /// # Errors
    /// A file that can't be read or is no such report.
    pub(super) fn open(&mut self, flag: &str, path: &Path) -> anyhow::Result<bool> {
        let Some((measure, ..)) = FLAGS.iter().find(|f| f.1 == flag) else { return Ok(false) };
        let Printed { models, folders, diversity } = json::read(path)?;
        let (names, values) = match measure {
            Measure::Nll => {
                let (names, values) = models.into_iter().map(|m| (m.model, m.increase)).unzip();
                (names, vec![(String::new(), values)])
            }
            _ => (folders, diversity.into_iter().map(|row| (row.benchmark, row.values)).collect()),
        };
        self.0.push(Report { measure: *measure, names, values });
        Ok(true)
    }

    /// Adds the result of `fgrpo nll`.
    pub(super) fn add_nll(&mut self, found: Nll) {
        let (names, values) = found.models.into_iter().map(|m| (m.model, Some(m.increase))).unzip();
        self.0.push(Report { measure: Measure::Nll, names, values: vec![(String::new(), values)] });
    }

    /// Adds the result of `fgrpo diversity`. A mean over no problem is no value.
    pub(super) fn add_diversity(&mut self, measure: Measure, found: Diversity) {
        let known = |v: f64| Some(v).filter(|v| v.is_finite());
        let values = |row: Row| (row.benchmark, row.values.into_iter().map(known).collect());
        let values = found.diversity.into_iter().map(values).collect();
        self.0.push(Report { measure, names: found.folders, values });
    }

    /// A setting's value on a benchmark or over several, or why there is none.
    pub(super) fn value(
        &self,
        measure: Measure,
        setting: &Setting,
        settings: &[Setting],
        of: &str,
    ) -> Result<f64, String> {
        let mut found = self.all(measure, setting, settings, of);
        let average = averages(Domain::Math).into_iter().find(|a| a.name == of);
        if let (Some(average), true) = (average, found.is_empty()) {
            // The mean over benchmarks whose values stand in reports of their own.
            let values = average.members.iter().map(|member| {
                match self.all(measure, setting, settings, member).as_slice() {
                    [only] => Some(*only),
                    _ => None,
                }
            });
            let values = values.collect::<Option<Vec<f64>>>();
            found.extend(values.map(|v| v.iter().sum::<f64>() / v.len() as f64));
        }
        let flag = FLAGS.iter().find(|f| f.0 == measure);
        match (found.as_slice(), flag) {
            ([first, rest @ ..], _) if rest.iter().all(|v| v == first) => Ok(*first),
            ([], Some((_, flag, what, command))) => {
                Err(format!("no {what}: --from {flag}=FILE takes what `fgrpo {command}` printed"))
            }
            (several, _) => Err(format!(
                "{}: reports with {} values on {of}, wanted one",
                settings::name(setting, settings),
                several.len()
            )),
        }
    }

    /// A sentence for each report with names that stand for no row, or for several.
    pub(super) fn unused(&self, settings: &[Setting]) -> Vec<String> {
        let said = self.0.iter().filter_map(|report| {
            let open = report.names.iter().filter(|n| named(n, settings).is_none());
            let open: Vec<&str> = open.map(String::as_str).collect();
            let flag = FLAGS.iter().find(|f| f.0 == report.measure)?.1;
            let sentence =
                format!("not used: {} of --from {flag}=, which name no row or several", open.join(", "));
            (!open.is_empty()).then_some(sentence)
        });
        said.collect()
    }

    fn all(&self, measure: Measure, setting: &Setting, settings: &[Setting], of: &str) -> Vec<f64> {
        let mut found = Vec::new();
        for report in self.0.iter().filter(|r| r.measure == measure) {
            let is = |name: &str| canonical(name) == of || name == format!("All {of}");
            let row = report.values.iter().find(|(name, _)| measure == Measure::Nll || is(name));
            for (name, value) in report.names.iter().zip(row.into_iter().flat_map(|(_, values)| values)) {
                found.extend(value.filter(|_| named(name, settings) == Some(setting)));
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A report of one folder's embeddings on one benchmark.
    fn report(folder: &str, benchmark: &str, value: f64) -> Diversity {
        let measure = fgrpo_eval::diversity::Measure::Embeddings;
        let row = Row { benchmark: benchmark.to_owned(), measure, problems: 1, values: vec![value] };
        Diversity { folders: vec![folder.to_owned()], diversity: vec![row], sampling: None }
    }

    #[test]
    fn folders_with_a_dot_and_folders_of_one_benchmark_name_their_row() {
        let settings = paper().item("table-14").settings();
        let value = |folder: &str, gamma: f64| {
            let mut reports = Reports::default();
            reports.add_diversity(Measure::Embeddings, report(folder, "aime24", 0.9));
            let setting = settings.iter().find(|s| s.gamma == gamma).unwrap();
            reports.value(Measure::Embeddings, setting, &settings, "aime24").ok()
        };
        for folder in ["evals/grpo-gamma-0.5-N8", "evals/Qwen2.5-7B/F-GRPO/aime24", "F-GRPO.jsonl"] {
            assert_eq!((value(folder, 0.5), value(folder, 0.0)), (Some(0.9), None), "{folder}");
        }
    }

    #[test]
    fn an_average_is_the_mean_of_reports_by_benchmark_and_two_values_of_one_row_are_refused() {
        let settings = paper().item("table-14").settings();
        let setting = settings.iter().find(|s| s.gamma == 0.0).unwrap();
        let mut reports = Reports::default();
        let members = &averages(Domain::Math)[0].members;
        let value = |reports: &Reports, of: &str| reports.value(Measure::Embeddings, setting, &settings, of);
        for (i, of) in members.iter().enumerate() {
            assert!(value(&reports, "Math").is_err(), "{i} of {}", members.len());
            reports.add_diversity(Measure::Embeddings, report(&format!("GRPO/{of}"), of, i as f64));
        }
        assert_eq!(value(&reports, "Math"), Ok(2.5));
        reports.add_diversity(Measure::Embeddings, report("GRPO", "aime24", 0.5));
        assert!(value(&reports, "aime24").unwrap_err().contains("2 values"));
    }
}
