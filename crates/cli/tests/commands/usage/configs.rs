//! Configurations by their names.

use super::{fgrpo, run};
use crate::support::sets;
use fgrpo_train::config::Config;
use serde_json::Value;

#[test]
fn built_in_configurations_run_by_name_and_a_mistyped_name_is_answered_with_the_near_one() {
    let folder = tempfile::tempdir().unwrap();
    let here = |words: &[&str]| run(fgrpo().current_dir(folder.path()).args(words));
    let (list, _, code) = here(&["configs", "list"]);
    assert_eq!(code, 0);
    let files = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../../configs")).unwrap().count();
    assert_eq!(list.lines().count(), files, "every configuration is built in: {list}");
    assert!(list.lines().all(|line| line.chars().count() <= 80), "{list}");

    let (shown, _, _) = here(&["configs", "show", "maze-quick"]);
    assert_eq!(
        shown,
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../configs/maze-quick.toml"))
            .unwrap()
    );
    let (_, said, code) = here(&["train", "maze-quick", "--dry-run"]);
    assert_eq!(code, 0, "{said}");
    let (prompt, said, code) =
        here(&["data", "show", "arithmetic-quick", "--limit", "1", "--set=task.train=64"]);
    assert!(code == 0 && prompt.contains("--- problem 1 of "), "{prompt}{said}");
    let small = [
        "steps=1",
        "sft.steps=1",
        "sft.batch_size=2",
        "eval.every=0",
        "rollout.prompts=2",
        "model.init.num_hidden_layers=1",
    ];
    let (_, said, code) = here(&[&["train", "maze-quick"], &sets(&small)[..]].concat());
    assert_eq!(code, 0, "{said}");
    assert!(folder.path().join("runs/maze-quick/checkpoints").is_dir(), "{said}");

    // A file takes precedence over a built-in configuration of the same name.
    std::fs::write(folder.path().join("maze-quick"), "steps = \"many\"\n").unwrap();
    assert_eq!(here(&["train", "maze-quick"]).2, 2);
    std::fs::write(folder.path().join("own-run.toml"), shown).unwrap();
    for (given, wanted) in [
        ("maze-qiuck", "did you mean maze-quick?"),
        ("configs/maze-quick.toml", "did you mean maze-quick?"),
        ("own-rum.toml", "did you mean own-run.toml?"),
        ("something-else.toml", "fgrpo configs list"),
        ("data.jsonl", "this is a data set; a configuration is a .toml file"),
    ] {
        for command in ["train", "sft", "eval", "sweep"] {
            let (_, said, code) = here(&[command, given]);
            assert!(code == 2 && (command == "sweep" || said.contains(wanted)), "{command} {given}: {said}");
        }
    }
    let (_, said, code) = here(&["configs", "show", "maze-qiuck"]);
    assert!(code == 2 && said.contains("configs show: expected one of arena-arithmetic"), "{said}");
    assert!(said.contains("found maze-qiuck; did you mean maze-quick?"), "{said}");
    let (_, said, code) = here(&["arena", "run", "--methods", "grpo,max_rl", "--dry-run"]);
    assert!(code == 2 && said.contains("found max_rl; did you mean max-rl?"), "{said}");
}

#[test]
fn the_schema_takes_what_the_program_takes_and_marks_mistakes() {
    let (text, said, code) = run(fgrpo().args(["configs", "schema"]));
    assert_eq!(code, 0, "{said}");
    let schema: Value = serde_json::from_str(&text).unwrap();
    // An editor shows the same description of a key as the page and the sources.
    assert!(text.contains("Exponent of the focal weight"), "{text}");
    let schema = jsonschema::validator_for(&schema).unwrap();
    let errors = |text: &str| -> Vec<String> {
        let value = serde_json::to_value(text.parse::<toml::Table>().unwrap()).unwrap();
        schema.iter_errors(&value).map(|e| format!("{}: {e}", e.instance_path())).collect()
    };
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../configs");
    let shipped = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let shipped = shipped.filter(|path| !path.to_string_lossy().contains("simulation"));
    let mut right: Vec<String> = shipped.map(|path| std::fs::read_to_string(path).unwrap()).collect();
    assert!(right.len() >= 8, "{}", right.len());
    let model = "[model]\npath = \"m\"\n";
    right.extend(
        [
            "steps = 1\n[task]\nkind = \"python\"\ndata = \"d.jsonl\"\ngrader = \"g.py:f\"\ncolumns.answer = \"a\"\n",
            "steps = 1\n[task]\nkind = \"python\"\ndata = \"d.jsonl\"\ngrader = { function = \"g.py:f\", timeout_s = 2 }\n",
            "steps = 1\n[task]\nkind = \"json-schema\"\ndata = \"d.jsonl\"\nverifier.mode = \"parity\"\n[save]\nevery = \"epoch\"\nkeep = 3\n",
            "steps = 1\n[task]\nkind = \"command\"\ndata = \"d.jsonl\"\nverifier.command = \"python3 g.py\"\n[algorithm]\nadvantage = { kind = \"pkpo\", k = 2 }\n",
            "steps = 1\n[task]\nkind = \"command\"\ndata = \"d.jsonl\"\nverifier.command = [\"g\"]\n[algorithm]\nloss.clip = [0.1, 0.3]\n",
            "epochs = 2\n[task]\nkind = \"mix\"\nparts = [{ kind = \"arithmetic\", train = 8, weight = 2.0 }, { name = \"x\", kind = \"choice\", data = \"d\" }]\n",
            "steps = 1\n[task]\nkind = \"maze\"\n[algorithm]\nloss = { kind = \"dapo\", clip = [0.1, 0.3] }\nadvantage = \"rloo\"\n[lora]\ntargets = [\"q_proj\"]\n",
        ]
        .map(|text| text.to_owned() + model),
    );
    for text in &right {
        assert_eq!(errors(text), Vec::<String>::new(), "{text}");
        let resolved = Config::parse(text, &[]).unwrap().to_toml();
        assert_eq!(errors(&resolved), Vec::<String>::new(), "{resolved}");
    }
    let maze = "[task]\nkind = \"maze\"\n".to_owned() + model;
    for wrong in [
        "stepps = 1\n",
        "steps = \"many\"\n",
        "algorithm.focal_gama = 1\n",
        "algorithm.loss = \"dappo\"\n",
        "algorithm.advantage = { kind = \"dr_grpo\", k = 2 }\n",
        "algorithm.loss = { kind = \"cispo\", dual_clip = 3.0 }\n",
        "algorithm.kl = \"k4\"\n",
        "algorithm.aggregation = \"mean\"\n",
        "save.every = \"day\"\n",
        "save.keep = -1\n",
        "compute.precision = \"f16\"\n",
        "update.betas = [0.9]\n",
    ] {
        let text = wrong.to_owned() + &maze;
        assert!(!errors(&text).is_empty() && Config::parse(&text, &[]).is_err(), "{wrong}");
    }
    for wrong in [
        "kind = \"mazes\"",
        "kind = \"maze\"\ndata = \"x\"",
        "kind = \"math\"",
        "kind = \"maze\"\nreward = \"near\"",
        "kind = \"math\"\ndata = \"d\"\nverifier.mode = \"exact\"",
        "kind = \"command\"\ndata = \"d\"\nverifier.command.comand = \"g\"",
    ] {
        let text = format!("steps = 1\n[task]\n{wrong}\n{model}");
        assert!(!errors(&text).is_empty() && Config::parse(&text, &[]).is_err(), "{wrong}");
    }
}
