//! Reads responses that other programs dumped: verl's validation generations (`trainer.validation_data_dir`) and
//! lm-eval's logged samples (`--log_samples`).
//!
//! A job that `fgrpo export` prepared writes its verdicts, the reference answer and the name of its grader into verl's
//! files, and these verdicts are used. The scores in any other dump follow different rules or are means over samples, so
//! its responses are graded again: as multiple choice for GPQA, by instructions for IFEval, and as mathematics otherwise.
//! The Python package reads dumps with this module too.

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
use crate::table::percent;
use crate::verifier::{Mode, Reasoning, Settings};
use fgrpo_verify::verdict::Verdict;
use rayon::prelude::*;
use serde_json::Value;
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Program that wrote a dump.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DumpFormat {
    /// lm-eval: one line per problem, with all its responses.
    LmEval,
    /// verl: one line per response.
    Verl,
}

/// One response of a dump.
#[derive(Debug, Clone, PartialEq)]
pub struct Response {
    /// Name of the data set, if the dump has it.
    pub benchmark: Option<String>,
    /// Line in the file, from 1.
    pub line: usize,
    /// Name of the problem, the same in every dump of the data set: its prompt or its id in the data set.
    pub problem: String,
    /// The question, or the prompt that contains it, if the dump has it.
    pub question: Option<String>,
    /// The reference answer, extracted by [`math::gold::gold`](fgrpo_verify::math::gold::gold).
    pub gold: String,
    /// The whole reference answer, if the dump has it, as the dumps of exported jobs and of IFEval do.
    pub truth: Option<Truth>,
    /// The verdict of an exported job, with the kind and mode of its grader.
    pub recorded: Option<(Verdict, String)>,
    /// The field `acc`, which other reward functions of verl report.
    accuracy: Option<f64>,
    /// The model's response.
    pub text: String,
}

/// Graded samples of a dump, and the data sets that couldn't be graded.
#[derive(Debug, Default)]
pub struct Scored {
    /// The samples.
    pub benchmarks: Vec<Benchmark>,
    /// For each data set of a dump, a sentence that describes how it was graded.
    pub graded: Vec<String>,
    /// For each data set that was left out, a sentence that gives the reason.
    pub left_out: Vec<String>,
}

/// Detects a file's format from the first line. Returns `None` if the file isn't a dump.
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

/// A file of JSON lines in a folder, as [`dumps`] lists them.
struct Found {
    format: Option<DumpFormat>,
    /// Number of folders between the searched folder and the file.
    depth: usize,
    file: PathBuf,
}

impl Found {
    /// Returns the format and depth, which must be equal for all files of a folder. For dumps, the depth is 0 in the
    /// folder and 1 anywhere below it.
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

/// Lists the dumps at a path: the file itself, the dumps in a folder, or lm-eval's dumps in the folders below it. The
/// list may be empty.
///
/// Returns an error if some files of the folder would be ignored, if it has dumps of several training steps, or if it
/// has several logs of one task.
pub fn dumps(path: &Path) -> anyhow::Result<Vec<(DumpFormat, PathBuf)>> {
    if !path.is_dir() {
        return Ok(format_of(path)?.map(|format| (format, path.to_owned())).into_iter().collect());
    }
    // A folder written by `fgrpo eval`.
    if path.join(samples::SCORED).is_file() {
        return Ok(Vec::new());
    }
    let mut candidates = Vec::new();
    gather(path, 0, &mut candidates)?;
    if let Some(other) = candidates.iter().find(|f| f.kind() != candidates[0].kind()) {
        bad_input!(
            "{}: {} and {other} are of different kinds or depths, and only one kind can be read; name a single file or folder",
            path.display(),
            candidates[0]
        );
    }
    let mut by_key: HashMap<String, &Path> = HashMap::new();
    for Found { format, depth, file } in &candidates {
        let stem = files::stem(file);
        let (key, what) = match format {
            Some(DumpFormat::LmEval) => (task_of(file), "logs of task"),
            Some(DumpFormat::Verl) if *depth > 0 => bad_input!(
                "{}: verl's dumps are in folders below it ({}); name the folder of one model",
                path.display(),
                file.display()
            ),
            Some(DumpFormat::Verl) if is_step(&stem) => ("a step".to_owned(), "dumps, each of"),
            _ => continue,
        };
        if let Some(other) = by_key.insert(key.clone(), file) {
            bad_input!(
                "{}: there are several {what} {key}, such as {} and {}; name one file",
                path.display(),
                other.display(),
                file.display()
            );
        }
    }
    Ok(candidates.into_iter().filter_map(|f| Some((f.format?, f.file))).collect())
}

/// Collects the files of JSON lines in a folder and those of the folders below it that are dumps or evaluations.
fn gather(folder: &Path, depth: usize, candidates: &mut Vec<Found>) -> anyhow::Result<()> {
    let entries = files::listed(folder)?;
    let scored = folder.join(samples::SCORED);
    if depth > 0 && scored.is_file() && format_of(&scored)?.is_none() {
        candidates.push(Found { format: None, depth, file: scored });
        return Ok(());
    }
    for entry in entries {
        if entry.is_dir() {
            gather(&entry, depth + 1, candidates)?;
        } else if samples::is_lines(&entry) {
            let format = format_of(&entry)?;
            if depth == 0 || format.is_some() {
                candidates.push(Found { format, depth, file: entry });
            }
        }
    }
    Ok(())
}

/// Returns whether a file is named by a training step. verl uses the bare step; some users put "step" before it.
fn is_step(stem: &str) -> bool {
    let stem = stem.strip_prefix("global_").unwrap_or(stem);
    let number = stem.strip_prefix("step").map_or(stem, |rest| rest.trim_start_matches(['_', '-']));
    !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit())
}

