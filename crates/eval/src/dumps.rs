//! Responses that other programs dumped: verl's validation generations (`trainer.validation_data_dir`) and lm-eval's
//! logged samples (`--log_samples`).
//!
//! Both keep texts. Their own scores follow other rules or are means over samples, so the texts are graded here: by the verifier
//! of mathematics, of choice for GPQA, of instructions for IFEval. This is the one reader of these formats; the Python
//! package uses it too.

use crate::benchmarks::{canonical, require_distinct};
use crate::dataset::Problem;
use crate::dataset::rows;
use crate::grade::Grader;
use crate::inspect;
use crate::io::files;
use crate::io::json;
use crate::io::lines::Lines;
use crate::kind::{self, TaskKind, Truth};
use crate::row::Row;
use crate::samples::{self, Benchmark};
use crate::verifier::{Reasoning, Settings};
use fgrpo_verify::verdict::Verdict;
use rayon::prelude::*;
use serde_json::Value;
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Which program wrote a dump.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DumpFormat {
    /// lm-eval: a line for each problem with all its responses.
    LmEval,
    /// verl: a line for each response.
    Verl,
}

/// One response.
#[derive(Debug, Clone, PartialEq)]
pub struct Response {
    /// The data set, where the dump names it.
    pub benchmark: Option<String>,
    /// Identifies the problem in every dump of the data set: its prompt, or its number in the data set.
    pub problem: String,
    /// The reference answer, as [`math::gold::gold`](fgrpo_verify::math::gold::gold) finds it.
    pub gold: String,
    /// IFEval: instruction types and their arguments, where the dump has them.
    pub instructions: Option<(Vec<String>, Vec<Value>)>,
    /// What the model wrote.
    pub text: String,
}

/// Graded samples of a dump, and the data sets that could not be graded.
#[derive(Debug, Default)]
pub struct Scored {
    /// The samples.
    pub benchmarks: Vec<Benchmark>,
    /// A sentence for each data set that was left out.
    pub left_out: Vec<String>,
}

/// The format of a file by its first line; none for another one.
pub fn format_of(path: &Path) -> anyhow::Result<Option<DumpFormat>> {
    if rows::is_table(path) {
        return Ok(None);
    }
    let mut lines = Lines::open(path)?;
    let Some(line) = lines.next_line()? else { return Ok(None) };
    let first: Row = json::parse_of_others(line.text).unwrap_or_default();
    let has = |keys: [&str; 2]| keys.iter().all(|k| first.contains_key(*k));
    Ok(match () {
        () if has(["doc_id", "resps"]) => Some(DumpFormat::LmEval),
        () if has(["output", "gts"]) => Some(DumpFormat::Verl),
        () => None,
    })
}

/// A file of JSON lines in a folder.
struct Found {
    format: Option<DumpFormat>,
    /// Folders between the named one and the file.
    depth: usize,
    file: PathBuf,
}

impl Found {
    /// What it is read with: dumps at any depth below the folder, samples at one depth.
    fn kind(&self) -> (Option<DumpFormat>, usize) {
        (self.format, if self.format.is_some() { self.depth.min(1) } else { self.depth })
    }
}

impl std::fmt::Display for Found {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let what = match self.format {
            Some(DumpFormat::LmEval) => "a log of lm-eval",
            Some(DumpFormat::Verl) => "a dump of verl",
            None => "the file",
        };
        write!(f, "{what} {}", self.file.display())
    }
}

