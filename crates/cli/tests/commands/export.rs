//! `fgrpo export`: the job of a configuration for verl.

use crate::support::{done, ends, fgrpo, file, lines, model, refused, run};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Writes a configuration of sums with quotes, and a grader's file, into `folder`.
fn config(folder: &Path) -> PathBuf {
    let row =
        |i| serde_json::json!({"problem": format!("It's {i} + \"{i}\"?"), "answer": format!("{}", 2 * i)});
    let rows: String = (0..24).map(|i| format!("{}\n", row(i))).collect();
    let data = file(folder, "sums.jsonl", &rows);
    let text = format!(
        "steps = 4\n[task]\nkind = \"math\"\ndata = {data:?}\nheld_out_share = 0.2\n[model]\npath = {:?}\n\
         [rollout]\nprompts = 4\ngroup_size = 2\nmax_new_tokens = 4\n[update]\nwarmup_steps = 2\n\
         [eval]\nevery = 0\nsamples = 2\nk = [1]\n[log]\nrollout_share = 1.0\n[save]\nevery = 0\n",
        model()
    );
    file(folder, "sums.toml", &text)
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// The rows of a Parquet file.
fn rows(path: &Path) -> Vec<Value> {
    let rows = fgrpo_eval::dataset::rows::read(path).unwrap();
    rows.into_iter().map(Value::Object).collect()
}

/// The settings of a job, by verl's keys.
fn settings(job: &Path) -> BTreeMap<String, Value> {
    let job: Value = serde_json::from_slice(&std::fs::read(job.join("job.json")).unwrap()).unwrap();
    let all = job["settings"].as_array().unwrap().iter();
    all.map(|s| (s["key"].as_str().unwrap().to_owned(), s["value"].clone())).collect()
}

#[test]
fn a_job_asks_the_prompts_of_every_step_in_the_order_of_training() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path());
    let (job, trained) = (folder.path().join("job"), folder.path().join("run"));
    done(&["export", "verl", path(&config), "--out", path(&job), "--gpus", "4"]);
    done(&["train", path(&config), "--out", path(&trained)]);
    let exported = rows(&job.join("train.parquet"));
    assert_eq!(exported.len(), 4 * 4);
    let logged = lines(&trained.join("rollouts.jsonl"));
    for (step, batch) in exported.chunks(4).enumerate() {
        let question = |row: &Value| row["prompt"].as_array().unwrap().last().unwrap()["content"].clone();
        let mut asked: Vec<String> = batch.iter().map(|row| question(row).to_string()).collect();
        let of_step = logged.iter().filter(|line| line["step"] == step as u64 + 1);
        let mut prompted: Vec<String> = of_step.map(|line| line["prompt"].to_string()).collect();
        prompted.dedup();
        asked.sort();
        prompted.sort();
        assert_eq!(prompted.len(), 4, "step {step}");
        for (asked, prompted) in asked.iter().zip(&prompted) {
            assert!(prompted.contains(asked.trim_matches('"')), "step {step}: {asked} in {prompted}");
        }
    }
    // A reference answer keeps its kind, and held-out problems aren't among the training problems.
    assert!(exported[0]["reward_model"]["ground_truth"].as_str().unwrap().contains("\"kind\":\"math\""));
    let held_out = rows(&job.join("held-out.parquet"));
    assert!(!held_out.is_empty());
    let id = |row: &Value| row["extra_info"]["problem"].clone();
    assert!(held_out.iter().all(|row| exported.iter().all(|other| id(other) != id(row))));
}

