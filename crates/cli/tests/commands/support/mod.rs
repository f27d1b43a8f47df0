//! Shared by the tests of the command line: the program, a small model, processes and signals.

use assert_cmd::Command;
use std::borrow::BorrowMut;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The program.
pub(crate) fn fgrpo() -> Command {
    Command::new(env!("CARGO_BIN_EXE_fgrpo"))
}

/// Standard output, standard error and exit code, which is -1 if a signal ended the program.
pub(crate) fn run(mut command: impl BorrowMut<Command>) -> (String, String, i32) {
    let output = command.borrow_mut().output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr), output.status.code().unwrap_or(-1))
}

/// Returns the stderr of a program that must exit with `code`.
#[track_caller]
pub(crate) fn ends_with(code: i32, args: &[&str]) -> String {
    let (_, said, found) = run(fgrpo().args(args));
    assert_eq!(found, code, "{args:?}: {said}");
    said
}

/// Returns the stderr of a program that must refuse its input: with exit code 2 and an empty stdout.
#[track_caller]
pub(crate) fn refused(args: &[&str]) -> String {
    let (out, said, code) = run(fgrpo().args(args));
    assert_eq!((code, out.as_str()), (2, ""), "{args:?}: {said}");
    said
}

/// Returns the stdout of a program that must exit with 0.
#[track_caller]
pub(crate) fn done(args: &[&str]) -> String {
    let (out, said, code) = run(fgrpo().args(args));
    assert_eq!(code, 0, "{args:?}: {said}");
    out
}

/// Returns the stdout of a program that must exit with 0, as JSON.
#[track_caller]
pub(crate) fn json(args: &[&str]) -> serde_json::Value {
    serde_json::from_str(&done(args)).unwrap()
}

/// A command of the program: a literal is split at spaces, `..` adds each element of a list, and anything else is one argument.
macro_rules! command {
    (@ $command:ident) => {};
    (@ $command:ident, $words:literal $(, $($rest:tt)*)?) => {
        $command.args($words.split(' '));
        command!(@ $command $(, $($rest)*)?);
    };
    (@ $command:ident, .. $all:expr $(, $($rest:tt)*)?) => {
        $command.args($all);
        command!(@ $command $(, $($rest)*)?);
    };
    (@ $command:ident, $one:expr $(, $($rest:tt)*)?) => {
        $command.arg($one);
        command!(@ $command $(, $($rest)*)?);
    };
    ($($parts:tt)*) => {{
        let mut command = $crate::support::fgrpo();
        command!(@ command, $($parts)*);
        command
    }};
}

/// Runs a command, which must exit with `code`. Returns its stdout and stderr.
#[track_caller]
pub(crate) fn ends(code: i32, mut command: Command) -> (String, String) {
    let (out, said, found) = run(&mut command);
    assert_eq!(found, code, "{command:?}: {said}");
    (out, said)
}

/// Runs a command, which must exit with `code` and `text` on stderr.
#[track_caller]
pub(crate) fn tells(code: i32, command: Command, text: impl AsRef<str>) {
    let (_, said) = ends(code, command);
    assert!(said.contains(text.as_ref()), "{:?}: {said}", text.as_ref());
}

/// Runs a command, which must exit with `code` and `text` on stdout.
#[track_caller]
pub(crate) fn prints(code: i32, command: Command, text: impl AsRef<str>) {
    let (out, _) = ends(code, command);
    assert!(out.contains(text.as_ref()), "{:?}: {out}", text.as_ref());
}

/// Every line of a file as JSON.
#[track_caller]
pub(crate) fn lines(path: &Path) -> Vec<serde_json::Value> {
    let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    text.lines().map(|l| serde_json::from_str(l).unwrap()).collect()
}

/// Every line of a file of JSON lines, without the fields that depend on the clock.
#[track_caller]
pub(crate) fn timeless(path: &Path) -> Vec<serde_json::Value> {
    let mut all = lines(path);
    for line in &mut all {
        line.as_object_mut().unwrap().retain(|key, _| key != "seconds" && !key.contains("per_second"));
    }
    all
}

