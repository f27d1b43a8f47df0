//! Downloads from a server that answers like the hub, with faults.

#[path = "../tests/server/mod.rs"]
mod server;

use super::*;
use server::{Fault, TestHub};
use std::sync::atomic::Ordering;

/// Stops a download after a number of bytes.
struct StopAfter {
    bytes: u64,
    done: u64,
}

impl Watch for StopAfter {
    fn say(&mut self, _: &str) {}
    fn begin(&mut self, _: &str, _: u64, _: u64) {}
    fn progress(&mut self, done: u64) {
        self.done = done;
    }
    fn end(&mut self) {}
    fn stop(&self) -> bool {
        self.done >= self.bytes
    }
}

const SIZE: u64 = 4_000_000;

fn server() -> TestHub {
    let server = TestHub::start().with_data();
    let weights: Vec<u8> = (0..SIZE).map(|i| (i / 7) as u8).collect();
    let files = [("config.json", b"{}".to_vec()), ("model.safetensors", weights)];
    let others =
        ["pytorch_model.bin", "onnx/model.onnx", "README.md"].map(|name| (name, b"unwanted".to_vec()));
    server.has("models/Org/Tiny", files.into_iter().chain(others));
    server
}

/// Takes a name with an empty or earlier cache, and stops after this many bytes of a file.
fn take_until(bytes: u64, server: &TestHub, name: &str, offline: bool) -> Result<Taken, Error> {
    let kind = if name.contains("sums") { Kind::Data } else { Kind::Model };
    let name = Name::read(name, kind).unwrap().unwrap();
    let hub = Hub {
        cache: server.home.path().join("hub"),
        endpoint: server.url(),
        token: Some("secret".into()),
        offline,
        ..Hub::from_environment().unwrap()
    };
    hub.take(&name, ("train", false), false, &mut StopAfter { bytes, done: 0 })
}

fn take(server: &TestHub, name: &str) -> Result<Taken, Error> {
    take_until(u64::MAX, server, name, false)
}

#[test]
fn cut_and_failing_downloads_go_on_where_they_were() {
    let server = server();
    server.meets(&[Fault::Error, Fault::Cut, Fault::Nothing, Fault::Cut]);
    let taken = take(&server, "Org/Tiny").unwrap();
    let ranges = server.state.ranges.lock().unwrap().clone();
    assert!(ranges.len() == 2 && ranges[0] > 0 && ranges[1] > ranges[0], "{ranges:?}");
    assert_eq!(std::fs::metadata(taken.path.join("model.safetensors")).unwrap().len(), SIZE);
    for unwanted in ["pytorch_model.bin", "onnx", "README.md"] {
        assert!(!taken.path.join(unwanted).exists(), "{unwanted}");
    }
    let blobs = server.cached("models--Org--Tiny/blobs").read_dir().unwrap().flatten();
    assert!(blobs.into_iter().all(|blob| !blob.file_name().to_string_lossy().ends_with(".incomplete")));
    assert!(!server.state.leaked.load(Ordering::SeqCst), "the token was sent to another host");
    // Nothing is requested without a network.
    let requests = server.requests();
    assert_eq!(take_until(u64::MAX, &server, "hf:Org/Tiny@main", true).unwrap(), taken);
    assert_eq!(server.requests(), requests);
}

#[test]
fn a_download_that_stays_cut_or_is_stopped_names_its_bytes_and_the_next_call_goes_on() {
    let server = server();
    server.meets(&[
        Fault::Cut,
        Fault::Nothing,
        Fault::Nothing,
        Fault::Nothing,
        Fault::Nothing,
        Fault::Nothing,
    ]);
    let error = take(&server, "Org/Tiny").unwrap_err().to_string();
    assert!(error.contains(&format!("{} of {SIZE} bytes are kept", SIZE / 2)), "{error}");
    server.meets(&[]);
    let stopped = take_until(SIZE / 2 + 1, &server, "Org/Tiny", false).unwrap_err();
    assert!(matches!(&stopped, Error::Stopped(why) if why.contains("bytes are kept")), "{stopped}");
    take(&server, "Org/Tiny").unwrap();
    let ranges = server.state.ranges.lock().unwrap().clone();
    assert!(ranges[0] == SIZE / 2 && ranges[1] > SIZE / 2, "{ranges:?}");
}

#[test]
fn wrong_bytes_are_refused_and_removed() {
    let server = server();
    server.meets(&[Fault::Wrong]);
    let error = take(&server, "Org/Tiny").unwrap_err().to_string();
    assert!(error.contains("damaged") && error.contains("with the hash"), "{error}");
    take(&server, "Org/Tiny").unwrap();
    assert!(server.state.ranges.lock().unwrap().is_empty());
}

#[test]
fn small_files_are_checked_by_the_hash_that_git_gives_them() {
    let server = server();
    take(&server, "Org/Tiny").unwrap();
    let blobs = server.cached("models--Org--Tiny/blobs");
    // A crash left other bytes of the right length.
    let small =
        blobs.read_dir().unwrap().flatten().find(|f| f.metadata().unwrap().len() == 2).unwrap().path();
    std::fs::remove_file(&small).unwrap();
    let incomplete = small.with_extension("incomplete");
    std::fs::write(&incomplete, "[]").unwrap();
    let error = take(&server, "Org/Tiny").unwrap_err().to_string();
    assert!(error.contains("damaged") && !incomplete.exists(), "{error}");
    take(&server, "Org/Tiny").unwrap();
    assert_eq!(std::fs::read(small).unwrap(), b"{}");
}

#[test]
fn folders_in_variables_are_expanded_as_in_python() {
    let home = std::env::var("HOME").unwrap();
    for (text, expected) in [
        ("~/x", format!("{home}/x")),
        ("~", home.clone()),
        ("$HOME/a${HOME}", format!("{home}/a{home}")),
        ("a~/$NO_SUCH_VARIABLE/b", "a~/$NO_SUCH_VARIABLE/b".into()),
    ] {
        assert_eq!(crate::expanded(text), std::path::Path::new(&expected), "{text}");
    }
}

#[test]
fn refusals_say_what_to_do() {
    let server = server();
    for (name, offline, wanted) in [
        ("Org/gated", false, "accept its licence"),
        ("Org/private", false, "HF_TOKEN"),
        ("Org/nothing", false, "no such repository"),
        ("hf:Org/Tiny@v9", false, "no revision v9"),
        ("hf:Org/sums:dev", false, "no split dev, but test, train;"),
        ("Org/Tiny", true, "HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE is set"),
    ] {
        let error = take_until(u64::MAX, &server, name, offline).unwrap_err();
        assert!(matches!(&error, Error::Refused(why) if why.contains(wanted)), "{name}: {error}");
    }
}

#[test]
fn a_part_of_a_split_in_the_cache_is_no_split() {
    let server = server();
    let taken = take(&server, "hf:Org/sums:train").unwrap();
    assert_eq!(taken.part, Some(("main".into(), "train".into())));
    std::fs::remove_file(taken.path.with_file_name("train-00001-of-00002.jsonl")).unwrap();
    let error = take_until(u64::MAX, &server, "hf:Org/sums:train", true).unwrap_err().to_string();
    assert!(error.contains("the cache has 1 of 2 files of split train"), "{error}");
}
