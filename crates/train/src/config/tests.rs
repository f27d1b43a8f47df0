//! Tests of parsing and range checks, and of the formulas behind keys.

use super::*;
use fgrpo_core::advantage::Advantage;
use fgrpo_core::credit::Assigned;
use fgrpo_core::group::Group;
use fgrpo_core::loss::PolicyLoss;

mod page;

/// Returns the smallest configuration of a kind of task.
fn minimal(kind: &str) -> String {
    match kind {
        "maze" | "arithmetic" | "puzzles" => format!(
            "steps = 1\n[task]\nkind = \"{kind}\"\n[model.init]\nhidden_size = 8\nintermediate_size = 8\nnum_hidden_layers = 1\nnum_attention_heads = 1\nnum_key_value_heads = 1\n[sft]\nsteps = 1\n"
        ),
        "mix" => minimal("maze").replace(
            "kind = \"maze\"",
            "kind = \"mix\"\n[[task.parts]]\nkind = \"arithmetic\"\n[[task.parts]]\nname = \"b\"\nkind = \"arithmetic\"\n",
        ),
        "python" => minimal("math").replace("\"math\"", "\"python\"\ngrader = \"g.py:f\""),
        "command" => minimal("math").replace("\"math\"", "\"command\"") + "[task.verifier.command]\ncommand = [\"x\"]\n",
        _ => format!("steps = 1\n[task]\nkind = \"{kind}\"\ndata = \"d\"\n[model]\npath = \"m\"\n"),
    }
}

/// Parses a configuration, with some keys set as by `--set`.
pub(crate) fn parse(text: &str, set: &[&str]) -> anyhow::Result<Config> {
    Config::parse(text, &set.iter().map(|&s| s.to_owned()).collect::<Vec<_>>())
}

#[test]
fn every_estimator_is_in_the_list_of_all() {
    // Serde lists the variants.
    let message = toml::from_str::<Advantage>("kind = \"?\"").unwrap_err().message().to_owned();
    let known: Vec<&str> = message.split('`').skip(3).step_by(2).collect();
    let computed = Advantage::ALL.map(|estimator| estimator.name());
    assert_eq!(known.split_last(), Some((&"python", &computed[..])), "{message}");
}

fn algorithm(keys: &str) -> Config {
    let text = minimal("maze").replace("[sft]", &format!("[algorithm]\n{keys}\n[sft]"));
    Config::parse(&text, &[]).unwrap()
}

/// Credits a group of two correct and two wrong completions, of which the second is the most likely.
fn assigned(keys: &str) -> Assigned {
    let group = Group {
        rewards: &[1.0, 1.0, 0.0, 0.0],
        lengths: &[2; 4],
        mean_old_logp: &[-2.0, -1.0, -4.0, -3.0],
        scored: &[true; 4],
        parts: &[],
        clusters: &[],
    };
    let config = algorithm(keys);
    config.algorithm.credit(&config.task).assign(&group).unwrap()
}

#[test]
fn shaping_keys_change_advantages_as_their_formulas_say() {
    // Ranks 2, 1, 4, 3 of four: rewards 1 (1 - 0.25 (4 - rank) / 4).
    let mean = (0.875 + 0.8125) / 4.0;
    let advantages = assigned("focal_gamma = 0\nadvantage = \"dr_grpo\"\nshaping = \"unlikely\"").advantages;
    assert_eq!(advantages, [0.875 - mean, 0.8125 - mean, -mean, -mean]);
    let advantages =
        assigned("focal_gamma = 0\nadvantage = \"dr_grpo\"\nshaping = { kind = \"unlikely\", beta = 0.5 }")
            .advantages;
    let mean = (0.75 + 0.625) / 4.0;
    assert_eq!(advantages, [0.75 - mean, 0.625 - mean, -mean, -mean]);
    // A - 0.05 logp of correct, A + 0.1 logp of wrong completions.
    let advantages =
        assigned("focal_gamma = 0\nadvantage = \"dr_grpo\"\nshaping = { kind = \"smoothing\", wrong = 0.1 }")
            .advantages;
    assert_eq!(advantages, [0.5 + 0.05 * 2.0, 0.5 + 0.05, -0.5 - 0.1 * 4.0, -0.5 - 0.1 * 3.0]);
}

