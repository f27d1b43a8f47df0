//! `compute.products`, through the command line: a run's log, configuration and resumes, its evaluations, and commands that compute with a checkpoint.

use crate::support::{assert_same_files, ends, file, model, small_run, tells};
use std::path::Path;

#[test]
fn a_run_with_products_of_any_kind_resumes_bit_for_bit_and_with_no_other_kind() {
    let folder = tempfile::tempdir().unwrap();
    let mut reached = Vec::new();
    for products in ["f32", "bf16x3", "bf16"] {
        let out = folder.path().join(products);
        let kind = format!("compute.products={products:?}");
        let config = small_run(&["steps=2", "sft={ steps = 4, batch_size = 4 }", "save.every=1", &kind]);
        let config = file(folder.path(), "c.toml", &config);
        ends(0, command!("train", &config, "--out", &out));
        let read = |name: &str| std::fs::read_to_string(out.join(name)).unwrap();
        assert!(read("log.txt").contains(&format!("products: {products}")), "{}", read("log.txt"));
        assert!(
            read("config.toml").contains(&format!("products = \"{products}\"")),
            "{}",
            read("config.toml")
        );

        let last = out.join("checkpoints/step-000002");
        let weights = || std::fs::read(last.join("model.safetensors")).unwrap();
        let whole = weights();
        std::fs::remove_dir_all(&last).unwrap();
        let other = if products == "f32" { "bf16" } else { "f32" };
        let resume = || command!("train", &config, "--resume --out", &out);
        let mut with_other = resume();
        with_other.args(["--products", other]);
        tells(2, with_other, "products");
        ends(0, resume());
        assert!(weights() == whole, "{products}: the resumed run's weights differ");
        reached.push(whole);

        // `fgrpo eval` with the configuration gives the run's own evaluation.
        let again = folder.path().join(format!("{products}-eval"));
        let eval = || command!("eval", out.join("config.toml"), "--model", &last, "--out", &again);
        ends(0, eval());
        let evaluated = out.join("evaluations/step-000002");
        assert_same_files(&again, &evaluated, &["generations.jsonl"]);
        // With other products the same seed draws other samples, which don't belong in the same folder.
        let identity = |folder: &Path| -> serde_json::Value {
            serde_json::from_slice(&std::fs::read(folder.join("evaluation.json")).unwrap()).unwrap()
        };
        let numbers = (products != "f32").then(|| format!("{products} products"));
        for folder in [&again, &evaluated] {
            assert_eq!(identity(folder)["numbers"].as_str(), numbers.as_deref());
        }
        let mut mixed = eval();
        mixed.args(["-n", "8", "--products", other]);
        let (_, said) = ends(2, mixed);
        assert!(said.contains("numbers") && said.contains("bf16"), "{said}");
    }
    assert!(reached[0] != reached[1] && reached[1] != reached[2], "a kind of products that changes nothing");
}

#[test]
fn scores_with_products_of_two_numbers_are_nearer_to_those_in_f32_than_with_one() {
    let score = |products: &str| {
        let mut command = command!("score - --model", model(), "--products", products);
        command.write_stdin("{\"tokens\":[1,2,3,4,5,6,7,8,9,10,11,12]}\n");
        command
    };
    let logp = |products: &str| -> Vec<f64> {
        let line: serde_json::Value = serde_json::from_str(&ends(0, score(products)).0).unwrap();
        serde_json::from_value(line["logp"].clone()).unwrap()
    };
    let exact = logp("f32");
    let off =
        |products: &str| logp(products).iter().zip(&exact).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    let (two, one) = (off("bf16x3"), off("bf16"));
    assert!(two < 1e-3 && one < 0.3 && two < one, "off by {two} and {one}");
    let (_, said) = ends(2, score("f16"));
    assert!(said.contains("f16") && said.contains("bf16x3"), "{said}");
    // A BLAS that can't be loaded is named before anything is computed.
    let mut blas = score("blas");
    blas.env("FGRPO_BLAS", "/no/such/libblas.so");
    let (out, said) = ends(2, blas);
    assert_eq!(out, "", "{said}");
    for part in ["/no/such/libblas.so", "compute.products", "use products in f32", "FGRPO_BLAS"] {
        assert!(said.contains(part), "{part}: {said}");
    }
}

#[test]
fn products_of_a_gpu_follow_its_precision() {
    let plan = "train maze-quick --dry-run --set compute.products=bf16";
    let (printed, _) = ends(0, command!(..plan.split(' ')));
    assert!(printed.lines().any(|line| line == "products = \"bf16\""), "{printed}");
    let (_, said) = ends(2, command!(..plan.split(' '), "--device cuda"));
    assert!(said.contains("compute.products") && said.contains("compute.precision"), "{said}");
}

#[test]
fn an_evaluation_computes_in_the_configurations_numbers_unless_a_flag_says_otherwise() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("eval");
    for flags in ["--set compute.precision=bf16", "--precision bf16"] {
        let eval = command!("eval maze-quick -n 1 --model", model(), "--out", &out, ..flags.split(' '));
        tells(2, eval, "compute.precision");
    }
    assert!(!out.join("generations.jsonl").exists());
    // If nothing is computed, a flag for computing would be ignored, so it is refused.
    let given = file(folder.path(), "given.jsonl", "{\"problem\":0,\"sample\":0,\"text\":\"\"}\n");
    for flags in [["--threads", "2"], ["--device", "cpu"], ["--products", "bf16"], ["--precision", "f32"]] {
        let (_, said) = ends(2, command!("eval maze-quick -n 1 --samples", &given, "--out", &out, ..flags));
        assert!(said.contains(flags[0]) && said.contains("--model"), "{said}");
    }
}
