//! Inputs that would exhaust memory or time, or make a library panic. Each must be refused within the limits, with exit code 2 and
//! the name of its file.

use crate::confine::{self, Ended};
use crate::inputs::{COMPONENTS, Inputs, TEMPLATES, text_config, with_component};
use crate::{MEMORY, TIME};
use parquet::basic::Compression;
use parquet::data_type::{ByteArray, ByteArrayType};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::sync::Arc;

pub(crate) fn run(folder: &Path, line: &str) -> Ended {
    let arguments: Vec<OsString> = line.split(' ').map(OsString::from).collect();
    confine::run(&arguments, folder, TIME, MEMORY)
}

#[track_caller]
fn refused(folder: &Path, line: &str, says: &[&str]) -> Ended {
    let ended = run(folder, line);
    let said = ended.stderr.chars().take(2000).collect::<String>();
    assert_eq!(ended.code, Some(2), "{line}: too long {}: {said}", ended.too_long);
    assert!(!said.contains("panicked"), "{line}: {said}");
    for text in says {
        assert!(said.contains(text), "{line}: wanted {text:?} in: {said}");
    }
    ended
}

#[test]
fn hostile_templates_and_tokenizers_are_refused_by_file() {
    let folder = tempfile::tempdir().unwrap();
    Inputs::make(folder.path());
    let root = folder.path();
    text_config(root, "math", "data.jsonl", "model");
    let good = std::fs::read(root.join("model/chat_template.jinja")).unwrap();
    for template in TEMPLATES {
        std::fs::write(root.join("model/chat_template.jinja"), template).unwrap();
        let ended = run(root, "train text.toml --dry-run");
        let said = &ended.stderr;
        // Some templates only write long prompts, which are rejected and counted.
        let named = said.contains("model/chat_template.jinja") || said.contains("prompt longer than");
        assert!(ended.code == Some(2) && named, "{template}: {:?} {said}", ended.code);
        assert!(!said.contains("panicked"), "{template}: {said}");
    }
    std::fs::write(root.join("model/chat_template.jinja"), "{# two lines #}\n{{ [1] * ; }}").unwrap();
    let said = run(root, "train text.toml --dry-run").stderr;
    assert!(said.contains("model/chat_template.jinja: line 2: ") && said.lines().count() == 1, "{said}");
    std::fs::write(root.join("model/chat_template.jinja"), good).unwrap();
    let good = std::fs::read(root.join("model/tokenizer.json")).unwrap();
    for component in COMPONENTS {
        std::fs::write(root.join("model/tokenizer.json"), with_component(&good, component)).unwrap();
        let ended = run(root, "train text.toml --dry-run");
        let fine = ended.code == Some(0) || ended.code == Some(2) && ended.stderr.contains("tokenizer");
        assert!(
            fine && !ended.stderr.contains("panicked"),
            "{component:?}: {:?} {}",
            ended.code,
            ended.stderr
        );
    }
}

#[test]
fn a_head_whose_rotary_tables_take_gigabytes_is_refused_before_they_are_made() {
    let folder = tempfile::tempdir().unwrap();
    let line = "init --arch llama --hidden-size 16 --head-dim 1000000 --out new";
    refused(folder.path(), line, &["--head-dim: ", "1000000", "65536"]);
}

/// A file of a few kilobytes whose rows take gigabytes: one long string that is stored once and referenced many times.
fn parquet_bomb(path: &Path) {
    let schema = parse_message_type(
        "message row { required binary problem (STRING); required binary answer (STRING); }",
    );
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(Default::default()))
        .set_statistics_enabled(EnabledStatistics::None)
        .set_dictionary_page_size_limit(1 << 30)
        .build();
    let mut writer = SerializedFileWriter::new(
        File::create(path).unwrap(),
        Arc::new(schema.unwrap()),
        Arc::new(properties),
    )
    .unwrap();
    let mut group = writer.next_row_group().unwrap();
    let mut value = ByteArray::from(vec![b'x'; 1 << 20]);
    while let Some(mut column) = group.next_column().unwrap() {
        column.typed::<ByteArrayType>().write_batch(&vec![value; 2048], None, None).unwrap();
        column.close().unwrap();
        value = ByteArray::from("1");
    }
    group.close().unwrap();
    writer.close().unwrap();
    assert!(std::fs::metadata(path).unwrap().len() < 10_000);
}

