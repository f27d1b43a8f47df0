//! Episodes with a user's own environment.

use super::{fgrpo, file, run};
use crate::support::{count, lines, spawned, wait_until};
use fgrpo_nn::Batch;
use fgrpo_train::config::Config;
use fgrpo_train::episode::{Episode, Part, Rules};
use fgrpo_train::policy::{Policy, PolicyOptions};
use fgrpo_train::problem::{Split, Task};
use fgrpo_train::rollout::{Draws, sample};
use fgrpo_train::run::seeds;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The problems of examples/calculator, and a policy of two layers that knows how to call its tool.
struct Game {
    folder: tempfile::TempDir,
    policy: PathBuf,
}

fn game() -> &'static Game {
    static GAME: OnceLock<Game> = OnceLock::new();
    GAME.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
        std::os::unix::fs::symlink(examples, folder.path().join("examples")).unwrap();
        let made = Command::new("python3")
            .args(["-B", "examples/calculator/calculator.py", "calculator"])
            .current_dir(&folder)
            .status()
            .unwrap();
        assert!(made.success());
        // Reading all rows would take most of each run.
        for (name, rows) in [("problems", 64), ("held-out", 16)] {
            let [path, all] =
                ["", "all-"].map(|some| folder.path().join(format!("calculator/{some}{name}.jsonl")));
            std::fs::rename(&path, &all).unwrap();
            let text = std::fs::read_to_string(&all).unwrap();
            std::fs::write(path, text.split_inclusive('\n').take(rows).collect::<String>()).unwrap();
        }
        let small = ["model.init.hidden_size=64", "model.init.intermediate_size=128", "sft.steps=60"];
        let small = small.into_iter().chain(["model.init.num_hidden_layers=2", "sft.lr=5e-3"]);
        let mut sft = fgrpo();
        sft.current_dir(&folder).args(["sft", "examples/calculator/sft.toml", "--out", "sft"]);
        small.for_each(|set| _ = sft.args(["--set", set]));
        let (_, said, code) = run(&mut sft);
        assert_eq!(code, 0, "{said}");
        let policy = folder.path().join("sft");
        Game { folder, policy }
    })
}

impl Game {
    /// Arguments of a small run.
    fn arguments(&self, out: &str, more: &[&str]) -> Vec<String> {
        let model = format!("model.path={:?}", self.policy);
        let small = ["rollout.prompts=2", "rollout.group_size=4", "log.rollout_share=1.0", &model];
        let small = small.into_iter().flat_map(|set| ["--set", set]);
        let begin = ["train", "examples/calculator/calculator.toml", "--out", out];
        begin.into_iter().chain(small).chain(more.iter().copied()).map(str::to_owned).collect()
    }

    fn train(&self, out: &str, more: &[&str]) -> (PathBuf, String, i32) {
        let mut train = fgrpo();
        let (_, said, code) = run(train.current_dir(&self.folder).args(self.arguments(out, more)));
        (self.folder.path().join(out), said, code)
    }

    /// An environment in a separate file: the game with a change.
    fn changed(&self, name: &str, from: &str, to: &str) -> String {
        let text =
            std::fs::read_to_string(self.folder.path().join("examples/calculator/calculator.py")).unwrap();
        assert!(text.contains(from));
        let path = file(self.folder.path(), name, &text.replace(from, to));
        format!("task.environment={:?}", format!("{}:Calculator", path.display()))
    }

    /// A copy of the policy in the folder `name`, with a change in one of its files.
    fn copy(&self, name: &str, file: &str, from: &str, to: &str) -> PathBuf {
        let copy = self.folder.path().join(name);
        std::fs::create_dir(&copy).unwrap();
        for entry in std::fs::read_dir(self.policy.join("checkpoints/step-000060")).unwrap() {
            let entry = entry.unwrap();
            std::fs::copy(entry.path(), copy.join(entry.file_name())).unwrap();
        }
        let text = std::fs::read_to_string(copy.join(file)).unwrap();
        assert!(text.contains(from), "{text}");
        std::fs::write(copy.join(file), text.replace(from, to)).unwrap();
        copy
    }

