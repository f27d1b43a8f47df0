//! Configurations by their names.

use super::{fgrpo, run};

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
    let steps = ["--set", "steps=1", "--set", "sft.steps=1", "--set", "eval.every=0"];
    let (_, said, code) = here(&[&["train", "maze-quick"], &steps[..]].concat());
    assert_eq!(code, 0, "{said}");
    assert!(folder.path().join("runs/maze-quick/checkpoints").is_dir(), "{said}");

    // A file comes before the built-in configuration of its name.
    std::fs::write(folder.path().join("maze-quick"), "steps = \"many\"\n").unwrap();
    assert_eq!(here(&["train", "maze-quick"]).2, 2);
    std::fs::write(folder.path().join("own-run.toml"), shown).unwrap();
    for (given, wanted) in [
        ("maze-qiuck", "did you mean maze-quick?"),
        ("configs/maze-quick.toml", "did you mean maze-quick?"),
        ("own-rum.toml", "did you mean own-run.toml?"),
        ("something-else.toml", "fgrpo configs list"),
    ] {
        for command in ["train", "sft", "eval", "sweep"] {
            let (_, said, code) = here(&[command, given]);
            assert!(code == 2 && (command == "sweep" || said.contains(wanted)), "{command} {given}: {said}");
        }
    }
    let (_, said, code) = here(&["configs", "show", "maze"]);
    assert!(code == 2 && said.contains("wanted one of arithmetic-quick"), "{said}");
}
