//! `fgrpo eval`: samples one model on data sets and grades the samples. The folder stays usable after any stop.
//!
//! Flags and configuration -> plan -> [`evaluate`] with a source of samples -> tables. Each stage continues where an earlier
//! run of the command stopped.

mod examples;
pub(crate) mod flags;
pub(crate) mod report;
pub(crate) mod suite;

pub(crate) use flags::Flags;

use crate::output::progress::Console;
use anyhow::Context;
use fgrpo_eval::dataset::Problem;
use fgrpo_eval::dataset::presets::{Family, Preset};
use fgrpo_eval::evaluate::{Source as Sampler, evaluate};
use fgrpo_eval::events::Events;
use fgrpo_eval::exact::Exact;
use fgrpo_eval::failure::Stopped;
use fgrpo_eval::folder::{Folder, IDENTITY};
use fgrpo_eval::from_server::{Api, Ask, RequestOptions};
use fgrpo_eval::generations::Generations;
use fgrpo_eval::io::files;
use fgrpo_eval::io::interrupt;
use fgrpo_eval::io::server::{Server, sampling};
use fgrpo_eval::kind::TaskKind;
use fgrpo_eval::plan::{Origin, Plan};
use fgrpo_eval::unreadable::Remedies;
use fgrpo_eval::{from_file, from_server};
use fgrpo_nn::Device;
use fgrpo_train::config::{Config, TaskConfig};
use fgrpo_train::evaluation::exact::solution_logp;
use fgrpo_train::evaluation::from_engine;
use fgrpo_train::language::Language;
use fgrpo_train::language::chat::ChatTemplate;
use fgrpo_train::policy::{self, Policy};
use fgrpo_train::problem;
use fgrpo_train::problem::source::Elsewhere;
use fgrpo_train::run::fingerprint;
use flags::Source;
use serde_json::{Map, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Sample a model on a data set, grade, report pass@k.
///
/// The folder --out keeps every sample. If the command is stopped, the same command continues. A larger -n adds samples.
/// After a change of the verifier, samples are graded again without sampling. A folder belongs to one model, prompt
/// preset and sampling setting.
#[derive(Debug, clap::Args)]
#[command(
    args_override_self = true,
    after_help = "Examples:\n  \
    fgrpo eval --server http://localhost:8000 --model base --data aime25.jsonl --task math -n 1024 --preset qwen2.5 --out eval-base\n  \
    fgrpo eval --model run/checkpoints/step-000800 --task maze --maze-size 9 -n 64 --out eval-maze\n  \
    fgrpo eval --samples completions.jsonl --data math500.jsonl --task math -n 4 --out eval-elsewhere\n  \
    fgrpo eval math.toml --model runs/math/checkpoints/step-000100 --out eval-math    # a training configuration's held-out problems\n  \
    fgrpo eval --suite paper --data-root data --models Qwen2.5-7B/GRPO=grpo/ --models Qwen2.5-7B/F-GRPO=focal/ --out evals\n\n\
    Then: fgrpo compare eval-base eval-b -k 1,256; of a suite: fgrpo paper table-1 --from evals"
)]
pub(crate) struct Args {
    #[command(flatten)]
    flags: Flags,
    #[command(flatten)]
    suite: suite::Flags,
}

/// Flags that help if answers can't be read.
const REMEDIES: Remedies = Remedies {
    limit: "--max-tokens",
    no_thinking: "--thinking off",
    form: "ask for it with --preset or --system",
};

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let (flags, training) = args.flags.resolved()?;
    match &args.suite.data_root {
        Some(root) => suite::run(&args.suite, &flags, root),
        None => one(&flags, training.as_ref(), &[]),
    }
}