/// Returns the task in a name such as `samples_TASK_2026-01-01T00-00-00.000000.jsonl`.
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

/// Maps a task of lm-eval to its data set. lm-eval's `minerva_math` has the problems of MATH with Minerva's prompt,
/// although a different benchmark is called Minerva Math.
fn data_set(task: String) -> String {
    if task == "minerva_math" { "MATH".to_owned() } else { task }
}

/// Reads the responses of one dump, in file order.
pub fn responses(path: &Path, format: DumpFormat) -> anyhow::Result<Vec<Response>> {
    let mut all: Vec<Response> = Vec::new();
    // lm-eval: range of each problem's responses in `all`.
    let mut logged: HashMap<String, Range<usize>> = HashMap::new();
    let mut step: Option<Value> = None;
    fn content(r: &Response) -> (&str, &str, &Option<Truth>) {
        (&r.gold, &r.text, &r.truth)
    }
    rows::each(path, |number, row| {
        let at = |name: &str| format!("{} line {number}: {name}", path.display());
        let field = |name: &str| match row.get(name) {
            None | Some(Value::Null) => {
                bad_input!("{} is missing", at(name))
            }
            Some(value) => Ok(value),
        };
        let texts = |name: &str| field(name).map(text);
        match format {
            DumpFormat::LmEval => {
                let (gold, problem) = (reference(&texts("target")?), texts("doc_id")?);
                let (truth, question) = (row.get("doc").and_then(instructions), question(&row));
                let Some(lists) = field("resps")?.as_array() else {
                    bad_input!("{}: expected a list of responses", at("resps"));
                };
                let first = all.len();
                for value in
                    lists.iter().flat_map(|r| r.as_array().map_or(std::slice::from_ref(r), Vec::as_slice))
                {
                    let Some(response) = value.as_str() else {
                        bad_input!(
                            "{}: expected strings, found {value}: a task that compares likelihoods has no responses to grade",
                            at("resps")
                        );
                    };
                    all.push(Response {
                        benchmark: Some(data_set(task_of(path))),
                        line: number,
                        problem: problem.clone(),
                        question: question.clone(),
                        gold: gold.clone(),
                        truth: truth.clone(),
                        recorded: None,
                        accuracy: None,
                        text: response.to_owned(),
                    });
                }
                if all.len() == first {
                    bad_input!("{}: the problem with doc_id {problem} has no response", at("resps"));
                }
                match logged.get(&problem) {
                    // A task with several filters logs each problem once per filter, with the same responses.
                    Some(before)
                        if all[before.clone()].iter().map(content).eq(all[first..].iter().map(content)) =>
                    {
                        all.truncate(first);
                    }
                    Some(_) => bad_input!(
                        "{}: {problem} is listed twice, with different responses or targets; keep logs of different runs in separate files",
                        at("doc_id")
                    ),
                    None => drop(logged.insert(problem, first..all.len())),
                }
            }
            DumpFormat::Verl => {
                if let Some(current) = row.get("step").filter(|s| !s.is_null()) {
                    let first = step.get_or_insert_with(|| current.clone());
                    if first != current {
                        bad_input!(
                            "{}: the file has samples of steps {first} and {current}; keep one step per file",
                            at("step")
                        );
                    }
                }
                let word = |name: &str| {
                    row.get(name).and_then(Value::as_str).filter(|s| !s.is_empty()).map(str::to_owned)
                };
                let gts = texts("gts")?;
                let truth: Option<Truth> = serde_json::from_str(&gts).ok();
                let gold = truth.as_ref().and_then(|truth| truth.gold());
                let recorded = truth.as_ref().and_then(|truth| recorded(&row, truth));
                let question = word("input");
                // verl draws a new uid in each run, but the prompt is the same for every model.
                let name = recorded.as_ref().and_then(|_| word("problem")).or_else(|| question.clone());
                let problem = match name {
                    Some(name) => name,
                    None => uid(&texts("uid")?).to_owned(),
                };
                all.push(Response {
                    benchmark: word("data_source").or_else(|| word("source").filter(|_| recorded.is_some())),
                    line: number,
                    problem,
                    question,
                    gold: gold.unwrap_or_else(|| reference(&gts)),
                    truth,
                    recorded,
                    accuracy: row.get("acc").and_then(Value::as_f64),
                    text: texts("output")?,
                });
            }
        }
        Ok(())
    })?;
    distinguish_by_answer(&mut all);
    Ok(all)
}

