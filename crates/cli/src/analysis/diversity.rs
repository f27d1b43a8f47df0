//! `fgrpo diversity`: how different a model's correct solutions of one problem are.
//!
//! Three measures: the mean pairwise cosine distance of embeddings (from a server or a file), as in the paper; a 0 to 3
//! rubric on mathematical strategy, judged by a chat server over groups of eight; and, with no model at all, the same distance of
//! character n-gram counts, which sees wording rather than ideas. Prompts count where every model has enough
//! correct responses. Replies of servers are kept and never asked for twice.

use crate::analysis::benchmarks;
use crate::args::named::named;
use crate::output::table::{Format, Table};
use anyhow::Context;
use clap::ValueEnum;
use fgrpo_train::bad_input;
use fgrpo_train::config::ServerApi;
use fgrpo_train::evaluation::texts::{self, ByProblem, Correct};
use fgrpo_train::failure::Stopped;
use fgrpo_train::io::files::write_whole;
use fgrpo_train::io::interrupt;
use fgrpo_train::io::server::sampling::RequestSampling;
use fgrpo_train::io::server::{Failure, RetryPolicy, Server};
use fgrpo_train::problem::dataset;
use fgrpo_train::problem::dataset::columns::Columns;
use fgrpo_train::problem::kind::TaskKind;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, HashMap};
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Diversity of correct solutions.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    fgrpo diversity eval-grpo eval-f-grpo                         character n-grams, offline\n  \
    fgrpo diversity eval-grpo eval-f-grpo --by embeddings --server http://localhost:8000 --model Qwen3-Embedding-8B\n  \
    fgrpo diversity eval-grpo eval-f-grpo --by judge --server https://api.example.com --model judge --data aime24.jsonl --benchmark aime24")]
pub struct Args {
    /// Evaluation folders, one per model.
    #[arg(required = true, value_name = "EVAL")]
    pub folders: Vec<PathBuf>,
    /// What is measured.
    #[arg(long, value_enum, default_value = "ngram")]
    pub by: Measure,
    /// An OpenAI-compatible server of embeddings or of the judge.
    #[arg(long, value_name = "URL")]
    pub server: Option<String>,
    /// The served model.
    #[arg(long)]
    pub model: Option<String>,
    /// Embeddings made elsewhere, a file per folder: {"problem", "sample", "embedding": [...]} per line.
    #[arg(long = "embeddings", value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Sent as truncate_prompt_tokens with embedding requests, where the server knows it (the paper: 8192).
    #[arg(long, value_name = "TOKENS")]
    pub max_tokens: Option<u64>,
    /// Only these benchmarks.
    #[arg(long = "benchmark", value_name = "NAME")]
    pub only: Vec<String>,
    /// Averages over benchmarks.
    #[command(flatten)]
    pub averages: benchmarks::AverageArgs,
    /// Length of the character n-grams.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=16))]
    pub ngram: u64,
    /// Requests under way at once.
    #[arg(long, default_value_t = 16)]
    pub concurrency: usize,
    /// Files of the data sets, as `fgrpo eval` took them: a judge sees the problem beside its solutions.
    #[arg(long, value_name = "FILE")]
    pub data: Vec<PathBuf>,
    /// What the files of --data hold.
    #[arg(long, value_parser = named::<TaskKind>(), default_value = "math")]
    pub task: TaskKind,
    /// Columns of --data that have unusual names, e.g. prompt=question,answer=final.
    #[arg(long, value_name = "WHAT=COLUMN,...")]
    pub columns: Option<Columns>,
    /// What the judge's server is, and so which sampling fields it is sent [default: those of vLLM, SGLang and llama.cpp together].
    #[arg(long, value_parser = named::<ServerApi>())]
    pub server_api: Option<ServerApi>,
    /// Environment variable that holds the server's key [default: OPENAI_API_KEY where it is set].
    #[arg(long, value_name = "VARIABLE")]
    pub key_env: Option<String>,
    /// Print one JSON value.
    #[arg(long)]
    pub json: bool,
    /// How to print.
    #[arg(long, value_enum, default_value = "text")]
    pub format: Format,
}

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Measure {
    /// Cosine distance of character n-gram counts: wording, not ideas.
    Ngram,
    /// Cosine distance of embeddings.
    Embeddings,
    /// A judge's rubric, 0 to 3, over groups of eight.
    Judge,
}

/// Correct responses that a judge sees at a time.
pub const GROUP: usize = 8;