/// Runs one evaluation. `beside` are the kinds of other evaluations with the same flags.
pub(crate) fn one(flags: &Flags, training: Option<&Config>, beside: &[TaskKind]) -> anyhow::Result<()> {
    let Some(out) = &flags.out else { bad_input!("--out is required: the evaluation folder") };
    let source = flags.source()?;
    interrupt::listen();
    let config = flags.configuration(training, beside)?;
    let plan = make_plan(flags, &config, &source)?;
    let boxes = |kind| matches!(kind, TaskKind::Math | TaskKind::Choice);
    let sampled = !matches!(source, Source::Samples(_)) && !flags.score_only;
    if training.is_none()
        && sampled
        && !flags.asks_for_a_prompt()
        && plan.parts.iter().any(|p| boxes(p.kind()))
    {
        say!(
            "note: no system prompt, as in training without one; --preset or --system asks for a boxed answer"
        );
    }
    // Fails for an unusable device before the folder records its number format.
    let device = match &source {
        Source::Checkpoint(_) if !flags.score_only => Some(flags.compute.device(Some(&config))?),
        _ => None,
    };
    let plays = plan.parts.iter().any(|part| part.grader.environment().is_some());
    if plays && !matches!(source, Source::Checkpoint(_)) {
        bad_input!(
            "task.environment: requires a checkpoint (--model DIR), because only the built-in engine can play episodes"
        );
    }
    // Fails for a wrong path before the folder records its name.
    if let (Source::Samples(path), false) = (&source, flags.score_only)
        && !path.exists()
    {
        bad_input!("--samples {}: no such file", path.display());
    }
    if matches!(source, Source::Stored) && !out.join(IDENTITY).exists() {
        bad_input!(
            "--score-only: {} has no stored samples; make them with --model DIR, --server URL or --samples FILE",
            out.display()
        );
    }
    let folder = Folder::open(out)?;
    let (model, server) = model_of(flags, &source, &folder)?;
    let origin = match &source {
        Source::Server(_) => Some(Origin::Server(flags.api(), flags.server_api)),
        Source::Checkpoint(_) => Some(Origin::Checkpoint),
        Source::Samples(_) => Some(Origin::Samples),
        Source::Stored => None,
    };
    if let Some(origin) = origin {
        folder.claim(&plan.identity(origin, &model))?;
    }
    // The exact measure reuses the model.
    let mut policy: Option<Policy> = None;
    let sampler: Sampler<'_> = Box::new(|store, missing, events| match (&source, &server, &device) {
        // The file is read even if no sample is missing: it may have more samples, or differ from the folder.
        (Source::Samples(path), ..) => {
            let problems: Vec<&Problem> = plan.parts.iter().flat_map(|part| &part.problems).collect();
            events.say(&format!("{}: {}", path.display(), from_file::import(path, &problems, store)?));
            for part in plan.parts.iter().filter(|part| part.kind().has_modes()) {
                events.say(&format!("{}: graded as {}", part.name, part.grader.described()));
            }
            Ok(None)
        }
        (Source::Server(_), Some(server), _) if missing > 0 => {
            from_the_server(flags, &plan, server, &model, &folder, store, events)
        }
        (Source::Checkpoint(dir), _, Some(device)) if missing > 0 => {
            let policy = policy.insert(open(flags, &plan, dir, device)?);
            from_engine::generate(policy, None, &plan, store, events)
        }
        _ => Ok(None),
    });
    let sampler = (!flags.score_only).then_some(sampler);
    let evaluated = evaluate(&plan, &folder, sampler, flags.rescore, &mut Console::new())?;
    let title = plan.title();
    if evaluated.samples > 0 {
        report::write(flags, &folder, &evaluated, &plan, training.map(|c| c.eval.average))?;
    }
    for part in &plan.parts {
        if let Some(message) = evaluated.unreadable(&part.name).message(&REMEDIES) {
            say!("{}: {message}", part.name);
        }
    }
    if evaluated.samples > 0 && evaluated.empty == evaluated.samples {
        bad_input!(
            "all {} responses of {title} are empty: check the chat template, the stop strings and the server's reasoning parser; the samples are stored in {}, so set another --out to sample again",
            evaluated.samples,
            out.display()
        );
    }
    if evaluated.empty > 0 {
        say!("{title}: {} of {} responses are empty", evaluated.empty, evaluated.samples);
    }
    if evaluated.missing > 0 {
        let why = evaluated.failure.map(|t| format!(" ({t})")).unwrap_or_default();
        let next = if flags.score_only {
            "without --score-only the same command continues"
        } else {
            "the same command continues"
        };
        let words = format!(
            "{} of {} samples of {title} are still missing{why}; {next}",
            evaluated.missing,
            plan.samples()
        );
        return Err(if interrupt::requested() { Stopped(words).into() } else { anyhow::anyhow!(words) });
    }
    if let (Source::Checkpoint(dir), Some(device), true) = (&source, &device, config.eval.exact) {
        let mut policy = policy.map_or_else(|| open(flags, &plan, dir, device), Ok)?;
        let logp = solution_logp(&mut policy, &plan)?;
        let exact = Exact::of(&logp, None, config.rollout.group_size as u64, &plan.ks)?;
        folder.write("exact.json", (serde_json::to_string(&exact)? + "\n").as_bytes())?;
        say!("{title}: {}", exact.in_short());
    }
    let ours = |b: &&fgrpo_eval::samples::Benchmark| plan.parts.iter().any(|part| part.name == b.name);
    let limit = flags.max_unscorable();
    evaluated.counts.iter().filter(ours).try_for_each(|b| report::check_unscorable(b, limit))
}

