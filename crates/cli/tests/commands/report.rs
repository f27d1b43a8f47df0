//! `fgrpo report` on synthetic run folders: the contents of a page, and inputs that are refused or tolerated.

use crate::support::{fgrpo, file, lines};
use fgrpo_core::maze::{Move, Split, generate, tokens};
use fgrpo_core::rng::Key;
use fgrpo_core::stats::pass_at_k::pass_at_k;
use fgrpo_train::run::metrics::Metrics;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};

const PROBLEMS: usize = 96;
const SAMPLES: usize = 64;

/// A line of `metrics.jsonl` with these fields. The other fields are those of an empty step.
fn logged(fields: Value) -> Value {
    let mut line = Metrics::default().line();
    let (Value::Object(line_fields), Value::Object(fields)) = (&mut line, fields) else { unreachable!() };
    line_fields.extend(fields);
    line
}

/// A synthetic run. Each problem has a success rate, which training changes: easy problems improve, and without a focal
/// weight some hard ones get worse.
struct Made {
    gamma: f64,
    steps: u64,
    seed: u64,
}

impl Made {
    fn rate(&self, problem: usize, progress: f64) -> f64 {
        // All runs have the same start, as with a shared SFT stage.
        let key = Key::new(77).with(problem as u64);
        let start = (-2.2 + 1.8 * key.normal(0)).clamp(-6.0, 3.0);
        let loss = if self.gamma > 0.0 { 0.35 } else { 1.6 };
        let drift = if start > -3.4 { 3.2 } else { -2.0 * loss };
        let wiggle = 0.4 * Key::new(self.seed).with(problem as u64).normal(1);
        1.0 / (1.0 + (-(start + progress * (drift + wiggle))).exp())
    }

    fn eval(&self, step: u64) -> Value {
        let progress = (step as f64 / self.steps as f64).powf(0.7);
        let counts: Vec<usize> = (0..PROBLEMS)
            .map(|p| {
                let (rate, key) = (
                    self.rate(p, progress),
                    Key::new(if step == 0 { 1 } else { self.seed }).with(step).with(p as u64),
                );
                (0..SAMPLES as u64).filter(|&s| key.uniform(s) < rate).count()
            })
            .collect();
        let (mut pass, mut interval) = (serde_json::Map::new(), serde_json::Map::new());
        for k in [1usize, 2, 4, 8, 16, 32, 64] {
            let mean = counts.iter().map(|&c| pass_at_k(SAMPLES, c, k)).sum::<f64>() / PROBLEMS as f64;
            let half = 1.96 * (mean * (1.0 - mean) / PROBLEMS as f64).sqrt();
            pass.insert(k.to_string(), json!(mean));
            interval.insert(k.to_string(), json!([mean - half, mean + half]));
        }
        let examples: Vec<Value> = (0..6u64)
            .map(|i| {
                let mut moves = generate(9, 5, Split::HeldOut.index(i)).solve().unwrap();
                let right = progress > i as f64 / 6.0;
                if !right {
                    moves.swap(1, 5);
                    moves.pop();
                }
                json!({"problem": i, "completion": tokens::spell(&tokens::completion(&moves)), "target": null, "correct": right})
            })
            .collect();
        json!({"step": step, "set": "held_out", "examples": examples, "problems": PROBLEMS, "completion_length_mean": 15.5, "unscorable": 0, "samples": SAMPLES, "pass_at_k": pass,
               "interval": interval, "per_problem": counts})
    }

    fn metrics(&self, step: u64) -> Value {
        let (key, p) = (Key::new(self.seed).with(step), (step as f64 / self.steps as f64).powf(0.7));
        let noise = |c: u64| 1.0 + 0.05 * key.normal(c);
        let rates: Vec<f64> = (0..64).map(|g| self.rate((step as usize * 64 + g) % PROBLEMS, p)).collect();
        let mut histogram = [0u64; 11];
        for (g, rate) in rates.iter().enumerate() {
            let correct = (0..8).filter(|&i| key.with(9).uniform(g as u64 * 8 + i) < *rate).count();
            histogram[(correct as f64 / 0.8).round() as usize] += 1;
        }
        let reward = rates.iter().sum::<f64>() / 64.0 * noise(2);
        let active = 1.0 - (histogram[0] + histogram[10]) as f64 / 64.0;
        let focal = rates.iter().map(|r| (1.0 - r).powf(self.gamma)).sum::<f64>() / 64.0;
        let correct = (512.0 * reward).round() as u64;
        logged(json!({
            "step": step, "reward_mean": reward, "active_fraction": active, "success_rate_histogram": histogram,
            "focal_weight_mean": focal, "entropy": (0.42 - 0.3 * p) * noise(3), "policy_loss": -0.01 * noise(4),
            "ratio_mean": 1.0, "ratio_max": 1.0 + 1e-6 * noise(5), "kl_to_sampler": 1e-9 * noise(6), "gradient_norm": 0.4 * noise(7), "lr": 3e-5,
            "completion_length_mean": 15.5 + 2.0 * (1.0 - p) * noise(8), "completion_length_max": 48,
            "rollout_tokens_per_second": 21_000.0 * noise(9), "update_tokens_per_second": 9_400.0 * noise(10),
            "seconds": {"rollout": 0.41 * noise(11), "grade": 0.01, "update": 0.93 * noise(12), "evaluate": 0.2, "save": 0.1, "total": 1.7},
            "verdicts": {"correct": correct, "wrong": 500 - correct, "unparsed": 12},
            "reasons": {"correct": correct, "hits_wall": 500 - correct, "no_done": 12},
        }))
    }