/// Appends the reference answer to the name of each problem whose prompt appears with several reference answers,
/// because these are different problems.
fn distinguish_by_answer(all: &mut [Response]) {
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

/// Extracts the reference answer from a string.
fn reference(text: &str) -> String {
    fgrpo_verify::math::gold::gold(text).into_owned()
}

/// Returns the prompt part of verl's `PROMPT_SESSION_OUTPUT` uid.
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

/// Reads the verdict that the reward function of an exported job wrote, with the kind and mode of its grader.
fn recorded(row: &Row, truth: &Truth) -> Option<(Verdict, String)> {
    let is = |name: &str| row.get(name).and_then(Value::as_f64).map(|value| value == 1.0);
    let verdict = match (is("unscorable")?, is("acc")?) {
        (true, _) => Verdict::Unscorable,
        (_, true) => Verdict::Correct,
        _ if is("unparsed")? => Verdict::Unparsed,
        _ => Verdict::Wrong,
    };
    let grader = row.get("grader").and_then(Value::as_str).map(str::to_owned);
    Some((verdict, grader.unwrap_or_else(|| truth.kind().to_string())))
}

/// Returns the question of a row of lm-eval, or else the prompt that contains it.
fn question(row: &Row) -> Option<String> {
    let doc_field = |name| row.get("doc")?.get(name);
    let field = ["question", "problem", "prompt", "Question", "Problem"].into_iter().find_map(doc_field);
    let prompt = || row.get("arguments")?.pointer("/gen_args_0/arg_0");
    field.or_else(prompt)?.as_str().map(str::to_owned)
}

/// Reads the instructions of an IFEval row, without the arguments that are null.
fn instructions(doc: &Value) -> Option<Truth> {
    let ids = doc["instruction_id_list"].as_array()?.iter().map(|id| id.as_str().map(str::to_owned));
    let without_nulls = |value: &Value| {
        let object = value.as_object()?;
        Some(Value::Object(
            object.iter().filter(|(_, v)| !v.is_null()).map(|(k, v)| (k.clone(), v.clone())).collect(),
        ))
    };
    let arguments = doc["kwargs"].as_array()?.iter().map(without_nulls);
    let (instruction_id_list, kwargs) = (ids.collect::<Option<_>>()?, arguments.collect::<Option<_>>()?);
    Some(Truth::IfEval(kind::ifeval::Truth { instruction_id_list, kwargs }))
}

/// Reads the scored samples of one path: samples written by `fgrpo eval`, or a dump, which is graded. Logs how a dump is
/// graded, and which data sets can't be graded.
///
/// Returns the errors of [`read_each`], and an error if no data set can be graded.
pub fn read(path: &Path, mode: Option<Mode>) -> anyhow::Result<Vec<Benchmark>> {
    let scored = read_each(path, mode)?;
    if scored.benchmarks.is_empty() {
        bad_input!("{}", scored.left_out.join("; "));
    }
    scored.graded.iter().for_each(|how| tracing::info!("{how}"));
    scored.left_out.iter().for_each(|why| tracing::info!("left out: {why}"));
    Ok(scored.benchmarks)
}

/// Reads the scored samples of one path like [`read`], but returns the data sets that can't be graded instead of
/// logging them. If `mode` is set, the responses of a dump are graded in this mode, if their kind of problem has modes.
///
/// Returns the errors of [`samples::read`], [`dumps`] and [`responses`], and an error if two benchmarks have the same
/// name.
pub fn read_each(path: &Path, mode: Option<Mode>) -> anyhow::Result<Scored> {
    if path.is_file()
        && let Some(benchmarks) = inspect::read(path)?
    {
        require_distinct(&benchmarks)?;
        return Ok(Scored { benchmarks, ..Scored::default() });
    }
    let dumps = dumps(path)?;
    if dumps.is_empty() {
        let benchmarks = samples::read(path)?;
        require_distinct(&benchmarks)?;
        return Ok(Scored { benchmarks, ..Scored::default() });
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
            bad_input!("{}: there are no samples in the file", file.display());
        }
        for (name, responses) in by_name {
            match graded(name, &file, &responses, mode)? {
                Ok((benchmark, how)) => {
                    scored.benchmarks.push(benchmark);
                    scored.graded.push(how);
                }
                Err(why) => scored.left_out.push(why),
            }
        }
    }
    require_distinct(&scored.benchmarks)?;
    Ok(scored)
}

