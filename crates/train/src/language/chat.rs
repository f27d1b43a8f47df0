//! Chat templates, rendered as in transformers.
//!
//! The template is Jinja with `trim_blocks` and `lstrip_blocks`, Python's string and list methods, loop controls,
//! `raise_exception`, `strftime_now`, a `tojson` that writes like Python's `json.dumps`, and `{% generation %}` tags,
//! which mark the assistant's text and render nothing. Difference from transformers: the date is a setting, so that a
//! prompt doesn't change from day to day.
//!
//! A template is a program that comes with a model. It runs with limits on instructions, memory, time and output,
//! which are far above the needs of any real template.

use crate::language::files::files_of;
use anyhow::Context;
use chrono::{NaiveDate, NaiveTime};
use fgrpo_eval::dataset::Message;
use fgrpo_eval::dataset::presets::Preset;
use fgrpo_eval::failure::{BadInput, OrBadInput};
use fgrpo_eval::io::confined::{self, Limits};
use fgrpo_eval::io::harmless::shortened;
use fgrpo_eval::io::json;
use fgrpo_files as input;
use fgrpo_verify::thoughts::Tags;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Serde, ValueKind};
use minijinja::{Environment, Error, ErrorKind, Value};
use serde::{Deserialize, Serialize};
use serde_json::Map;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Maximum bytes of a template. The longest template of a published model has about 30,000.
const SOURCE: usize = 1 << 20;

/// Instruction limit of a template, and its increase per message. Qwen3's template takes about 150 per message.
const INSTRUCTIONS: u64 = 50_000;
const INSTRUCTIONS_PER_MESSAGE: u64 = 5_000;

/// Stack bytes per instruction. Each instruction may nest a value in another one, and values are dropped, compared
/// and written recursively.
const STACK_PER_INSTRUCTION: usize = 1 << 10;

/// Template inputs besides the messages.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ChatOptions {
    /// Whether to start the assistant's turn after the messages.
    pub add_generation_prompt: bool,
    /// Qwen3's switch for thinking. If `None`, the template's default applies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enable_thinking: Option<bool>,
    /// The date for `strftime_now` and `date_string`, as YYYY-MM-DD.
    pub date: String,
}

impl Default for ChatOptions {
    fn default() -> Self {
        Self { add_generation_prompt: true, enable_thinking: None, date: "2024-07-26".to_owned() }
    }
}

/// A model's chat template.
#[derive(Debug, Clone)]
pub struct ChatTemplate {
    /// Path of the template's file, for messages.
    path: String,
    source: Arc<str>,
    /// Special tokens, by their names in templates.
    tokens: Arc<BTreeMap<String, String>>,
}

impl ChatTemplate {
    /// Reads `chat_template.jinja`, or the template in `tokenizer_config.json`. Fails, naming the folder, if the
    /// template is missing, or if there are several but none is called `default`.
    pub fn open(folder: &Path) -> anyhow::Result<Self> {
        Self::in_folder(folder)?.ok_or_else(|| missing(folder))
    }

    /// Like [`ChatTemplate::open`], but returns `None` if the model doesn't have a template.
    pub fn in_folder(model: &Path) -> anyhow::Result<Option<Self>> {
        Self::of_files(model, &files_of(model)?)
    }

    /// Returns the template in a model's files, or `None` if the files don't have one. `model` is the path of the
    /// model, for messages.
    pub(super) fn of_files(model: &Path, files: &[(String, Vec<u8>)]) -> anyhow::Result<Option<Self>> {
        let path = |name: &str| model.join(name).display().to_string();
        let contents = |name: &str| files.iter().find(|(other, _)| other == name).map(|(_, bytes)| bytes);
        let object = |name: &str| -> anyhow::Result<Map<String, serde_json::Value>> {
            let Some(bytes) = contents(name) else { return Ok(Map::new()) };
            json::parse(bytes).with_context(|| format!("reading {}", path(name))).or_bad_input()
        };
        let [config_file, map_file] = ["tokenizer_config.json", "special_tokens_map.json"];
        let config = object(config_file)?;
        let (place, source) = match contents("chat_template.jinja") {
            Some(bytes) => {
                let place = path("chat_template.jinja");
                if bytes.len() > SOURCE {
                    bad_input!(
                        "{place}: the file has {} bytes, but at most {SOURCE} are supported",
                        bytes.len()
                    );
                }
                let text = std::str::from_utf8(bytes).with_context(|| place.clone()).or_bad_input()?;
                (place, text.to_owned())
            }
            None => match config.get("chat_template").filter(|field| !field.is_null()) {
                Some(field) => {
                    let text = in_config(field).ok_or_else(|| missing(model))?;
                    (format!("{}: chat_template", path(config_file)), text)
                }
                None => return Ok(None),
            },
        };
        let tokens = special_tokens(&path(config_file), &config, &path(map_file), &object(map_file)?)
            .or_bad_input()?;
        let template = Self::of(place, &source, tokens);
        template.check_numbers()?;
        template.confined(0, Self::check_names)?;
        Ok(Some(template))
    }

