//! `generation_config.json`, which lists the tokens that end a completion. A run copies the file of its starting checkpoint; with demonstrations, it may add an end token.

use std::path::Path;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::Config;
use super::fields::{Fields, object, one_or_many, read_object, tokens};
use crate::error::Error;

/// Reads the end tokens. Returns `None` if the file doesn't exist or doesn't list any; `config.json` then determines them.
pub(crate) fn end_tokens(path: &Path) -> Result<Option<Vec<u32>>, Error> {
    if !path.exists() {
        return Ok(None);
    }
    end_tokens_of(&read_object(path)?, &path.display().to_string())
}

/// Returns the end tokens in the fields of a `generation_config.json` or `config.json`, or `None` if the fields don't list any. `place` is the file's name
/// for messages.
pub fn end_tokens_of(fields: &Map<String, Value>, place: &str) -> Result<Option<Vec<u32>>, Error> {
    #[derive(Deserialize)]
    struct File {
        #[serde(default, deserialize_with = "tokens")]
        eos_token_id: Option<Vec<u32>>,
    }
    Ok(Fields { place, map: fields }.read::<File>()?.eos_token_id)
}

/// Returns the contents of the file for a model that was created without one.
pub(crate) fn generation_config(config: &Config) -> Value {
    let ids = json!({
        "bos_token_id": config.bos_token_id,
        "eos_token_id": one_or_many(&config.eos_token_id),
        "pad_token_id": config.pad_token_id,
    });
    object(ids).into_iter().filter(|(_, id)| !id.is_null()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eos_may_be_one_id_or_a_list() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("generation_config.json");
        assert_eq!(end_tokens(&path).unwrap(), None);
        for (text, expected) in [
            (r#"{"bos_token_id": 5, "eos_token_id": [7, 9], "temperature": 0.6}"#, Some(vec![7, 9])),
            (r#"{"eos_token_id": 7}"#, Some(vec![7])),
            (r#"{"top_k": 20}"#, None),
        ] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(end_tokens(&path).unwrap(), expected);
        }
    }

    #[test]
    fn the_error_of_an_invalid_file_names_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("generation_config.json");
        std::fs::write(&path, "[1, 2]").unwrap();
        let message = end_tokens(&path).unwrap_err().to_string();
        assert!(message.contains("generation_config.json") && message.contains("a JSON array"), "{message}");
        std::fs::write(&path, "{").unwrap();
        assert!(end_tokens(&path).unwrap_err().to_string().contains("invalid JSON"));
    }
}
