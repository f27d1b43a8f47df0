//! A loop of your own: samples, rewards, credit with the focal weight, an update. Completions that contain ANSWER are rewarded.
//!
//! `cargo run --release -p fgrpo-train --example own_loop -- MODEL PROMPT ANSWER OUT`

use fgrpo_core::advantage::Advantage;
use fgrpo_core::credit::credit;
use fgrpo_core::rng::Key;
use fgrpo_train::policy::{AdamW, Datum, Loss, Policy, PolicyOptions, Request, Sampling};

/// Trains the model folder `model` for 20 steps and saves it in `out`. Returns the mean reward of each step.
pub(crate) fn run(model: &str, prompt: &str, answer: &str, out: &str) -> anyhow::Result<Vec<f64>> {
    let mut policy = Policy::open(model.as_ref(), &PolicyOptions::default())?;
    let prompt = policy.language().plain(prompt)?;
    let mut means = Vec::new();
    for step in 0..20 {
        let request = Request::new(prompt.clone()).samples(32).max_tokens(8).key(Key::new(1).with(step));
        let groups = policy.sample(&[request], &Sampling::default())?;
        let mut rewards = vec![Vec::new(); groups.len()];
        for (group, rewards) in groups.iter().zip(&mut rewards) {
            for completion in group {
                let correct = policy.text(completion)?.contains(answer);
                rewards.push(if correct { 1.0 } else { 0.0 });
            }
        }
        let advantages = credit(&rewards, &Advantage::GRPO, 0.5)?;
        let data = Datum::of_groups([&prompt[..]], &groups, &advantages);
        let losses = policy.forward_backward(&data, &Loss::grpo(), 1.0)?;
        let update = policy.step(&AdamW { lr: 1e-3, ..AdamW::default() }, Some(1.0))?;
        let mean = rewards[0].iter().sum::<f64>() / rewards[0].len() as f64;
        println!("{step}: reward {mean:.3}, loss {:.3}, norm {:.3}", losses.sums.loss, update.gradient_norm);
        means.push(mean);
    }
    policy.save(out.as_ref())?;
    Ok(means)
}

fn main() -> anyhow::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [model, prompt, answer, out] = words.as_slice() else {
        anyhow::bail!("expected MODEL PROMPT ANSWER OUT");
    };
    run(model, prompt, answer, out).map(drop)
}