    fn rollout(&self, step: u64, i: u64) -> Value {
        let key = Key::new(self.seed).with(step).with(i);
        let index = Split::Train.index(step * 64 + i);
        let maze = generate(9, 5, index);
        let target = maze.solve().unwrap();
        let mut moves = target.clone();
        let good = key.uniform(1) < 0.6;
        if !good {
            let at = key.below(2, moves.len() as u64 - 2) as usize;
            moves[at] = Move::ALL[key.below(3, 4) as usize];
        }
        let completion = tokens::completion(&moves);
        let grade = fgrpo_core::maze::grade(&maze, &completion, fgrpo_core::maze::Scoring::Exact);
        let verdict = if grade.correct() { "correct" } else { "wrong" };
        let reward = f64::from(u8::from(grade.correct()));
        json!({"step": step, "prompt_id": index, "prompt": tokens::spell(&tokens::prompt(&maze)), "completion": tokens::spell(&completion),
               "reward": reward, "verdict": verdict, "reason": grade.reason(), "advantage": (reward - 0.5) * (0.5 + key.uniform(4)),
               "length": completion.len(), "old_logp_mean": -0.01 - 0.6 * key.uniform(5).powi(3), "target": tokens::spell(&tokens::completion(&target))})
    }

    fn write(&self, folder: &Path) {
        fs::create_dir_all(folder).unwrap();
        let lines = |name: &str, values: &mut dyn Iterator<Item = Value>| {
            fs::write(folder.join(name), values.map(|v| format!("{v}\n")).collect::<String>()).unwrap();
        };
        let config = format!(
            "seed = {}\nsteps = {}\n\n[task]\nkind = \"maze\"\nsize = 9\nheld_out = 96\nseed = 5\n\n[rollout]\ngroup_size = 8\nprompts = 64\n\n\
             [algorithm]\nfocal_gamma = {:?}\n\n[algorithm.advantage]\nkind = \"grpo\"\n\n[algorithm.loss]\nkind = \"grpo\"\n\n[update]\nlr = 3e-5\n\n[eval]\nevery = 25\n\n\
             [model.init]\narchitecture = \"qwen2\"\nhidden_size = 16\nintermediate_size = 32\nnum_hidden_layers = 1\nnum_attention_heads = 2\nnum_key_value_heads = 2\n",
            self.seed, self.steps, self.gamma
        );
        fs::write(folder.join("config.toml"), config).unwrap();
        lines("metrics.jsonl", &mut (1..=self.steps).map(|s| self.metrics(s)));
        let session = |started: u64| json!({"started": started, "program": "fgrpo 0.1.0 (abc1234)", "device": "cpu", "processor": "A processor", "threads": 2});
        let mut last = session(1_795_561_368);
        last["memory_peak_bytes"] = json!(303_169_536);
        lines("sessions.jsonl", &mut [session(1_795_500_000), last].into_iter());
        lines("eval.jsonl", &mut (0..=self.steps).step_by(25).map(|s| self.eval(s)));
        lines(
            "rollouts.jsonl",
            &mut (1..=self.steps)
                .step_by(5)
                .flat_map(|s| (0..8).map(move |i| (s, i)))
                .map(|(s, i)| self.rollout(s, i)),
        );
        lines("sft.jsonl", &mut (1..=400u64).map(|s| json!({"step": s, "loss": 0.25 + 1.3 * (-(s as f64) / 60.0).exp() * (1.0 + 0.05 * Key::new(4).normal(s)), "epoch": 0.0, "lr": 5e-4, "gradient_norm": 0.8, "tokens_per_second": 15000.0})));
    }
}

/// An empty folder for this test. It stays after the test, so that its pages can be viewed.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("report").join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

fn report(args: &[&Path]) -> String {
    let output = fgrpo().arg("report").args(args).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    fs::read_to_string(String::from_utf8(output.stdout).unwrap().trim()).unwrap()
}

/// Returns the message of a refusal, which must exit with 2.
fn refused(args: &[&Path]) -> String {
    let output = fgrpo().arg("report").args(args).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stderr).unwrap()
}

