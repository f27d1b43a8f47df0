//! The example of a custom loop, on a small model: it runs, learns, and saves a policy that can be opened again.

use fgrpo_nn::Device;
use fgrpo_train::config::Config;
use fgrpo_train::policy::{Datum, Loss, Policy, PolicyOptions, Request, Sampling, Sequence, fresh};
use fgrpo_train::problem::Task;
use std::path::Path;
use std::sync::Arc;

#[path = "../examples/own_loop.rs"]
#[expect(dead_code, reason = "the example's main isn't called")]
mod own_loop;

/// Writes a small model with new weights to `folder`.
fn model(folder: &Path) -> anyhow::Result<Policy> {
    let text = r#"
        steps = 1
        task = { kind = "arithmetic", train = 100, held_out = 4 }
        model.init = { architecture = "qwen2", hidden_size = 32, intermediate_size = 64, num_hidden_layers = 2, num_attention_heads = 2, num_key_value_heads = 1 }
        rollout = { prompts = 2, group_size = 4 }
        algorithm = { advantage = "grpo", loss = "grpo" }
        update.lr = 1e-3
        eval.every = 0"#;
    let config = Config::parse(text, &[])?;
    let task = Task::open(&config)?;
    let policy = Policy::new(fresh(&config, &task, &Device::cpu(1))?, Arc::clone(&task.language));
    policy.save(folder)?;
    Ok(policy)
}

#[test]
fn a_loop_of_ones_own_learns_and_saves_its_policy() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let [start, end] = ["start", "end"].map(|name| folder.path().join(name).display().to_string());
    let mut policy = model(start.as_ref())?;
    let [prompt, answer] = ["7 + 1 = ", "8"].map(|text| policy.language().plain(text));
    let sequences = [Sequence::completion(&prompt?, &answer?)];
    let before = policy.score(&sequences, 1.0)?[0].logp.iter().sum::<f32>();
    let means = own_loop::run(&start, "7 + 1 = ", "8", &end)?;
    assert!(means.iter().any(|&mean| mean > 0.0), "{means:?}");
    let mut trained = Policy::open(end.as_ref(), &PolicyOptions::default())?;
    let after = trained.score(&sequences, 1.0)?[0].logp.iter().sum::<f32>();
    assert!(after > before + 0.1, "the answer's log-probability went from {before} to {after}");
    Ok(())
}

#[test]
fn samples_scores_and_losses_name_the_request_or_datum_that_is_wrong() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let mut policy = model(&folder.path().join("policy"))?;
    let long = vec![1; policy.positions()];
    let requests = [Request::new([1, 2]), Request::new(long)];
    let refused = policy.sample(&requests, &Sampling::default()).unwrap_err().to_string();
    assert!(
        refused.contains("requests[1]") && refused.contains(&policy.positions().to_string()),
        "{refused}"
    );
    let sequences = [Sequence::new(vec![1, 2]), Sequence::new(vec![1, 1 << 20])];
    let refused = policy.score(&sequences, 1.0).unwrap_err().to_string();
    assert!(refused.contains("sequences[1]") && refused.contains("1048576"), "{refused}");
    let datum = |n| Datum {
        sequences: vec![Sequence::completion(&[1, 2], &[3, 4])],
        logprobs: vec![-1.0; n],
        advantages: vec![1.0; 2],
        ..Datum::default()
    };
    let refused = policy.forward_backward(&[datum(2), datum(1)], &Loss::grpo(), 1.0).unwrap_err().to_string();
    assert!(refused.contains("data[1].logprobs"), "{refused}");
    Ok(())
}