    /// Returns the template's tags for thoughts, if it has any.
    pub fn tags(&self) -> Option<Tags> {
        Tags::of_template(&self.source)
    }

    /// Like [`ChatTemplate::tags`], but also checks whether a prompt with this preset opens the thoughts.
    pub fn thoughts(&self, preset: &Preset) -> anyhow::Result<Option<Tags>> {
        let Some(tags) = self.tags() else { return Ok(None) };
        let system = preset.system.as_ref().map(|text| Message::new("system", text.clone()));
        let messages: Vec<Message> = system.into_iter().chain([Message::new("user", "?")]).collect();
        let options = ChatOptions { enable_thinking: preset.thinking, ..ChatOptions::default() };
        let opened = self.render(&messages, &options)?.trim_end().ends_with(&tags.open);
        Ok(Some(Tags { opened, ..tags }))
    }

    /// Fails if the template uses a filter, test or function of Jinja that isn't supported, even in a branch that
    /// isn't reached.
    fn check_names(&self) -> anyhow::Result<()> {
        let environment = self.environment(&ChatOptions::default())?;
        let exists = |name: &str, kind: &str| -> anyhow::Result<bool> {
            let text = format!("name is {kind}");
            let is = environment.compile_expression(&text)?;
            Ok(is.eval(BTreeMap::from([("name", Value::from(name))]))?.is_true())
        };
        for (kind, name) in applied_names(&self.source) {
            if !exists(name, kind)? {
                anyhow::bail!("the {kind} {:?} isn't supported", shortened(name, 40));
            }
        }
        let names = environment.get_template("chat")?.undeclared_variables(false);
        match ["cycler", "joiner", "lipsum"].iter().find(|name| names.contains(**name)) {
            Some(name) => {
                anyhow::bail!("the function {name} isn't supported")
            }
            None => Ok(()),
        }
    }

    /// Fails if the template has a number with more digits than a date, because one instruction could allocate that
    /// many bytes.
    fn check_numbers(&self) -> anyhow::Result<()> {
        const DIGITS: usize = 8;
        let mut numbers =
            self.source.split(|c: char| !c.is_ascii_digit()).map(|number| number.trim_start_matches('0'));
        if let Some(number) = numbers.find(|number| number.len() > DIGITS) {
            let number = shortened(number, 40);
            bad_input!("chat template {}: the number {number} has more than {DIGITS} digits", self.path);
        }
        Ok(())
    }

    /// Makes a template from its text and the model's special tokens.
    pub fn new(source: &str, bos: &str, eos: &str) -> Self {
        let pairs =
            [("bos_token", bos), ("eos_token", eos)].into_iter().filter(|(_, token)| !token.is_empty());
        let tokens = pairs.map(|(name, token)| (name.to_owned(), token.to_owned())).collect();
        Self::of("its text".to_owned(), source, tokens)
    }

    fn of(path: String, source: &str, tokens: BTreeMap<String, String>) -> Self {
        // Jinja2 also converts line breaks.
        let source = source.replace("\r\n", "\n").replace('\r', "\n");
        Self { path, source: source.into(), tokens: tokens.into() }
    }

    /// Returns the text of the template.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Renders a conversation. Fails if the template raises an exception, uses a construct in an invalid way, or
    /// exceeds the limits on work, memory or output. The error names the template's file.
    pub fn render(&self, messages: &[Message], options: &ChatOptions) -> anyhow::Result<String> {
        self.render_values(&messages, &(), options)
    }