/// The dumps at a path: the file itself, the dumps in a folder, or lm-eval's in the folders below it. Empty if there are none.
/// Fails on a folder in which some files would go unread, dumps of several training steps, or several logs of one task.
pub fn dumps(path: &Path) -> anyhow::Result<Vec<(DumpFormat, PathBuf)>> {
    if !path.is_dir() {
        return Ok(format_of(path)?.map(|format| (format, path.to_owned())).into_iter().collect());
    }
    // An evaluation folder of our own.
    if path.join(samples::SCORED).is_file() {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    gather(path, 0, &mut found)?;
    if let Some(other) = found.iter().find(|f| f.kind() != found[0].kind()) {
        bad_input!(
            "{}: found {} and {other}; wanted files of one kind in one place, because only those of one kind are read: name them by file or by folder",
            path.display(),
            found[0]
        );
    }
    let mut known: HashMap<String, &Path> = HashMap::new();
    for Found { format, depth, file } in &found {
        let stem = files::stem(file);
        let (key, what) = match format {
            Some(DumpFormat::LmEval) => (task_of(file), "logs of the task"),
            Some(DumpFormat::Verl) if *depth > 0 => bad_input!(
                "{}: found dumps of verl in folders below it, {}; wanted the folder of one model",
                path.display(),
                file.display()
            ),
            Some(DumpFormat::Verl) if is_step(&stem) => ("a step".to_owned(), "dumps, each of"),
            _ => continue,
        };
        if let Some(other) = known.insert(key.clone(), file) {
            bad_input!(
                "{}: found several {what} {key}, {} and {}; wanted one file",
                path.display(),
                other.display(),
                file.display()
            );
        }
    }
    Ok(found.into_iter().filter_map(|f| Some((f.format?, f.file))).collect())
}

/// The files of JSON lines in a folder. In the folders below it, only those that are read from there: dumps and
/// evaluations.
fn gather(folder: &Path, depth: usize, found: &mut Vec<Found>) -> anyhow::Result<()> {
    let entries = files::listed(folder)?;
    let scored = folder.join(samples::SCORED);
    if depth > 0 && scored.is_file() && format_of(&scored)?.is_none() {
        found.push(Found { format: None, depth, file: scored });
        return Ok(());
    }
    for entry in entries {
        if entry.is_dir() {
            gather(&entry, depth + 1, found)?;
        } else if samples::is_lines(&entry) {
            let format = format_of(&entry)?;
            if depth == 0 || format.is_some() {
                found.push(Found { format, depth, file: entry });
            }
        }
    }
    Ok(())
}

/// verl names a dump by its training step; some people put "step" before the number.
fn is_step(stem: &str) -> bool {
    let stem = stem.strip_prefix("global_").unwrap_or(stem);
    let number = stem.strip_prefix("step").map_or(stem, |rest| rest.trim_start_matches(['_', '-']));
    !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit())
}

/// The task in `samples_TASK_2026-01-01T00-00-00.000000.jsonl`.
fn task_of(path: &Path) -> String {
    let stem = files::stem(path);
    let name = stem.strip_prefix("samples_").unwrap_or(&stem);
    match name.rsplit_once('_') {
        Some((task, date)) if date.starts_with(|c: char| c.is_ascii_digit()) && date.contains('T') => {
            task.to_owned()
        }
        _ => name.to_owned(),
    }
}

/// The data set of a task of lm-eval. Its `minerva_math` asks the problems of MATH with Minerva's prompt; the benchmark Minerva Math is
/// another one.
fn data_set(task: String) -> String {
    if task == "minerva_math" { "MATH".to_owned() } else { task }
}