#[test]
fn a_job_has_the_settings_of_the_configuration_and_its_programs_run() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path());
    let job = folder.path().join("job");
    let set = [
        "--set",
        "algorithm.loss={kind='grpo', clip=[0.1, 0.3], dual_clip=0}",
        "--set",
        "algorithm.kl_coef=0.01",
    ];
    ends(0, command!("export verl", path(&config), "--out", path(&job), "--gpus 2 --tp 2", ..&set));
    let settings = settings(&job);
    for (key, value) in [
        ("actor_rollout_ref.actor.clip_ratio_low", "0.1"),
        ("actor_rollout_ref.actor.clip_ratio_high", "0.3"),
        ("actor_rollout_ref.actor.clip_ratio_c", "1000000000.0"),
        ("actor_rollout_ref.actor.kl_loss_type", "\"k3\""),
        ("actor_rollout_ref.actor.optim.lr_scheduler_type", "\"cosine\""),
        ("actor_rollout_ref.actor.optim.min_lr_ratio", "1.0"),
        ("actor_rollout_ref.actor.optim.zero_indexed_step", "false"),
        ("actor_rollout_ref.rollout.tensor_model_parallel_size", "2"),
        ("actor_rollout_ref.rollout.top_k", "-1"),
        ("trainer.test_freq", "-1"),
        ("trainer.save_freq", "4"),
        ("+algorithm.focal_gamma", "0.5"),
    ] {
        assert_eq!(settings[key].to_string(), value, "{key}");
    }
    // The shell passes each setting as one word.
    let python = file(
        folder.path(),
        "python3",
        "#!/bin/sh\n[ \"$1\" = - ] && exit 0\nfor a in \"$@\"; do echo \"$a\"; done\n",
    );
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&python, executable).unwrap();
    let search = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
    let ran = std::process::Command::new(job.join("run.sh"))
        .arg("trainer.total_training_steps=2")
        .env("PATH", search)
        .output()
        .unwrap();
    let words = String::from_utf8(ran.stdout).unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    assert!(words.contains("\n+algorithm.focal_estimator={kind:grpo,eps:1e-6,ddof:1}\n"), "{words}");
    assert!(words.contains("\ntrainer.logger=[\"console\",\"tensorboard\"]\n"), "{words}");
    assert!(words.ends_with("\ntrainer.total_training_steps=2\n"), "{words}");
    // The configuration of the job names the job's copies.
    let shown = run(fgrpo().args(["data", "show", "config.toml", "--json"]).current_dir(&job));
    assert_eq!(shown.2, 0, "{}", shown.1);
}

#[test]
fn the_problems_of_a_mix_name_their_part_and_come_by_weight() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path());
    let text = std::fs::read_to_string(config).unwrap();
    let mix = text.replace("[task]", "[task]\nkind = \"mix\"\n[[task.parts]]\nname = \"sums of two\"");
    let mix = file(folder.path(), "a mix's.toml", &mix);
    let job = folder.path().join("job");
    let export = ["export", "verl", path(&mix), "--out", path(&job), "--gpus", "4"];
    assert!(refused(&[&export[..], &["--order", "shuffle"]].concat()).contains("a mix"));
    done(&export);
    for split in ["train", "held-out"] {
        let rows = rows(&job.join(format!("{split}.parquet")));
        assert!(!rows.is_empty() && rows.iter().all(|row| row["data_source"] == "sums of two"), "{split}");
    }
    assert_eq!(settings(&job)["trainer.experiment_name"], "a mix's");
}

#[test]
fn settings_that_verl_lacks_are_refused_together_unless_they_are_allowed() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path());
    let job = folder.path().join("job");
    let lacking =
        ["--set", "update.schedule=linear", "--set", "rollout.min_p=0.1", "--set", "algorithm.daro=true"];
    let export = ["export", "verl", path(&config), "--out", path(&job)];
    let message = refused(&[&export[..], &lacking].concat());
    for key in ["update.schedule", "rollout.min_p", "algorithm.daro"] {
        assert!(message.contains(key), "{message}");
    }
    assert!(!job.exists());
    let allowed = ["--allow", "update.schedule", "--allow", "rollout.min_p", "--allow", "algorithm.daro"];
    done(&[&export[..], &lacking, &allowed].concat());
    let page = std::fs::read_to_string(job.join("README.md")).unwrap();
    assert!(page.contains("| `rollout.min_p` |"), "{page}");
    assert!(refused(&export).contains("exists"));
    let other = folder.path().join("other");
    let idle = ["export", "verl", path(&config), "--out", path(&other), "--allow", "rollout.min_p"];
    assert!(refused(&idle).contains("rollout.min_p"));
    for (set, named) in
        [("sft.steps=3", "[sft]"), ("model.path=model.gguf", ".gguf"), ("rollout.group_size=3", "GPUs")]
    {
        let message = refused(&["export", "verl", path(&config), "--out", path(&other), "--set", set]);
        assert!(message.contains(named), "{message}");
    }
    let maze = refused(&["export", "verl", "maze-quick", "--out", path(&other), "--model", "x"]);
    assert!(maze.contains("task.kind"), "{maze}");
}

