//! The paper's prompts. Source: F-GRPO, table of evaluation prompt settings.

use crate::kind::TaskKind;
use serde::{Deserialize, Serialize};

/// The system prompt that asks for a boxed answer.
pub const BOXED: &str = "Please reason step by step, and put your final answer within \\boxed{}.";

/// The plain system prompt.
pub const ASSISTANT: &str = "You are a helpful assistant.";

named! {
    /// The model families evaluated in the paper.
    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum Family {
        #[serde(rename = "qwen2.5")]
        Qwen25 = "qwen2.5": "Qwen2.5",
        Qwen3 = "qwen3": "Qwen3",
        // Llama's chat template adds the date header by itself.
        #[serde(rename = "llama3.2")]
        Llama32 = "llama3.2": "Llama 3.2",
    }
}

/// Prompt settings of a data set: the preset of a model family, and overrides.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prompting {
    /// Model family whose prompts from the paper are used. If absent, a system prompt isn't added.
    pub preset: Option<Family>,
    /// System prompt that replaces the preset's. If empty, the preset's system prompt is removed.
    pub system: Option<String>,
    /// `enable_thinking` for the chat template, which replaces the preset's.
    pub thinking: Option<bool>,
}

impl Prompting {
    /// Returns the prompt settings for a kind of task.
    pub fn of(&self, kind: TaskKind) -> Preset {
        let preset = self.preset.map(|family| Preset::paper(family, kind));
        let (system, thinking) = preset.map_or((None, None), |p| (p.system, p.thinking));
        Preset {
            system: self.system.clone().or(system).filter(|s| !s.is_empty()),
            thinking: self.thinking.or(thinking),
        }
    }
}

/// Prompt settings for a problem.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Preset {
    /// The system prompt, if there is one.
    pub system: Option<String>,
    /// `enable_thinking` for the chat template; `None` leaves it unset.
    pub thinking: Option<bool>,
}

impl Preset {
    /// Returns the paper's settings for a model family and a kind of task.
    pub fn paper(family: Family, kind: TaskKind) -> Self {
        let boxed = matches!(kind, TaskKind::Math | TaskKind::Choice);
        let system = match (family, boxed) {
            (_, true) => Some(BOXED),
            (Family::Qwen25, false) => Some(ASSISTANT),
            (Family::Qwen3 | Family::Llama32, false) => None,
        };
        let thinking = match family {
            Family::Qwen3 => Some(kind != TaskKind::IfEval),
            Family::Qwen25 | Family::Llama32 => None,
        };
        Self { system: system.map(str::to_owned), thinking }
    }
}