    /// Like [`ChatTemplate::render`], but accepts messages with any fields, such as tool calls, and tools to offer.
    pub fn render_values<M: Serialize, T: Serialize>(
        &self,
        messages: &M,
        tools: &T,
        options: &ChatOptions,
    ) -> anyhow::Result<String> {
        let (messages, tools) = (Value::from(Serde(messages)), Value::from(Serde(tools)));
        let options = options.clone();
        self.confined(messages.len().unwrap_or(0), move |template| {
            template.rendered(&messages, &tools, &options)
        })
    }

    /// Runs `work` within the limits for `messages` messages.
    fn confined<T: Send + 'static>(
        &self,
        messages: usize,
        work: impl FnOnce(&Self) -> anyhow::Result<T> + Send + 'static,
    ) -> anyhow::Result<T> {
        let template = self.clone();
        let limits = Limits {
            memory: 256 << 20,
            time: Duration::from_secs(10),
            stack: instructions(messages) as usize * STACK_PER_INSTRUCTION,
        };
        confined::run(limits, move || work(&template))
            .with_context(|| format!("chat template {}", self.path))
            .or_bad_input()
    }

    fn rendered(&self, messages: &Value, tools: &Value, options: &ChatOptions) -> anyhow::Result<String> {
        let count = messages.len().unwrap_or(0);
        let mut environment = self.environment(options)?;
        environment.set_fuel(Some(instructions(count)));
        let template = environment.get_template("chat")?;
        let tokens = self.tokens.iter().map(|(name, token)| (name.as_str(), Value::from(token.as_str())));
        let mut context: BTreeMap<&str, Value> = tokens.collect();
        context.extend([
            ("messages", messages.clone()),
            ("add_generation_prompt", Value::from(options.add_generation_prompt)),
            ("tools", tools.clone()),
            ("documents", Value::from(())),
        ]);
        if tools.is_true() {
            context.insert("xml_tools", tools.clone()); // SmolLM3's name
        }
        if let Some(thinking) = options.enable_thinking {
            context.insert("enable_thinking", Value::from(thinking));
        }
        let text = template.render(context).map_err(|e| match e.kind() {
            ErrorKind::OutOfFuel => anyhow::anyhow!(
                "it takes more than {} instructions for {} messages; a loop in it is too long",
                instructions(count),
                count
            ),
            _ => anyhow::anyhow!("{}", raised(&e)),
        })?;
        if text.len() > input::PROMPT {
            anyhow::bail!("the prompt has {} bytes, but at most {} are supported", text.len(), input::PROMPT);
        }
        Ok(text)
    }

    fn environment(&self, options: &ChatOptions) -> anyhow::Result<Environment<'_>> {
        let mut environment = Environment::new();
        environment.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
        environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
        environment.add_function("raise_exception", |message: String| -> Result<Value, Error> {
            Err(Error::new(ErrorKind::InvalidOperation, message))
        });
        let Ok(date) = options.date.parse::<NaiveDate>() else {
            bad_input!("chat date: expected YYYY-MM-DD, found {:?}", options.date)
        };
        environment.add_function("strftime_now", move |format: String| strftime(date, &format));
        environment.add_filter("tojson", tojson);
        environment.add_filter("e", escaped);
        environment.add_filter("escape", escaped);
        environment.add_test("iterable", iterable);
        environment
            .add_template_owned("chat", without_generation_tags(&self.source))
            .map_err(|e| anyhow::anyhow!("line {}: {}", e.line().unwrap_or(1), raised(&e)))?;
        Ok(environment)
    }
}

/// Returns whether a value is iterable in Python. Strings are iterable, but `None` isn't.
fn iterable(value: &Value) -> bool {
    !matches!(value.kind(), ValueKind::None | ValueKind::Bool | ValueKind::Number)
}