#[test]
fn shaping_of_strength_zero_is_no_shaping_bit_for_bit() {
    let plain = assigned("focal_gamma = 0.5");
    for keys in [
        "shaping = \"none\"",
        "shaping = { kind = \"unlikely\", beta = 0 }",
        "shaping = { kind = \"smoothing\", correct = 0.0, wrong = 0.0 }",
    ] {
        let shaped = assigned(&format!("focal_gamma = 0.5\n{keys}"));
        let bits = |a: &Assigned| a.advantages.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&shaped), bits(&plain), "{keys}");
    }
}

#[test]
fn low_lr_gamma_multiplies_the_learning_rate_by_the_papers_factor() {
    let update = |gamma| UpdateConfig { low_lr_gamma: gamma, ..UpdateConfig::default() };
    assert_eq!(update(0.0).peak_lr(), 1e-6);
    assert_eq!(format!("{:.1e}", update(0.5).peak_lr()), "6.8e-7");
    assert!((update(1.0).peak_lr() - 5e-7).abs() < 1e-19);
}

#[test]
fn controls_out_of_range_are_refused_by_their_keys() {
    for (set, facts) in [
        ("algorithm.shaping=rul", "rul"),
        ("algorithm.shaping=unlikely algorithm.shaping.beta=2.0", "algorithm.shaping.beta|found 2"),
        ("algorithm.shaping=unlikely algorithm.advantage=max_rl", "algorithm.advantage|max_rl"),
        ("algorithm.shaping=smoothing algorithm.shaping.wrong=nan", "algorithm.shaping.wrong|found NaN"),
        // A setting of another kind is unknown for this one.
        ("algorithm.advantage.k=8", "algorithm.advantage.k=8: unknown key `k`"),
        ("algorithm.advantage=dr_grpo algorithm.advantage.ddof=0", "unknown key `ddof`"),
        ("algorithm.loss=cispo algorithm.loss.dual_clip=2.0", "unknown key `dual_clip`"),
        ("algorithm.loss.clip=[0.1,0.2,0.3]", "algorithm.loss.clip|3"),
        ("algorithm.loss.clip=[-0.1,0.2]", "algorithm.loss.clip|low|found -0.1"),
        ("algorithm.loss.dual_clip=1.0", "algorithm.loss.dual_clip|found 1"),
        ("algorithm.loss=ppo", "ppo"),
        ("algorithm.loss=3", "the name of a kind|found integer"),
        ("algorithm.daro_lr=-1.0", "algorithm.daro_lr|found -1"),
        (
            "algorithm.daro=true algorithm.aggregation=seq-mean-token-sum",
            "algorithm.aggregation|token-mean|found \"seq-mean-token-sum\"",
        ),
        ("algorithm.correction=mask algorithm.correction.high=0.25", "correction.high|found 0.5, 0.25"),
        ("algorithm.correction=tis algorithm.correction.cap=0.0", "correction.cap|found 0"),
        ("save.every=weekly", "a number of steps or \"epoch\""),
        ("save.every=-1", "a number of steps or"),
        ("epochs=0", "epochs: expected at least 1, found 0"),
        ("update.low_lr_gamma=-0.5", "update.low_lr_gamma|found -0.5"),
        ("task.size=10", "task.size|an odd number|found 10"),
        ("model.init.num_key_value_heads=5", "num_key_value_heads|found 5"),
        ("update.lr=-1", "update.lr|found -1"),
        ("update.learning_rate=1", "learning_rate"),
        ("algorithm.focal_gamma=-0.5", "focal_gamma"),
        ("algorithm.reward_correct=1e308", "algorithm.reward_correct"),
        ("algorithm.reward_correct=nan", "algorithm.reward_correct: "),
        ("algorithm.reward_wrong=-inf", "algorithm.reward_wrong: "),
        ("algorithm.truncated=drop", "expected one of \"grade\", \"mask\", \"reward\""),
        (
            "algorithm.truncated={kind=\"reward\",reward=1}",
            "algorithm.truncated.reward: expected less than 1",
        ),
        ("algorithm.overlong={length=8}", "`cache`"),
        ("algorithm.overlong={length=8,cache=9}", "algorithm.overlong.cache: expected"),
        ("algorithm.teacher_coef=1", "algorithm.teacher_coef: requires a teacher; set teacher.path"),
        ("update.betas=[0.9]", "update.betas"),
        ("update.betas=[0.9,0.99,0.999]", "update.betas"),
        ("sft.epochs=0", "sft.epochs: "),
        ("sft.steps=0", "sft.steps: expected at least 1, found 0"),
        ("algorithm.reward_weights.long=2", "algorithm.reward_weights.long: has no effect|grpo"),
        (
            "algorithm.advantage=gdpo algorithm.focal_gamma=0 algorithm.shaping=unlikely",
            "algorithm.advantage: expected an estimator of a single reward",
        ),
        ("rollout.group_size=65537", "rollout.group_size: expected at most 65536, found 65537"),
        ("rollout.prompts=6 update.mini_batch=7", "update.mini_batch|found 7"),
        ("eval.samples=4 eval.k=[8]", "eval.k|eval.samples = 4|found 8"),
        ("sft.betas=[0.9,0.95,0.5]", "sft.betas|2 numbers"),
        ("steps=many", "steps"),
    ] {
        let set: Vec<&str> = set.split(' ').collect();
        let error = format!("{:#}", parse(&minimal("maze"), &set).unwrap_err());
        assert!(facts.split('|').all(|fact| error.contains(fact)), "{set:?}: {error}");
    }
}