/// Mean pairwise cosine distance of vectors, from their normalised sum; a zero vector is at distance 1 from all.
///
/// `None` for fewer than two vectors.
pub fn mean_cosine_distance(vectors: &[HashMap<u64, f64>]) -> Option<f64> {
    let m = vectors.len() as f64;
    if vectors.len() < 2 {
        return None;
    }
    let mut sum: HashMap<u64, f64> = HashMap::new();
    let mut own = 0.0;
    for v in vectors {
        let norm = v.values().map(|x| x * x).sum::<f64>().sqrt();
        if norm > 0.0 {
            own += 1.0;
            for (&i, x) in v {
                *sum.entry(i).or_default() += x / norm;
            }
        }
    }
    // |sum|^2 = vectors with themselves + twice the pairs.
    let square: f64 = sum.values().map(|x| x * x).sum();
    Some((1.0 - (square - own) / (m * (m - 1.0))).max(0.0))
}

/// Counts of the character n-grams of a text.
pub fn ngrams(text: &str, n: usize) -> HashMap<u64, f64> {
    let characters: Vec<char> = text.chars().collect();
    let mut counts = HashMap::new();
    for window in characters.windows(n.min(characters.len()).max(1)) {
        // FNV-1a over the characters: collisions of 64 bits don't matter here.
        let hash = window
            .iter()
            .fold(0xcbf2_9ce4_8422_2325u64, |h, &c| (h ^ u64::from(c)).wrapping_mul(0x0100_0000_01b3));
        *counts.entry(hash).or_default() += 1.0;
    }
    counts
}

/// A reply of a server, kept in the folder.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Reply {
    model: String,
    problem: String,
    /// Samples it is about: one for an embedding, eight for a judgement.
    samples: Vec<u64>,
    /// Hash of the request: a reply to another one is no answer to this.
    #[serde(default)]
    asked: String,
    /// How a judge was told to sample; empty for embeddings.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    sampling: Map<String, Value>,
    value: Value,
}

/// The replies of one folder, appended as they come.
struct Cache {
    path: PathBuf,
    /// The newest reply with the hash of its request, by model, problem and samples.
    known: HashMap<(String, String, Vec<u64>), (String, Value)>,
}

impl Cache {
    fn open(path: PathBuf) -> anyhow::Result<Self> {
        let mut known = HashMap::new();
        let text = match std::fs::read(&path) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(e) => return Err(e).with_context(|| format!("{}: cannot read", path.display())),
        };
        // A torn last line is a reply to ask for again; what stands before it is whole.
        let whole = text.rfind('\n').map_or(0, |i| i + 1);
        for (i, line) in text[..whole].lines().enumerate() {
            match serde_json::from_str::<Reply>(line) {
                Ok(r) => known.insert((r.model, r.problem, r.samples), (r.asked, r.value)),
                Err(e) => bad_input!("{} line {}: {e}", path.display(), i + 1),
            };
        }
        if whole < text.len() {
            write_whole(&path, &text.as_bytes()[..whole])?;
        }
        Ok(Self { path, known })
    }

    fn put(&mut self, reply: Reply) -> anyhow::Result<()> {
        let line = serde_json::to_string(&reply)? + "\n";
        OpenOptions::new()
            .create(true)
            .append(true)
            .open(&self.path)
            .and_then(|mut f| f.write_all(line.as_bytes()))
            .with_context(|| format!("{}: cannot append", self.path.display()))?;
        self.known.insert((reply.model, reply.problem, reply.samples), (reply.asked, reply.value));
        Ok(())
    }
}

/// What is to be asked of a server: by problem, which samples and the request.
struct Question {
    problem: String,
    samples: Vec<u64>,
    sampling: Map<String, Value>,
    body: Value,
}

impl Question {
    fn hash(&self) -> String {
        Sha256::digest(self.body.to_string().as_bytes()).iter().take(8).map(|b| format!("{b:02x}")).collect()
    }
}

