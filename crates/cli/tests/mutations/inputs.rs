//! Valid inputs of every kind, and the commands that read them.

use crate::damage::{Draws, damage};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// One damaged input and the command that reads it.
pub(crate) struct Case {
    pub(crate) kind: &'static str,
    pub(crate) arguments: Vec<OsString>,
    /// Strings of which the message of a refusal must contain at least one.
    pub(crate) names: Vec<String>,
}

/// Valid inputs, which are made once.
pub(crate) struct Inputs {
    root: PathBuf,
}

const MAZE: &str = "seed = 1\nsteps = 2\n[task]\nkind = \"maze\"\nsize = 9\ntrain = 64\nheld_out = 4\nseed = 3\n\
    [model.init]\nhidden_size = 16\nintermediate_size = 32\nnum_hidden_layers = 1\nnum_attention_heads = 2\n\
    num_key_value_heads = 2\nhead_dim = 8\nrope_theta = 10000.0\nstd = 0.02\n[sft]\nsteps = 2\nbatch_size = 4\n\
    betas = [0.9, 0.95]\n[rollout]\nprompts = 4\ngroup_size = 4\nmax_new_tokens = 8\ntemperature = 1.0\ntop_k = 0\n\
    [algorithm]\nadvantage = \"grpo\"\nfocal_gamma = 0.5\nreward_correct = 1.0\nloss = { kind = \"dapo\", clip = [0.2, 0.28] }\n[update]\nlr = 1e-4\n\
    epochs = 1\nmicro_batch_tokens = 512\n[eval]\nevery = 1\nsamples = 4\nk = [1, 4]\n[save]\nevery = 1\nkeep = 1\n\
    [compute]\nthreads = 1\n";

const SAMPLES: &str = r#"{"problem": "a", "sample": 0, "correct": true, "tokens": 12, "finish": "stop", "answer": "3"}
{"problem": "a", "sample": 1, "correct": false, "tokens": 14, "finish": "length", "answer": "4"}
{"problem": "a", "sample": 2, "correct": null}
{"problem": "a", "sample": 3, "verdict": "wrong"}
{"problem": "b", "n": 4, "c": 2, "unscorable": 0, "tokens": 99}
{"benchmark": "other", "problem": 7, "n": 8, "c": 8}
"#;