/// Checks that a configuration is refused with each of these settings, by words of the message.
fn assert_refused(text: &str, common: &[&str], rows: &[(&str, &str)]) {
    parse(text, common).unwrap();
    for &(set, words) in rows {
        let error = format!("{:#}", parse(text, &[common, &[set]].concat()).unwrap_err());
        assert!(error.contains(words), "{set}: {error}");
    }
}

#[test]
fn a_value_is_one_value_over_several_lines_and_no_other_keys() {
    assert_refused(&minimal("maze"), &[], &[("seed=1\nsteps = 9", "seed"), ("seed=1 # steps", "seed")]);
    assert_eq!(parse(&minimal("maze"), &["eval.k=[1,\n 2]"]).unwrap().eval.k, [1, 2]);
}

#[test]
fn settings_that_a_teacher_cannot_have_are_refused_by_name() {
    assert_refused(
        &minimal("maze"),
        &["teacher.path=t", "algorithm.teacher_coef=1"],
        &[
            ("algorithm.teacher_coef=0", "teacher: has no effect with algorithm.teacher_coef = 0"),
            ("algorithm.teacher_coef=-1", "algorithm.teacher_coef: expected a number from 0"),
            ("algorithm.loss=gspo", "algorithm.loss: can't be combined with [teacher]"),
            ("algorithm.loss=kl_cov", "algorithm.loss: can't be combined with [teacher]"),
            ("algorithm.correction=tis", "algorithm.correction: can't be combined with [teacher]"),
            ("algorithm.daro=true", "algorithm.daro: can't be combined with [teacher]"),
            ("teacher.hint=\"{answer}\"", "teacher.hint: can't be combined with mazes"),
        ],
    );
    assert_refused(
        &minimal("maze"),
        &["teacher.path=t", "algorithm.teacher_coef=1", "teacher.rewards=false", "algorithm.focal_gamma=0"],
        &[
            ("algorithm.advantage=rloo", "algorithm.advantage: remove this key"),
            ("algorithm.shaping=unlikely", "algorithm.shaping: remove this key"),
        ],
    );
    assert_refused(
        &minimal("arithmetic"),
        &["algorithm.teacher_coef=1", "teacher.hint=\"{answer}\""],
        &[
            ("teacher={}", "teacher.path: required, unless teacher.hint is set"),
            ("teacher.hint=\"Think.\"", "expected a text with {answer}, {solution} or {feedback}"),
            ("teacher.hint=\"{feedback}\"", "teacher.hint: {feedback} requires task.environment"),
        ],
    );
}

