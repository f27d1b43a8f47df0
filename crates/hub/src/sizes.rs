//! Sizes of common models, to plan a run before the download. A command-line test compares the parameter counts that
//! follow from these sizes with the published checkpoints.

/// Looks up the sizes of a model by its name on the hub. The object has `architecture` and keys of `config.json`.
/// Models that differ only in their training (`-Instruct`, `-Base`, `-Math`) may share an entry.
pub fn sizes(repository: &str) -> Option<serde_json::Value> {
    let all: serde_json::Value =
        serde_json::from_str(include_str!("sizes.json")).expect("the table is checked by a test");
    let entry = all.as_array()?.iter().find(|entry| {
        entry["models"].as_array().is_some_and(|names| names.iter().any(|name| name == repository))
    })?;
    Some(entry["size"].clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usual_models_have_sizes() {
        assert_eq!(sizes("Qwen/Qwen3-0.6B").unwrap()["hidden_size"], 1024);
        assert_eq!(sizes("Qwen/Qwen2.5-Math-7B").unwrap()["vocab_size"], 152_064);
        assert_eq!(sizes("nobody/nothing"), None);
    }
}