/// Every tag that is opened is closed, in order.
fn assert_well_formed(html: &str) {
    let body = html.split("<body>").nth(1).unwrap().split("<script>").next().unwrap();
    let mut open: Vec<&str> = Vec::new();
    for tag in body.split('<').skip(1) {
        let tag = tag.split('>').next().unwrap();
        let name = tag.split([' ', '/']).find(|n| !n.is_empty()).unwrap();
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name), "closing </{name}>");
        } else if !tag.ends_with('/') && !["input", "meta"].contains(&name) {
            open.push(name);
        }
    }
    assert!(open.is_empty(), "left open: {open:?}");
}

/// Changes the lines of a run's file.
fn edit(run: &Path, name: &str, change: impl FnOnce(&mut Vec<Value>)) {
    let mut all = lines(&run.join(name));
    change(&mut all);
    file(run, name, &all.iter().map(|line| format!("{line}\n")).collect::<String>());
}

/// Cuts a run off after a step.
fn stop(run: &Path, last: u64) {
    for name in ["eval.jsonl", "metrics.jsonl"] {
        edit(run, name, |all| all.retain(|line| line["step"].as_u64().unwrap() <= last));
    }
}

/// Writes GRPO and F-GRPO into an empty folder, and returns the options of a report about both.
fn two(name: &str) -> [PathBuf; 4] {
    let folder = folder(name);
    let (grpo, focal) = (folder.join("grpo"), folder.join("f-grpo"));
    Made { gamma: 0.0, steps: 200, seed: 3 }.write(&grpo);
    Made { gamma: 0.5, steps: 200, seed: 3 }.write(&focal);
    [grpo, focal, "--out".into(), folder.join("report.html")]
}

/// Writes runs of 50 steps, each with its name, gamma and seed.
fn written<const N: usize>(folder: &Path, runs: [(&str, f64, u64); N]) -> [PathBuf; N] {
    runs.map(|(name, gamma, seed)| {
        let run = folder.join(name);
        Made { gamma, steps: 50, seed }.write(&run);
        run
    })
}

#[test]
fn page_of_one_run_holds_every_section_and_needs_no_network() {
    let run = folder("one").join("maze-quick");
    Made { gamma: 0.5, steps: 200, seed: 3 }.write(&run);
    let html = report(&[&run]);
    assert_well_formed(&html);
    for anchor in ["summary", "evaluation", "training", "time", "mazes", "rollouts", "configuration"] {
        assert!(html.contains(&format!("<section id=\"{anchor}\">")), "{anchor}");
    }
    for title in [
        "Reward",
        "Active groups",
        "Focal weight",
        "Entropy",
        "Gradient norm",
        "Completion length",
        "Demonstrations (SFT)",
        "pass@1 through training",
        "pass@64 through training",
        "pass@k at the end",
        "log pass@k at the end",
        "Time of a step",
        "Rollout throughput",
        "Update throughput",
        "Success rates of groups",
        "Verdicts by reason",
        "Change since step 0",
        "held-out mazes",
        "held-out 5, step 200",
        "Most surprising",
    ] {
        assert!(html.contains(title), "{title}");
    }
    let origin = "2026-11-24 23:02 UTC (the last of 2 sessions), fgrpo 0.1.0 (abc1234), A processor, 2 threads, 303.2 MB of memory at most";
    assert!(html.contains(origin), "where the run was made");
    assert!(html.contains("<td>2026-11-24 06:00 UTC</td>"), "its first session");
    assert!(
        html.contains("The same at every step: Learning rate (3e\u{2212}5)")
            && !html.contains("<b>Learning rate</b>")
    );
    let outside = html.replace("http://www.w3.org/2000/svg", "");
    assert!(
        !outside.contains("http:") && !outside.contains("https:") && !outside.contains("src="),
        "fetches something"
    );
    assert!(!html.contains("NaN") && !html.contains("inf "), "a number that is none");
    assert!(html.len() < 2_000_000, "{} bytes", html.len());
}

#[test]
fn a_problem_without_a_verdict_is_neither_failed_nor_lost() {
    let run = folder("unscored").join("run");
    Made { gamma: 0.5, steps: 50, seed: 3 }.write(&run);
    let lost = |html: &str| {
        let table = html.split("Problems gained and lost since the first evaluation").nth(1).unwrap();
        let row = table.split("<tbody>").nth(1).unwrap().split("</tr>").next().unwrap().to_owned();
        row.split("<td>").nth(5).unwrap().to_owned()
    };
    let whole = lost(&report(&[&run]));
    // The verifier failed on every sample of a problem that was solved at first.
    let path = run.join("eval.jsonl");
    let text = fs::read_to_string(&path).unwrap();
    let mut evals: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let both = |p: &usize| [0, 2].iter().all(|e| evals[*e]["per_problem"][*p].as_u64().unwrap() > 0);
    let problem = (0..PROBLEMS).find(both).unwrap();
    let mut scored = vec![SAMPLES; PROBLEMS];
    scored[problem] = 0;
    evals[2]["per_problem"][problem] = json!(0);
    evals[2]["scored_per_problem"] = json!(scored);
    fs::write(&path, evals.iter().map(|e| format!("{e}\n")).collect::<String>()).unwrap();
    assert_eq!(lost(&report(&[&run])), whole);
}