/// The responses of one dump, in its order.
pub fn responses(path: &Path, format: DumpFormat) -> anyhow::Result<Vec<Response>> {
    let mut all: Vec<Response> = Vec::new();
    // lm-eval: where the responses of each problem are.
    let mut logged: HashMap<String, Range<usize>> = HashMap::new();
    let mut step: Option<Value> = None;
    rows::each(path, |number, row| {
        let at = |name: &str| format!("{} line {number}: {name}", path.display());
        let field = |name: &str| match row.get(name) {
            None | Some(Value::Null) => {
                bad_input!("{}: found none, wanted what this format keeps there", at(name))
            }
            Some(value) => Ok(value),
        };
        let texts = |name: &str| field(name).map(text);
        match format {
            DumpFormat::LmEval => {
                let (gold, problem) = (reference(&texts("target")?), texts("doc_id")?);
                let instructions = row.get("doc").and_then(instructions);
                let Some(lists) = field("resps")?.as_array() else {
                    bad_input!("{}: found no list, wanted the responses", at("resps"));
                };
                let first = all.len();
                for value in
                    lists.iter().flat_map(|r| r.as_array().map_or(std::slice::from_ref(r), Vec::as_slice))
                {
                    let Some(response) = value.as_str() else {
                        bad_input!(
                            "{}: found {value}, wanted texts: a task that compares likelihoods has no responses to grade",
                            at("resps")
                        );
                    };
                    all.push(Response {
                        benchmark: Some(data_set(task_of(path))),
                        problem: problem.clone(),
                        gold: gold.clone(),
                        instructions: instructions.clone(),
                        text: response.to_owned(),
                    });
                }
                if all.len() == first {
                    bad_input!(
                        "{}: found no response to the problem with doc_id {problem}, wanted at least one",
                        at("resps")
                    );
                }
                match logged.get(&problem) {
                    // Tasks with several filters log each problem once for each of them, with the same responses.
                    Some(before) if all[before.clone()] == all[first..] => all.truncate(first),
                    Some(_) => bad_input!(
                        "{}: found {problem} before, with other responses or another target, wanted each problem once: logs of several runs are files of their own",
                        at("doc_id")
                    ),
                    None => drop(logged.insert(problem, first..all.len())),
                }
            }
            DumpFormat::Verl => {
                if let Some(own) = row.get("step").filter(|s| !s.is_null()) {
                    let first = step.get_or_insert_with(|| own.clone());
                    if first != own {
                        bad_input!("{}: found {own} after {first}, wanted one step per file", at("step"));
                    }
                }
                let gold = reference(&texts("gts")?);
                // The uid is drawn anew in each run; the prompt is the same under every model.
                let problem = match row.get("input") {
                    Some(Value::String(input)) if !input.is_empty() => input.clone(),
                    _ => uid(&texts("uid")?).to_owned(),
                };
                let source = row.get("data_source").and_then(Value::as_str).filter(|s| !s.is_empty());
                all.push(Response {
                    benchmark: source.map(str::to_owned),
                    problem,
                    gold,
                    instructions: None,
                    text: texts("output")?,
                });
            }
        }
        Ok(())
    })?;
    tell_apart(&mut all);
    Ok(all)
}

/// A prompt that comes with several reference answers is that of several problems: their names get the answer too.
fn tell_apart(all: &mut [Response]) {
    let name = |r: &Response| (r.benchmark.clone(), r.problem.clone());
    let mut first: HashMap<(Option<&str>, &str), &str> = HashMap::new();
    let several: HashSet<_> = all
        .iter()
        .filter(|r| *first.entry((r.benchmark.as_deref(), &r.problem)).or_insert(&r.gold) != r.gold)
        .map(name)
        .collect();
    if several.is_empty() {
        return;
    }
    for response in all.iter_mut().filter(|r| several.contains(&name(r))) {
        response.problem = format!("{} (reference answer {})", response.problem, response.gold);
    }
}

/// The reference answer in a text, as everywhere.
fn reference(text: &str) -> String {
    fgrpo_verify::math::gold::gold(text).into_owned()
}

/// The prompt's part of verl's `PROMPT_SESSION_OUTPUT`.
fn uid(uid: &str) -> &str {
    uid.rsplitn(3, '_').last().unwrap_or(uid)
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(list) => list.iter().map(text).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}

/// The instructions of an IFEval row; unused arguments are nulls there.
fn instructions(doc: &Value) -> Option<(Vec<String>, Vec<Value>)> {
    let ids = doc["instruction_id_list"].as_array()?.iter().map(|id| id.as_str().map(str::to_owned));
    let without_nulls = |value: &Value| {
        let object = value.as_object()?;
        Some(Value::Object(
            object.iter().filter(|(_, v)| !v.is_null()).map(|(k, v)| (k.clone(), v.clone())).collect(),
        ))
    };
    let arguments = doc["kwargs"].as_array()?.iter().map(without_nulls);
    Some((ids.collect::<Option<_>>()?, arguments.collect::<Option<_>>()?))
}