/// Asks what the cache lacks. `read` takes the value out of an answer; an answer that it refuses is asked again a few times.
fn ask(
    server: &Server,
    path: &str,
    model: &str,
    questions: Vec<Question>,
    concurrency: usize,
    cache: &mut Cache,
    read: impl Fn(&Value) -> Option<Value>,
) -> anyhow::Result<()> {
    let known = |cache: &Cache, q: &Question| {
        let reply = cache.known.get(&(model.to_owned(), q.problem.clone(), q.samples.clone()));
        reply.is_some_and(|(asked, _)| *asked == q.hash())
    };
    let mut open: Vec<Question> = questions.into_iter().filter(|q| !known(cache, q)).collect();
    for round in 0..4 {
        let requests: Vec<(&str, Value)> = open.iter().map(|q| (path, q.body.clone())).collect();
        let mut useless = None;
        server.post_all(&requests, concurrency, |at, answer| {
            let answer = answer.map_err(|failure| given_up(path, failure))?;
            match read(&answer) {
                Some(value) => cache.put(Reply {
                    model: model.to_owned(),
                    problem: open[at].problem.clone(),
                    samples: open[at].samples.clone(),
                    asked: open[at].hash(),
                    sampling: open[at].sampling.clone(),
                    value,
                }),
                None => {
                    let start: String = answer.to_string().chars().take(300).collect();
                    useless = Some(server.shown(&start));
                    Ok(())
                }
            }
        })?;
        open.retain(|q| !known(cache, q));
        match useless {
            Some(text) if round == 3 => {
                anyhow::bail!("{} of {model}'s replies can't be used, for one: {text}", open.len())
            }
            _ if open.is_empty() => return Ok(()),
            _ => {}
        }
    }
    Ok(())
}

/// What to do about a request without an answer.
fn given_up(path: &str, failure: Failure) -> anyhow::Error {
    match failure {
        Failure::Stopped => Stopped(
            "stopped on request; the replies so far are kept, and the same command goes on".to_owned(),
        )
        .into(),
        // Embeddings have no sampling fields.
        Failure::Refused { status: 400 | 422, .. } if path.starts_with("chat") => anyhow::Error::new(failure)
            .context(
                "the judge is refused; if its server takes the standard fields alone: --server-api openai",
            ),
        other => anyhow::Error::new(other),
    }
}

/// How a judge samples: the likeliest tokens, nothing cut off and nothing penalised. The length is left to the server,
/// since a judge may think first; a reply that was cut off is not used.
fn judge_sampling(api: Option<ServerApi>) -> Map<String, Value> {
    let greedy = RequestSampling { temperature: 0.0, top_p: 1.0, top_k: 0, min_p: 0.0, max_tokens: 0 };
    let mut fields = greedy.fields(api);
    fields.remove("max_tokens");
    fields
}

const RUBRIC: &str = "You are given a problem and eight correct solutions of it. Compare the solutions and rate how diverse their mathematical strategies are. \
Wording, order, notation and length don't count, only the mathematics.\n\
0: all follow the same line of reasoning, rephrased.\n\
1: the same approach with small differences in the steps.\n\
2: clearly different derivations among them.\n\
3: fundamentally different mathematical approaches among them.\n\
Answer with one line: Score: 0, Score: 1, Score: 2 or Score: 3.";

fn judge_request(model: &str, sampling: &Map<String, Value>, problem: &str, group: &[&Correct]) -> Value {
    let mut text = format!("### Problem\n{}\n\n", problem.trim());
    for (i, c) in group.iter().enumerate() {
        text.push_str(&format!("### Solution {}\n{}\n\n", i + 1, c.text.trim()));
    }
    let mut body = sampling.clone();
    body.insert("model".to_owned(), model.into());
    let messages = json!([{"role": "system", "content": RUBRIC}, {"role": "user", "content": text}]);
    body.insert("messages".to_owned(), messages);
    body.into()
}

/// The score in a judge's answer; none where its reply was cut off.
fn judged(answer: &Value) -> Option<Value> {
    let choice = &answer["choices"][0];
    if choice["finish_reason"] == "length" {
        return None;
    }
    read_score(choice["message"]["content"].as_str()?).map(Value::from)
}

/// The score in a judge's reply: the digit behind the last "Score:", or a reply that is nothing but a digit.
pub fn read_score(reply: &str) -> Option<u64> {
    let (named, tail) = reply.rsplit_once("Score:").map_or((false, reply), |(_, tail)| (true, tail));
    let tail = tail.trim_start_matches(|c: char| c.is_whitespace() || "*_`$([".contains(c));
    let end = tail.find(|c: char| !c.is_ascii_digit()).unwrap_or(tail.len());
    let (digits, rest) = tail.split_at(end);
    let other = match named {
        // Neither 2.5 nor 2nd.
        true => rest.trim_start_matches('.').starts_with(char::is_alphanumeric),
        false => rest.contains(char::is_alphanumeric),
    };
    digits.parse().ok().filter(|&s| s <= 3 && !other)
}

