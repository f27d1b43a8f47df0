//! `compute.products`, through the command line: a run's log, configuration and resumes, its evaluations, and commands that compute with a checkpoint.

use crate::support::{done, ends_with, fgrpo, file, model, run};
use std::path::Path;

/// Settings of a run of two small steps.
fn settings(products: &str) -> Vec<String> {
    let sets = [
        "task.size=5",
        "task.train=64",
        "task.held_out=4",
        "model.init.hidden_size=16",
        "model.init.intermediate_size=24",
        "model.init.num_hidden_layers=1",
        "model.init.num_attention_heads=2",
        "model.init.num_key_value_heads=1",
        "sft.steps=4",
        "sft.batch_size=4",
        "steps=2",
        "rollout.prompts=3",
        "rollout.group_size=4",
        "update.lr=1e-3",
        "eval.every=2",
        "eval.samples=4",
        "eval.k=[1,4]",
        "save.every=1",
        "compute.threads=1",
    ];
    let sets = sets.into_iter().map(str::to_owned).chain([format!("compute.products={products}")]);
    sets.flat_map(|set| ["--set".to_owned(), set]).collect()
}

fn arguments<'a>(command: &[&'a str], settings: &'a [String]) -> Vec<&'a str> {
    command.iter().copied().chain(settings.iter().map(String::as_str)).collect()
}

fn weights(run: &Path, step: u64) -> Vec<u8> {
    std::fs::read(run.join(format!("checkpoints/step-{step:06}/model.safetensors"))).unwrap()
}

#[test]
fn a_run_with_products_of_any_kind_resumes_bit_for_bit_and_with_no_other_kind() {
    let folder = tempfile::tempdir().unwrap();
    let mut reached = Vec::new();
    for products in ["f32", "bf16x3", "bf16"] {
        let out = folder.path().join(products);
        let path = out.to_str().unwrap();
        let (config, settings) = ("maze-quick", settings(products));
        done(&arguments(&["train", config, "--out", path], &settings));
        let log = std::fs::read_to_string(out.join("log.txt")).unwrap();
        assert!(log.contains(&format!("products: {products}")), "{log}");
        let resolved = std::fs::read_to_string(out.join("config.toml")).unwrap();
        assert!(resolved.contains(&format!("products = \"{products}\"")), "{resolved}");

        let whole = weights(&out, 2);
        std::fs::remove_dir_all(out.join("checkpoints/step-000002")).unwrap();
        let resume = arguments(&["train", config, "--out", path, "--resume"], &settings);
        let other_products = if products == "f32" { "bf16" } else { "f32" };
        let other = format!("compute.products={other_products}");
        let said = ends_with(2, &[&resume[..], &["--set", &other]].concat());
        assert!(said.contains("products"), "{said}");
        done(&resume);
        assert!(weights(&out, 2) == whole, "{products}: the resumed run's weights differ");
        reached.push(whole);

        // `fgrpo eval` with the configuration gives the run's own evaluation.
        let again = folder.path().join(format!("{products}-eval"));
        let (resolved, last) = (out.join("config.toml"), out.join("checkpoints/step-000002"));
        let words = ["eval", resolved.to_str().unwrap(), "--model", last.to_str().unwrap()];
        done(&[&words[..], &["--threads", "1", "--out", again.to_str().unwrap()]].concat());
        let samples = |folder: &Path| std::fs::read(folder.join("generations.jsonl")).unwrap();
        assert!(
            samples(&again) == samples(&out.join("evaluations/step-000002")),
            "{products}: other samples"
        );
        // With other products the same seed draws other samples, which don't belong in the same folder.
        let identity = |folder: &Path| -> serde_json::Value {
            serde_json::from_slice(&std::fs::read(folder.join("evaluation.json")).unwrap()).unwrap()
        };
        let numbers = (products != "f32").then(|| format!("{products} products"));
        for folder in [&again, &out.join("evaluations/step-000002")] {
            assert_eq!(identity(folder)["numbers"].as_str(), numbers.as_deref());
        }
        let mixed =
            [&words[..], &["-n", "8", "--products", other_products, "--out", again.to_str().unwrap()]];
        let said = ends_with(2, &mixed.concat());
        assert!(said.contains("numbers") && said.contains("bf16"), "{said}");
    }
    assert!(reached[0] != reached[1] && reached[1] != reached[2], "a kind of products that changes nothing");
}

