//! Checks that a choice in a server's answer is a whole generation. A generation that failed is never a completion.

use serde_json::Value;

/// Reason why a generation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The model ended it, or a stop string did.
    Stop,
    /// The length limit ended it.
    Length,
    /// The model called tools.
    Tools,
    /// A filter of the server withheld the text.
    Filtered,
}

/// Values of `finish_reason`, each with its meaning: OpenAI's, and those of text-generation-inference and Mistral.
const ENDS: [(&str, End); 8] = [
    ("stop", End::Stop),
    ("eos_token", End::Stop),
    ("stop_sequence", End::Stop),
    ("length", End::Length),
    ("model_length", End::Length),
    ("tool_calls", End::Tools),
    ("function_call", End::Tools),
    ("content_filter", End::Filtered),
];

impl End {
    /// Returns the reason why the generation of `choice` ended.
    ///
    /// # Errors
    /// The choice reports an error, or its `finish_reason` is missing or unknown, as after an aborted generation.
    pub fn of(choice: &Value) -> Result<Self, String> {
        let (error, reason) = (&choice["error"], &choice["finish_reason"]);
        if !error.is_null() {
            return Err(format!("a choice has the error {error}"));
        }
        let known = ENDS.iter().find(|(name, _)| reason == name);
        known.map(|(_, end)| *end).ok_or_else(|| format!("a choice has the finish_reason {reason}"))
    }

    /// Returns OpenAI's name.
    pub fn name(self) -> &'static str {
        ENDS.iter().find(|(_, end)| *end == self).expect("every reason has a name").0
    }
}