/// Scored samples of one path: those that `fgrpo eval` wrote, or a dump, graded. What of a dump can't be scored is a
/// `tracing` event.
/// Fails as [`read_each`], and if there is nothing that can be scored.
pub fn read(path: &Path) -> anyhow::Result<Vec<Benchmark>> {
    let scored = read_each(path)?;
    if scored.benchmarks.is_empty() {
        bad_input!("{}", scored.left_out.join("; "));
    }
    scored.left_out.iter().for_each(|why| tracing::info!("left out: {why}"));
    Ok(scored.benchmarks)
}

/// The same, with a sentence for each data set that can't be scored.
/// Fails as [`samples::read`], [`dumps`] and [`responses`], and on two benchmarks of one name.
pub fn read_each(path: &Path) -> anyhow::Result<Scored> {
    if path.is_file()
        && let Some(benchmarks) = inspect::read(path)?
    {
        require_distinct(&benchmarks)?;
        return Ok(Scored { benchmarks, left_out: Vec::new() });
    }
    let dumps = dumps(path)?;
    if dumps.is_empty() {
        let benchmarks = samples::read(path)?;
        require_distinct(&benchmarks)?;
        return Ok(Scored { benchmarks, left_out: Vec::new() });
    }
    let mut scored = Scored::default();
    for (format, file) in dumps {
        let mut by_name: Vec<(String, Vec<Response>)> = Vec::new();
        for response in responses(&file, format)? {
            let name = response.benchmark.clone().unwrap_or_else(|| named_by(&file));
            match by_name.iter_mut().find(|(n, _)| *n == name) {
                Some((_, all)) => all.push(response),
                None => by_name.push((name, vec![response])),
            }
        }
        if by_name.is_empty() {
            bad_input!("{}: found no samples", file.display());
        }
        for (name, responses) in by_name {
            match graded(name, &file, &responses)? {
                Ok(benchmark) => scored.benchmarks.push(benchmark),
                Err(why) => scored.left_out.push(why),
            }
        }
    }
    require_distinct(&scored.benchmarks)?;
    Ok(scored)
}

/// The samples of several paths, for commands that take our own and dumps alike; what can't be scored is a
/// `tracing` event.
/// Fails as [`read`] and [`samples::merged`]; bad input for a file that is named twice.
pub fn read_all(paths: &[PathBuf], merge: bool) -> anyhow::Result<Vec<Benchmark>> {
    let mut known: HashMap<PathBuf, &Path> = HashMap::new();
    for path in paths {
        let mut files: Vec<PathBuf> = dumps(path)?.into_iter().map(|(_, file)| file).collect();
        if files.is_empty() {
            files = samples::files(path)?;
        }
        for file in files {
            let place = file.canonicalize().unwrap_or_else(|_| file.clone());
            if let Some(before) = known.insert(place, path) {
                bad_input!(
                    "{}: found the file {} in {} too, wanted it once",
                    path.display(),
                    file.display(),
                    before.display()
                );
            }
        }
    }
    if merge {
        return samples::merged(paths);
    }
    Ok(paths.iter().map(|path| read(path)).collect::<anyhow::Result<Vec<_>>>()?.concat())
}

/// The data set of a dump that doesn't name it: the file's name, or the folder's if the file is named by a step.
fn named_by(path: &Path) -> String {
    let stem = files::stem(path);
    let folder = path.parent().and_then(Path::file_name).map(|n| n.to_string_lossy().into_owned());
    folder.filter(|_| is_step(&stem)).unwrap_or(stem)
}