/// Checks that files of two folders have the same bytes.
#[track_caller]
pub(crate) fn assert_same_files(a: &Path, b: &Path, names: &[&str]) {
    for name in names {
        let read = |folder: &Path| std::fs::read(folder.join(name)).unwrap();
        assert!(read(a) == read(b), "{name} differs between {} and {}", a.display(), b.display());
    }
}

/// Checks that two runs have the same lines in these files, apart from times, and the same checkpoint after the last step.
#[track_caller]
pub(crate) fn assert_same_run(a: &Path, b: &Path, files: &[&str], last: usize) {
    for name in files {
        assert_eq!(timeless(&a.join(name)), timeless(&b.join(name)), "{name}");
    }
    let last = format!("checkpoints/step-{last:06}");
    let names = ["model.safetensors", "optimizer.safetensors", "trainer_state.json"];
    assert_same_files(&a.join(&last), &b.join(&last), &names);
}

/// Copies a folder.
pub(crate) fn copy(from: &Path, to: &Path) {
    assert!(std::process::Command::new("cp").arg("-r").args([from, to]).status().unwrap().success());
}

/// Number of lines of a file, or 0 if it is missing.
pub(crate) fn count(path: &Path) -> usize {
    std::fs::read_to_string(path).map_or(0, |text| text.lines().count())
}

/// A small model folder with tokenizer and template, made once for all tests of a process.
pub(crate) fn model() -> &'static Path {
    static MODEL: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    &MODEL
        .get_or_init(|| {
            let folder = tempfile::tempdir().unwrap();
            let model = demonstrated(folder.path(), 1, &["task.train=8", "task.held_out=2"]);
            (folder, model)
        })
        .1
}

/// A small model folder with tokenizer and template, after this many steps on demonstrations.
pub(crate) fn demonstrated(folder: &Path, steps: usize, changes: &[&str]) -> PathBuf {
    let out = folder.join("base");
    let arithmetic = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs/arithmetic-quick.toml");
    let mut command = fgrpo();
    command.arg("sft").arg(arithmetic).arg("--out").arg(&out);
    command.args(["--set", &format!("sft.steps={steps}")]);
    command.args(sets(&[
        "sft.eval_every=0",
        "task.train=64",
        "task.held_out=4",
        "model.init.hidden_size=16",
        "model.init.intermediate_size=32",
        "model.init.num_hidden_layers=1",
    ]));
    command.args(sets(changes)).assert().success();
    out.join(format!("checkpoints/step-{steps:06}"))
}

/// A configuration in which every answer that contains a digit is right. A policy that draws tokens at random gives one in 7 of
/// 100 pairs of tokens, and learns it within a few steps.
pub(crate) fn digits(folder: &Path) -> String {
    let rows = (0..32).map(|i| format!("{{\"problem\":\"Say {i}.\",\"pattern\":\"[0-9]\"}}\n"));
    let data = file(folder, "data.jsonl", &rows.collect::<String>());
    format!(
        "steps = 30\n[task]\nkind = \"regex\"\ndata = {data:?}\n[model]\npath = {:?}\n[rollout]\nprompts = 8\ngroup_size = 8\n\
         max_new_tokens = 2\n[update]\nlr = 2e-2\n[eval]\nevery = 0\n[save]\nevery = 0\n",
        model()
    )
}

/// A configuration that trains on small mazes within seconds.
const SMALL: &str = r#"
steps = 4
[task]
kind = "maze"
size = 5
train = 20
held_out = 4
[model.init]
hidden_size = 16
intermediate_size = 32
num_hidden_layers = 1
num_attention_heads = 2
num_key_value_heads = 1
[rollout]
prompts = 4
group_size = 4
max_new_tokens = 6
[update]
lr = 1e-3
[eval]
every = 2
samples = 4
k = [1]
[save]
every = 2
[compute]
threads = 1
"#;

