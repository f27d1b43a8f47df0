//! Reads the conversation of a chat request (messages and tools), and the tool calls in the answer.

use crate::fields::{Fields, Refusal, empty};
use fgrpo_train::episode::Rules;
use fgrpo_train::language::Language;
use serde_json::{Map, Value, json};

/// Tools that a request offers, with the rendered prompt that offers them.
pub(crate) struct Tools {
    /// JSON schemas of the tools, as OpenAI has them.
    schemas: Vec<Value>,
    prompt: String,
    thinking: Option<bool>,
}

/// Reads the fields of a conversation. Returns the prompt's token ids, and the tools if the request offers any.
pub(crate) fn read(language: &Language, fields: &mut Fields) -> Result<(Vec<u32>, Option<Tools>), Refusal> {
    let Some(template) = language.template() else {
        return Err("the model has no chat template; send text to /v1/completions".to_owned().into());
    };
    let messages: Vec<Map<String, Value>> = fields.take("messages")?.unwrap_or_default();
    let messages = messages.into_iter().map(message).collect::<Result<Vec<_>, String>>()?;
    if messages.is_empty() {
        return Err("messages: empty; send at least one".to_owned().into());
    }
    let mut schemas: Vec<Value> = fields.take("tools")?.unwrap_or_default();
    let unnamed = |tool: &&Value| tool["type"] != "function" || !tool["function"]["name"].is_string();
    if let Some(tool) = schemas.iter().find(unnamed) {
        return Err(format!("tools: expected a function with a name, found {tool}").into());
    }
    match fields.take::<Value>("tool_choice")? {
        None => {}
        Some(choice) if choice == "auto" => {}
        Some(choice) if choice == "none" => schemas.clear(),
        Some(choice) => return Err(format!("tool_choice: expected auto or none, found {choice}").into()),
    }
    if !schemas.is_empty() && !template.source().contains("tools") {
        return Err("tools: the model's chat template has no tools".to_owned().into());
    }
    let mut options = fields.inner("chat_template_kwargs.")?;
    let thinking: Option<bool> = options.take("enable_thinking")?;
    options.end()?;
    let message_of = |why: anyhow::Error| format!("messages: {why:#}");
    let prompt = Rules::new(language, thinking)
        .and_then(|rules| rules.render(&messages, &schemas))
        .map_err(message_of)?;
    let tokens = language.encode_parts(&prompt).map_err(message_of)?;
    Ok((tokens, (!schemas.is_empty()).then_some(Tools { schemas, prompt, thinking })))
}

/// Converts a message to the form that chat templates take, with text content and with the arguments of calls as objects.
fn message(mut message: Map<String, Value>) -> Result<Value, String> {
    let Some(role) = message.get("role").and_then(Value::as_str).map(str::to_owned) else {
        return Err("messages: role: missing".to_owned());
    };
    let text = match message.remove("content").unwrap_or_default() {
        Value::String(text) => text,
        Value::Array(parts) => {
            let part = |part: &Value| {
                let is_text = part["type"].is_null() || part["type"] == "text";
                let text = part["text"].as_str().filter(|_| is_text).map(str::to_owned);
                text.ok_or_else(|| format!("messages: expected a part of type text, found {part}"))
            };
            parts.iter().map(part).collect::<Result<Vec<_>, _>>()?.join("\n")
        }
        Value::Null if message.contains_key("tool_calls") => String::new(),
        other => return Err(format!("messages: expected a string as content, found {other}")),
    };
    message.insert("content".into(), text.into());
    let names: &[&str] = match role.as_str() {
        "assistant" => &["role", "content", "tool_calls"],
        "tool" => &["role", "content", "name", "tool_call_id"],
        _ => &["role", "content"],
    };
    message.retain(|name, value| names.contains(&name.as_str()) || !empty(value));
    if let Some(name) = message.keys().find(|name| !names.contains(&name.as_str())) {
        return Err(format!("messages: the field {name} isn't supported in a message of the role {role}"));
    }
    for call in message.get_mut("tool_calls").and_then(Value::as_array_mut).into_iter().flatten() {
        if !call["function"]["name"].is_string() {
            return Err(format!("messages: tool_calls: expected a call of a function, found {call}"));
        }
        let arguments = &mut call["function"]["arguments"];
        let read = arguments.as_str().map(|text| serde_json::from_str(text).unwrap_or_default());
        match read.unwrap_or_else(|| arguments.take()) {
            object @ Value::Object(_) => *arguments = object,
            other => {
                return Err(format!(
                    "messages: tool_calls: arguments: expected a JSON object, found {other}"
                ));
            }
        }
    }
    Ok(Value::Object(message))
}

impl Tools {
    /// Returns the message of an answer that calls tools, or `None` if the answer doesn't call tools or a call can't be
    /// read. `request` makes the ids of the calls unique.
    pub(crate) fn message(
        &self,
        language: &Language,
        answer: String,
        request: u64,
    ) -> Result<Option<Value>, String> {
        let rules = Rules::new(language, self.thinking).map_err(|why| format!("{why:#}"))?;
        let (answer, spoken, calls) = rules.heard(&self.prompt, answer, &self.schemas);
        if calls.is_empty() || calls.iter().any(|call| call.wrong.is_some()) {
            return Ok(None);
        }
        let fields = calls.iter().enumerate().map(|(index, call)| {
            // Mistral's templates take ids of nine letters or digits.
            let id = format!("{:06}{index:03}", request % 1_000_000);
            json!({"id": id, "type": "function", "index": index, "function": {"name": call.name, "arguments": call.arguments}})
        });
        let speech = answer[..spoken].trim_end();
        let content = (!speech.is_empty()).then_some(speech);
        Ok(Some(json!({"role": "assistant", "content": content, "tool_calls": fields.collect::<Value>()})))
    }
}