#[test]
fn several_runs_are_compared_with_paired_intervals() {
    let folder = folder("two");
    let (grpo, focal) = (folder.join("grpo"), folder.join("f-grpo"));
    Made { gamma: 0.0, steps: 200, seed: 3 }.write(&grpo);
    Made { gamma: 0.5, steps: 200, seed: 3 }.write(&focal);
    let html = report(&[&grpo, &focal, Path::new("--out"), &folder.join("compare.html")]);
    assert_well_formed(&html);
    assert!(html.contains("Difference to GRPO") && html.contains("paired bootstrap over problems"));
    assert!(html.contains("<title>GRPO \u{b7} F-GRPO, gamma 0.5 "), "runs are named by their method");
    let sentence = "<p class=\"lead\">Against GRPO on held_out, F-GRPO, gamma 0.5 ends with pass@1 ";
    assert!(html.contains(sentence) && html.contains("beyond chance"), "no opening sentence");
    // KL and ratios of the synthetic run are rounding errors, which the page mentions but doesn't plot.
    assert!(html.contains("Zero up to rounding: KL to the sampling policy (at most "));
    assert!(!html.contains("<b>KL to the sampling policy</b>"));
    // Both synthetic runs have the same demonstrations.
    assert!(html.contains("Equal everywhere: GRPO, F-GRPO, gamma 0.5."), "a curve hides another");
    let [start, end] = [0, 200].map(|step| Made { gamma: 0.0, steps: 200, seed: 3 }.eval(step));
    let solved = |eval: &Value, p: usize| eval["per_problem"][p].as_u64().unwrap() > 0;
    let lost: Vec<usize> = (0..PROBLEMS).filter(|&p| solved(&start, p) && !solved(&end, p)).collect();
    let shown = format!(
        "<details><summary>{}</summary>{}&nbsp;({}), ",
        lost.len(),
        lost[0],
        start["per_problem"][lost[0]]
    );
    assert!(
        lost.len() > 1 && html.contains("lost since the first evaluation") && html.contains(&shown),
        "{shown}"
    );
    assert!(html.contains("Problems gained and lost against GRPO"));
    assert!(html.contains("focal gamma 0.5") && html.contains("<code>algorithm.focal_gamma</code>"));
    assert!(
        html.contains("Sharpening on held_out: pass@1 rose"),
        "GRPO's made-up loss of pass@64 is pointed out"
    );
    // pass@64 of the synthetic run's last evaluation, as the table prints it.
    let last = Made { gamma: 0.5, steps: 200, seed: 3 }.eval(200);
    let printed = format!("{:.1}<small>", 100.0 * last["pass_at_k"]["64"].as_f64().unwrap());
    assert!(html.contains(&printed), "{printed}");
}

#[test]
fn seeds_of_one_configuration_share_a_row_and_a_folder_of_runs_stands_for_all() {
    let sweep = folder("sweep");
    for seed in 1..=3 {
        for (name, gamma) in [("grpo", 0.0), ("focal", 0.5)] {
            Made { gamma, steps: 100, seed }.write(&sweep.join(format!("{name}-{seed}")));
        }
    }
    let html = report(&[&sweep]);
    assert_well_formed(&html);
    assert!(html.contains("F-GRPO, gamma 0.5 (3 seeds)") && html.contains("GRPO (3 seeds)"));
    assert!(html.contains("mean and standard deviation over seeds"));
    assert!(sweep.join("report.html").is_file());
}

#[test]
fn a_watched_page_reloads_itself_until_the_watch_ends() {
    use crate::support::{ended, signal, spawned, wait_until};
    let run = folder("watched").join("run");
    Made { gamma: 0.5, steps: 25, seed: 1 }.write(&run);
    let page = run.join("report.html");
    let reloads = || fs::read_to_string(&page).is_ok_and(|html| html.contains("http-equiv=\"refresh\""));
    let child = spawned(&["report", run.to_str().unwrap(), "--watch"]).spawn().unwrap();
    wait_until("the page", reloads);
    signal(&child, libc::SIGINT);
    let (code, said) = ended(child);
    assert_eq!(code, Some(0), "{said}");
    assert!(!reloads() && page.is_file());
    assert_well_formed(&fs::read_to_string(&page).unwrap());
}