    /// The policy with a template that cuts off what the policy said in earlier turns.
    fn forgetful(&self, name: &str) -> PathBuf {
        let cut = "{{ m.content[:30] if m.role == 'assistant' else m.content }}";
        self.copy(name, "tokenizer_config.json", "{{ m.content }}", cut)
    }

    /// The policy with 128 positions.
    fn narrow(&self, name: &str) -> PathBuf {
        let config =
            std::fs::read_to_string(self.policy.join("checkpoints/step-000060/config.json")).unwrap();
        let line = config.lines().find(|line| line.contains("max_position_embeddings")).unwrap();
        self.copy(name, "config.json", line, "  \"max_position_embeddings\": 128,")
    }

    /// An environment whose feedback is an expression of `self` and `messages`.
    fn with_feedback(&self, name: &str, feedback: &str) -> String {
        let method = format!("def feedback(self, messages):\n        return {feedback}\n\n    def reward");
        self.changed(name, "def reward", &method)
    }
}

fn is_graded_by_the_sum(line: &Value) {
    let (prompt, text) = (line["prompt"].as_str().unwrap(), line["completion"].as_str().unwrap());
    let question = prompt.strip_prefix("<|user|>").and_then(|p| p.strip_suffix("<|end|><|assistant|>"));
    let sum: u32 = question.unwrap().split(" + ").map(|number| number.parse::<u32>().unwrap()).sum();
    assert_eq!(text.ends_with(&format!("It is {sum}.<|end|>")), line["reward"] == 1.0, "{line}");
}

#[test]
fn a_policy_plays_and_is_trained_on_what_it_sampled() {
    let (out, said, code) = game().train(
        "plain",
        &["--set=steps=2", "--set=eval.problems=4", "--set=eval.samples=4", "--set=eval.k=[1,4]"],
    );
    assert_eq!(code, 0, "{said}");
    for step in lines(&out.join("metrics.jsonl")) {
        // Sampler and learner have the same log-probabilities of every sampled token, whatever comes between.
        assert!(step["logp_difference_max"].as_f64().unwrap() < 1e-4, "{step}");
        assert!(step["turns_mean"].as_f64().unwrap() > 1.1, "{step}");
        assert_eq!(step["verdicts"].get("unscorable"), None, "{step}");
    }
    let rollouts = lines(&out.join("rollouts.jsonl"));
    assert_eq!(rollouts.len(), 16);
    rollouts.iter().for_each(is_graded_by_the_sum);
    assert!(rollouts.iter().any(|line| line["completion"].as_str().unwrap().contains("<|tool|>")));
    let evaluated = lines(&out.join("eval.jsonl"));
    assert_eq!(evaluated.len(), 2, "{evaluated:?}");
    // Evaluated by the command, the policy plays with the same environment.
    let eval = |words: &str| run(fgrpo().current_dir(&game().folder).arg("eval").args(words.split(' ')));
    let (found, said, code) = eval(
        "examples/calculator/calculator.toml --model plain -n 4 -k 1,4 --limit 4 --json --seed 1 --out evaluated",
    );
    assert!(code == 0 && found.contains("\"samples\":16"), "{found}{said}");
    let (_, said, code) =
        eval("plain/config.toml --server http://localhost:1/v1 --model any -n 4 --out never");
    assert!(code == 2 && said.contains("task.environment: requires a checkpoint"), "{said}");
}

#[test]
fn a_template_that_rewrites_earlier_turns_begins_a_new_sequence() {
    let game = game();
    let forgets = game.forgetful("forgets");
    let model = format!("model.path={forgets:?}");
    let set = ["--set", &model, "--set=steps=2", "--set=eval.every=0", "--set=rollout.group_size=8"];
    let (out, said, code) = game.train("forgetful", &[&set[..], &["--set=update.epochs=2"]].concat());
    assert_eq!(code, 0, "{said}");
    let rollouts = lines(&out.join("rollouts.jsonl"));
    // The last sequence has the beginning of an earlier call, and all of the last turn.
    let cut = |line: &&Value| {
        let text = line["completion"].as_str().unwrap();
        text.contains("<|tool|>") && !text.split("<|tool|>").next().unwrap().contains("</tool_call>")
    };
    assert!(rollouts.iter().filter(cut).count() > 0, "{rollouts:?}");
    for step in lines(&out.join("metrics.jsonl")) {
        assert!(step["logp_difference_max"].as_f64().unwrap() < 1e-4, "{step}");
    }
}