/// The reference answer of a response, or why it is unknown.
fn truth(kind: TaskKind, response: &Response) -> Result<Truth, &'static str> {
    match kind {
        TaskKind::Choice => {
            let letter = response.gold.trim().trim_matches(['(', ')', '.', '$']);
            match letter.chars().collect::<Vec<_>>().as_slice() {
                [gold @ 'A'..='Z'] => Ok(Truth::Choice(kind::choice::Truth {
                    gold: gold.to_string(),
                    options: Vec::new(),
                    order: Vec::new(),
                })),
                _ => Err("its reference answer is no letter"),
            }
        }
        TaskKind::IfEval => match response.instructions.clone() {
            Some((instruction_id_list, kwargs)) => {
                Ok(Truth::IfEval(kind::ifeval::Truth { instruction_id_list, kwargs }))
            }
            None => Err("the dump doesn't hold its instructions"),
        },
        TaskKind::SynLogic => Err("the dump doesn't hold its puzzles"),
        _ if response.gold.trim().is_empty() => Err("a problem's reference answer is empty"),
        _ => Ok(Truth::Math(kind::math::Truth { gold: response.gold.clone() })),
    }
}

/// One data set's samples, counted by problem, or why they can't be graded.
fn graded(name: String, path: &Path, responses: &[Response]) -> anyhow::Result<Result<Benchmark, String>> {
    let kind = match canonical(&name).as_str() {
        "gpqa" => TaskKind::Choice,
        "ifeval" => TaskKind::IfEval,
        "synlogic" => TaskKind::SynLogic,
        // IFBench, and others with rows like these.
        _ if responses.iter().any(|response| response.instructions.is_some()) => TaskKind::IfEval,
        _ => TaskKind::Math,
    };
    // The logs of reasoning models hold their thoughts.
    let settings = Settings { reasoning: Some(Reasoning::Strip), ..kind.reference_settings() };
    let grader = Grader::new(kind, settings)?;
    let verdict = |response: &Response| -> Result<Verdict, &'static str> {
        let problem = Problem::new(response.problem.clone(), Vec::new(), truth(kind, response)?);
        Ok(grader.grade(&problem, &response.text).verdict)
    };
    let verdicts: Result<Vec<Verdict>, &str> = responses.par_iter().map(verdict).collect();
    let verdicts = match verdicts {
        Ok(verdicts) => verdicts,
        Err(why) => {
            return Ok(Err(format!(
                "{name} of {}: {why}; `fgrpo eval --samples FILE --data FILE --task {kind} --out DIR` scores responses by their data set",
                path.display()
            )));
        }
    };
    let mut places: HashMap<&str, usize> = HashMap::new();
    let mut problems: Vec<samples::ProblemCounts> = Vec::new();
    for (response, verdict) in responses.iter().zip(verdicts) {
        let at = *places.entry(&response.problem).or_insert_with(|| {
            let mut problem = samples::ProblemCounts::counted(response.problem.clone(), 0, 0);
            // lm-eval shuffles the options of a choice, so the letter may be another in each log.
            problem.reference = (kind == TaskKind::Math).then(|| response.gold.clone());
            problems.push(problem);
            problems.len() - 1
        });
        let problem = &mut problems[at];
        match verdict {
            Verdict::Unscorable => problem.unscorable += 1,
            other => {
                problem.samples += 1;
                problem.correct += u64::from(other == Verdict::Correct);
            }
        }
    }
    Ok(Ok(Benchmark { name, path: path.to_owned(), problems }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_the_file_name_without_its_date() {
        let of = |name: &str| task_of(Path::new(name));
        assert_eq!(of("samples_gsm8k_2026-01-01T00-00-00.000000.jsonl"), "gsm8k");
        assert_eq!(of("samples_my_task_2026-01-01T00-00-00.000000.jsonl"), "my_task");
        assert_eq!(of("my_task.jsonl"), "my_task");
        assert_eq!((uid("a_b_1_0"), uid("c_0_0"), uid("c")), ("a_b", "c", "c"));
    }
}