#[test]
fn settings_of_a_server_and_of_adapters_are_refused_by_their_keys() {
    assert_refused(
        &minimal("math"),
        &["rollout.server={ url = \"http://localhost:1\" }", "algorithm.correction=tis"],
        &[
            ("rollout.server.url=localhost:8000", "found \"localhost:8000\""),
            ("rollout.temperature=0.7", "rollout.server.logprobs: expected processed"),
            ("rollout.server.on_checkpoint=reload", "must contain {checkpoint}"),
            ("rollout.server.api=tgi", "tgi"),
            ("rollout.server.concurrency=0", "rollout.server.concurrency: "),
        ],
    );
    assert_refused(
        &minimal("math"),
        &["lora.rank=4"],
        &[
            ("lora.rank=0", "lora.rank"),
            ("lora.alpha=-1", "lora.alpha"),
            ("lora.targets=[\"lm_head\"]", "lm_head"),
            ("lora.targets=[]", "lora.targets"),
            ("lora.targets=all", "lora"),
            ("lora.dropout=0.1", "dropout"),
            ("lora.base=fp4", "nf4"),
        ],
    );
    assert_refused(&minimal("maze"), &[], &[("lora.rank=8", "an adapter's base is a checkpoint")]);
}

#[test]
fn a_kind_with_a_program_requires_it() {
    let text = minimal("command").replace("[task.verifier.command]\ncommand = [\"x\"]\n", "");
    let error = format!("{:#}", parse(&text, &[]).unwrap_err());
    assert!(error.contains("task.verifier.command"), "{error}");
}

#[test]
fn a_value_of_another_type_is_named_by_its_full_key_and_line() {
    for (start, end, wanted) in [
        // Derived deserializers accept a list for a struct, field by field.
        ("save = [1, 2]\n", "", "line 1: save: expected a table, found a list of 2"),
        ("compute = 5\n", "", "line 1: compute: expected a table, found 5"),
        (
            "",
            "[algorithm]\nloss = { kind = \"dapo\", clip = [0.2, \"x\"] }\n",
            "algorithm.loss.clip[1]: expected a number, found \"x\"",
        ),
        (
            "",
            "[algorithm]\nloss = \"grpo\"\nfocal_gamma = \"x\"\n",
            "algorithm.focal_gamma: expected a number, found \"x\"",
        ),
    ] {
        let text = format!("{start}{}{end}", minimal("math"));
        let error = format!("{:#}", parse(&text, &[]).unwrap_err());
        assert!(error.contains(wanted), "wanted {wanted:?} in: {error}");
    }
}

#[test]
fn graders_and_environments_are_refused_where_they_have_no_effect() {
    let task = |keys: &str| format!("steps = 1\n[task]\ndata = \"d\"\n{keys}\n[model]\npath = \"m\"\n");
    let played = task("kind = \"python\"\nenvironment = \"game.py:Game\"");
    let part = "[[task.parts]]\nkind = \"python\"\ndata = \"d\"\nenvironment = \"game.py:Game\"\n";
    let mix = format!("steps = 1\n[model]\npath = \"m\"\n[task]\nkind = \"mix\"\n{part}");
    let server = "rollout.server.url=http://localhost:1/v1";
    for (text, set, wanted) in [
        (task("kind = \"python\""), "", "task.grader: this key is missing"),
        (task("kind = \"math\"\ngrader = \"g.py:f\""), "", "task.grader: expected task.kind"),
        (task("kind = \"python\"\ngrader = { function = \"g.py:f\", timeout = 1 }"), "", "timeout_s"),
        (played.clone(), "task.grader=g.py:f", "task.grader: can't be combined with task.environment"),
        (played.clone(), "task.kind=math", "task.environment: expected task.kind"),
        (played.clone(), "task.max_turns=0", "task.max_turns: "),
        (played.clone(), "sft.steps=1", "sft: can't be combined with task.environment"),
        (played.clone(), server, "rollout.server: can't be combined with task.environment"),
        (mix, server, "rollout.server: can't be combined with task.environment"),
    ] {
        let error = format!(
            "{:#}",
            parse(&text, set.split_terminator(' ').collect::<Vec<_>>().as_slice()).unwrap_err()
        );
        assert!(error.contains(wanted), "{set}: {error}");
    }
    parse(&played, &[]).unwrap();
}