#[test]
fn scores_with_products_of_two_numbers_are_nearer_to_those_in_f32_than_with_one() {
    let folder = tempfile::tempdir().unwrap();
    let input = file(folder.path(), "tokens.jsonl", "{\"tokens\":[1,2,3,4,5,6,7,8,9,10,11,12]}\n");
    let model = model().to_str().unwrap();
    let logp = |products: &str| -> Vec<f64> {
        let words = ["score", "--model", model, input.to_str().unwrap(), "--products", products];
        let line: serde_json::Value = serde_json::from_str(&done(&words)).unwrap();
        line["logp"].as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect()
    };
    let exact = logp("f32");
    let off =
        |products: &str| logp(products).iter().zip(&exact).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    let (two, one) = (off("bf16x3"), off("bf16"));
    assert!(two < 1e-3 && one < 0.3 && two < one, "off by {two} and {one}");
    let said = ends_with(2, &["score", "--model", model, "-", "--products", "f16"]);
    assert!(said.contains("f16") && said.contains("bf16x3"), "{said}");
}

#[test]
fn products_of_a_gpu_follow_its_precision() {
    let config = "maze-quick";
    let words = ["train", config, "--dry-run", "--set", "compute.products=bf16"];
    assert!(done(&words).lines().any(|line| line == "products = \"bf16\""));
    let said = ends_with(2, &[&words[..], &["--device", "cuda"]].concat());
    assert!(said.contains("compute.products") && said.contains("compute.precision"), "{said}");
}

#[test]
fn an_evaluation_computes_in_the_configurations_numbers_unless_a_flag_says_otherwise() {
    let folder = tempfile::tempdir().unwrap();
    let (config, out) = ("maze-quick", folder.path().join("eval"));
    let words =
        ["eval", config, "--model", model().to_str().unwrap(), "-n", "1", "--out", out.to_str().unwrap()];
    let said = ends_with(2, &[&words[..], &["--set", "compute.precision=bf16"]].concat());
    assert!(said.contains("compute.precision") && said.contains("the device cuda"), "{said}");
    let said = ends_with(2, &[&words[..], &["--precision", "bf16"]].concat());
    assert!(said.contains("compute.precision"), "{said}");
    assert!(!out.join("generations.jsonl").exists());
    // If nothing is computed, a flag for computing would be ignored, so it is refused.
    let given = file(folder.path(), "given.jsonl", "{\"problem\":0,\"sample\":0,\"text\":\"\"}\n");
    for flags in [["--threads", "2"], ["--device", "cpu"], ["--products", "bf16"], ["--precision", "f32"]] {
        let words =
            ["eval", config, "--samples", given.to_str().unwrap(), "-n", "1", "--out", out.to_str().unwrap()];
        let said = ends_with(2, &[&words[..], &flags].concat());
        assert!(said.contains(flags[0]) && said.contains("--model"), "{said}");
    }
}

#[test]
fn a_blas_that_cannot_be_loaded_is_named_before_anything_is_computed() {
    let words = ["score", "--model", model().to_str().unwrap(), "-", "--products", "blas"];
    let (out, said, code) = run(fgrpo().args(words).env("FGRPO_BLAS", "/no/such/libblas.so"));
    assert_eq!((code, out.as_str()), (2, ""), "{said}");
    assert!(said.contains("/no/such/libblas.so") && said.contains("compute.products"), "{said}");
    assert!(said.contains("use products in f32") && said.contains("FGRPO_BLAS"), "{said}");
}
