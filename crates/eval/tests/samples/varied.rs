//! The diversity of correct samples: embeddings of files and servers that are refused, and samples without texts.

use crate::file;
use fgrpo_eval::diversity::{Measure, Settings, measure};
use serde_json::json;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;

/// An evaluation folder with three correct samples of one problem.
fn evaluated() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let scores = (0..3).map(|i| {
        json!({"benchmark": "sums", "problem": "p", "sample": i, "correct": true, "verdict": "correct", "reason": "equal", "verifier": "math"})
    });
    let texts = ["one", "another way", "and a third"].into_iter().zip(0..);
    let texts = texts.map(|(text, i)| json!({"problem": "p", "sample": i, "text": text}));
    file(folder.path(), "samples.jsonl", &scores.map(|line| format!("{line}\n")).collect::<String>());
    file(folder.path(), "generations.jsonl", &texts.map(|line| format!("{line}\n")).collect::<String>());
    folder
}

/// The diversity of samples in folders, with changed settings.
fn diversity(folders: &[&Path], change: impl FnOnce(&mut Settings)) -> Result<f64, String> {
    let mut settings = Settings::ngrams(folders.iter().map(|folder| folder.to_path_buf()).collect());
    change(&mut settings);
    measure(&settings).map(|found| found.diversity[0].values[0]).map_err(|error| format!("{error:#}"))
}

#[test]
fn vectors_of_other_lengths_empty_ones_and_repeated_samples_are_refused_by_line() {
    let folder = evaluated();
    let folder = folder.path();
    let vectors = |name: &str, rows: &[(u64, &[f64])]| {
        let line =
            |(i, v): &(u64, &[f64])| format!("{}\n", json!({"problem": "p", "sample": i, "embedding": v}));
        file(folder, name, &rows.iter().map(line).collect::<String>())
    };
    let measured = |files: &[&Path]| {
        diversity(&vec![folder; files.len()], |settings| {
            settings.by = Measure::Embeddings;
            settings.files = files.iter().map(|file| file.to_path_buf()).collect();
        })
    };
    let good = vectors("vectors.jsonl", &[(0, &[1.0, 0.0]), (1, &[0.0, 1.0]), (2, &[1.0, 0.0])]);
    assert!((measured(&[&good]).unwrap() - 2.0 / 3.0).abs() < 1e-12);
    for (rows, wanted) in [
        (&[(0, &[1.0, 0.0][..]), (1, &[0.0, 1.0, 0.5]), (2, &[1.0, 0.0])], "expected 2 numbers"),
        (&[(0, &[1.0, 0.0]), (1, &[]), (2, &[1.0, 0.0])], "empty"),
        (&[(0, &[1.0, 0.0]), (0, &[0.0, 1.0]), (2, &[1.0, 0.0])], "sample 0 of problem"),
    ] {
        let error = measured(&[&vectors("vectors.jsonl", rows)]).unwrap_err();
        assert!(error.contains("vectors.jsonl line 2: ") && error.contains(wanted), "{wanted}: {error}");
    }
    // A second file has vectors of the same model.
    let short = vectors("vectors.jsonl", &[(0, &[1.0]), (1, &[0.5]), (2, &[0.25])]);
    let longer = vectors("longer.jsonl", &[(0, &[1.0, 1.0]), (1, &[0.5, 1.0]), (2, &[0.25, 1.0])]);
    let error = measured(&[&short, &longer]).unwrap_err();
    assert!(error.contains("longer.jsonl line 1: embedding: expected 1 number"), "{error}");
    // A measure that needs no vectors would ignore them.
    let error = diversity(&[folder], |settings| settings.files = vec![short]).unwrap_err();
    assert!(error.contains("embeddings: files of embeddings require"), "{error}");
}

#[test]
fn correct_samples_without_their_text_or_listed_twice_are_counted_and_refused() {
    let folder = evaluated();
    let folder = folder.path();
    assert!(diversity(&[folder], |_| ()).is_ok());
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    let (texts, scores) = (read("generations.jsonl"), read("samples.jsonl"));
    file(folder, "generations.jsonl", &texts[..texts.trim_end().rfind('\n').unwrap() + 1]);
    let error = diversity(&[folder], |_| ()).unwrap_err();
    let says = "generations.jsonl: the texts of 1 of the 3 correct samples are missing, such as sample 2";
    assert!(error.contains(says), "{error}");
    // A sample that is listed twice would be at distance 0 from itself.
    file(folder, "generations.jsonl", &texts);
    file(folder, "samples.jsonl", &format!("{scores}{}\n", scores.lines().next().unwrap()));
    let error = diversity(&[folder], |_| ()).unwrap_err();
    assert!(
        error.contains("samples.jsonl: sample 0 of problem") && error.contains("appears twice"),
        "{error}"
    );
}

/// An OpenAI-compatible server whose n-th vector has n numbers.
fn growing(requests: usize) -> (String, std::thread::JoinHandle<()>) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let serve = move || {
        for (n, stream) in (1..=requests).zip(listener.incoming()) {
            let mut stream = BufReader::new(stream.unwrap());
            let (mut line, mut length) = (String::new(), 0);
            while stream.read_line(&mut line).unwrap() > 2 {
                if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap();
                }
                line.clear();
            }
            stream.read_exact(&mut vec![0; length]).unwrap();
            let answer = json!({"data": [{"embedding": vec![1.0; n]}]}).to_string();
            let head =
                format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", answer.len());
            stream.get_mut().write_all((head + &answer).as_bytes()).unwrap();
        }
    };
    (address, std::thread::spawn(serve))
}

#[test]
fn a_servers_vectors_of_several_lengths_are_refused() {
    let folder = evaluated();
    let (address, server) = growing(3);
    let found = diversity(&[folder.path()], |settings| {
        settings.by = Measure::Embeddings;
        (settings.server, settings.model, settings.concurrency) = (Some(address), Some("e".into()), 1);
    });
    server.join().unwrap();
    let wanted = "embeddings.jsonl: problem p has embeddings of different lengths, 1 and 2";
    assert!(found.as_ref().is_err_and(|error| error.contains(wanted)), "{found:?}");
}