#[test]
fn training_is_strict_and_the_papers_configurations_are_not() {
    let mode = |text: &str, set: &[&str]| {
        let resolved = parse(text, set).unwrap().to_toml();
        resolved.lines().find_map(|line| line.strip_prefix("mode = ").map(str::to_owned)).unwrap()
    };
    for (kind, other) in
        [("math", "task.verifier.accept_unfinished=true"), ("synlogic", "task.verifier.format_gate=false")]
    {
        assert_eq!(mode(&minimal(kind), &[]), "\"strict\"", "{kind}");
        assert_eq!(mode(&minimal(kind), &[other]), "\"strict\"", "{kind}: beside another key");
    }
    assert_eq!(mode(&minimal("arithmetic"), &[]), "\"strict\"");
    assert_eq!(mode(&minimal("arithmetic"), &["task.mode=parity"]), "\"parity\"");
    for name in ["qwen2.5-7b-math", "qwen3-4b-base-math", "llama-3.2-3b-math", "qwen3-1.7b-synlogic"] {
        assert_eq!(mode(builtin::builtin(name).unwrap(), &[]), "\"parity\"", "{name}");
    }
}

#[test]
fn a_verifier_setting_of_another_kind_is_refused() {
    for (key, value, owner) in [
        ("format_gate", "false", "synlogic"),
        ("percent_as_number", "true", "math"),
        ("accept_unfinished", "true", "math"),
        ("choice", "letter-or-content", "choice"),
        ("command", "x", "command"),
        ("code.memory_mb", "64", "code"),
    ] {
        let set = format!("task.verifier.{key}={value}");
        for kind in ["math", "choice", "synlogic", "code", "regex", "command", "python"] {
            let parsed = parse(&minimal(kind), &[&set]);
            if kind == owner {
                parsed.unwrap();
                continue;
            }
            let key = key.split('.').next().unwrap();
            let expected = format!(
                "task.verifier.{key}: has no effect with task.kind = \"{kind}\"; it is for kind {owner}"
            );
            let error = format!("{:#}", parsed.unwrap_err());
            assert!(error.contains(&expected), "{error}");
        }
    }
}

#[test]
fn sizes_beyond_what_a_machine_can_hold_are_refused_by_their_keys() {
    let keys = "steps epochs task.size task.train task.held_out model.init.hidden_size model.init.intermediate_size \
                model.init.num_hidden_layers model.init.num_attention_heads model.init.num_key_value_heads \
                model.init.head_dim sft.steps sft.batch_size sft.warmup_steps rollout.prompts rollout.group_size \
                rollout.max_new_tokens update.epochs update.mini_batch update.micro_batch_tokens update.warmup_steps \
                eval.samples eval.k compute.threads algorithm.advantage.ddof";
    for key in keys.split_whitespace() {
        for number in ["9223372036854775807", "4294967297000", "-1"] {
            let value = if key == "eval.k" { format!("[{number}]") } else { number.to_owned() };
            let error = parse(&minimal("maze"), &[&format!("{key}={value}")]).unwrap_err();
            assert!(
                format!("{error:#}").contains(key.rsplit('.').next().unwrap()),
                "{key}={value}: {error:#}"
            );
        }
    }
}