#[test]
fn copies_of_a_run_are_no_seeds() {
    let sweep = folder("copies");
    for (name, steps) in [("first", 50), ("copy", 50), ("longer", 75)] {
        let run = sweep.join(name);
        Made { gamma: 0.5, steps, seed: 1 }.write(&run);
        // A run that continues hasn't reached the configured number of steps.
        let config = fs::read_to_string(run.join("config.toml")).unwrap();
        fs::write(run.join("config.toml"), config.replace(&format!("steps = {steps}"), "steps = 100"))
            .unwrap();
    }
    let html = report(&[&sweep]);
    assert_well_formed(&html);
    assert!(!html.contains("seeds)") && !html.contains("standard deviation"), "copies are one run");
    for left in ["copy", "first"] {
        let said = format!("{left} is left out: it has the configuration and the seed of");
        assert!(html.contains(&said), "{said}");
    }
}

#[test]
fn more_than_eight_groups_have_colours_of_their_own() {
    let sweep = folder("many");
    for i in 0..10 {
        let run = sweep.join(format!("run-{i}"));
        Made { gamma: f64::from(i) / 10.0, steps: 25, seed: 1 }.write(&run);
        fs::remove_file(run.join("eval.jsonl")).unwrap();
    }
    let html = report(&[&sweep]);
    assert_well_formed(&html);
    let colour = |i: usize| {
        let rule = html.split(&format!(".c{i} {{ --c: ")).nth(1).unwrap_or_else(|| panic!("no colour {i}"));
        rule.split('}').next().unwrap().to_owned()
    };
    let colours: std::collections::BTreeSet<String> = (0..10).map(colour).collect();
    assert_eq!(colours.len(), 10, "{colours:?}");
    assert!(html.contains("class=\"c9 g9 curve"), "the tenth run has the tenth colour");
}

/// Writes a run folder that has only metrics.
fn bare(name: &str, lines: &[Value]) -> PathBuf {
    let run = folder(name).join("run");
    let lines: String = lines.iter().map(|line| format!("{line}\n")).collect();
    file(&run, "metrics.jsonl", &lines);
    run
}

fn rewarded(step: u64, reward: f64) -> Value {
    logged(json!({"step": step, "reward_mean": reward, "entropy": null}))
}

#[test]
fn lines_that_are_torn_repeated_or_not_finite_are_left_out_with_a_note() {
    let run = bare("bare", &[(1, 0.0), (2, 0.0), (2, 1.0), (3, 1.0)].map(|(s, r)| rewarded(s, r)));
    let path = run.join("metrics.jsonl");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, &text[..text.len() - 40]).unwrap();
    let html = report(&[&run]);
    assert_well_formed(&html);
    assert!(html.contains("metrics.jsonl: the last line (4) is torn"));
    assert!(html.contains("metrics.jsonl: 1 repeated steps") && html.contains("config.toml is missing"));
    // The last record of step 2 counts.
    assert!(html.contains("<b>2</b><span>steps</span>"));
    assert!(html.contains("<b>0.5</b><span>mean reward, last 2 steps</span>"));
    assert!(html.contains(">Reward<") && !html.contains(">Entropy<") && !html.contains("id=\"evaluation\""));
}

#[test]
fn correct_completions_are_told_from_the_others_of_the_same_reason() {
    let counts = json!({"verdicts": {"correct": 6, "wrong": 2}, "reasons": {"exact_value": 5, "box": 3}});
    let step = |n: u64| {
        let mut line = rewarded(n, 0.5);
        counts.as_object().unwrap().iter().for_each(|(key, value)| line[key] = value.clone());
        line
    };
    let mut lines = [1, 2].map(step);
    let older = report(&[&bare("reasons-older", &lines)]);
    assert!(older.contains("reason: exact value") && !older.contains("not correct:"), "older lines");
    lines.iter_mut().for_each(|line| line["correct_reasons"] = json!({"exact_value": 5, "box": 1}));
    let page = report(&[&bare("reasons", &lines)]);
    assert!(
        page.contains("not correct: box") && !page.contains("exact value"),
        "all exact values are correct"
    );
}

#[test]
fn an_evaluation_that_leaves_out_problems_is_not_called_better_beyond_chance() {
    let folder = folder("left-out");
    let run = folder.join("run");
    Made { gamma: 0.0, steps: 200, seed: 3 }.write(&run);
    assert!(report(&[&run]).contains("beyond chance"));
    let path = run.join("eval.jsonl");
    let mut evals = lines(&path);
    let last = evals.len() - 1;
    let scored: Vec<usize> = (0..PROBLEMS).map(|p| if p < 3 { 0 } else { SAMPLES }).collect();
    (0..3).for_each(|p| evals[last]["per_problem"][p] = json!(0));
    evals[last]["scored_per_problem"] = json!(scored);
    evals[last]["left_out"] = json!({"1": 3, "64": 3});
    evals[last]["examples"][0]["correct"] = Value::Null;
    fs::write(&path, evals.iter().map(|e| format!("{e}\n")).collect::<String>()).unwrap();
    let page = report(&[&run]);
    assert!(page.contains("3 without enough scored samples are left out") && !page.contains("beyond chance"));
    assert!(page.contains("pass@1 on held_out, 3 problems left out"), "no tile");
    assert!(page.contains("<small>") && page.contains(", 3 left out</small>"), "no table");
}