#[test]
fn data_made_to_exhaust_memory_or_time_is_refused_by_file() {
    let folder = tempfile::tempdir().unwrap();
    Inputs::make(folder.path());
    let root = folder.path();
    let key = "x".repeat(1 << 20);
    std::fs::write(root.join("key.toml"), format!("steps = 1\n[task]\nkind = \"maze\"\n{key} = 1\n"))
        .unwrap();
    let ended =
        refused(root, "train key.toml --dry-run", &["key.toml: line 4: unknown key `xxx", "xxx…`; expected"]);
    assert!(ended.stderr.len() < 2000, "{} bytes", ended.stderr.len());
    let columns = |n: usize| (0..n).map(|i| format!("c{i}")).collect::<Vec<_>>().join(",");
    std::fs::write(root.join("wide.csv"), format!("{}\n{}\n", columns(100_000), columns(100_000))).unwrap();
    text_config(root, "math", "wide.csv", "model");
    refused(root, "train text.toml --dry-run", &["wide.csv", "100000 columns"]);
    let row = format!("{{{}}}", (0..20_000).map(|i| format!("\"c{i}\": 1")).collect::<Vec<_>>().join(","));
    std::fs::write(root.join("wide.jsonl"), row).unwrap();
    text_config(root, "math", "wide.jsonl", "model");
    refused(root, "train text.toml --dry-run", &["wide.jsonl", "row 1 has 20000 columns"]);

    let mut long = File::create(root.join("long.jsonl")).unwrap();
    write!(long, "{{\"answer\": \"1\", \"problem\": \"").unwrap();
    (0..32).for_each(|_| long.write_all(&[b'a'; 1 << 20]).unwrap());
    writeln!(long, "\"}}").unwrap();
    text_config(root, "math", "long.jsonl", "model");
    refused(root, "train text.toml --dry-run", &["long.jsonl", "1 rejected: prompt of more than 4 MB"]);

    parquet_bomb(&root.join("bomb.parquet"));
    text_config(root, "math", "bomb.parquet", "model");
    let ended = refused(root, "train text.toml --dry-run", &["bomb.parquet", "MB of memory"]);
    assert!(ended.memory < 2 << 30, "{} MB", ended.memory >> 20);
}

#[test]
fn what_is_no_regular_file_is_refused_wherever_a_file_is_named() {
    let folder = tempfile::tempdir().unwrap();
    Inputs::make(folder.path());
    let root = folder.path();
    let pipe = std::ffi::CString::new(root.join("pipe.jsonl").to_str().unwrap()).unwrap();
    // SAFETY: a path that ends with a zero.
    assert_eq!(unsafe { libc::mkfifo(pipe.as_ptr(), 0o600) }, 0);
    let _listener = std::os::unix::net::UnixListener::bind(root.join("socket.jsonl")).unwrap();
    std::os::unix::fs::symlink("/dev/zero", root.join("zero.jsonl")).unwrap();
    for (file, kind) in [("socket.jsonl", "a socket"), ("zero.jsonl", "a device")] {
        refused(root, &format!("verify math {file}"), &[file, kind]);
    }
    // A pipe at every place: a command that opened it would wait.
    text_config(root, "math", "pipe.jsonl", "model");
    for line in [
        "train text.toml --dry-run",
        "train pipe.jsonl --dry-run",
        "score --model model pipe.jsonl",
        "pass-at-k pipe.jsonl",
        "compare samples.jsonl pipe.jsonl",
        "eval pipe.jsonl",
        "eval --samples pipe.jsonl --data data.jsonl --task math -n 1 --out new",
        "eval --model model --data pipe.jsonl --task math -n 1 --out newer",
    ] {
        refused(root, line, &["pipe.jsonl", "a named pipe"]);
    }
    text_config(root, "math", "data.jsonl", "model");
    let names = [
        "tokenizer.json",
        "tokenizer_config.json",
        "chat_template.jinja",
        "config.json",
        "model.safetensors",
    ];
    for name in names {
        let (place, kept) = (root.join("model").join(name), root.join("kept"));
        std::fs::rename(&place, &kept).unwrap();
        std::os::unix::fs::symlink(root.join("pipe.jsonl"), &place).unwrap();
        refused(root, "train text.toml --dry-run", &[name, "a named pipe"]);
        std::fs::rename(&kept, &place).unwrap();
    }
}

#[test]
fn paths_that_are_not_utf8_work_or_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    Inputs::make(folder.path());
    let odd = |name: &[u8]| folder.path().join(OsString::from_vec([name, b"\xff"].concat()));
    std::fs::rename(folder.path().join("samples.jsonl"), odd(b"samples")).unwrap();
    std::fs::rename(folder.path().join("maze.toml"), odd(b"maze")).unwrap();
    let words = |line: &[&[u8]]| -> Vec<OsString> {
        let place = |word: &&[u8]| match word.strip_prefix(b"@") {
            Some(name) => odd(name).into_os_string(),
            None => OsString::from_vec(word.to_vec()),
        };
        line.iter().map(place).collect()
    };
    let cases: [(&[&[u8]], i32); 7] = [
        (&[b"maze", b"show", b"--seed", b"\xff1"], 2),
        (&[b"pass-at-k", b"@samples", b"--uneven", b"--resamples", b"100"], 0),
        (&[b"train", b"@maze", b"--dry-run"], 0),
        (&[b"train", b"@maze", b"--out", b"@out"], 0),
        (&[b"report", b"@out"], 0),
        (&[b"eval", b"@maze", b"--model", b"model", b"--out", b"@eval"], 0),
        (&[b"init", b"--arch", b"llama", b"--out", b"@model"], 2),
    ];
    for (line, code) in cases {
        let line = words(line);
        let ended = confine::run(&line, folder.path(), TIME, MEMORY);
        assert_eq!(ended.code, Some(code), "{line:?}: {}", ended.stderr);
        assert!(!ended.stderr.contains("panicked"), "{line:?}: {}", ended.stderr);
        let named = ended.stderr.contains("\\xFF") || ended.stderr.contains('\u{fffd}');
        assert!(code == 0 || named, "{line:?}: {}", ended.stderr);
    }
}
