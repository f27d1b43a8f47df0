//! Sizes of usual models, for what is planned before a download. A test of the command line compares the parameter counts
//! that follow from them with those of the published checkpoints.

/// The sizes of a model by its name on the hub, with the names of its `config.json`: an object with `architecture`.
/// Models that differ only by their training (`-Instruct`, `-Base`, `-Math`) may share an entry.
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
