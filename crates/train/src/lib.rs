//! Group-relative RL from verifiable rewards: complete training runs, and a policy for custom training loops.
//!
//! Where to start:
//! - A custom loop: [`Policy`] samples, scores, accumulates gradients and updates the weights. `examples/own_loop.rs` is a complete loop in less than sixty lines.
//! - A complete run from a configuration: [`trainer::train`], as below.
//! - Reading the code: [`trainer`] has the training loop on one page.
//!
//! The RL formulas are in `fgrpo-core`, the decoder in `fgrpo-nn` and the verifiers in `fgrpo-verify`. This crate
//! doesn't parse command lines, print or draw figures; it reports events through
//! [`Events`](fgrpo_eval::events::Events). A complete run:
//!
//! ```
//! use fgrpo_train::{config::Config, device::DeviceName, run::folder::IfExists, session::Ending, trainer};
//!
//! # fn main() -> anyhow::Result<()> {
//! let text = r#"
//!     steps = 1
//!     task = { kind = "maze", size = 5, train = 100, held_out = 4 }
//!     model.init = { architecture = "qwen2", hidden_size = 16, intermediate_size = 32, num_hidden_layers = 1, num_attention_heads = 2, num_key_value_heads = 1 }
//!     rollout = { prompts = 2, group_size = 4 }
//!     algorithm = { advantage = "grpo", loss = "grpo", focal_gamma = 0.5 }
//!     eval = { every = 1, samples = 2, k = [1] }"#;
//! let config = Config::parse(text, &["update.lr=1e-4".to_owned()])?;
//! let folder = tempfile::tempdir()?;
//! let ending = trainer::train(&config, folder.path(), IfExists::Refuse, DeviceName::Cpu, &mut ())?;
//! assert!(matches!(ending, Ending::Done(_)));
//! assert!(folder.path().join("checkpoints/step-000001/model.safetensors").exists());
//! # Ok(())
//! # }
//! ```
//!
//! Instead of `()`, pass your own [`Events`](fgrpo_eval::events::Events) to receive the run's events.

#[macro_use]
extern crate fgrpo_eval;

pub mod config;
pub mod credit;
pub mod device;
pub mod episode;
pub mod estimator;
pub mod evaluation;
pub mod export;
pub mod language;
pub mod policy;
pub mod problem;
pub mod rollout;
pub mod run;
pub mod session;
pub mod sft;
pub mod trainer;
pub mod update;

pub use policy::Policy;