#[test]
fn unfinished_seeds_are_compared_at_their_last_common_step_and_left_out_beside_finished_ones() {
    let folder = folder("seeds");
    let runs = [3, 4].map(|seed| {
        let run = folder.join(format!("seed-{seed}"));
        Made { gamma: 0.0, steps: 200, seed }.write(&run);
        run
    });
    let out = folder.join("report.html");
    let page = || report(&[&runs[0], &runs[1], Path::new("--out"), &out]);
    stop(&runs[1], 150);
    let one = page();
    assert!(one.contains("Not finished: seed-4 (evaluated up to step 150 of 200)."), "no note");
    assert!(one.contains("After step 200 on held_out") && one.contains("GRPO (2 seeds, 1 finished)"));
    assert!(!one.contains("standard deviation over seeds"), "one seed has no deviation");
    stop(&runs[0], 175);
    let both = page();
    assert!(both.contains("After step 150 on held_out") && both.contains("<td>150 of 200</td>"));
    assert!(both.contains("mean and standard deviation over seeds"));
}

#[test]
fn a_run_that_is_not_finished_is_compared_at_a_step_that_the_other_has_too() {
    let args = two("unfinished");
    let page = || report(&args.each_ref().map(PathBuf::as_path));
    stop(&args[1], 100);
    let html = page();
    assert_well_formed(&html);
    assert!(html.contains("Not finished: f-grpo (evaluated up to step 100 of 200)."), "no note");
    let sentence = "Against GRPO on held_out, F-GRPO, gamma 0.5 has at step 100 pass@1 ";
    assert!(html.contains(sentence) && html.contains("<td>100 of 200</td>"), "no step");
    assert!(html.contains("The end: step 200 (GRPO), step 100 (F-GRPO, gamma 0.5)."), "no step of the plots");
    assert!(!html.contains("<td class=\"best\">"), "values at different steps are ranked");
    let rows = |html: &str| {
        let table = html.split("<h3>Difference to GRPO").nth(1).unwrap().split("</table>").next().unwrap();
        table.split("<tbody>").nth(1).unwrap().to_owned()
    };
    let early = rows(&html);
    stop(&args[0], 100);
    assert_eq!(rows(&page()), early, "GRPO's later evaluations count");
    // Before the first step there is nothing to compare.
    stop(&args[1], 0);
    assert!(!page().contains("Against GRPO"));
}

#[test]
fn an_evaluation_of_an_earlier_step_is_not_that_of_the_trained_policy() {
    let run = folder("early").join("run");
    Made { gamma: 0.5, steps: 50, seed: 3 }.write(&run);
    edit(&run, "eval.jsonl", |evals| evals.truncate(1));
    let page = report(&[&run]);
    assert!(page.contains("<span>pass@1 on held_out at step 0</span>") && page.contains("The end: step 0."));
}

#[test]
fn the_start_of_several_seeds_is_their_mean() {
    let folder = folder("starts");
    let runs = written(&folder, [("a", 0.0, 3), ("b", 0.5, 3), ("c", 0.5, 4)]);
    let out = folder.join("report.html");
    let start = |runs: &[&Path]| {
        let page = report(&[runs, &[Path::new("--out"), &out]].concat());
        let plot =
            page.split("aria-label=\"pass@k at the end\"").nth(1).unwrap().split("</svg>").next().unwrap();
        let axis = plot.split("data-y=\"linear ").nth(1).unwrap().split('"').next().unwrap();
        let axis: Vec<f64> = axis.split(' ').map(|number| number.parse().unwrap()).collect();
        let starts: Vec<f64> = plot
            .split("data-name=\"start\" d=\"M")
            .skip(1)
            .map(|path| {
                let y: f64 = path.split([' ', 'L']).nth(1).unwrap().parse().unwrap();
                axis[0] + (axis[1] - axis[0]) * (y - axis[2]) / (axis[3] - axis[2])
            })
            .collect();
        (starts, page.contains("success rate at the end</b><span class=\"legend\"><span class=\"muted\">"))
    };
    let first = lines(&runs[1].join("eval.jsonl"))[0]["pass_at_k"]["1"].as_f64().unwrap();
    let close = |(a, b): (&f64, f64)| (a - b).abs() < 0.005;
    edit(&runs[2], "eval.jsonl", |evals| {
        evals[0]["per_problem"] = json!(vec![0; PROBLEMS]);
        evals[0]["pass_at_k"].as_object_mut().unwrap().values_mut().for_each(|p| *p = json!(0.0));
    });
    let (mean, _) = start(&[&runs[1], &runs[2]]);
    assert!(mean.len() == 1 && close((&mean[0], first / 2.0)), "{mean:?}, not half of {first}");
    let (both, bars) = start(&[&runs[0], &runs[1], &runs[2]]);
    assert!(both.len() == 2 && both.iter().zip([first, first / 2.0]).all(close), "{both:?}");
    assert!(!bars, "bars of a start that isn't that of all");
    let (common, bars) = start(&[&runs[0], &runs[1]]);
    assert!(common.len() == 1 && bars, "a common start is drawn once");
}