#[test]
fn schedules_that_leave_the_range_of_their_key_are_refused_by_their_step() {
    for (schedule, facts) in [
        (r#"key = "focal", to = 0, over = 5"#, "algorithm.schedule[0].key|found \"focal\""),
        (r#"key = "focal_gamma", to = -1, over = 5"#, "at step 4: algorithm.focal_gamma|found -0."),
        (r#"key = "advantage.k", to = 99, over = 5"#, "algorithm.advantage.k"),
        (r#"key = "loss.clip", to = 0.4, over = 5"#, "algorithm.schedule[0].to: expected 2 numbers"),
        (r#"key = "focal_gamma", to = 0, over = 1"#, "algorithm.schedule[0].over|at least 2|found 1"),
        (r#"key = "loss.dual_clip", to = 0, over = 9"#, "at step 8: algorithm.loss.dual_clip"),
        (r#"key = "focal_gamma", to = "x", over = 9"#, "a list of numbers"),
    ] {
        let schedule = format!("algorithm.schedule=[{{ {schedule} }}]");
        let set = ["algorithm.focal_gamma=2", r#"algorithm.advantage={ kind = "pkpo", k = 1 }"#, &schedule];
        let error = format!("{:#}", parse(&minimal("maze"), &set).unwrap_err());
        assert!(facts.split('|').all(|fact| error.contains(fact)), "{schedule}: {error}");
    }
}

#[test]
fn only_grpo_has_a_focal_weight_by_default() {
    let gamma = |set: &[&str]| parse(&minimal("maze"), set).unwrap().algorithm.focal_gamma();
    assert_eq!(gamma(&[]), 0.5);
    assert_eq!(gamma(&["algorithm.loss=dapo"]), 0.5, "F-DAPO has GRPO's advantage");
    for advantage in ["dr_grpo", "rloo", "max_rl", "pkpo", "power", "passk_training", "gdpo"] {
        let advantage = format!("algorithm.advantage={advantage}");
        assert_eq!(gamma(&[&advantage]), 0.0, "{advantage}");
        assert_eq!(gamma(&[&advantage, "algorithm.focal_gamma=1"]), 1.0, "{advantage}");
    }
    let schedule = "algorithm.schedule=[{ key = \"focal_gamma\", to = 1.0, over = 3 }]";
    assert_eq!(gamma(&["algorithm.advantage=max_rl", schedule]), 0.0, "an unset key has a schedule too");
}

#[test]
fn losses_are_averaged_as_the_methods_authors_do_unless_the_aggregation_is_set() {
    use fgrpo_core::loss::Aggregation::{SeqMeanTokenMean, SeqMeanTokenSumNorm, TokenMean};
    for (set, aggregation) in [
        ("algorithm.loss=dapo", TokenMean),
        ("algorithm.loss=gspo", SeqMeanTokenMean),
        ("algorithm.loss=sapo", SeqMeanTokenMean),
        ("algorithm.loss=gmpo algorithm.advantage=dr_grpo", SeqMeanTokenMean),
        ("algorithm.advantage=dr_grpo", SeqMeanTokenSumNorm),
        ("algorithm.advantage=dr_grpo algorithm.loss=cispo", TokenMean),
        ("algorithm.daro=true algorithm.loss=gspo", TokenMean),
        ("algorithm.loss=gspo algorithm.aggregation=token-mean", TokenMean),
        ("algorithm.aggregation=seq-mean-token-mean", SeqMeanTokenMean),
    ] {
        let config = parse(&minimal("maze"), &set.split(' ').collect::<Vec<_>>()).unwrap();
        assert_eq!(config.algorithm.objective(9).aggregation, aggregation, "{set}");
        // The run folder has the resolved value.
        assert_eq!(config.algorithm.aggregation, Some(aggregation), "{set}");
    }
}

#[test]
fn settings_without_effect_and_an_unexpected_focal_weight_have_notes() {
    for (set, wanted) in [
        ("algorithm.daro_lr=0.5", "algorithm.daro_lr has no effect without algorithm.daro = true"),
        ("algorithm.kl=k1", "algorithm.kl has no effect with algorithm.kl_coef = 0"),
        ("algorithm.correction=tis", "algorithm.correction has no effect without [rollout.server]"),
        (
            "algorithm.focal_gamma=0.5 algorithm.advantage=rloo",
            "algorithm.focal_gamma = 0.5 also multiplies the advantages of RLOO; set it to 0 to train RLOO alone",
        ),
        ("algorithm.focal_gamma=0.5 algorithm.loss=dapo", ""),
        ("algorithm.advantage=rloo", ""),
        ("algorithm.daro=true algorithm.daro_lr=0.5", ""),
        ("algorithm.kl=k1 algorithm.kl_coef=0.1", ""),
        ("algorithm.kl=k1 algorithm.schedule=[{key=\"kl_coef\",to=0.1,over=5}]", ""),
    ] {
        let set: Vec<&str> = set.split(' ').collect();
        assert_eq!(parse(&minimal("maze"), &set).unwrap().notes().join("\n"), wanted, "{set:?}");
    }
}

#[test]
fn a_method_has_the_name_that_its_authors_gave_it() {
    for (set, method) in [
        ("algorithm.focal_gamma=0.5", "F-GRPO, gamma 0.5"),
        ("algorithm.focal_gamma=0 algorithm.loss=dapo", "DAPO"),
        ("algorithm.focal_gamma=0 update.low_lr_gamma=0.5", "GRPO, low LR of gamma 0.5"),
        ("algorithm.advantage=dr_grpo", "Dr. GRPO"),
        ("algorithm.loss=gspo algorithm.focal_gamma=0", "GSPO"),
        ("algorithm.loss=gspo algorithm.aggregation=token-mean", "F-GSPO, gamma 0.5, aggregation token-mean"),
        ("algorithm.advantage=max_rl algorithm.focal_gamma=0.5", "F-MaxRL, gamma 0.5"),
        (
            "algorithm.kl_coef=0.1 algorithm.shaping=unlikely",
            "F-GRPO, gamma 0.5, shaping unlikely, KL penalty 0.1",
        ),
    ] {
        let set: Vec<&str> = set.split(' ').collect();
        assert_eq!(parse(&minimal("maze"), &set).unwrap().method(), method);
    }
}

#[test]
fn a_threshold_outside_the_rewards_of_verdicts_is_refused() {
    let parsed = |kind: &str, set: &[&str]| {
        let set: Vec<String> = set.iter().map(|s| format!("algorithm.{s}")).collect();
        Config::parse(&minimal(kind), &set).map(drop).map_err(|e| format!("{e:#}"))
    };
    for kind in ["maze", "arithmetic", "puzzles", "math", "choice", "ifeval", "synlogic", "mix"] {
        for wrong in ["0", "-0.5", "1.5"] {
            let error = parsed(kind, &[&format!("correct_threshold={wrong}")]).unwrap_err();
            assert!(error.contains("algorithm.correct_threshold: "), "{kind}: {error}");
            assert!(error.contains(&format!("found {wrong}")), "{kind}: {error}");
        }
        for good in [&["correct_threshold=1"][..], &["correct_threshold=0", "reward_wrong=-1"]] {
            assert_eq!(parsed(kind, good), Ok(()), "{kind}");
        }
    }
    // Scores of a custom grader may be any numbers, and `correct_from` decides which of them are correct.
    assert_eq!(parsed("command", &["correct_threshold=0"]), Ok(()));
    let threshold = |set: &[&str]| {
        let config = parse(&minimal("command"), set).unwrap();
        config.algorithm.credit(&config.task).rewards.threshold
    };
    assert_eq!(threshold(&[]), Some(1.0));
    assert_eq!(threshold(&["task.verifier.command.correct_from=0.7"]), Some(0.7));
    assert_eq!(
        threshold(&["task.verifier.command.correct_from=0.7", "algorithm.correct_threshold=0.2"]),
        Some(0.2)
    );
    let error = parsed("command", &["correct_threshold=nan"]).unwrap_err();
    assert!(error.contains("algorithm.correct_threshold: ") && error.contains("found NaN"), "{error}");
    let part = "\n[[task.parts]]\nkind = \"command\"\ndata = \"d\"\n[task.parts.verifier.command]\ncommand = [\"x\"]\n";
    let mix = minimal("mix").replace("[model.init]", &format!("{part}[model.init]"));
    assert!(parse(&mix, &["algorithm.correct_threshold=0"]).is_err());
    let second = part
        .replace("[\"x\"]", "[\"y\"]\ncorrect_from = 0.5")
        .replace("\"d\"\n", "\"e\"\nname = \"second\"\n");
    let two = mix.replace("[model.init]", &format!("{second}[model.init]"));
    let error = format!("{:#}", Config::parse(&two, &[]).unwrap_err());
    assert!(error.contains("algorithm.correct_threshold: ") && error.contains("[1.0, 0.5]"), "{error}");
    let only = ["algorithm.correct_threshold=0", "task.parts.0.weight=0", "task.parts.1.weight=0"];
    assert!(parse(&mix, &only).is_ok(), "the other parts are only evaluated");
}

#[test]
fn epochs_become_steps_when_the_problems_are_counted() {
    let config = |keys: &str, set: &[&str]| {
        let text = minimal("maze").replace("steps = 1\n[task]", &format!("{keys}\n[task]"));
        parse(&text, set).unwrap()
    };
    // The paper's run: 39,202 problems, 256 prompts, ten epochs.
    let paper =
        config("epochs = 10", &["save.every=epoch", "eval.at_checkpoints=true", "eval.full.every=epoch"]);
    let resolved = paper.resolved(39_202).unwrap();
    assert_eq!((resolved.steps, resolved.epochs, resolved.save.every), (1530, None, Every::Steps(153)));
    assert_eq!(resolved.eval.every, Every::Steps(25));
    assert_eq!(resolved.eval.full.as_ref().map(|full| full.every), Some(Every::Steps(153)));
    assert_eq!(resolved.resolved(1).unwrap(), resolved, "what is resolved stays");
    assert_eq!(Config::parse(&resolved.to_toml(), &[]).unwrap(), resolved);
    assert_eq!(Config::parse(&paper.to_toml(), &[]).unwrap(), paper);
    assert_eq!(config("epochs = 10", &["steps=7"]).resolved(39_202).unwrap().steps, 7);
    assert_eq!(config("epochs = 1\nsteps = 900", &[]).resolved(39_202).unwrap().steps, 153);
    let error = format!("{:#}", paper.resolved(255).unwrap_err());
    assert!(
        error.contains("rollout.prompts: expected at most 255") && error.contains("found 256"),
        "{error}"
    );
}

#[test]
fn a_table_of_a_list_is_set_by_its_place() {
    let set = |assignment: &str| parse(&minimal("mix"), &[assignment]);
    let TaskConfig::Mix(mix) = set("task.parts.1.weight=3").unwrap().task else { panic!("a mix") };
    assert_eq!((mix.parts[0].weight, mix.parts[1].weight), (1.0, 3.0));
    let error = |assignment: &str| format!("{:#}", set(assignment).unwrap_err());
    assert!(error("task.parts.2.weight=3").contains("found `2` as the index of a list of 2"));
    assert!(error("task.parts.weight=3").contains("found `weight` as the index"));
}

#[test]
fn a_kind_stands_by_its_name_or_as_a_table_and_resolves_to_the_same() {
    let forms = [
        ("advantage = \"pkpo\"", "algorithm.advantage.k=2"),
        ("advantage = { kind = \"pkpo\", k = 2 }", ""),
        ("[algorithm.advantage]\nkind = \"pkpo\"\nk = 2", ""),
        ("reward_correct = 1.0", "algorithm.advantage=pkpo algorithm.advantage.k=2"),
    ];
    let parsed = forms.map(|(keys, set)| {
        let text = minimal("maze").replace("[sft]", &format!("[algorithm]\n{keys}\n[sft]"));
        parse(&text, &set.split_whitespace().collect::<Vec<_>>()).unwrap()
    });
    assert_eq!(parsed[0].algorithm.advantage, fgrpo_core::advantage::Advantage::Pkpo { k: 2 });
    for other in &parsed {
        assert_eq!(other, &parsed[0]);
        assert_eq!(Config::parse(&other.to_toml(), &[]).unwrap(), *other, "{}", other.to_toml());
    }
    // A table without `kind` has the default kind.
    let clip = algorithm("[algorithm.loss]\nclip = [0.1, 0.3]").algorithm.loss;
    assert_eq!(clip, PolicyLoss::Grpo { clip: [0.1, 0.3], dual_clip: 3.0 });
}

#[test]
fn exact_log_probabilities_are_no_number_format_so_evaluations_with_and_without_compare() {
    for precision in [Precision::F32, Precision::Bf16] {
        let [exact, plain] =
            [true, false].map(|exact| ComputeConfig { precision, exact, ..ComputeConfig::default() });
        assert_eq!(exact.rounding(), plain.rounding());
        assert_eq!(exact.rounding().is_some(), precision == Precision::Bf16);
    }
}