/// Returns the plan for a configuration from [`Flags::configuration`]. If the configuration's tokenizer isn't on this machine,
/// the tokenizer of the evaluated checkpoint is used.
pub(crate) fn make_plan(flags: &Flags, config: &Config, source: &Source) -> anyhow::Result<Plan> {
    let checkpoint = match source {
        Source::Checkpoint(dir) => Some(dir.as_path()),
        _ => None,
    };
    if let (None, Some(flag)) = (checkpoint, flags.of_compute()) {
        bad_input!("{flag} requires a checkpoint (--model DIR)");
    }
    if let (Some(flag), false) = (flags.of_server(), matches!(source, Source::Server(_))) {
        bad_input!("{flag} requires --server");
    }
    let whole = flags.config.is_none();
    if whole && flags.n.is_none() {
        bad_input!("-n is required: the number of samples per problem");
    }
    let eval = &config.eval;
    // A file is evaluated in full. A configuration's held-out problems are filtered by length, as in training.
    let from_config = !whole && flags.data.is_none();
    let language = if from_config { Some(language(config, checkpoint)?) } else { None };
    // The problems of a file don't need the tokenizer before sampling.
    let template = match (&language, checkpoint) {
        (None, Some(model)) if model.exists() => ChatTemplate::in_folder(model)?,
        _ => None,
    };
    let elsewhere = Elsewhere {
        mazes: flags.data.as_deref().filter(|_| matches!(config.task, TaskConfig::Maze(_))),
        template: template.as_ref(),
    };
    let mut parts =
        problem::held_out(&config.task, language.as_ref(), from_config, eval.problems, &elsewhere)?;
    if let Some(name) = &flags.name {
        match parts.as_mut_slice() {
            [only] => only.name.clone_from(name),
            several => bad_input!(
                "--name: {name:?} can't be the name of the {} parts of a mix, which have their own names",
                several.len()
            ),
        }
    }
    let max_tokens = config.rollout.max_new_tokens.unwrap_or_else(|| {
        let longest = parts.iter().map(|p| p.max_tokens).max().unwrap_or(1);
        // 4096 is the paper's limit for this family.
        if whole && flags.preset == Some(Family::Qwen3) { longest.min(4096) } else { longest }
    });
    let sampling = eval.sampling(max_tokens);
    sampling.check_api("--server-api", flags.server_api)?;
    // An evaluation of a run uses the run's seed. A server gets a seed only if the user sets one.
    let seeded = flags.seed.is_some() || (!whole && checkpoint.is_some());
    // Without values of k, the report chooses them from the number of samples.
    let ks = if whole && flags.ks.is_none() { &[][..] } else { &eval.k };
    Ok(Plan {
        parts,
        n: eval.samples as u64,
        ks: ks.iter().map(|&k| k as u64).collect(),
        sampling,
        stop: config.task.stop().to_vec(),
        seed: seeded.then_some(config.seed),
        rounding: checkpoint.and_then(|_| config.compute.rounding()),
    })
}

/// Opens the tokenizer, which determines the problems that training drops for their length.
fn language(config: &Config, checkpoint: Option<&Path>) -> anyhow::Result<Language> {
    let local = config.model.path.clone().filter(|p| p.exists());
    let model = local.or(checkpoint.map(PathBuf::from)).or(config.model.path.clone());
    problem::language(&config.task, model.as_ref())
        .context("opening the tokenizer, which decides the problems that training drops for their length")
}

/// Opens a checkpoint with the tokens of the plan's problems.
fn open(flags: &Flags, plan: &Plan, dir: &Path, device: &Device) -> anyhow::Result<Policy> {
    let engine = policy::open(dir, flags.adapter.as_deref(), device)?;
    let mazes = plan.parts.iter().all(|part| part.kind() == TaskKind::Maze);
    let language = if mazes { Language::mazes() } else { Language::read(dir, &plan.stop)? };
    Ok(Policy::new(engine, Arc::new(language)))
}