/// One model's correct responses and what is known about them.
struct Side {
    folder: PathBuf,
    correct: ByProblem,
    /// By (problem, sample): an embedding from a file.
    given: HashMap<(String, u64), Vec<f64>>,
}

/// The value of one problem under each model.
fn value_of(
    args: &Args,
    problem: &str,
    samples: &[Correct],
    cache: Option<&Cache>,
    side: &Side,
) -> anyhow::Result<f64> {
    let model = args.model.clone().unwrap_or_default();
    let of = |samples: Vec<u64>| Some(&cache?.known.get(&(model.clone(), problem.to_owned(), samples))?.1);
    let vectors: Vec<HashMap<u64, f64>> = match args.by {
        Measure::Ngram => samples.iter().map(|c| ngrams(&c.text, args.ngram as usize)).collect(),
        Measure::Embeddings => samples
            .iter()
            .map(|c| {
                let dense: Vec<f64> =
                    match (of(vec![c.sample]), side.given.get(&(problem.to_owned(), c.sample))) {
                        (Some(value), _) => serde_json::from_value(value.clone())?,
                        (None, Some(given)) => given.clone(),
                        (None, None) => bad_input!(
                            "{}: no embedding of sample {} of problem {problem}",
                            side.folder.display(),
                            c.sample
                        ),
                    };
                Ok(dense.into_iter().enumerate().map(|(i, x)| (i as u64, x)).collect())
            })
            .collect::<anyhow::Result<_>>()?,
        Measure::Judge => {
            let scores: Vec<f64> = samples
                .chunks_exact(GROUP)
                .filter_map(|g| of(g.iter().map(|c| c.sample).collect())?.as_f64())
                .collect();
            return Ok(scores.iter().sum::<f64>() / scores.len() as f64);
        }
    };
    mean_cosine_distance(&vectors).context("fewer than two correct responses")
}

/// Runs the command.
///
/// # Errors
/// Bad input in folders and flags; a server that gives up.
pub fn run(args: &Args) -> anyhow::Result<()> {
    print_results(args, &results(args)?);
    Ok(())
}

/// What the command prints with `--json`.
///
/// # Errors
/// As [`run`].
pub fn measure(args: &Args) -> anyhow::Result<Value> {
    Ok(as_json(args, &results(args)?))
}

/// A benchmark or an average, its problems, and the value under each model.
type Found = (String, usize, Vec<f64>);

fn results(args: &Args) -> anyhow::Result<Vec<Found>> {
    let needed = if args.by == Measure::Judge { GROUP } else { 2 };
    if !args.files.is_empty() && args.files.len() != args.folders.len() {
        bad_input!(
            "--embeddings: found {} files, wanted one for each of {} folders",
            args.files.len(),
            args.folders.len()
        );
    }
    let server = match (args.by, &args.server, args.files.is_empty()) {
        (Measure::Ngram, _, _) | (Measure::Embeddings, None, false) => None,
        (_, Some(url), _) => {
            if args.model.is_none() {
                bad_input!("--model: wanted the name of the model at {url}");
            }
            let retry = RetryPolicy {
                timeout: Duration::from_secs(600),
                retries: 8,
                first_wait: Duration::from_millis(500),
                longest_wait: Duration::from_secs(30),
            };
            Some(Server::new(url, args.key_env.as_deref(), retry)?)
        }
        (_, None, _) => {
            bad_input!("--server: wanted the address of the server, or --embeddings FILE for each folder")
        }
    };
    if server.is_some() {
        interrupt::listen();
    }
    let problems = match args.by {
        Measure::Judge => statements(args)?,
        _ => HashMap::new(),
    };
    let mut sides = Vec::new();
    for (i, folder) in args.folders.iter().enumerate() {
        let given = match args.files.get(i) {
            Some(path) => read_embeddings(path)?,
            None => HashMap::new(),
        };
        sides.push(Side { folder: folder.clone(), correct: texts::correct(folder)?, given });
    }
    // Problems that every model solves often enough.
    let mut common: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (benchmark, problems) in &sides[0].correct {
        if !args.only.is_empty()
            && !args.only.iter().any(|o| benchmarks::canonical(o) == benchmarks::canonical(benchmark))
        {
            continue;
        }
        let enough = |id: &String| {
            sides
                .iter()
                .all(|s| s.correct.get(benchmark).and_then(|p| p.get(id)).is_some_and(|c| c.len() >= needed))
        };
        let ids: Vec<String> = problems.keys().filter(|id| enough(id)).cloned().collect();
        if !ids.is_empty() {
            common.insert(benchmark.clone(), ids);
        }
    }
    if common.is_empty() {
        bad_input!("no problem has {needed} correct responses under every model");
    }
    let mut results: Vec<Found> = Vec::new();
    let mut caches = Vec::new();
    for side in &sides {
        caches.push(match &server {
            Some(server) => Some(asked(args, server, side, &common, &problems)?),
            None => None,
        });
    }
    for (benchmark, ids) in &common {
        let mut values = Vec::new();
        for (side, cache) in sides.iter().zip(&caches) {
            let each = ids
                .iter()
                .map(|id| value_of(args, id, &side.correct[benchmark][id], cache.as_ref(), side))
                .collect::<anyhow::Result<Vec<f64>>>()?;
            values.push(each.iter().sum::<f64>() / each.len() as f64);
        }
        results.push((benchmark.clone(), ids.len(), values));
    }
    let names: Vec<&str> = results.iter().map(|r| r.0.as_str()).collect();
    let wanted = args.averages.all();
    benchmarks::incomplete(&wanted, &names).iter().for_each(|note| say!("{note}"));
    let averages: Vec<Found> = wanted
        .iter()
        .filter_map(|a| Some((a.among(&names)?, a.name.as_str())))
        .map(|(members, label)| {
            let mean =
                |j: usize| members.iter().map(|&i| results[i].2[j]).sum::<f64>() / members.len() as f64;
            (
                format!("All {label}"),
                members.iter().map(|&i| results[i].1).sum(),
                (0..sides.len()).map(mean).collect(),
            )
        })
        .collect();
    results.extend(averages);
    Ok(results)
}

