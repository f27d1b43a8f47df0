//! Names of the method that a configuration trains, spelt as in its paper.

use super::{AlgorithmConfig, Config};
use fgrpo_core::credit::Shaping;

impl Config {
    /// Returns the method, its focal exponent and other settings that change advantages, the loss or the update, such as `F-GRPO,
    /// gamma 0.5` or `Dr. GRPO`.
    pub fn method(&self) -> String {
        let algorithm = &self.algorithm;
        let gamma = algorithm.focal_gamma();
        let loss = kind(serde_json::json!(algorithm.loss));
        let mut parts = vec![method_name(algorithm.advantage.name(), &loss, gamma)];
        if gamma > 0.0 {
            parts.push(format!("gamma {gamma}"));
        }
        if algorithm.aggregation() != algorithm.usual_aggregation() {
            parts.push(format!("aggregation {}", word(algorithm.aggregation())));
        }
        if algorithm.shaping != Shaping::None {
            parts.push(format!("shaping {}", kind(serde_json::json!(algorithm.shaping))));
        }
        if algorithm.daro {
            parts.push("DARO".to_owned());
        }
        if algorithm.entropy_coef != 0.0 {
            parts.push(format!("entropy bonus {}", algorithm.entropy_coef));
        }
        if algorithm.kl_coef != 0.0 {
            parts.push(format!("KL penalty {}", algorithm.kl_coef));
        }
        if algorithm.teacher_coef != 0.0 {
            parts.push(format!("teacher {}", algorithm.teacher_coef));
        }
        if self.update.low_lr_gamma > 0.0 {
            parts.push(format!("low LR of gamma {}", self.update.low_lr_gamma));
        }
        parts.join(", ")
    }

    /// Returns notes on unused settings of `[algorithm]`, and on a focal weight with another estimator than the paper's.
    pub fn notes(&self) -> Vec<String> {
        let (algorithm, default) = (&self.algorithm, AlgorithmConfig::default());
        let rate_is_set =
            algorithm.daro_lr != default.daro_lr || algorithm.schedule.iter().any(|s| s.key == "daro_lr");
        let corrects = algorithm.correction != default.correction;
        let unused = [
            ("daro_lr", rate_is_set && !algorithm.daro, "without algorithm.daro = true"),
            ("kl", algorithm.kl != default.kl && !algorithm.penalises_kl(), "with algorithm.kl_coef = 0"),
            ("correction", corrects && self.rollout.server.is_none(), "without [rollout.server]"),
        ];
        let unused = unused.into_iter().filter(|(_, is_unused, _)| *is_unused);
        let mut notes: Vec<String> =
            unused.map(|(key, _, why)| format!("algorithm.{key} has no effect {why}")).collect();
        let (advantage, gamma) = (algorithm.advantage.name(), algorithm.focal_gamma());
        if gamma > 0.0 && advantage != "grpo" {
            let name = title(advantage);
            notes.push(format!(
                "algorithm.focal_gamma = {gamma} also multiplies the advantages of {name}; set it to 0 to train {name} alone"
            ));
        }
        notes
    }
}

impl AlgorithmConfig {
    /// Returns the name of the policy loss, such as `GRPO` or `CISPO`.
    pub fn loss_name(&self) -> String {
        title(&kind(serde_json::json!(self.loss)))
    }
}

fn word(value: impl serde::Serialize) -> String {
    serde_json::json!(value).as_str().unwrap_or_default().to_owned()
}

fn kind(table: serde_json::Value) -> String {
    table["kind"].as_str().unwrap_or_default().to_owned()
}

/// Returns the name of the method with these kinds of estimator and loss, after `F-` if it has a focal weight.
fn method_name(advantage: &str, loss: &str, focal_gamma: f64) -> String {
    let name = match (advantage, loss) {
        ("grpo", loss) => title(loss),
        (advantage, "grpo") => title(advantage),
        (advantage, loss) => format!("{} with the loss {}", title(advantage), title(loss)),
    };
    if focal_gamma > 0.0 { format!("F-{name}") } else { name }
}

fn title(kind: &str) -> String {
    let named = match kind {
        "dr_grpo" => "Dr. GRPO",
        "max_rl" => "MaxRL",
        "power" => "Power",
        "passk_training" => "Pass@k training",
        "grpo_passk" => "GRPO pass@k",
        "lite_ppo" => "Lite PPO",
        "python" => "Own estimator",
        "reinforce_plus_plus_baseline" => "REINFORCE++ baseline",
        "cispo_cap" => "CISPO",
        "kl_cov" => "KL-Cov",
        "clip_cov" => "Clip-Cov",
        other => return other.to_uppercase().replace('_', "-"),
    };
    named.to_owned()
}