/// Returns the model's name for the folder, and the server if there is one. An unreachable server isn't an error yet, because
/// a complete folder doesn't need it.
fn model_of(flags: &Flags, source: &Source, folder: &Folder) -> anyhow::Result<(String, Option<Server>)> {
    match source {
        Source::Checkpoint(dir) => {
            let model = fingerprint::of_checkpoint(dir)?;
            match &flags.adapter {
                Some(adapter) => Ok((format!("{model}+{}", fingerprint::of_adapter(adapter)?), None)),
                None => Ok((model, None)),
            }
        }
        Source::Samples(path) => Ok((flags.model.clone().unwrap_or_else(|| files::stem(path)), None)),
        Source::Stored => {
            let stored = folder.identity()?.unwrap_or_default();
            Ok((stored["model"].as_str().unwrap_or_default().to_owned(), None))
        }
        Source::Server(url) => {
            let server = Server::new(url, flags.key_env.as_deref(), flags.retry())?;
            if let Some(name) = &flags.model {
                return Ok((name.clone(), Some(server)));
            }
            if let Some(name) = folder.identity()?.as_ref().and_then(|b| b["model"].as_str()) {
                return Ok((name.to_owned(), Some(server)));
            }
            let models = server.models()?;
            match models.as_slice() {
                [only] => Ok((only.clone(), Some(server))),
                [] => bad_input!(
                    "{}: the server lists no models; give the model's name with --model",
                    server.base()
                ),
                several => bad_input!(
                    "{}: the server has several models; choose one with --model: {}",
                    server.base(),
                    server.shown(&several.join(", "))
                ),
            }
        }
    }
}

/// Samples from a server. Returns the reason if samples are still missing.
fn from_the_server(
    flags: &Flags,
    plan: &Plan,
    server: &Server,
    model: &str,
    folder: &Folder,
    store: &mut Generations,
    events: &mut dyn Events,
) -> anyhow::Result<Option<String>> {
    let models = server.reach()?;
    if !models.is_empty() && !models.iter().any(|m| m == model) {
        say!("note: {} lists {}, not {model}", server.base(), server.shown(&models.join(", ")));
    }
    let ask = |(problem, prompt): (&Problem, &Preset)| {
        let system = prompt.system.as_deref();
        let mut extra = Map::new();
        if let (Api::Chat, Some(thinking)) = (flags.api(), prompt.thinking) {
            extra.insert("chat_template_kwargs".into(), json!({"enable_thinking": thinking}));
        }
        let content = match flags.api() {
            Api::Chat => json!(problem.conversation(system)),
            Api::Completions => problem.text(system).into(),
        };
        Ask { problem: problem.id.clone(), content, extra }
    };
    let asks: Vec<Ask> = plan.problems().into_iter().map(ask).collect();
    let options = RequestOptions {
        api: flags.api(),
        model: model.to_owned(),
        sampling: plan.sampling_fields(Origin::Server(flags.api(), flags.server_api)),
        seed: flags.seed,
        concurrency: flags.concurrency.unwrap_or(32),
        per_request: flags.per_request.unwrap_or(8),
        served: folder.served()?,
    };
    let note_served = |name: &str| {
        if name != model {
            say!("warning: requested model {model}, but the server answers as {}", server.shown(name));
        }
        folder.note_served(name)
    };
    let received = from_server::generate(server, asks, plan.n, options, store, events, note_served)?;
    if let Some(other) = received.other_model {
        return Ok(Some(format!(
            "the server now answers as model {}, but answered as {} before; its answers are not stored",
            server.shown(&other),
            server.shown(&folder.served()?.unwrap_or_default())
        )));
    }
    if let Some((problem, words)) = received.refused.first() {
        if received.stored == 0 {
            let hint = sampling::advice(words).filter(|_| flags.server_api.is_none());
            bad_input!(
                "the server rejects the requests: {words}{}",
                hint.map_or(String::new(), |hint| format!("; {hint}"))
            );
        }
        return Ok(Some(format!(
            "the server rejects the requests of {} problems, for example of {problem}: {words}",
            received.refused.len()
        )));
    }
    if received.stopped {
        return Ok(Some("stopped".to_owned()));
    }
    Ok(received.exhausted)
}