/// Reads the samples of several paths, which may be evaluations or dumps. Data sets that can't be graded are logged.
/// `merge` joins lines of the same benchmark ([`samples::merged`]).
///
/// Returns the errors of [`read`], [`require_responses`] and [`samples::merged`], and bad input if a file is given twice.
pub fn read_all(paths: &[PathBuf], merge: bool, mode: Option<Mode>) -> anyhow::Result<Vec<Benchmark>> {
    require_responses(paths, mode)?;
    let mut sources: HashMap<PathBuf, &Path> = HashMap::new();
    for path in paths {
        let mut files: Vec<PathBuf> = dumps(path)?.into_iter().map(|(_, file)| file).collect();
        if files.is_empty() {
            files = samples::files(path)?;
        }
        for file in files {
            let place = file.canonicalize().unwrap_or_else(|_| file.clone());
            if let Some(before) = sources.insert(place, path) {
                bad_input!(
                    "{}: the file {} is also part of {}; give it once",
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
    Ok(paths.iter().map(|path| read(path, mode)).collect::<anyhow::Result<Vec<_>>>()?.concat())
}

/// Returns an error if a mode is requested although no path is a dump, because other samples already have verdicts.
pub fn require_responses(paths: &[PathBuf], mode: Option<Mode>) -> anyhow::Result<()> {
    let Some(mode) = mode else { return Ok(()) };
    for path in paths {
        if !dumps(path)?.is_empty() {
            return Ok(());
        }
    }
    bad_input!(
        "mode {mode}: the samples are graded already; `fgrpo eval` into an evaluation's folder grades its responses again"
    )
}

/// Derives the name of a dump's data set if it lacks one: the file name, or the folder name if a step names the file.
pub fn named_by(path: &Path) -> String {
    let stem = files::stem(path);
    let folder = path.parent().and_then(Path::file_name).map(|n| n.to_string_lossy().into_owned());
    folder.filter(|_| is_step(&stem)).unwrap_or(stem)
}

/// Returns the response's reference answer in the form that `kind` needs, or the reason why it is unknown.
fn truth(kind: TaskKind, response: &Response) -> Result<Truth, &'static str> {
    if let Some(truth) = &response.truth {
        return Ok(truth.clone());
    }
    match kind {
        TaskKind::Choice => {
            let letter = response.gold.trim().trim_matches(['(', ')', '.', '$']);
            match letter.chars().collect::<Vec<_>>().as_slice() {
                [gold @ 'A'..='Z'] => Ok(Truth::Choice(kind::choice::Truth {
                    gold: gold.to_string(),
                    options: Vec::new(),
                    order: Vec::new(),
                })),
                _ => Err("a reference answer isn't a letter"),
            }
        }
        TaskKind::IfEval => Err("the dump doesn't contain the instructions"),
        TaskKind::SynLogic => Err("the dump doesn't contain the puzzles"),
        _ if response.gold.trim().is_empty() => Err("a problem's reference answer is empty"),
        _ => Ok(Truth::Math(kind::math::Truth { gold: response.gold.clone() })),
    }
}

/// Verdicts on responses to one kind of task, and a description of how they were made. The error is the reason why the
/// responses can't be graded.
type Verdicts = Result<(Vec<Verdict>, String), &'static str>;

/// Takes the verdicts of an exported job, unless another mode is requested, and grades the responses of other programs.
fn verdicts(kind: TaskKind, responses: &[Response], mode: Option<Mode>) -> anyhow::Result<Verdicts> {
    let mode = mode.filter(|_| kind.has_modes());
    let recorded: Option<Vec<&(Verdict, String)>> = responses.iter().map(|r| r.recorded.as_ref()).collect();
    if let Some(recorded) = recorded.filter(|_| mode.is_none()) {
        let how = format!("verdicts of the job, whose grader is {}", recorded[0].1);
        return Ok(Ok((recorded.iter().map(|(verdict, _)| *verdict).collect(), how)));
    }
    let reference = kind.reference_settings();
    // The logs of reasoning models contain their thoughts.
    let mode = mode.unwrap_or(reference.mode);
    let grader = Grader::new(kind, Settings { reasoning: Some(Reasoning::Strip), mode, ..reference })?;
    let verdict = |response: &Response| {
        let problem = Problem::new(response.problem.clone(), Vec::new(), truth(kind, response)?);
        Ok(grader.grade(&problem, &response.text).verdict)
    };
    let verdicts: Result<Vec<Verdict>, _> = responses.par_iter().map(verdict).collect();
    let accuracy: Option<f64> = responses.iter().map(|r| r.accuracy).sum();
    Ok(verdicts.map(|verdicts| {
        let correct = verdicts.iter().filter(|v| **v == Verdict::Correct).count();
        let [ours, theirs] =
            [correct as f64, accuracy.unwrap_or(correct as f64)].map(|x| x / verdicts.len() as f64);
        let mut how = format!("graded as {}", grader.described());
        if (ours - theirs).abs() > 0.005 {
            let (ours, theirs) = (percent(ours), percent(theirs));
            how +=
                &format!("; {ours} % of the responses are correct, and {theirs} % by the dump's own `acc`");
        }
        (verdicts, how)
    }))
}

/// Counts the verdicts on the responses of one data set by problem, with a sentence that says how they were made. The
/// inner error is the reason why the responses can't be graded.
fn graded(
    name: String,
    path: &Path,
    responses: &[Response],
    mode: Option<Mode>,
) -> anyhow::Result<Result<(Benchmark, String), String>> {
    let truth = responses.iter().find_map(|response| response.truth.as_ref());
    let kind = match (truth, canonical(&name).as_str()) {
        // The truth of an exported job, or the instructions of IFBench and of data sets with the same columns.
        (Some(truth), _) => truth.kind(),
        (None, "gpqa") => TaskKind::Choice,
        (None, "ifeval") => TaskKind::IfEval,
        (None, "synlogic") => TaskKind::SynLogic,
        (None, _) => TaskKind::Math,
    };
    let (verdicts, how) = match verdicts(kind, responses, mode)? {
        Ok(verdicts) => verdicts,
        Err(why) => {
            return Ok(Err(format!(
                "{name} of {}: {why}; `fgrpo eval --samples FILE --data FILE --task {kind} --out DIR` grades the responses with the data set's rows",
                path.display()
            )));
        }
    };
    let how = format!("{name} of {}: {how}", path.display());
    let mut places: HashMap<&str, usize> = HashMap::new();
    let mut problems: Vec<samples::ProblemCounts> = Vec::new();
    for (response, verdict) in responses.iter().zip(verdicts) {
        let at = *places.entry(&response.problem).or_insert_with(|| {
            let mut problem = samples::ProblemCounts::counted(response.problem.clone(), 0, 0);
            // lm-eval shuffles the options of a multiple-choice problem, so the letter differs between logs.
            problem.reference = (kind == TaskKind::Math).then(|| response.gold.clone());
            problem.question.clone_from(&response.question);
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
    Ok(Ok((Benchmark { name, path: path.to_owned(), problems }, how)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_the_file_name_without_its_date() {
        let task = |name: &str| task_of(Path::new(name));
        assert_eq!(task("samples_gsm8k_2026-01-01T00-00-00.000000.jsonl"), "gsm8k");
        assert_eq!(task("samples_my_task_2026-01-01T00-00-00.000000.jsonl"), "my_task");
        assert_eq!(task("my_task.jsonl"), "my_task");
        assert_eq!((uid("a_b_1_0"), uid("c_0_0"), uid("c")), ("a_b", "c", "c"));
    }
}
