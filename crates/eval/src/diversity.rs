//! Measures how different a model's correct solutions of one problem are.
//!
//! There are three measures: the mean pairwise cosine distance of embeddings (from a server or a file), as in the
//! paper; a rubric from 0 to 3 on mathematical strategy, scored by a judge model on groups of eight solutions; and the
//! mean cosine distance of character n-gram counts, which doesn't need a model and measures wording rather than ideas. A
//! problem counts if every model has enough correct responses to it. Server replies are cached in the evaluation folder.

mod distance;
mod judge;
mod replies;

use crate::benchmarks::{self, Averages};
use crate::dataset;
use crate::dataset::columns::Columns;
use crate::failure::OrBadInput;
use crate::io::lines::Lines;
use crate::io::server::sampling::ServerApi;
use crate::io::server::{RetryPolicy, Server};
use crate::io::{interrupt, json};
use crate::kind::TaskKind;
use crate::texts::{self, ByProblem, Correct};
use anyhow::Context;
use distance::{mean_cosine_distance, ngrams};
use judge::GROUP;
use replies::{Cache, Question, ask};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

/// Settings of a measurement.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// Evaluation folders, one per model.
    pub folders: Vec<PathBuf>,
    /// Measure of diversity.
    pub by: Measure,
    /// OpenAI-compatible server of the embedding model or of the judge.
    pub server: Option<String>,
    /// Name of the served model.
    pub model: Option<String>,
    /// Files of precomputed embeddings, one per folder.
    pub files: Vec<PathBuf>,
    /// Maximum number of tokens that are embedded, sent as `truncate_prompt_tokens`.
    pub max_tokens: Option<u64>,
    /// Benchmarks to measure. If empty, all are measured.
    pub only: Vec<String>,
    /// Averages over benchmarks.
    pub averages: Averages,
    /// Length of the character n-grams.
    pub ngram: usize,
    /// Maximum number of concurrent requests.
    pub concurrency: usize,
    /// The problems' prompts by problem id ([`statements`]), which a judge needs.
    pub problems: HashMap<String, String>,
    /// The judge's server software, which determines the fields of a request. If `None`, the fields of all supported
    /// servers are sent.
    pub server_api: Option<ServerApi>,
    /// Environment variable with the server's API key.
    pub key_env: Option<String>,
}

impl Settings {
    /// Returns the settings for character n-grams of the usual length in these folders.
    pub fn ngrams(folders: Vec<PathBuf>) -> Self {
        Self { folders, ngram: 4, concurrency: 16, ..Self::default() }
    }
}

crate::named! {
    /// Measure of diversity.
    #[derive(Default, Serialize)]
    #[serde(rename_all = "lowercase")]
    pub enum Measure {
        #[default]
        Ngram = "ngram": "Cosine distance of character n-gram counts: wording, not ideas",
        Embeddings = "embeddings": "Cosine distance of embeddings",
        Judge = "judge": "A judge's rubric, 0 to 3, over groups of eight",
    }
}

/// Diversity of several models' correct solutions.
#[derive(Debug, Clone, Serialize)]
pub struct Diversity {
    /// Evaluation folders, one per model.
    pub folders: Vec<String>,
    /// Rows of the benchmarks, followed by rows of the averages.
    pub diversity: Vec<Row>,
    /// Sampling settings of the judge.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sampling: Option<Map<String, Value>>,
}

/// Diversity on a benchmark, or an average over benchmarks.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// Name of the benchmark or average.
    pub benchmark: String,
    /// Measure of diversity.
    pub measure: Measure,
    /// Number of problems that count.
    pub problems: usize,
    /// Mean of the measure over these problems, for each model.
    pub values: Vec<f64>,
}

/// File in an evaluation folder with the server's embeddings.
const EMBEDDINGS: &str = "embeddings.jsonl";

/// One model's correct responses and, if a file was given, their embeddings.
struct Side {
    folder: PathBuf,
    correct: ByProblem,
    /// Embedding of each (problem, sample).
    embeddings: HashMap<(String, u64), Vec<f64>>,
}