pub(crate) const VERIFY: [(&str, &str); 4] = [
    ("math", r#"{"gold": "\\frac{1}{2}", "response": "so \\boxed{0.5}", "precision": 6, "strict": true}"#),
    ("choice", r#"{"gold": "B", "response": "The answer is \\boxed{B}"}"#),
    (
        "ifeval",
        r#"{"instruction_id_list": ["length_constraints:number_words", "keywords:frequency"], "kwargs": [{"num_words": 20, "relation": "at least"}, {"keyword": "cat", "frequency": 2, "relation": "less than"}], "prompt": "p", "response": "a cat and a dog"}"#,
    ),
    (
        "synlogic",
        r#"{"task": "game_of_24", "game_data_str": "{\"question\": \"\", \"answer\": \"\", \"metadata\": {\"numbers\": [3, 3, 8, 8], \"result\": 24, \"operators\": [\"+\", \"-\", \"*\", \"/\"]}}", "response": "8/(3-8/3)"}"#,
    ),
];

/// Templates that no author of a model would write.
pub(crate) const TEMPLATES: [&str; 20] = [
    "{% for a in range(99999) %}{% for b in range(99999) %}{{ a }}{% endfor %}{% endfor %}",
    "{% set n = namespace(s='x') %}{% for i in range(99) %}{% set n.s = n.s ~ n.s %}{% endfor %}{{ n.s }}",
    "{% set n = namespace(s=[]) %}{% for i in range(99999) %}{% set n.s = [n.s] %}{% endfor %}{{ n.s }}",
    "{{ 'x' | indent(99999999999) }}",
    "{{ '%999999999999d' | format(3) }}",
    "{{ '{:>99999999999}'.format(3) }}",
    "{{ '%.999999999f' | format(3.5) }}",
    "{{ 'x' * 99999999999 }}",
    "{{ [1] * 99999999999 }}",
    "{{ 'a,' * 99999999 }}",
    "{{ range(999999999999) | list }}",
    "{{ range(99999) | batch(1) | list | tojson(indent=99999999) }}",
    "{% for m in messages %}{{ loop.cycle() }}{% endfor %}",
    "{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}",
    "{% for x in messages recursive %}{{ loop(messages) }}{% endfor %}",
    "{% set s = 'x' * 100000 %}{{ s | replace('x', s) | replace('x', s) }}",
    "{{ messages | map(attribute='content') | join('x' * 9999999) * 999999 }}",
    "{{ range(99999) | slice(99999999999) | list }}",
    "{{ 9 ** 9 ** 9 }}",
    "{{ strftime_now('%Y' * 99999999) }}",
];

/// Settings of an algorithm's kinds.
const TABLES: [&str; 25] = [
    r#"loss={kind="grpo",clip=[#,#],dual_clip=#}"#,
    r#"loss={kind="cispo",clip=[#,#]}"#,
    r#"loss={kind="cispo_cap",cap=#}"#,
    r#"loss={kind="gspo",clip=[#,#]}"#,
    r#"advantage={kind="pkpo",k=#}"#,
    r#"advantage={kind="power",a=#,b=#,delta=#}"#,
    r#"advantage={kind="passk_training",k=#}"#,
    r#"advantage={kind="w_reinforce",positive=#,negative=#}"#,
    r#"advantage={kind="rs_grpo",beta=#}"#,
    r#"advantage={kind="dgpo",temperature=#}"#,
    r#"advantage={kind="grpo_lead",alpha=#}"#,
    r#"advantage={kind="bbg",k=#,tau=#,positive=#}"#,
    r#"advantage={kind="cue_grpo",alpha=#}"#,
    r#"advantage={kind="ucpo",tau=#}"#,
    r#"advantage={kind="avspo",eps=#}"#,
    r#"loss={kind="sapo",tau=[#,#]}"#,
    r#"loss={kind="gmpo",clip=[#,#]}"#,
    r#"loss={kind="dppo_kl",clip=[#,#],cap=#}"#,
    r#"loss={kind="kl_cov",share=#,coef=#}"#,
    r#"loss={kind="clip_cov",share=#,covariance=[#,#]}"#,
    r#"advantage={kind="grpo",eps=#,ddof=#}"#,
    r#"shaping={kind="unlikely",beta=#}"#,
    r#"shaping={kind="smoothing",correct=#,wrong=#}"#,
    r#"shaping={kind="ha_dw",scale=#,eta=#,window=#,anchor=#}"#,
    r#"correction={kind="mask",low=#,high=#}"#,
];

const VERL: &str = r#"{"input": "user
2+2?
assistant
", "output": "\boxed{4}", "gts": "4", "score": 1.0, "step": 1, "uid": "a_0_1", "data_source": "gsm8k"}
{"input": "user
2+2?
assistant
", "output": "\boxed{5}", "gts": "4", "score": 0.0, "step": 1, "uid": "a_0_2", "data_source": "gsm8k"}
"#;

const LM_EVAL: &str = r#"{"doc_id": 0, "doc": {"problem": "2+2?", "answer": "4"}, "target": "4", "arguments": [["2+2?", {}]], "resps": [["\boxed{4}", "\boxed{5}"]], "filtered_resps": ["4"], "exact_match": 1}
{"doc_id": 1, "doc": {"problem": "3+3?", "answer": "6"}, "target": "6", "arguments": [["3+3?", {}]], "resps": [["\boxed{6}", "\boxed{6}"]], "filtered_resps": ["6"], "exact_match": 1}
"#;

const COMMANDS: [&str; 31] = [
    "init --arch llama --heads # --kv-heads # --out new",
    "init --arch qwen3 --layers # --out new",
    "init --arch qwen2 --hidden-size # --out new",
    "init --arch llama --hidden-size 2 --heads 1 --kv-heads 1 --layers 1 --head-dim # --out new",
    "init --arch llama --hidden-size 2 --heads 1 --kv-heads 1 --layers 1 --vocab-size # --intermediate-size # --out new",
    "init --arch llama --context # --rope-theta # --llama3-scaling # --std # --out new",
    "init --arch llama --seed # --hidden-size 16 --out new",
    "maze show --size # --seed # --index #",
    "maze show --held-out --size 9 --index #",
    "theory tail-miss --mu # --tau # --n #",
    "theory active --mu # --n #",
    "theory peak --mu # --tau #",
    "theory sampled-mass --probabilities 0.5,0.3,0.2 --correct 0 --n # -k #",
    "theory advantage --success-rate # --gamma # --n #",
    "theory low-lr --gamma #",
    "theory mass --probabilities #,0.5 --correct # --sample # --lr #",
    "theory mass --logits #,# --correct 0 --sample 1 --subset #",
    "plan SAMPLES --group-sizes #,# --tail #",
    "pass-at-k SAMPLES -k # --uneven --seed # --resamples 100",
    "compare SAMPLES SAMPLES -k # --m # --uneven --resamples 100",
    "table base=SAMPLES -k # --m # --uneven",
    "data synlogic --task game_of_24 --n 2 --difficulty # --seed # --out new.jsonl",
    "score --model MODEL TOKENS --temperature # --threads #",
    "verify math LINES --threads #",
    "select RUN -k #",
    "generate --model MODEL hi --max-tokens # --temperature # --seed # --threads #",
    "generate --model MODEL DATA --max-tokens 4 --top-k # --top-p # --min-p #",
    "data show DATA --limit #",
    "nll EVALUATED --base MODEL --model x=MODEL --share # --pool # --least #",
    "diversity EVALUATED --max-tokens #",
    "eval --model MODEL --task maze --maze-size # --maze-seed # --maze-problems 2 -n # --max-tokens # --out new",
];

fn fgrpo(arguments: &[&str], folder: &Path) {
    let output =
        Command::new(env!("CARGO_BIN_EXE_fgrpo")).args(arguments).current_dir(folder).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Copies the contents of a folder.
pub(crate) fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    assert!(Command::new("cp").arg("-r").arg(from.join(".")).arg(to).status().unwrap().success());
}

/// Writes `text.toml`, a configuration on problems of this kind in a file.
pub(crate) fn text_config(folder: &Path, kind: &str, data: &str, model: &str) {
    let text = format!(
        "steps = 1\n[task]\nkind = {kind:?}\ndata = {data:?}\nheld_out_share = 0\n[model]\npath = {model:?}\n\
         [rollout]\nmax_new_tokens = 4\n[eval]\nevery = 0\n[compute]\nthreads = 1\n"
    );
    std::fs::write(folder.join("text.toml"), text).unwrap();
}

impl Inputs {
    /// Puts the valid inputs, which are made once, into `root`.
    pub(crate) fn make(root: &Path) -> Self {
        static MADE: OnceLock<tempfile::TempDir> = OnceLock::new();
        let made = MADE.get_or_init(|| {
            let folder = tempfile::tempdir().unwrap();
            Self::write(folder.path());
            folder
        });
        copy(made.path(), root);
        Self { root: root.to_owned() }
    }

    fn write(root: &Path) {
        let sft = "sft arithmetic-quick --out base --set sft.steps=1 --set sft.eval_every=0 --set task.train=8 --set task.held_out=2 \
            --set model.init.hidden_size=16 --set model.init.intermediate_size=32 --set model.init.num_hidden_layers=1";
        fgrpo(&sft.split_whitespace().collect::<Vec<_>>(), root);
        copy(&root.join("base/checkpoints/step-000001"), &root.join("model"));
        std::fs::write(root.join("maze.toml"), MAZE).unwrap();
        fgrpo(&["train", "maze.toml", "--out", "run"], root);
        std::fs::write(root.join("samples.jsonl"), SAMPLES).unwrap();
        std::fs::write(root.join("tokens.jsonl"), "{\"tokens\": [5, 6, 7]}\n").unwrap();
        let rows = |i: u32| format!("{{\"problem\": \"Take {i}. Add 1.\", \"answer\": \"{}\"}}\n", i + 1);
        std::fs::write(root.join("data.jsonl"), (0..6).map(rows).collect::<String>()).unwrap();
        std::fs::write(root.join("data.csv"), "question,answer,level\n\"2+2, please?\",4,1\n3+3?,6,2\n")
            .unwrap();
        fgrpo(&["data", "synlogic", "--task", "game_of_24", "--n", "3", "--out", "data.parquet"], root);
        // Right answers, so that there are correct samples to compare.
        let answer = |p: u32, i: u32| {
            format!("{{\"problem\": {p}, \"sample\": {i}, \"text\": \"way {i}: \\\\boxed{{{}}}\"}}\n", p + 1)
        };
        let made = (0..6).flat_map(|p| (0..3).map(move |i| answer(p, i))).collect::<String>();
        std::fs::write(root.join("made.jsonl"), made).unwrap();
        let graded = ["--data", "data.jsonl", "--task", "math", "-n", "3", "--out", "evaluated"];
        fgrpo(&[&["eval", "--samples", "made.jsonl"][..], &graded].concat(), root);
    }

    /// Makes case `number` and writes its files to `place`.
    pub(crate) fn case(&self, number: u64, place: &Path) -> Case {
        let mut draws = Draws::new(number);
        std::fs::create_dir_all(place).unwrap();
        let draws = &mut draws;
        match number % 13 {
            0 => self.configuration(draws, place),
            1 => self.setting(draws),
            2 => self.samples(draws, place),
            3 => self.data(draws, place),
            4 => self.weights(draws, place),
            5 => self.model_settings(draws, place),
            6 => self.tokenizer(draws, place),
            7 => self.template(draws, place),
            8 => self.lines(draws, place),
            9 => self.run_folder(draws, place),
            10 => self.evaluation(draws, place),
            11 => self.dumps(draws, place),
            _ => self.command(draws),
        }
    }

    fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.root.join(name)).unwrap()
    }

    fn at(&self, name: &str) -> String {
        self.root.join(name).display().to_string()
    }

    fn configuration(&self, draws: &mut Draws, place: &Path) -> Case {
        std::fs::write(place.join("bad.toml"), damage(MAZE.as_bytes(), draws)).unwrap();
        case("configuration", "train bad.toml --dry-run", &["bad.toml"])
    }

    /// Sets any key to any number with `--set`.
    fn setting(&self, draws: &mut Draws) -> Case {
        let table: toml::Table = MAZE.parse().unwrap();
        let mut keys = Vec::new();
        numbers("", &table, &mut keys);
        let more = "epochs sft.epochs sft.warmup_steps sft.eval_every sft.eval_problems sft.seed update.warmup_steps \
            update.mini_batch update.weight_decay update.max_grad_norm update.max_skipped rollout.max_cached_tokens \
            rollout.top_p rollout.min_p eval.temperature eval.problems algorithm.loss.dual_clip algorithm.advantage.eps \
            algorithm.advantage.ddof algorithm.entropy_coef algorithm.kl_coef log.rollout_share";
        keys.extend(more.split_whitespace().map(str::to_owned));
        if draws.below(6) == 0 {
            let table = draws.of(&TABLES);
            let parts = table.split('#').map(str::to_owned);
            let table = parts.reduce(|text, part| format!("{text}{}{part}", draws.number())).unwrap();
            let config = self.at("maze.toml");
            let mut case =
                case("--set", &format!("train {config} --dry-run --set algorithm.{table}"), &["algorithm."]);
            case.names.push("rollout.".to_owned());
            return case;
        }
        let (key, value) = (draws.of(&keys).clone(), draws.number());
        let value =
            if draws.below(8) == 0 { format!("{value},{value},{value}") } else { (*value).to_owned() };
        let config = self.at("maze.toml");
        let mut case = case("--set", &format!("train {config} --dry-run --set {key}={value}"), &["--set"]);
        case.names.push(key.rsplit('.').next().unwrap().to_owned());
        // A size that is refused, and one with which it doesn't fit.
        case.names.extend(["num_attention_heads", "head size", "rollout.", "eval."].map(str::to_owned));
        case
    }

    fn samples(&self, draws: &mut Draws, place: &Path) -> Case {
        std::fs::write(place.join("bad.jsonl"), damage(SAMPLES.as_bytes(), draws)).unwrap();
        let good = self.at("samples.jsonl");
        let line = match draws.below(4) {
            0 => "pass-at-k bad.jsonl --uneven --resamples 100 --by-problem".into(),
            1 => format!("compare {good} bad.jsonl --uneven --resamples 100"),
            2 => "plan bad.jsonl".into(),
            _ => "table base=bad.jsonl -k 1 --uneven".to_owned(),
        };
        // In a comparison, the problems may differ from those of the valid file.
        case("samples", &line, &["bad.jsonl", "bad", "problem"])
    }

    fn data(&self, draws: &mut Draws, place: &Path) -> Case {
        let (file, task) = *draws.of(&[
            ("data.jsonl", "math"),
            ("data.csv", "math"),
            ("data.parquet", "synlogic"),
            ("data.parquet", "synlogic"),
        ]);
        let bad = file.replace("data", "bad");
        std::fs::write(place.join(&bad), damage(&self.read(file), draws)).unwrap();
        let model = self.at("model");
        text_config(place, task, &bad, &model);
        let line = match draws.below(4) {
            0 => format!("data show {bad} --task {task} --limit 100"),
            1 => format!("generate {bad} --model {model} --max-tokens 4 --threads 1"),
            _ => "train text.toml --dry-run".to_owned(),
        };
        case("data", &line, &[&bad])
    }

    fn weights(&self, draws: &mut Draws, place: &Path) -> Case {
        copy(&self.root.join("model"), &place.join("bad"));
        let mut bytes = self.read("model/model.safetensors");
        let header = 8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        // Mostly damages the header, because values are checked one by one.
        if draws.below(8) == 0 {
            bytes = damage(&bytes, draws);
        } else {
            let mut head = damage(&bytes[8..header], draws);
            if draws.below(2) == 0 {
                head.resize(header - 8, b' ');
            }
            let mut whole = (head.len() as u64).to_le_bytes().to_vec();
            whole.extend(head);
            whole.extend(&bytes[header..]);
            bytes = whole;
        }
        std::fs::write(place.join("bad/model.safetensors"), bytes).unwrap();
        case(
            "weights",
            &format!("score --model bad {} --threads 1", self.at("tokens.jsonl")),
            &["bad", "logits"],
        )
    }

    fn model_settings(&self, draws: &mut Draws, place: &Path) -> Case {
        copy(&self.root.join("model"), &place.join("bad"));
        let file = *draws.of(&["config.json", "generation_config.json"]);
        let bytes = damage(&self.read(&format!("model/{file}")), draws);
        std::fs::write(place.join("bad").join(file), bytes).unwrap();
        case(
            "model settings",
            &format!("score --model bad {} --threads 1", self.at("tokens.jsonl")),
            &["bad"],
        )
    }

    fn tokenizer(&self, draws: &mut Draws, place: &Path) -> Case {
        copy(&self.root.join("model"), &place.join("bad"));
        let file = *draws.of(&["tokenizer.json", "tokenizer.json", "tokenizer_config.json"]);
        let mut bytes = self.read(&format!("model/{file}"));
        if file == "tokenizer.json" && draws.below(2) == 0 {
            bytes = with_component(&bytes, *draws.of(&COMPONENTS));
            bytes = if draws.below(3) == 0 { damage(&bytes, draws) } else { bytes };
        } else {
            bytes = damage(&bytes, draws);
        }
        std::fs::write(place.join("bad").join(file), bytes).unwrap();
        case(
            "tokenizer",
            "init --arch llama --hidden-size 16 --layers 1 --tokenizer bad --out new",
            &["bad", "--vocab-size"],
        )
    }

    fn template(&self, draws: &mut Draws, place: &Path) -> Case {
        copy(&self.root.join("model"), &place.join("bad"));
        let good = self.read("model/chat_template.jinja");
        let text = match draws.below(3) {
            0 => draws.of(&TEMPLATES).as_bytes().to_vec(),
            1 => damage(draws.of(&TEMPLATES).as_bytes(), draws),
            _ => damage(&good, draws),
        };
        std::fs::write(place.join("bad/chat_template.jinja"), text).unwrap();
        text_config(place, "math", &self.at("data.jsonl"), "bad");
        // A template may render nothing but a prompt that is too long.
        case("template", "train text.toml --dry-run", &["bad", "prompt longer"])
    }

    fn lines(&self, draws: &mut Draws, place: &Path) -> Case {
        let (kind, line) = *draws.of(&VERIFY);
        std::fs::write(place.join("bad.jsonl"), damage(format!("{line}\n{line}\n").as_bytes(), draws))
            .unwrap();
        case("lines", &format!("verify {kind} bad.jsonl --threads 1"), &["bad.jsonl"])
    }

    fn run_folder(&self, draws: &mut Draws, place: &Path) -> Case {
        let run = place.join("bad");
        copy(&self.root.join("run"), &run);
        let files = ["config.toml", "metrics.jsonl", "eval.jsonl", "sft.jsonl", "rollouts.jsonl"];
        let mut files: Vec<PathBuf> =
            files.iter().map(|file| run.join(file)).filter(|file| file.exists()).collect();
        for file in ["trainer_state.json", "optimizer.safetensors"] {
            files.extend(Some(run.join("checkpoints/step-000002").join(file)).filter(|file| file.exists()));
        }
        let file = draws.of(&files).clone();
        std::fs::write(&file, damage(&std::fs::read(&file).unwrap(), draws)).unwrap();
        let maze = self.at("maze.toml");
        let line = match draws.below(3) {
            0 => "report bad --out report.html".to_owned(),
            1 => "select bad".to_owned(),
            _ => format!("train {maze} --out bad --resume --set steps=3 --accept-changes"),
        };
        // The last two messages name steps and settings that the folder's files name.
        case("run folder", &line, &["bad", "interrupted", "pass@"])
    }

    /// A folder of `fgrpo eval` with a damaged file.
    fn evaluation(&self, draws: &mut Draws, place: &Path) -> Case {
        copy(&self.root.join("evaluated"), &place.join("bad"));
        let names = ["evaluation.json", "generations.jsonl", "prompts.jsonl", "samples.jsonl"];
        let file = place.join("bad").join(draws.of(&names));
        std::fs::write(&file, damage(&std::fs::read(&file).unwrap(), draws)).unwrap();
        let (model, good) = (self.at("model"), self.at("evaluated"));
        let line = match draws.below(5) {
            0 => format!("nll bad --base {model} --model x={model}"),
            1 => "diversity bad".to_owned(),
            2 => format!("compare {good} bad --uneven --resamples 100"),
            3 => format!(
                "eval --samples {} --data {} --task math -n 3 --out bad",
                self.at("made.jsonl"),
                self.at("data.jsonl")
            ),
            _ => "pass-at-k bad --uneven --resamples 100".to_owned(),
        };
        // In a comparison, the problems may differ from those of the valid folder.
        case("evaluation", &line, &["bad", "problem", "benchmark"])
    }

    /// Files of verl and lm-eval.
    fn dumps(&self, draws: &mut Draws, place: &Path) -> Case {
        let (name, good) = *draws.of(&[("bad.jsonl", VERL), ("samples_bad_2026-11-22.jsonl", LM_EVAL)]);
        std::fs::write(place.join(name), damage(good.as_bytes(), draws)).unwrap();
        let line = match draws.below(3) {
            0 => format!("pass-at-k {name} --uneven --resamples 100"),
            1 => format!("table base={name} -k 1 --uneven"),
            _ => format!("compare {} {name} --uneven --resamples 100", self.at("samples.jsonl")),
        };
        case("dumps", &line, &["bad", "problem", "benchmark"])
    }

    fn command(&self, draws: &mut Draws) -> Case {
        let line = *draws.of(&COMMANDS);
        let mut words = Vec::new();
        for word in line.split(' ') {
            let word = match word {
                "SAMPLES" => self.at("samples.jsonl"),
                "base=SAMPLES" => format!("base={}", self.at("samples.jsonl")),
                "MODEL" => self.at("model"),
                "TOKENS" | "LINES" => self.at("tokens.jsonl"),
                "RUN" => self.at("run"),
                "DATA" => self.at("data.jsonl"),
                "EVALUATED" => self.at("evaluated"),
                word => word.split('#').enumerate().fold(String::new(), |text, (i, part)| {
                    if i == 0 { part.to_owned() } else { format!("{text}{}{part}", draws.number()) }
                }),
            };
            words.push(OsString::from(word));
        }
        if draws.below(12) == 0 {
            let at = 1 + draws.below(words.len() - 1);
            words[at] = OsString::from_vec(vec![b'a', 0xff, b'/', b'b']);
        }
        // The name of a flag, or of its quantity in the formulas.
        let names = line
            .split(' ')
            .filter(|word| word.starts_with('-'))
            .map(|word| word.trim_start_matches('-').to_owned());
        let mut names: Vec<String> = names.collect();
        names.extend(["Usage", "error: ", "samples.jsonl"].map(str::to_owned));
        Case { kind: "command", arguments: words, names }
    }
}

/// Keys of a table whose values are numbers.
fn numbers(prefix: &str, table: &toml::Table, keys: &mut Vec<String>) {
    for (key, value) in table {
        match value {
            toml::Value::Table(inner) => numbers(&format!("{prefix}{key}."), inner, keys),
            toml::Value::String(_) => {}
            _ => keys.push(format!("{prefix}{key}")),
        }
    }
}

/// Parts of a tokenizer that can be parsed but may make the library fail at the first string.
pub(crate) const COMPONENTS: [(&str, &str); 12] = [
    ("normalizer", r#"{"type": "Replace", "pattern": {"String": ""}, "content": "x"}"#),
    ("normalizer", r#"{"type": "Replace", "pattern": {"Regex": ""}, "content": "xx"}"#),
    ("normalizer", r#"{"type": "Precompiled", "precompiled_charsmap": "AAAA"}"#),
    ("normalizer", r#"{"type": "Precompiled", "precompiled_charsmap": "/////wAA"}"#),
    ("normalizer", r#"{"type": "Prepend", "prepend": ""}"#),
    (
        "pre_tokenizer",
        r#"{"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": false}"#,
    ),
    (
        "pre_tokenizer",
        r#"{"type": "Split", "pattern": {"String": ""}, "behavior": "Isolated", "invert": true}"#,
    ),
    ("pre_tokenizer", r#"{"type": "FixedLength", "length": 0}"#),
    ("decoder", r#"{"type": "Strip", "content": " ", "start": 1000000, "stop": 1000000}"#),
    ("decoder", r#"{"type": "Strip", "content": "a", "start": 18446744073709551615, "stop": 1}"#),
    ("decoder", r#"{"type": "WordPiece", "prefix": "", "cleanup": true}"#),
    ("post_processor", r#"{"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true}"#),
];

/// A tokenizer with one of its parts replaced.
pub(crate) fn with_component(tokenizer: &[u8], (place, value): (&str, &str)) -> Vec<u8> {
    let mut json: serde_json::Value = serde_json::from_slice(tokenizer).unwrap();
    json[place] = serde_json::from_str(value).unwrap();
    json.to_string().into_bytes()
}

fn case(kind: &'static str, line: &str, names: &[&str]) -> Case {
    Case {
        kind,
        arguments: line.split(' ').map(OsString::from).collect(),
        names: names.iter().map(|name| (*name).to_owned()).collect(),
    }
}
