//! `generation_config.json`: the tokens that end a completion, and recommended sampling settings.

use std::path::Path;

use serde_json::{Map, Value, json};

use super::Config;
use super::json::{Fields, read_object};
use crate::error::Error;

/// The content of a checkpoint's `generation_config.json`. Other fields are kept and written back.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GenerationConfig {
    /// Beginning-of-sequence token.
    pub bos_token_id: Option<u32>,
    /// End-of-sequence tokens; `None` if the file has none; then `config.json` decides.
    pub eos_token_id: Option<Vec<u32>>,
    /// Padding token.
    pub pad_token_id: Option<u32>,
    /// Everything else: temperature, top_p, top_k, ...
    pub rest: Map<String, Value>,
}

impl GenerationConfig {
    /// Reads `generation_config.json`; `None` if there is no such file.
    pub fn read(path: &Path) -> Result<Option<GenerationConfig>, Error> {
        if !path.exists() {
            return Ok(None);
        }
        let mut map = read_object(path)?;
        let place = path.display().to_string();
        let fields = Fields { place: &place, map: &map };
        let (bos_token_id, pad_token_id) = (fields.token("bos_token_id")?, fields.token("pad_token_id")?);
        let eos_token_id = fields.tokens("eos_token_id")?;
        map.retain(|key, _| !matches!(key.as_str(), "bos_token_id" | "eos_token_id" | "pad_token_id"));
        Ok(Some(GenerationConfig { bos_token_id, eos_token_id, pad_token_id, rest: map }))
    }

    /// The file to write for a configuration without one.
    pub fn of(config: &Config) -> GenerationConfig {
        GenerationConfig {
            bos_token_id: config.bos_token_id,
            eos_token_id: (!config.eos_token_id.is_empty()).then(|| config.eos_token_id.clone()),
            pad_token_id: config.pad_token_id,
            rest: Map::new(),
        }
    }

    /// The JSON object of the file.
    pub fn to_json(&self) -> Map<String, Value> {
        let mut map = Map::new();
        if let Some(id) = self.bos_token_id {
            map.insert("bos_token_id".into(), json!(id));
        }
        match self.eos_token_id.as_deref() {
            None => {}
            Some([one]) => drop(map.insert("eos_token_id".into(), json!(one))),
            Some(many) => drop(map.insert("eos_token_id".into(), json!(many))),
        }
        if let Some(id) = self.pad_token_id {
            map.insert("pad_token_id".into(), json!(id));
        }
        map.extend(self.rest.clone());
        map
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eos_may_be_one_id_or_a_list_and_the_rest_survives() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("generation_config.json");
        assert_eq!(GenerationConfig::read(&path).unwrap(), None);
        let text = r#"{"bos_token_id": 5, "eos_token_id": [7, 9], "temperature": 0.6, "top_k": 20}"#;
        std::fs::write(&path, text).unwrap();
        let read = GenerationConfig::read(&path).unwrap().unwrap();
        assert_eq!(read.eos_token_id, Some(vec![7, 9]));
        assert_eq!(Value::Object(read.to_json()), serde_json::from_str::<Value>(text).unwrap());
        std::fs::write(&path, r#"{"eos_token_id": 7}"#).unwrap();
        assert_eq!(GenerationConfig::read(&path).unwrap().unwrap().eos_token_id, Some(vec![7]));
    }

    #[test]
    fn broken_file_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("generation_config.json");
        std::fs::write(&path, "[1, 2]").unwrap();
        let message = GenerationConfig::read(&path).unwrap_err().to_string();
        assert!(message.contains("generation_config.json") && message.contains("a JSON array"), "{message}");
        std::fs::write(&path, "{").unwrap();
        assert!(GenerationConfig::read(&path).unwrap_err().to_string().contains("broken JSON"));
    }
}