#[test]
fn a_problem_that_comes_twice_in_a_step_has_an_environment_each_time() {
    let game = game();
    // Each environment reports how often it was started.
    let environment = game.changed(
        "counted.py",
        "self.answer = answer",
        "self.begun = getattr(self, 'begun', 0) + 1\n        self.answer = answer\n        return f' {id(self)} {self.begun}'",
    );
    file(game.folder.path(), "one.jsonl", "{\"prompt\": \"1 + 2 + 3\", \"answer\": 6}\n");
    let set = ["--set", &environment, "--set=task.data=one.jsonl", "--set=steps=1", "--set=eval.every=0"];
    let (out, said, code) = game.train("counted", &set);
    assert_eq!(code, 0, "{said}");
    let prompts: Vec<String> = lines(&out.join("rollouts.jsonl"))
        .iter()
        .map(|line| line["prompt"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(prompts.len(), 8);
    assert!(prompts.iter().all(|prompt| prompt.contains(" 1<|end|>")), "{prompts:?}");
    assert_eq!(prompts.iter().collect::<std::collections::BTreeSet<_>>().len(), 8, "{prompts:?}");
}

#[test]
fn an_episode_whose_tool_hangs_or_dies_is_unscorable_and_the_others_go_on() {
    let game = game();
    for (name, harm) in [("hang.py", "import time; time.sleep(60)"), ("die.py", "import os; os._exit(3)")] {
        // Only for some calls, so that other episodes are played to the end.
        let harm = format!("if a > 12:\n            {harm}\n        return a + b");
        let environment = game.changed(name, "return a + b", &harm);
        let table = environment
            .replace("task.environment=", "task.environment={ timeout_s = 0.5, startup_s = 2, function = ")
            + " }";
        let set = [
            "--set",
            &table,
            "--set=grade.max_unscorable=1000",
            "--set=rollout.prompts=6",
            "--set=steps=1",
            "--set=eval.every=0",
        ];
        let (out, said, code) = game.train(&format!("{name}-run"), &set);
        let steps = lines(&out.join("metrics.jsonl"));
        assert_eq!(steps.len(), 1, "{code}: {said}");
        let count = |verdict: &str| steps.iter().filter_map(|s| s["verdicts"][verdict].as_u64()).sum::<u64>();
        let (unscorable, scored) = (count("unscorable"), count("correct") + count("wrong"));
        assert!(unscorable > 0 && scored > 0, "{unscorable} unscorable, {scored} scored: {steps:?}");
        for line in lines(&out.join("rollouts.jsonl")) {
            assert_ne!((&line["verdict"], &line["reward"]), (&"unscorable".into(), &1.0.into()), "{line}");
        }
    }
}

#[test]
fn an_episode_of_a_lost_worker_is_graded_only_by_the_problem_that_it_began_with() {
    let game = game();
    let code = r#"
import os, random

class Sums:
    def reset(self, prompt, drawn=False, **row):
        self.more = f" + {random.randint(1, 10**9)}" if drawn else " + 1"
        return self.more

    def reward(self, messages):
        if not os.path.exists("died-once"):
            open("died-once", "w").close()
            os._exit(1)
        return float(messages[0]["content"].endswith(self.more))
"#;
    let environment =
        format!("task.environment=\"{}:Sums\"", file(game.folder.path(), "drawn.py", code).display());
    let row =
        |drawn: bool| json!({"prompt": format!("{} + 2", i32::from(drawn)), "drawn": drawn}).to_string();
    file(game.folder.path(), "drawn.jsonl", &format!("{}\n{}\n", row(false), row(true)));
    let set = ["--set", &environment, "--set=task.data=drawn.jsonl", "--set=steps=1", "--set=eval.every=0"];
    let (out, said, code) = game.train("drawn", &[&set[..], &["--set=grade.max_unscorable=1000"]].concat());
    assert_eq!(code, 0, "{said}");
    // The reward of the first episode ended the process, so that all of them lost their environments.
    let step = &lines(&out.join("metrics.jsonl"))[0];
    assert_eq!(step["verdicts"], json!({"correct": 4, "unscorable": 4}), "{step}");
    let reason = "raised RuntimeError: its environment was lost, and a new one differs because it depends on more than the row";
    assert_eq!(step["reasons"][reason], 4, "{step}");
}

#[test]
fn a_group_whose_every_episode_failed_to_begin_is_left_out() {
    let game = game();
    let fails =
        "if answer % 3 == 1:\n            raise ValueError('no such problem')\n        self.answer = answer";
    let environment = game.changed("fails.py", "self.answer = answer", fails);
    // A KL penalty and a teacher score every completion, including empty ones.
    let teacher = format!("teacher.path={:?}", game.policy);
    let set = ["--set", &environment, "--set=algorithm.kl_coef=0.1", "--set=rollout.prompts=8"];
    let more = [
        "--set",
        &teacher,
        "--set=algorithm.teacher_coef=1",
        "--set=steps=1",
        "--set=eval.every=0",
        "--set=grade.max_unscorable=1000",
    ];
    let (out, said, code) = game.train("fails", &[&set[..], &more[..]].concat());
    assert_eq!(code, 0, "{said}");
    let step = &lines(&out.join("metrics.jsonl"))[0];
    // The teacher is the starting policy.
    assert!(step["teacher_kl"].as_f64().unwrap().abs() < 1e-5, "{step}");
    let failed = step["verdicts"]["unscorable"].as_u64().unwrap();
    assert!(failed >= 4 && failed.is_multiple_of(4) && failed < 32, "{step}");
    assert_eq!(step["reasons"]["raised ValueError: no such problem"], failed, "{step}");
}

#[test]
fn a_part_of_a_mix_is_played_and_the_demonstrations_of_another_come_first() {
    let game = game();
    let problems = "data = \"calculator/problems.jsonl\"\nheld_out = \"calculator/held-out.jsonl\"";
    let mix = |demonstrations: &str, problems: &str| {
        format!(
            r#"
            steps = 2
            [task]
            kind = "mix"
            {demonstrations}
            [[task.parts]]
            name = "play"
            kind = "python"
            environment = "examples/calculator/calculator.py:Calculator"
            max_turns = 4
            {problems}
            [model]
            path = {:?}
            [sft]
            steps = 3
            batch_size = 8
            [rollout]
            prompts = 4
            group_size = 4
            max_new_tokens = 12
            [eval]
            every = 2
            problems = 4
            samples = 2
            k = [1, 2]
            [log]
            rollout_share = 1.0
            "#,
            game.policy
        )
    };
    let turns = r#"
            [[task.parts]]
            name = "turns"
            kind = "python"
            grader = "examples/calculator/calculator.py:complete"
            data = "calculator/turns.jsonl"
    "#;
    file(game.folder.path(), "mix.toml", &mix(turns, problems));
    let command = |arguments: &[&str]| run(fgrpo().current_dir(&game.folder).args(arguments));
    let (_, said, code) = command(&["train", "mix.toml", "--out", "mixed"]);
    assert_eq!(code, 0, "{said}");
    let out = game.folder.path().join("mixed");
    assert_eq!(lines(&out.join("sft.jsonl")).len(), 3);
    for step in lines(&out.join("metrics.jsonl")) {
        assert!(step["logp_difference_max"].as_f64().unwrap() < 1e-4, "{step}");
        assert!(step["turns_mean"].as_f64().unwrap() > 1.1, "{step}");
    }
    let rollouts = lines(&out.join("rollouts.jsonl"));
    let (played, sampled): (Vec<&Value>, Vec<&Value>) =
        rollouts.iter().partition(|line| line["part"] == "play");
    assert_eq!([played.len(), sampled.len()], [16, 16]);
    for line in &played {
        is_graded_by_the_sum(line);
    }
    for line in &sampled {
        let turn = line["completion"].as_str().unwrap().trim_end_matches("<|end|>");
        assert!(!turn.contains("<|tool|>"), "{line}");
        assert_eq!(turn.ends_with("</tool_call>") || turn.ends_with('.'), line["reward"] == 1.0, "{line}");
    }
    let last = lines(&out.join("eval.jsonl")).pop().unwrap();
    let parts = last["parts"].as_object().unwrap();
    assert_eq!(parts.keys().collect::<Vec<_>>(), ["play", "turns"], "{last}");
    // Evaluated by the command, the same parts are played and sampled.
    let evaluate = ["eval", "mix.toml", "--model", "mixed", "-n", "2", "-k", "1,2", "--limit", "4", "--json"];
    let (found, said, code) = command(&[&evaluate[..], &["--out", "mix-evaluated"]].concat());
    assert_eq!(code, 0, "{said}");
    assert_eq!(found.matches("\"samples\":8").count(), 2, "{found}");
    // The prompt of a demonstration for a played problem would differ from the one that the policy sees.
    let one = "{\"prompt\": \"1 + 2 + 3\", \"answer\": 6, \"solution\": \"It is 6.\"}\n";
    file(game.folder.path(), "solved.jsonl", one);
    file(game.folder.path(), "alone.toml", &mix("", "data = \"solved.jsonl\""));
    let (_, said, code) = command(&["train", "alone.toml", "--out", "alone", "--set=eval.every=0"]);
    assert!(
        code == 2 && said.contains("none of the 1 training problems has a demonstration"),
        "{code}: {said}"
    );
}

#[test]
fn an_environment_that_cannot_work_is_refused_before_any_work() {
    let game = game();
    for (from, to, wanted) in [
        ("def reset(self, answer", "def reset(self, gold", "missing 1 required positional argument: 'gold'"),
        (
            "class Calculator",
            "class Other",
            "found nothing callable that is called Calculator; it defines Other",
        ),
        ("LARGEST = 20", "LARGEST = twenty", "name 'twenty' is not defined"),
    ] {
        let environment = game.changed("broken.py", from, to);
        let (out, said, code) = game.train("never", &["--set", &environment]);
        assert!(code == 2 && said.contains(wanted), "wanted {wanted:?} in {code}: {said}");
        assert!(!out.exists());
    }
    let (_, said, code) = game.train("never", &["--set", "task.environment=no.py:Calculator"]);
    assert!(code == 2 && said.contains("task.environment: no.py: no such file"), "{code}: {said}");
}

/// Log-probability of each sampled token, from the logits of one whole sequence.
fn logp_by_hand(policy: &mut Policy, tokens: &[u32], sampled: &[usize]) -> Vec<f64> {
    let mut batch = Batch::default();
    batch.push_segment(tokens, None);
    sampled.iter().for_each(|&at| _ = batch.predict(at - 1, tokens[at]));
    let logits = policy.engine_mut().logits(&batch).unwrap();
    let rows = logits.chunks_exact(logits.len() / sampled.len()).zip(sampled);
    let logp = |(row, &at): (&[f32], &usize)| {
        let sum: f64 = row.iter().map(|&x| f64::from(x).exp()).sum();
        f64::from(row[tokens[at] as usize]) - sum.ln()
    };
    rows.map(logp).collect()
}

/// The tokens of a part with `hint` at the end of the first user message, and the indices of the sampled ones.
fn hinted_by_hand(part: &Part, hint: &[u32], end: u32) -> (Vec<u32>, Vec<usize>) {
    let at = part.tokens.iter().position(|&token| token == end).unwrap();
    let last = part.sampled[part.sampled.len() - 1];
    let tokens = [&part.tokens[..at], hint, &part.tokens[at..=last]].concat();
    (tokens, part.sampled.iter().map(|at| at + hint.len()).collect())
}

#[test]
fn the_teacher_scores_what_was_sampled_after_a_prompt_with_the_environments_feedback() {
    let game = game();
    let at = |name: &str| game.folder.path().join(name);
    let remark = "f'{len(messages)} messages, {self.answer}'";
    let short = game.with_feedback("remarks.py", remark);
    let long = game.with_feedback("long.py", &format!("{remark} + 'x' * 5000"));
    let sometimes = format!("{remark} if len(str(messages)) % 2 else None");
    let sometimes = game.with_feedback("sometimes.py", &sometimes);
    // Each character is one token, so that the longest feedback that fits can be computed.
    let letters = game.with_feedback("letters.py", "'x' * 60");
    let whole = ["task.data", "task.held_out"];
    let [data, held_out] = ["problems", "held-out"].map(|name| at(&format!("calculator/all-{name}.jsonl")));
    let files = [format!("{}={data:?}", whole[0]), format!("{}={held_out:?}", whole[1])];
    let fixed = format!(" {{feedback}}{}", "y".repeat(100));
    let cases = [
        ("hinted-hardly", game.narrow("fixed-hints"), &letters, fixed.as_str()),
        ("hinted-sometimes", game.policy.clone(), &sometimes, " (It said: {feedback}.)"),
        ("hinted-parts", game.forgetful("forgets-hints"), &short, " (It said: {feedback}.)"),
        ("hinted-long", game.narrow("narrow-hints"), &long, " (It said: {feedback}) So?"),
    ];
    for (name, model, environment, hint) in cases {
        let (model, hint_key) = (format!("model.path={model:?}"), format!("teacher.hint={hint:?}"));
        let set = [&model, environment, &hint_key, &files[0], &files[1]];
        let set: Vec<&str> = set.iter().flat_map(|set| ["--set", set.as_str()]).collect();
        let more = ["--set=algorithm.teacher_coef=1", "--set=eval.every=0", "--set=steps=1"];
        let (out, said, code) = game.train(name, &[&set[..], &more[..]].concat());
        // A run of which many completions can't be graded fails at its end.
        assert_eq!(code, i32::from(name == "hinted-sometimes"), "{name}: {said}");
        assert_eq!(
            matches!(name, "hinted-long" | "hinted-hardly"),
            said.contains("the end of the feedback is cut off"),
            "{name}: {said}"
        );

        // The same episodes again.
        let config = Config::load(&out.join("config.toml"), &[]).unwrap();
        let task = Task::open(&config).unwrap();
        let path = config.model.path.as_ref().unwrap();
        let mut policy = Policy::open(path, &PolicyOptions::default()).unwrap();
        let ids = task.training(seeds::prompts(config.seed), 0..2);
        let prompts = ids.into_iter().map(|id| task.prompt(Split::Train, id)).collect();
        let sampling = config.rollout.sampling(12);
        let draws = Draws { group_size: 4, sampling, max_cached_tokens: None, feedback: true };
        let key = seeds::rollout(config.seed, 1);
        let groups = sample(&mut policy, &task, prompts, &draws, key, &|| true).unwrap().unwrap();
        let lines = lines(&out.join("rollouts.jsonl"));
        let episodes: Vec<Episode> = groups.into_iter().flat_map(|group| group.episodes.unwrap()).collect();
        assert_eq!(lines.len(), episodes.len());

        let language = std::sync::Arc::clone(&task.language);
        let rules = Rules::new(&language, None).unwrap();
        let end = language.encode("<|end|>").unwrap()[0];
        let (mut gaps, mut parts, mut left_out) = (Vec::new(), 0, 0);
        for (line, episode) in lines.iter().zip(&episodes) {
            let feedback = episode.graded.feedback.clone();
            assert_eq!(line["feedback"], json!(feedback));
            let begins = match name {
                "hinted-hardly" => "x".to_owned(),
                _ => format!("{} messages, ", episode.messages.len()),
            };
            assert!(feedback.as_ref().is_none_or(|feedback| feedback.starts_with(&begins)), "{feedback:?}");
            // An unscorable episode has no feedback.
            assert_eq!(feedback.is_none(), line["verdict"] == "unscorable", "{line}");
            let hint_of = |feedback: &str| hint.replace("{feedback}", feedback);
            let tokens_of = |feedback: &str| language.encode(&hint_of(feedback)).unwrap();
            // Each of the last characters is one token.
            let longest = |tokens: &[u32]| {
                let parts = episode.parts.iter().filter(|part| !part.sampled.is_empty());
                parts.map(|part| hinted_by_hand(part, tokens, end).0.len()).max().unwrap()
            };
            let fitting = feedback.as_ref().and_then(|feedback| {
                let over = longest(&tokens_of(feedback)).saturating_sub(policy.positions());
                assert!(name == "hinted-hardly" || (over > 0) == (name == "hinted-long"));
                feedback.len().checked_sub(over).map(|rest| &feedback[..rest])
            });
            let mut logp = Vec::new();
            if let Some(feedback) = fitting {
                let hinted = episode.hinted(&rules, &hint_of(feedback)).unwrap();
                let unhinted = episode.hinted(&rules, "").unwrap();
                for ((part, hinted), unhinted) in episode.parts.iter().zip(&hinted).zip(&unhinted) {
                    let (tokens, sampled) = hinted_by_hand(part, &tokens_of(feedback), end);
                    assert_eq!(hinted.tokens, tokens, "{}", language.text(&hinted.tokens));
                    assert_eq!(*unhinted, part.sequence().unwrap());
                    logp.extend(logp_by_hand(&mut policy, &tokens, &sampled));
                }
            } else {
                // The hint is left out.
                left_out += 1;
                for part in episode.parts.iter().filter(|part| !part.sampled.is_empty()) {
                    logp.extend(logp_by_hand(&mut policy, &part.sequence().unwrap().tokens, &part.sampled));
                }
            }
            parts += episode.parts.len() - 1;
            assert_eq!(logp.len(), episode.completion.logp.len());
            let sampled = episode.completion.logp.iter().map(|&logp| f64::from(logp));
            gaps.extend(sampled.zip(logp).map(|(sampled, teacher)| sampled - teacher));
        }
        assert_eq!(parts > 0, name == "hinted-parts", "{name}");
        assert!(
            left_out < episodes.len()
                && (left_out > 0) == matches!(name, "hinted-hardly" | "hinted-sometimes"),
            "{name}: {left_out}"
        );
        let step = &crate::support::lines(&out.join("metrics.jsonl"))[0];
        let kl = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let disagreement =
            gaps.iter().filter(|&&gap| gap > std::f64::consts::LN_2).count() as f64 / gaps.len() as f64;
        assert!(
            kl.abs() > 1e-3 && (step["teacher_kl"].as_f64().unwrap() - kl).abs() < 1e-5,
            "{name}: {kl}: {step}"
        );
        assert!((step["teacher_disagreement"].as_f64().unwrap() - disagreement).abs() < 1e-9, "{step}");
    }
}

#[test]
fn a_killed_run_with_the_environments_feedback_resumes_with_the_same_bits() {
    let game = game();
    // Some episodes don't begin.
    let fails = "def feedback(self, completion):\n        return f'{len(completion)} messages'\n\n    def reset(self, answer: int, **row) -> None:\n        assert answer % 3, 'no such problem'";
    let environment = game.changed("resumed.py", "def reset(self, answer: int, **row) -> None:", fails);
    let set = ["--set", &environment, "--set=teacher.hint=' {feedback}'", "--set=algorithm.teacher_coef=1"];
    let more = ["--set=eval.every=0", "--set=save.every=2", "--set=steps=6", "--set=teacher.rewards=false"];
    let all = [&set[..], &more[..], &["--set=grade.max_unscorable=1000"]].concat();
    let (whole, said, code) = game.train("whole-feedback", &all);
    assert_eq!(code, 0, "{said}");
    let killed = game.folder.path().join("killed-feedback");
    let arguments = game.arguments("killed-feedback", &all);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut child = spawned(&arguments).current_dir(&game.folder).spawn().unwrap();
    wait_until("steps", || count(&killed.join("metrics.jsonl")) >= 3 || child.try_wait().unwrap().is_some());
    let _ = child.kill();
    child.wait().unwrap();
    let (_, said, code) = game.train("killed-feedback", &[&all[..], &["--resume"]].concat());
    assert_eq!(code, 0, "{said}");
    let weights = |out: &Path| std::fs::read(out.join("checkpoints/step-000006/model.safetensors")).unwrap();
    assert!(weights(&whole) == weights(&killed));
    let rollouts = lines(&whole.join("rollouts.jsonl"));
    assert_eq!(rollouts, lines(&killed.join("rollouts.jsonl")));
    let failed = rollouts.iter().filter(|line| line["verdict"] == "unscorable").count();
    assert!(0 < failed && failed < rollouts.len(), "{failed}");
}

#[test]
fn a_step_whose_hint_cannot_be_added_saves_the_steps_before_it() {
    let game = game();
    let row = |i: usize| {
        let (role, question) = (if i == 7 { "system" } else { "user" }, format!("{i} + 1 + 2"));
        format!("{}\n", json!({"prompt": [{"role": role, "content": question}], "answer": i + 3}))
    };
    let data = file(game.folder.path(), "one-without-user.jsonl", &(0..8).map(row).collect::<String>());
    let data = format!("task.data={data:?}");
    let environment = game.with_feedback("unhinted.py", "''");
    let set = ["--set", &data, "--set", &environment, "--set=teacher.hint=' {feedback}'"];
    let more = [
        "--set=algorithm.teacher_coef=1",
        "--set=steps=8",
        "--set=rollout.prompts=1",
        "--set=save.every=0",
        "--set=eval.every=0",
    ];
    let (out, said, code) = game.train("unhinted", &[&set[..], &more].concat());
    assert!(code == 2 && said.contains("has no user message with text"), "{code}: {said}");
    let steps = lines(&out.join("metrics.jsonl")).len();
    assert!(steps > 0 && out.join(format!("checkpoints/step-{steps:06}")).exists(), "{steps}: {said}");
}

#[test]
fn feedback_that_an_environment_does_not_give_is_refused_by_name() {
    let game = game();
    let set = ["--set=teacher.hint=' {feedback}'", "--set=algorithm.teacher_coef=1"];
    for more in [&[][..], &["--dry-run"]] {
        let (out, said, code) = game.train("never", &[&set[..], more].concat());
        assert!(code == 2 && said.contains("requires an environment with a method feedback(self)"), "{said}");
        assert!(!out.exists());
    }
    // With other arguments, the method is a tool.
    let tool = "def feedback(self, text: str) -> str:\n        return text\n\n    def reward";
    let environment = game.changed("tool.py", "def reward", tool);
    let (_, said, code) = game.train("never", &[&set[..], &["--set", &environment]].concat());
    assert!(code == 2 && said.contains("requires an environment with a method feedback(self)"), "{said}");
    // What isn't a string is no feedback.
    let nothing = "def feedback(self):\n        return None\n\n    def reward";
    let environment = game.changed("none.py", "def reward", nothing);
    let more =
        ["--set", &environment, "--set=grade.max_unscorable=1000", "--set=steps=1", "--set=eval.every=0"];
    let (out, said, code) = game.train("none", &[&set[..], &more].concat());
    let reason =
        "raised TypeError: Calculator.feedback returned None; it must return a string, which may be empty";
    assert!(code == 1 && said.contains(reason), "{code}: {said}");
    assert_eq!(lines(&out.join("metrics.jsonl"))[0]["reasons"][reason], 8);
}

#[test]
fn an_answer_longer_than_the_positions_ends_the_episode_and_the_run_goes_on() {
    let game = game();
    let environment = game.changed("longer.py", "return a + b", "return 'x' * 5000");
    let model = format!("model.path={:?}", game.narrow("narrow-answers"));
    let set = ["--set", &model, "--set", &environment, "--set=algorithm.kl_coef=0.1"];
    let (out, said, code) =
        game.train("longer", &[&set[..], &["--set=steps=1", "--set=eval.every=0"]].concat());
    assert_eq!(code, 0, "{said}");
    assert!(lines(&out.join("metrics.jsonl"))[0]["truncated_fraction"].as_f64().unwrap() > 0.0);
}