/// Returns the filters and tests that a template applies, as (kind, name).
fn applied_names(source: &str) -> Vec<(&'static str, &str)> {
    let mut names = Vec::new();
    let mut rest = source;
    while let Some(open) = rest.find(['{']) {
        rest = &rest[open + 1..];
        let close = match rest.as_bytes().first() {
            Some(b'{') => "}}",
            Some(b'%') => "%}",
            Some(b'#') => {
                rest = rest.split_once("#}").map_or("", |(_, after)| after);
                continue;
            }
            _ => continue,
        };
        let tag = rest[1..].trim_start_matches(['-', '+']).trim_start();
        if close == "%}"
            && tag.strip_prefix("raw").is_some_and(|t| t.trim_start_matches([' ', '-']).starts_with("%}"))
        {
            rest = rest.split_once("endraw").map_or("", |(_, after)| after);
            continue;
        }
        // The words and symbols of the tag, without its string literals.
        let mut before = [" ", " "];
        while !rest.is_empty() && !rest.starts_with(close) {
            let first = rest.chars().next().expect("it isn't empty");
            let length = match first {
                '"' | '\'' => text_length(rest, first),
                c if c.is_alphanumeric() || c == '_' => {
                    rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len())
                }
                c => c.len_utf8(),
            };
            let (word, after) = rest.split_at(length);
            let is_name = first.is_alphabetic() || first == '_';
            match before {
                [_, "|"] | ["%", "filter"] if is_name => names.push(("filter", word)),
                [_, "is"] if is_name && word != "not" => names.push(("test", word)),
                ["is", "not"] if is_name => names.push(("test", word)),
                _ => {}
            }
            let is_trim = before[1] == "%" && matches!(first, '-' | '+');
            if !first.is_whitespace() && !is_trim {
                before = [before[1], word];
            }
            rest = after;
        }
    }
    names
}