/// Computes the diversity of one model's samples of one problem.
fn value_of(
    settings: &Settings,
    problem: &str,
    samples: &[Correct],
    cache: Option<&Cache>,
    side: &Side,
) -> anyhow::Result<f64> {
    let model = settings.model.clone().unwrap_or_default();
    let reply = |samples: Vec<u64>| cache?.value(&model, problem, samples);
    let vectors: Vec<HashMap<u64, f64>> = match settings.by {
        Measure::Ngram => samples.iter().map(|c| ngrams(&c.text, settings.ngram)).collect(),
        Measure::Embeddings => {
            let dense = samples.iter().map(|c| -> anyhow::Result<Vec<f64>> {
                Ok(match (reply(vec![c.sample]), side.embeddings.get(&(problem.to_owned(), c.sample))) {
                    (Some(value), _) => {
                        json::of_value(value.clone()).context("a cached reply").or_bad_input()?
                    }
                    (None, Some(embedding)) => embedding.clone(),
                    (None, None) => bad_input!(
                        "{}: sample {} of problem {problem} has no embedding",
                        side.folder.display(),
                        c.sample
                    ),
                })
            });
            let dense = dense.collect::<anyhow::Result<Vec<_>>>()?;
            // These vectors come from a server. The vectors of a file were checked when it was read.
            if let Some(other) = dense.iter().find(|v| v.len() != dense[0].len()) {
                bad_input!(
                    "{}: problem {problem} has embeddings of different lengths, {} and {}; delete this file to request the embeddings again",
                    side.folder.join(EMBEDDINGS).display(),
                    dense[0].len(),
                    other.len()
                );
            }
            dense.into_iter().map(|v| v.into_iter().zip(0..).map(|(x, i)| (i, x)).collect()).collect()
        }
        Measure::Judge => {
            let scores: Vec<f64> = samples
                .chunks_exact(GROUP)
                .filter_map(|g| reply(g.iter().map(|c| c.sample).collect())?.as_f64())
                .collect();
            return Ok(scores.iter().sum::<f64>() / scores.len() as f64);
        }
    };
    mean_cosine_distance(&vectors).context("fewer than two correct responses")
}

/// Measures diversity on the problems that every model solves often enough. Averages that can't be formed are logged.
///
/// Returns bad input if a folder or a setting is unsuitable, and an error if the server fails permanently.
pub fn measure(settings: &Settings) -> anyhow::Result<Diversity> {
    let needed = if settings.by == Measure::Judge { GROUP } else { 2 };
    if !settings.files.is_empty() && settings.files.len() != settings.folders.len() {
        bad_input!(
            "embeddings: expected one file for each of {} folders, found {}",
            settings.folders.len(),
            settings.files.len()
        );
    }
    if !settings.files.is_empty() && (settings.by != Measure::Embeddings || settings.server.is_some()) {
        bad_input!(
            "embeddings: files of embeddings require the measure embeddings and can't be combined with a server; leave out one of them"
        );
    }
    let server = match (settings.by, &settings.server, settings.files.is_empty()) {
        (Measure::Ngram, _, _) | (Measure::Embeddings, None, false) => None,
        (_, Some(url), _) => {
            if settings.model.is_none() {
                bad_input!("model: missing; name the model at {url}");
            }
            Some(Server::new(url, settings.key_env.as_deref(), RetryPolicy::of(600.0, 8, 0.5))?)
        }
        (_, None, _) => {
            bad_input!("server: missing; give the server's address, or a file of embeddings for each folder")
        }
    };
    if server.is_some() {
        interrupt::listen();
    }
    if settings.by == Measure::Judge && settings.problems.is_empty() {
        bad_input!("data: missing; the judge needs the problems of the data sets");
    }
    let mut sides = Vec::new();
    let mut length = None;
    for (i, folder) in settings.folders.iter().enumerate() {
        let embeddings = match settings.files.get(i) {
            Some(path) => read_embeddings(path, &mut length)?,
            None => HashMap::new(),
        };
        sides.push(Side { folder: folder.clone(), correct: texts::correct(folder)?, embeddings });
    }
    // Problems that every model solves often enough.
    let mut common: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (benchmark, problems) in &sides[0].correct {
        if !settings.only.is_empty()
            && !settings.only.iter().any(|o| benchmarks::canonical(o) == benchmarks::canonical(benchmark))
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
        bad_input!("no problem has {needed} correct responses from every model");
    }
    let mut rows: Vec<Row> = Vec::new();
    let mut caches = Vec::new();
    for side in &sides {
        caches.push(match &server {
            Some(server) => Some(replies(settings, server, side, &common)?),
            None => None,
        });
    }
    for (benchmark, ids) in &common {
        let mut values = Vec::new();
        for (side, cache) in sides.iter().zip(&caches) {
            let by_problem = ids
                .iter()
                .map(|id| value_of(settings, id, &side.correct[benchmark][id], cache.as_ref(), side))
                .collect::<anyhow::Result<Vec<f64>>>()?;
            values.push(by_problem.iter().sum::<f64>() / by_problem.len() as f64);
        }
        let (benchmark, measure) = (benchmark.clone(), settings.by);
        rows.push(Row { benchmark, measure, problems: ids.len(), values });
    }
    let names: Vec<&str> = rows.iter().map(|r| r.benchmark.as_str()).collect();
    let averages = settings.averages.over(&names)?.into_iter().map(|(name, members)| {
        let members: Vec<&Row> = members.iter().map(|&i| &rows[i]).collect();
        let mean = |j: usize| members.iter().map(|r| r.values[j]).sum::<f64>() / members.len() as f64;
        Row {
            benchmark: format!("All {name}"),
            measure: settings.by,
            problems: members.iter().map(|r| r.problems).sum(),
            values: (0..sides.len()).map(mean).collect(),
        }
    });
    let averages: Vec<Row> = averages.collect();
    rows.extend(averages);
    Ok(Diversity {
        folders: settings.folders.iter().map(|f| f.display().to_string()).collect(),
        diversity: rows,
        sampling: (settings.by == Measure::Judge).then(|| judge::sampling(settings.server_api)),
    })
}