#[test]
fn methods_are_compared_by_the_seeds_that_both_have() {
    let args = two("common-seeds");
    let other = args[0].with_file_name("other");
    Made { gamma: 0.5, steps: 200, seed: 4 }.write(&other);
    edit(&other, "eval.jsonl", |evals| {
        evals.iter_mut().for_each(|e| e["per_problem"] = json!(vec![0; PROBLEMS]))
    });
    let difference = |html: &str| {
        let table = html.split("<h3>Difference to GRPO").nth(1).unwrap().split("</tbody>").next().unwrap();
        table.split("</td>").skip(1).map(str::to_owned).collect::<Vec<_>>()
    };
    let one = report(&args.each_ref().map(PathBuf::as_path));
    let [grpo, focal, option, out] = &args;
    let both = report(&[grpo, focal, &other, option, out]);
    assert!(both.contains("F-GRPO, gamma 0.5 (2 seeds)") && both.contains("by the seeds that both have"));
    assert_eq!(difference(&both), difference(&one));
}

#[test]
fn runs_of_one_configuration_with_other_graders_or_data_are_neither_copies_nor_seeds() {
    let folder = folder("inputs");
    let [base, first, second] = [("base", 0.0), ("first", 0.5), ("second", 0.5)].map(|(name, gamma)| {
        let run = folder.join(name);
        Made { gamma, steps: 50, seed: 1 }.write(&run);
        run
    });
    let out = folder.join("report.html");
    let page = || report(&[&base, &first, &second, Path::new("--out"), &out]);
    assert!(page().contains("second is left out: it has the configuration and the seed of first."));
    for (run, grader) in [(&base, "python/1"), (&first, "python/1"), (&second, "python/2")] {
        edit(run, "eval.jsonl", |evals| evals.iter_mut().for_each(|e| e["graders"] = json!([grader])));
    }
    let html = page();
    assert_well_formed(&html);
    assert!(!html.contains("is left out") && !html.contains("2 seeds"), "the second is a run of its own");
    assert!(html.contains("(held_out: graders python/1; graders python/2)"), "no reason");
    assert!(html.contains("F-GRPO, gamma 0.5, second") && html.contains("Difference to GRPO"));
    // The same with the graders of the training alone, without evaluations.
    for run in [&base, &first, &second] {
        fs::remove_file(run.join("eval.jsonl")).unwrap();
    }
    assert!(page().contains("second is left out"));
    edit(&first, "sessions.jsonl", |all| all.iter_mut().for_each(|s| s["graders"] = json!(["python/1"])));
    edit(&second, "sessions.jsonl", |all| all.iter_mut().for_each(|s| s["graders"] = json!(["python/2"])));
    assert!(!page().contains("is left out"));
}

#[test]
fn seeds_trained_on_changed_data_have_rows_of_their_own() {
    let folder = folder("changed-data");
    let runs = written(&folder, [("base", 0.0, 1), ("first", 0.5, 1), ("second", 0.5, 2)]);
    for (run, id) in runs.iter().zip(["a", "a", "b"]) {
        edit(run, "eval.jsonl", |evals| evals.iter_mut().for_each(|e| e["problem_set"] = json!(id)));
        edit(run, "sessions.jsonl", |all| all.iter_mut().for_each(|s| s["problems"] = json!(id)));
    }
    let page = report(&[&runs[0], &runs[1], &runs[2], Path::new("--out"), &folder.join("report.html")]);
    assert!(
        page.contains("Difference to GRPO") && page.contains("Against GRPO on held_out, problems 1, F-GRPO")
    );
    let table = page.split("Final pass@k on held_out, problems 2").nth(1).unwrap();
    assert!(table.split("</table>").next().unwrap().contains("F-GRPO, gamma 0.5, second"), "no row");
    assert!(!page.contains("standard deviation over seeds"));
}

#[test]
fn evaluations_with_other_sampling_settings_are_not_compared() {
    let args = two("sampling");
    for (run, temperature) in [(&args[0], "1.0"), (&args[1], "0.3")] {
        let sampling = json!(format!("temperature {temperature}, top_p 1.0"));
        edit(run, "eval.jsonl", |evals| evals.iter_mut().for_each(|e| e["sampling"] = sampling.clone()));
    }
    let page = report(&args.each_ref().map(PathBuf::as_path));
    assert!(
        page.contains("(held_out: temperature 1.0; temperature 0.3)") && !page.contains("Difference to GRPO")
    );
}