#[test]
fn graders_are_copied_with_their_modules_beside_neither_each_other_nor_the_jobs_own_files() {
    let folder = tempfile::tempdir().unwrap();
    let text = std::fs::read_to_string(config(folder.path())).unwrap();
    let data = folder.path().join("sums.jsonl");
    let mut parts = "[task]\nkind = \"mix\"\n".to_owned();
    for part in ["a", "b"] {
        let place = folder.path().join(part);
        std::fs::create_dir_all(place.join("rules/inner")).unwrap();
        std::fs::create_dir_all(place.join("datasets")).unwrap();
        let code = "import json, texts as t\nimport datasets\ndef reward(completion, **row):\n    from rules.inner import same\n";
        file(&place, "reward.py", &format!("{code}    return 1.0  # {part}\n"));
        file(&place, "texts.py", "import reward\n");
        file(&place, "rules/inner/__init__.py", "same = 1");
        file(&place, "rules/other.py", "import last\n");
        file(&place, "last.py", part);
        file(&place, "datasets/large.bin", "not code");
        file(&place, "unused.py", "");
        parts += &format!(
            "[[task.parts]]\nname = {part:?}\nkind = \"python\"\ngrader = {:?}\ndata = {data:?}\nheld_out_share = 0.2\n",
            format!("{}:reward", place.join("reward.py").display())
        );
    }
    let mix = format!("steps = 4\n{parts}{}", &text[text.find("[model]").unwrap()..]);
    let mix = file(folder.path(), "mix.toml", &mix);
    for trainer in ["verl", "trl", "skyrl"] {
        let job = folder.path().join(trainer);
        done(&["export", trainer, path(&mix), "--out", path(&job), "--gpus", "4"]);
        let read = |name: &str| std::fs::read_to_string(job.join(name)).unwrap();
        for part in ["a", "b"] {
            let own = |name: &str| format!("grader/{part}/{name}");
            assert!(read(&own("reward.py")).ends_with(&format!("# {part}\n")));
            assert_eq!(read(&own("last.py")), part);
            assert!(job.join(own("texts.py")).exists() && job.join(own("rules/inner/__init__.py")).exists());
            assert!(!job.join(own("datasets/large.bin")).exists() && !job.join(own("unused.py")).exists());
            assert!(read("config.toml").contains(&own("reward.py:reward")));
        }
        assert!(read("reward.py").contains("def compute_score"));
    }
}

#[test]
fn a_job_without_held_out_problems_gives_verl_a_row_to_load() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path());
    let job = folder.path().join("job");
    let export =
        command!("export verl", path(&config), "--out", path(&job), "--gpus 4 --set task.held_out_share=0");
    ends(0, export);
    assert_eq!(rows(&job.join("held-out.parquet")).len(), 1);
    let settings = settings(&job);
    assert_eq!(
        (&settings["trainer.test_freq"], &settings["trainer.val_before_train"]),
        (&(-1).into(), &false.into())
    );
}

/// A root folder with small data, and a tiny model that replaces the paper's.
fn paper_root(folder: &Path) -> PathBuf {
    let root = folder.join("root");
    std::fs::create_dir_all(root.join("models")).unwrap();
    for name in ["Qwen2.5-7B", "Qwen3-4B-Base", "Llama-3.2-3B-Instruct", "Qwen3-1.7B"] {
        std::os::unix::fs::symlink(model(), root.join("models").join(name)).unwrap();
    }
    let sums = |n: u32| -> String {
        let row = |i| serde_json::json!({"problem": format!("{i} + {i}?"), "answer": format!("{}", 2 * i)});
        (0..n).map(|i| format!("{}\n", row(i))).collect()
    };
    std::fs::create_dir_all(root.join("data")).unwrap();
    let rows: Vec<Value> = sums(300).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    file(&root, "data/deepscaler.json", &serde_json::to_string(&rows).unwrap());
    file(&root, "data/aime25.jsonl", &sums(4));
    let puzzles = root.join("data/synlogic.parquet");
    done(&["data", "synlogic", "--task", "all", "--n", "300", "--out", path(&puzzles)]);
    root
}

