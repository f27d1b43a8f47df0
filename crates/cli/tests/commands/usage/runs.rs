//! Run folders where a command expects a checkpoint or an evaluation.

use super::{fgrpo, file, run};

#[test]
fn a_run_stands_for_its_newest_checkpoint_and_evaluation_and_a_missing_step_lists_those_there_are() {
    let folder = tempfile::tempdir().unwrap();
    let here = |line: &str| run(fgrpo().current_dir(folder.path()).args(line.split(' ')));
    let small = "--set steps=4 --set sft.steps=2 --set rollout.prompts=2 --set save.every=2 --set task.held_out=4 --set model.init.num_hidden_layers=1";
    for (out, more) in [
        ("a", "--set eval.every=2 --set eval.samples=4 --set eval.k=[1,2]"),
        ("b", "--set eval.every=2 --set eval.samples=4 --set eval.k=[1,2] --set seed=2"),
        ("none", "--set eval.every=0"),
    ] {
        let (_, said, code) = here(&format!("train maze-quick {small} {more} --out {out}"));
        assert_eq!(code, 0, "{said}");
    }
    let newest = "samples: a/evaluations/step-000004 of the run a";
    for command in ["compare a b -k 1", "pass-at-k a -k 1", "plan a", "table A=a B=b -k 1"] {
        let (out, said, code) = here(command);
        assert!(code == 0 && said.contains(newest), "{command}: {said}");
        let named = |line: &str| {
            line.replace("=a ", "=a/evaluations/step-000004 ").replace(" a ", " a/evaluations/step-000004 ")
        };
        let named = named(&format!("{command} ")).trim_end().to_owned();
        assert_eq!(here(&named).0, out, "{command} is {named}");
    }
    // Two steps of one run.
    assert_eq!(here("compare a/evaluations/step-000000 a -k 1").2, 0);

    file(folder.path(), "t.jsonl", "{\"tokens\": [1, 2, 3]}\n");
    let (scores, said, code) = here("score --model b t.jsonl");
    assert!(code == 0 && said.contains("--model: b/checkpoints/step-000004 of the run b"), "{said}");
    assert_eq!(here("score --model b/checkpoints/step-000004 t.jsonl").0, scores);
    assert_ne!(here("score --model b/checkpoints/step-000002 t.jsonl").0, scores);

    for (command, wanted) in [
        ("score --model a/checkpoints/step-000003 t.jsonl", "existing steps: step-000002, step-000004"),
        ("compare a b/evaluations/step-000001", "existing steps: step-000000, step-000002, step-000004"),
        ("plan none", "doesn't have an evaluation yet"),
    ] {
        let (_, said, code) = here(command);
        assert!(code == 2 && said.contains(wanted), "{command}: {said}");
    }
}