#[test]
fn an_evaluation_without_a_scored_sample_is_a_row_without_values_and_a_warning() {
    let args = two("unscorable");
    let page = || report(&args.each_ref().map(PathBuf::as_path));
    let fail = |ks: &'static [usize]| {
        move |evals: &mut Vec<Value>| {
            let last = evals.last_mut().unwrap();
            let scored = if ks.contains(&1) { 0 } else { 1 };
            last["unscorable"] = json!(PROBLEMS * (SAMPLES - scored));
            last["scored_per_problem"] = json!(vec![scored; PROBLEMS]);
            last["per_problem"] = json!(vec![scored; PROBLEMS]);
            for k in ks {
                last["pass_at_k"].as_object_mut().unwrap().remove(&k.to_string());
                last["left_out"][k.to_string()] = json!(PROBLEMS);
            }
        }
    };
    edit(&args[1], "eval.jsonl", fail(&[2, 4, 8, 16, 32, 64]));
    let html = page();
    assert!(html.contains("F-GRPO, gamma 0.5 ends with pass@1 "), "pass@1 is known");
    edit(&args[1], "eval.jsonl", fail(&[1, 2, 4, 8, 16, 32, 64]));
    let html = page();
    assert_well_formed(&html);
    assert!(
        !html.contains("ends with ") && html.contains("Final pass@k on held_out"),
        "broken sentence, or no table"
    );
    assert!(
        html.contains(
            "held_out, step 200: 6144 of 6144 samples could not be scored; no pass@1: no problem has"
        )
    );
    assert!(html.contains("<td>200</td><td>–</td>"), "no row");
    let alone = report(&[&args[1]]);
    assert!(!alone.contains("After step") && alone.contains("samples could not be scored"));
}

#[test]
fn a_run_without_a_line_is_named_and_left_out_and_a_watch_waits_for_it() {
    use crate::support::{ended, signal, spawned, wait_until};
    let sweep = folder("waiting");
    let [run, next] = ["run", "next"].map(|name| sweep.join(name));
    Made { gamma: 0.5, steps: 25, seed: 1 }.write(&run);
    file(&next, "config.toml", &fs::read_to_string(run.join("config.toml")).unwrap());
    let page = report(&[&sweep]);
    assert!(page.contains("Not finished: next (nothing logged yet, left out)."));
    let child = spawned(&["report", next.to_str().unwrap(), "--watch"]).spawn().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert!(!next.join("report.html").exists());
    fs::copy(run.join("metrics.jsonl"), next.join("metrics.jsonl")).unwrap();
    wait_until("the page", || next.join("report.html").is_file());
    signal(&child, libc::SIGINT);
    let (code, said) = ended(child);
    assert_eq!(code, Some(0), "{said}");
}

#[test]
fn broken_lines_and_folders_without_anything_to_report_are_refused() {
    let run = bare("broken", &[rewarded(1, 0.0)]);
    let path = run.join("metrics.jsonl");
    let first = fs::read_to_string(&path).unwrap();
    // A complete last line that is wrong isn't torn.
    for broken in ["{\"step\": \n{\"step\": 3}\n", "{\"step\": \"two\"}\n"] {
        fs::write(&path, first.clone() + broken).unwrap();
        let error = refused(&[&run]);
        assert!(error.contains("metrics.jsonl line 2:"), "{error}");
    }
    let empty = folder("refused");
    assert!(refused(&[&empty]).contains("none of metrics.jsonl"));
    assert!(refused(&[&empty.join("absent")]).contains("no such folder"));
    file(&empty, "config.toml", "seed = 1\n");
    file(&empty, "metrics.jsonl", "");
    assert!(refused(&[&empty]).contains("nothing to report yet"));
}

#[test]
fn text_of_a_completion_cannot_become_part_of_the_page() {
    let run = bare("hostile", &[rewarded(1, 0.5)]);
    let rollout = json!({"step": 1, "prompt_id": 1, "target": "<b>p</b>", "prompt": "</pre><script>alert(1)</script>", "completion": "<img src=x onerror=alert(2)>",
                         "reward": 1.0, "verdict": "correct", "reason": "\"><i>", "advantage": 1.0, "length": 3, "old_logp_mean": -0.5});
    file(&run, "rollouts.jsonl", &format!("{rollout}\n"));
    let html = report(&[&run]);
    assert_well_formed(&html);
    assert!(!html.contains("<script>alert") && !html.contains("<img") && !html.contains("<b>p</b>"));
    assert!(html.contains("&lt;script&gt;alert(1)&lt;/script&gt;"));
}