/// Reads the prompts of the problems in data sets, by problem id.
pub fn statements(
    data: &[PathBuf],
    task: TaskKind,
    columns: &Columns,
) -> anyhow::Result<HashMap<String, String>> {
    let mut statements = HashMap::new();
    for path in data {
        let (problems, _) = dataset::load(path, task, columns)?;
        statements.extend(problems.into_iter().map(|p| (p.id.clone(), p.text(None))));
    }
    Ok(statements)
}

/// Requests every reply that the folder's cache lacks, and returns the cache.
fn replies(
    settings: &Settings,
    server: &Server,
    side: &Side,
    common: &BTreeMap<String, Vec<String>>,
) -> anyhow::Result<Cache> {
    let model = settings.model.clone().unwrap_or_default();
    let judging = settings.by == Measure::Judge;
    let name = if judging { "judgements.jsonl" } else { EMBEDDINGS };
    let mut cache = Cache::open(side.folder.join(name))?;
    let sampling = if judging { judge::sampling(settings.server_api) } else { Map::new() };
    let mut questions = Vec::new();
    for (benchmark, ids) in common {
        for id in ids {
            let samples = &side.correct[benchmark][id];
            if judging {
                let Some(problem) = settings.problems.get(id) else {
                    bad_input!(
                        "data: problem {id} of {benchmark} isn't in the data; give the file that was evaluated"
                    );
                };
                questions.extend(samples.chunks_exact(GROUP).map(|group| Question {
                    problem: id.clone(),
                    samples: group.iter().map(|c| c.sample).collect(),
                    sampling: sampling.clone(),
                    body: judge::request(&model, &sampling, problem, &group.iter().collect::<Vec<_>>()),
                }));
            } else {
                questions.extend(samples.iter().map(|c| {
                    let mut body = json!({"model": model, "input": c.text});
                    if let Some(limit) = settings.max_tokens {
                        body["truncate_prompt_tokens"] = limit.into();
                    }
                    Question { problem: id.clone(), samples: vec![c.sample], sampling: Map::new(), body }
                }));
            }
        }
    }
    if judging {
        ask(server, "chat/completions", &model, questions, settings.concurrency, &mut cache, judge::judged)?;
    } else {
        ask(server, "embeddings", &model, questions, settings.concurrency, &mut cache, |answer| {
            Some(answer["data"][0]["embedding"].clone())
                .filter(|e| e.as_array().is_some_and(|a| !a.is_empty()))
        })?;
    }
    Ok(cache)
}

/// Reads the embeddings of a file by problem and sample. All vectors of all files must have the length of the first one.
fn read_embeddings(
    path: &Path,
    length: &mut Option<usize>,
) -> anyhow::Result<HashMap<(String, u64), Vec<f64>>> {
    #[derive(Deserialize)]
    struct Line {
        problem: String,
        sample: u64,
        embedding: Vec<f64>,
    }
    let mut embeddings = HashMap::new();
    let mut lines = Lines::open(path)?;
    while let Some(line) = lines.next_line()? {
        let Line { problem, sample, embedding } = line.parse()?;
        if embedding.is_empty() {
            bad_input!("{line}: embedding: the vector is empty");
        }
        let expected = *length.get_or_insert(embedding.len());
        if embedding.len() != expected {
            bad_input!(
                "{line}: embedding: expected {expected} numbers as in the earlier vectors, found {}",
                embedding.len()
            );
        }
        match embeddings.entry((problem, sample)) {
            Entry::Vacant(place) => place.insert(embedding),
            Entry::Occupied(place) => {
                bad_input!("{line}: sample {sample} of problem {} appears twice", place.key().0)
            }
        };
    }
    Ok(embeddings)
}
