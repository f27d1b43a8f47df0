//! Names of the method that a configuration trains, spelt as in its paper.

use super::AlgorithmConfig;
use fgrpo_core::credit::Shaping;

impl AlgorithmConfig {
    /// Returns the method, its focal exponent and other settings that change advantages or the loss, such as `F-GRPO,
    /// gamma 0.5` or `Dr. GRPO`.
    pub fn method(&self) -> String {
        let gamma = self.focal_gamma();
        let loss = kind(serde_json::json!(self.loss));
        let mut parts = vec![method_name(self.advantage.name(), &loss, gamma)];
        if gamma > 0.0 {
            parts.push(format!("gamma {gamma}"));
        }
        if self.shaping != Shaping::None {
            parts.push(format!("shaping {}", kind(serde_json::json!(self.shaping))));
        }
        if self.daro {
            parts.push("DARO".to_owned());
        }
        if self.entropy_coef != 0.0 {
            parts.push(format!("entropy bonus {}", self.entropy_coef));
        }
        if self.kl_coef != 0.0 {
            parts.push(format!("KL penalty {}", self.kl_coef));
        }
        if self.teacher_coef != 0.0 {
            parts.push(format!("teacher {}", self.teacher_coef));
        }
        parts.join(", ")
    }

    /// Returns the name of the policy loss, such as `GRPO` or `CISPO`.
    pub fn loss_name(&self) -> String {
        title(&kind(serde_json::json!(self.loss)))
    }
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