/// The text of a configuration for a small run on mazes. `changes` are like those of `--set`: a dotted key and its value.
#[track_caller]
pub(crate) fn small_run(changes: &[&str]) -> String {
    let mut config: toml::Table = SMALL.parse().unwrap();
    for change in changes {
        let (path, value) = change.split_once('=').unwrap();
        let (tables, key) = path.rsplit_once('.').unwrap_or(("", path));
        let mut table = &mut config;
        for name in tables.split('.').filter(|name| !name.is_empty()) {
            let inner = table.entry(name).or_insert_with(|| toml::Table::new().into());
            table = inner.as_table_mut().unwrap();
        }
        let parsed: toml::Table =
            format!("value = {value}").parse().unwrap_or_else(|e| panic!("{change}: {e}"));
        table.insert(key.to_owned(), parsed["value"].clone());
    }
    config.to_string()
}

/// Writes a configuration for a small run of `model` on sums in a file. `changes` are like those of `--set`.
#[track_caller]
pub(crate) fn sums_run(folder: &Path, model: &Path, changes: &[&str]) -> PathBuf {
    let row = |i: usize| {
        let sum = i + 1;
        format!(r#"{{"problem": "Take {i}. Add 1.", "answer": "{sum}", "solution": "So \\boxed{{{sum}}}"}}"#)
            + "\n"
    };
    let data = file(folder, "sums.jsonl", &(0..32).map(row).collect::<String>());
    let task = format!("task={{ kind = \"math\", data = {data:?}, held_out_share = 0 }}");
    let model = format!("model={{ path = {model:?} }}");
    let rollout = "rollout={ prompts = 4, group_size = 4, max_new_tokens = 10 }";
    let own = [task.as_str(), &model, rollout, "eval={ every = 0 }", "compute.threads=2"];
    file(folder, "sums.toml", &small_run(&[&own[..], changes].concat()))
}

/// The flags that set these keys.
pub(crate) fn sets<'a>(changes: &[&'a str]) -> Vec<&'a str> {
    changes.iter().flat_map(|change| ["--set", change]).collect()
}

/// Writes a file into a folder, which is created if it is missing. Returns its path.
pub(crate) fn file(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, text).unwrap();
    path
}

/// Writes the configuration of a small run on mazes into a folder, and copies a finished run of it, which is made once for all
/// tests of a process. Returns the paths of the configuration and of the run.
pub(crate) fn finished(folder: &Path) -> (PathBuf, PathBuf) {
    static MADE: OnceLock<tempfile::TempDir> = OnceLock::new();
    let made = MADE.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let config = file(folder.path(), "small.toml", &small_run(&[]));
        ends(0, command!("train", config, "--out", folder.path().join("run")));
        folder
    });
    copy(&made.path().join("run"), &folder.join("run"));
    (file(folder, "small.toml", &small_run(&[])), folder.join("run"))
}

/// Starts a command once for each number, and kills it when the file has as many lines, unless it has ended.
pub(crate) fn kill_at(start: impl Fn() -> std::process::Command, file: &Path, numbers: &[usize]) {
    for &wanted in numbers {
        let mut child = start().spawn().unwrap();
        wait_until("a line", || count(file) >= wanted || child.try_wait().unwrap().is_some());
        let _ = child.kill();
        child.wait().unwrap();
    }
}

/// Starts a program that can get signals, with its stderr captured.
pub(crate) fn spawned(args: &[&str]) -> std::process::Command {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_fgrpo"));
    command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    // Whatever started this test, such as `nohup` or a shell's `&`.
    // SAFETY: signal may be called between fork and exec.
    unsafe {
        command.pre_exec(|| {
            for number in [libc::SIGINT, libc::SIGHUP, libc::SIGTERM] {
                libc::signal(number, libc::SIG_DFL);
            }
            Ok(())
        })
    };
    command
}

pub(crate) fn signal(child: &Child, signal: libc::c_int) {
    // SAFETY: sends a signal to a child that has not been waited for.
    unsafe { libc::kill(child.id().cast_signed(), signal) };
}

/// Exit code and stderr of a program that has ended.
pub(crate) fn ended(child: Child) -> (Option<i32>, String) {
    let output = child.wait_with_output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

pub(crate) fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let started = Instant::now();
    while !done() {
        assert!(started.elapsed() < Duration::from_secs(120), "waited two minutes for {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