#[test]
fn full_scale_rows_of_the_paper_are_jobs_with_the_papers_settings() {
    use fgrpo_paper::plan::{Options, full_rows};
    let folder = tempfile::tempdir().unwrap();
    let root = paper_root(folder.path());
    let options = Options { out: folder.path().into(), set: Vec::new(), root: root.clone() };
    let (mut jobs, mut seen) = (0, BTreeSet::new());
    for table in ["table-1", "table-2", "table-3", "table-4"] {
        let item = fgrpo_paper::data::item(table).unwrap();
        for row in full_rows(item, &options).unwrap() {
            // Each table, model and method once: the other rows combine them.
            let parts = row.name.split('/').chain([table]).map(str::to_owned);
            if parts.filter(|part| seen.insert(part.clone())).count() == 0 {
                continue;
            }
            let (name, job) = (format!("{table}/{}", row.name), folder.path().join("job"));
            let mut words =
                vec!["export", "verl", "--paper", &name, "--root", path(&root), "--out", path(&job)];
            words.extend(["--nodes", "2", "--engine", "sglang"]);
            // verl has no counterpart of these controls. The command names their keys.
            let method = row.name.rsplit('/').next().unwrap();
            if let Some((_, key)) = [("RUL", "shaping"), ("DS-GRPO", "shaping"), ("DARO", "daro")]
                .iter()
                .find(|(m, _)| *m == method)
            {
                assert!(refused(&words).contains(&format!("algorithm.{key}:")), "{name}");
                continue;
            }
            done(&words);
            let (set, algorithm) = (settings(&job), &row.config.algorithm);
            let clip = match method.trim_start_matches("F-") {
                "DAPO" => [0.2, 0.28],
                "CISPO" => [1.0, 5.0],
                _ => [0.2, 0.2],
            };
            let actor = |key: &str| set[&format!("actor_rollout_ref.actor.{key}")].as_f64().unwrap();
            let rollout = |key: &str| set[&format!("actor_rollout_ref.rollout.{key}")].clone();
            assert_eq!([actor("clip_ratio_low"), actor("clip_ratio_high")], clip, "{name}");
            assert_eq!(set["+algorithm.focal_gamma"].as_f64(), algorithm.focal_gamma, "{name}");
            assert_eq!(rollout("n"), row.config.rollout.group_size, "{name}");
            assert_eq!(rollout("name"), "sglang");
            assert_eq!((&set["data.train_batch_size"], actor("ppo_mini_batch_size")), (&256.into(), 64.0));
            let longest = if name.contains("Qwen3") || table == "table-3" { 4096 } else { 8192 };
            assert_eq!(
                (&set["data.max_prompt_length"], &set["data.max_response_length"]),
                (&1024.into(), &longest.into()),
                "{name}"
            );
            assert_eq!(set["actor_rollout_ref.actor.loss_agg_mode"], "token-mean");
            // Ten epochs, with a checkpoint at the end of each: 300 problems are two batches of 256.
            let steps = set["trainer.total_training_steps"].as_u64().unwrap();
            assert_eq!(set["trainer.save_freq"].as_u64().unwrap() * 10, steps, "{name}");
            let back = std::fs::read_to_string(job.join("back.sh")).unwrap();
            assert!(
                back.contains("--suite paper") && back.contains(&row.name) && back.contains("--full"),
                "{back}"
            );
            std::fs::remove_dir_all(&job).unwrap();
            jobs += 1;
        }
    }
    assert!(jobs > 12, "{jobs}");
}

#[test]
fn a_row_of_the_paper_is_named_whole_and_its_data_come_from_the_hub_if_they_are_not_here() {
    let folder = tempfile::tempdir().unwrap();
    let job = folder.path().join("job");
    let listed = refused(&["export", "verl", "--paper", "table-1", "--out", path(&job)]);
    assert!(listed.contains("table-1/Qwen2.5-7B/F-GRPO"), "{listed}");
    let mut command = fgrpo();
    command.env("HF_HUB_OFFLINE", "1").env("HF_HOME", folder.path());
    command.args([
        "export",
        "verl",
        "--paper",
        "table-1/Qwen2.5-7B/F-GRPO",
        "--root",
        path(folder.path()),
        "--out",
        path(&job),
    ]);
    let (_, said, code) = run(&mut command);
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("model.path: Qwen/Qwen2.5-7B at main: not in the cache"), "{said}");
    let (_, said, code) = run(command.arg(format!("--set=task.tokenizer={}", model().display())));
    assert!(
        code == 2 && said.contains("task.data: agentica-org/DeepScaleR-Preview-Dataset at main"),
        "{said}"
    );
    assert!(!job.exists());
}