/// What the problems of `--data` ask, by their ids.
fn statements(args: &Args) -> anyhow::Result<HashMap<String, String>> {
    if args.data.is_empty() {
        bad_input!("--data: found none, wanted the data sets' files: a judge sees the problem");
    }
    let mut found = HashMap::new();
    for path in &args.data {
        let (problems, _) = dataset::load(path, args.task, &args.columns.clone().unwrap_or_default())?;
        let text = |p: &dataset::Problem| {
            p.conversation(None).iter().map(|m| m.content.as_str()).collect::<Vec<_>>().join("\n\n")
        };
        found.extend(problems.iter().map(|p| (p.id.clone(), text(p))));
    }
    Ok(found)
}

/// The folder's cache after everything missing was asked for.
fn asked(
    args: &Args,
    server: &Server,
    side: &Side,
    common: &BTreeMap<String, Vec<String>>,
    problems: &HashMap<String, String>,
) -> anyhow::Result<Cache> {
    let model = args.model.clone().unwrap_or_default();
    let judge = args.by == Measure::Judge;
    let name = if judge { "judgements.jsonl" } else { "embeddings.jsonl" };
    let mut cache = Cache::open(side.folder.join(name))?;
    let sampling = if judge { judge_sampling(args.server_api) } else { Map::new() };
    let mut questions = Vec::new();
    for (benchmark, ids) in common {
        for id in ids {
            let samples = &side.correct[benchmark][id];
            if judge {
                let Some(problem) = problems.get(id) else {
                    bad_input!(
                        "--data: found no problem {id} of {benchmark}, wanted the file it was evaluated with"
                    );
                };
                questions.extend(samples.chunks_exact(GROUP).map(|group| Question {
                    problem: id.clone(),
                    samples: group.iter().map(|c| c.sample).collect(),
                    sampling: sampling.clone(),
                    body: judge_request(&model, &sampling, problem, &group.iter().collect::<Vec<_>>()),
                }));
            } else {
                questions.extend(samples.iter().map(|c| {
                    let mut body = json!({"model": model, "input": c.text});
                    if let Some(most) = args.max_tokens {
                        body["truncate_prompt_tokens"] = most.into();
                    }
                    Question { problem: id.clone(), samples: vec![c.sample], sampling: Map::new(), body }
                }));
            }
        }
    }
    if judge {
        ask(server, "chat/completions", &model, questions, args.concurrency, &mut cache, judged)?;
    } else {
        ask(server, "embeddings", &model, questions, args.concurrency, &mut cache, |answer| {
            Some(answer["data"][0]["embedding"].clone())
                .filter(|e| e.as_array().is_some_and(|a| !a.is_empty()))
        })?;
    }
    Ok(cache)
}