/// Returns the length of the quoted string at the beginning of `rest`, including its quotes.
fn text_length(rest: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

/// Escapes for HTML like Jinja's `e`.
fn escaped(value: &Value) -> Value {
    if value.is_safe() {
        return value.clone();
    }
    let text = value.to_string().replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    Value::from_safe_string(text.replace('\'', "&#39;").replace('"', "&#34;"))
}

pub(super) fn missing(model: &Path) -> anyhow::Error {
    let places = "chat_template.jinja, the field chat_template in tokenizer_config.json, or tokenizer.chat_template in a .gguf file";
    BadInput(format!("{} has no chat template: add {places}", model.display())).into()
}

/// Returns the special tokens in `tokenizer_config.json` and `special_tokens_map.json`, indexed by field. The second
/// file only counts if the first one lacks `added_tokens_decoder`, as in transformers.
pub(super) fn special_tokens(
    place: &str,
    config: &Map<String, serde_json::Value>,
    map_place: &str,
    map: &Map<String, serde_json::Value>,
) -> anyhow::Result<BTreeMap<String, String>> {
    use serde_json::Value;
    let newer = config.contains_key("added_tokens_decoder");
    let extra = config.get("extra_special_tokens").and_then(Value::as_object);
    let in_config = config.iter().filter(|(name, _)| name.ends_with("_token"));
    let in_map = map.iter().filter(|(name, _)| !newer && name.ends_with("_token"));
    let in_config = in_config.chain(extra.into_iter().flatten()).map(|named| (place, named));
    let mut tokens = BTreeMap::new();
    for (place, (name, value)) in in_config.chain(in_map.map(|named| (map_place, named))) {
        let text = match value {
            Value::String(text) => Some(text.as_str()),
            Value::Object(token) => token.get("content").and_then(Value::as_str),
            // A switch such as add_bos_token.
            Value::Null | Value::Bool(_) => continue,
            _ => None,
        };
        let Some(text) = text else {
            bad_input!(
                "{place}: {name}: expected a string, or an object with `content`, found {}",
                shortened(&value.to_string(), 40)
            );
        };
        tokens.insert(name.clone(), text.to_owned());
    }
    Ok(tokens)
}

/// Returns the instruction limit for a conversation.
fn instructions(messages: usize) -> u64 {
    INSTRUCTIONS + INSTRUCTIONS_PER_MESSAGE * messages as u64
}

/// Returns the message of `raise_exception` or of the parser, without the additions of the template engine.
fn raised(error: &Error) -> String {
    error.detail().map_or_else(|| error.to_string(), str::to_owned)
}

fn in_config(field: &serde_json::Value) -> Option<String> {
    match field {
        serde_json::Value::String(s) => Some(s.clone()),
        serde_json::Value::Array(named) => named
            .iter()
            .find(|t| t["name"] == "default")
            .and_then(|t| t["template"].as_str())
            .map(str::to_owned),
        _ => None,
    }
}

/// Turns `{% generation %}` and `{% endgeneration %}` into blocks that render their content. An `if` block has the
/// same whitespace rules.
fn without_generation_tags(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(open) = rest.find("{%") {
        let Some(length) = rest[open..].find("%}") else { break };
        let tag = &rest[open..open + length + 2];
        let inner = tag[2..tag.len() - 2].trim_matches(|c: char| c.is_whitespace() || c == '-' || c == '+');
        out.push_str(&rest[..open]);
        match inner {
            "generation" => out.push_str(&tag.replace("generation", "if true")),
            "endgeneration" => out.push_str(&tag.replace("endgeneration", "endif")),
            _ => out.push_str(tag),
        }
        rest = &rest[open + length + 2..];
    }
    out.push_str(rest);
    out
}

/// Writes JSON like Python's `json.dumps(value, ensure_ascii=False)` with the keyword arguments that transformers
/// passes.
fn tojson(value: &Value, options: Kwargs) -> Result<Value, Error> {
    let indent: Option<usize> = options.get("indent")?;
    let ascii: Option<bool> = options.get("ensure_ascii")?;
    let sort: Option<bool> = options.get("sort_keys")?;
    let separators: Option<Vec<String>> = options.get("separators")?;
    options.assert_all_used()?;
    let (between, after_key) = match separators.as_deref() {
        Some([a, b]) => (a.clone(), b.clone()),
        Some(_) => return Err(Error::new(ErrorKind::InvalidOperation, "separators: expected two strings")),
        None if indent.is_some() => (",".to_owned(), ": ".to_owned()),
        None => (", ".to_owned(), ": ".to_owned()),
    };
    let style =
        Json { indent, ascii: ascii.unwrap_or(false), sort: sort.unwrap_or(false), between, after_key };
    let mut out = String::new();
    style.write(value, 0, &mut out)?;
    Ok(Value::from_safe_string(out))
}

struct Json {
    indent: Option<usize>,
    ascii: bool,
    sort: bool,
    between: String,
    after_key: String,
}

impl Json {
    fn write(&self, value: &Value, depth: usize, out: &mut String) -> Result<(), Error> {
        match value.kind() {
            ValueKind::Undefined | ValueKind::None => out.push_str("null"),
            ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => out.push_str(&value.to_string()),
            ValueKind::String => self.string(value.as_str().unwrap_or_default(), out),
            ValueKind::Map => {
                let mut keys: Vec<Value> = value.try_iter()?.collect();
                if self.sort {
                    keys.sort();
                }
                self.sequence('{', '}', keys, depth, out, |key, out| {
                    self.string(&key.to_string(), out);
                    out.push_str(&self.after_key);
                    self.write(&value.get_item(key)?, depth + 1, out)
                })?;
            }
            _ => {
                let items: Vec<Value> = value.try_iter()?.collect();
                self.sequence('[', ']', items, depth, out, |item, out| self.write(item, depth + 1, out))?;
            }
        }
        Ok(())
    }

    fn sequence(
        &self,
        open: char,
        close: char,
        items: Vec<Value>,
        depth: usize,
        out: &mut String,
        mut write: impl FnMut(&Value, &mut String) -> Result<(), Error>,
    ) -> Result<(), Error> {
        out.push(open);
        for (i, item) in items.iter().enumerate() {
            if i > 0 {
                out.push_str(&self.between);
            }
            self.line(depth + 1, out);
            write(item, out)?;
        }
        if !items.is_empty() {
            self.line(depth, out);
        }
        out.push(close);
        Ok(())
    }

    fn line(&self, depth: usize, out: &mut String) {
        if let Some(indent) = self.indent {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', indent.saturating_mul(depth)));
        }
    }

    fn string(&self, text: &str, out: &mut String) {
        out.push('"');
        for c in text.chars() {
            match c {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                '\u{8}' => out.push_str("\\b"),
                '\u{c}' => out.push_str("\\f"),
                c if (c as u32) < 0x20 || (self.ascii && !c.is_ascii()) => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        let _ = write!(out, "\\u{unit:04x}");
                    }
                }
                c => out.push(c),
            }
        }
        out.push('"');
    }
}

/// Formats a date at midnight like Python's `strftime`. Fails for specifiers that chrono may format differently.
fn strftime(date: NaiveDate, format: &str) -> Result<String, Error> {
    for specifier in format.replace("%%", "").split('%').skip(1) {
        if !specifier.starts_with(['d', 'm', 'b', 'B', 'Y', 'y', 'H', 'M', 'S']) {
            let first: String = specifier.chars().take(1).collect();
            let message = format!("strftime_now: %{first} isn't supported");
            return Err(Error::new(ErrorKind::InvalidOperation, message));
        }
    }
    Ok(date.and_time(NaiveTime::MIN).format(format).to_string())
}