fn read_embeddings(path: &Path) -> anyhow::Result<HashMap<(String, u64), Vec<f64>>> {
    #[derive(Deserialize)]
    struct Line {
        problem: String,
        sample: u64,
        embedding: Vec<f64>,
    }
    let text = match fgrpo_train::io::input::read_to_string(path, 1 << 32) {
        Ok(text) => text,
        Err(e) => bad_input!("{}: cannot read: {e}", path.display()),
    };
    let mut found = HashMap::new();
    for (i, line) in text.lines().enumerate().filter(|(_, l)| !l.trim().is_empty()) {
        match serde_json::from_str::<Line>(line) {
            Ok(l) => found.insert((l.problem, l.sample), l.embedding),
            Err(e) => bad_input!("{} line {}: {e}", path.display(), i + 1),
        };
    }
    Ok(found)
}

fn as_json(args: &Args, results: &[Found]) -> Value {
    let what = match args.by {
        Measure::Ngram => "ngram",
        Measure::Embeddings => "embeddings",
        Measure::Judge => "judge",
    };
    let folders: Vec<String> = args.folders.iter().map(|f| f.display().to_string()).collect();
    let list: Vec<Value> = results
        .iter()
        .map(|(name, problems, values)| json!({"benchmark": name, "measure": what, "problems": problems, "values": values}))
        .collect();
    let mut all = json!({"folders": folders, "diversity": list});
    if args.by == Measure::Judge {
        all["sampling"] = judge_sampling(args.server_api).into();
    }
    all
}

fn print_results(args: &Args, results: &[Found]) {
    if args.json || args.format == Format::Json {
        outln!("{}", as_json(args, results));
        return;
    }
    let folders = args.folders.iter().map(|f| f.display().to_string());
    let mut table = Table::new(["benchmark".to_owned(), "problems".to_owned()].into_iter().chain(folders));
    for (name, problems, values) in results {
        let cells = values.iter().map(|v| format!("{v:.4}"));
        table.push([name.clone(), problems.to_string()].into_iter().chain(cells));
    }
    out!("{}", table.render(args.format));
    if args.by == Measure::Ngram {
        say!("distances of character {}-grams: they see wording, not ideas", args.ngram);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vector(values: &[f64]) -> HashMap<u64, f64> {
        values.iter().enumerate().map(|(i, &x)| (i as u64, x)).collect()
    }

    #[test]
    fn mean_distance_equals_the_mean_over_pairs() {
        let vectors = [vector(&[1.0, 0.0]), vector(&[3.0, 3.0]), vector(&[0.0, 2.0]), vector(&[0.0, 0.0])];
        let cosine = |a: &HashMap<u64, f64>, b: &HashMap<u64, f64>| {
            let dot: f64 = a.iter().map(|(i, x)| x * b.get(i).unwrap_or(&0.0)).sum();
            let norm = |v: &HashMap<u64, f64>| v.values().map(|x| x * x).sum::<f64>().sqrt();
            if norm(a) * norm(b) > 0.0 { dot / (norm(a) * norm(b)) } else { 0.0 }
        };
        let (mut total, mut pairs) = (0.0, 0.0);
        for i in 0..vectors.len() {
            for j in 0..i {
                total += 1.0 - cosine(&vectors[i], &vectors[j]);
                pairs += 1.0;
            }
        }
        let found = mean_cosine_distance(&vectors).unwrap();
        assert!((found - total / pairs).abs() < 1e-12, "{found} {}", total / pairs);
        assert_eq!(mean_cosine_distance(&vectors[..1]), None);
    }

    #[test]
    fn equal_texts_are_at_distance_zero_and_unrelated_ones_at_one() {
        let texts = |a: &str, b: &str| mean_cosine_distance(&[ngrams(a, 4), ngrams(b, 4)]).unwrap();
        assert!(texts("the same words", "the same words").abs() < 1e-12);
        assert!((texts("abcdefgh", "stuvwxyz") - 1.0).abs() < 1e-12);
        assert!(texts("", "something") > 0.99);
    }

    #[test]
    fn scores_are_read_from_replies_and_nothing_else_is_one() {
        for (reply, wanted) in [
            ("Score: 2", Some(2)),
            ("They differ. Score: 1 at first...\nScore: **3**", Some(3)),
            ("0", Some(0)),
            ("**2**.", Some(2)),
            ("Score: 2. They differ", Some(2)),
            ("Score: 7", None),
            ("Score: 2.5", None),
            ("Score: -1", None),
            ("3 of the solutions use induction", None),
            ("I can't tell", None),
            ("", None),
        ] {
            assert_eq!(read_score(reply), wanted, "{reply}");
        }
    }
}
