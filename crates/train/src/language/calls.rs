//! Reads the tool calls in a turn of the policy, in the format of its chat template.
//!
//! A format is described by its marks and the form of a call between them. One parser reads all formats. It skips
//! thoughts, and parses the values of a call to find its end, so that an argument may contain any mark.

use crate::language::chat::ChatTemplate;
use fgrpo_verify::thoughts::Tags;
use serde::Serialize;
use serde_json::{Value, json};

/// A call that the policy wrote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Call {
    /// Name of the tool, or `None` if it can't be read.
    pub name: Option<String>,
    /// The arguments, as the text of a JSON object. Numbers keep all their digits.
    pub arguments: String,
    /// The mistake in a call that can't be executed.
    pub wrong: Option<String>,
}

impl Call {
    fn wrong(name: Option<String>, why: impl Into<String>) -> Self {
        Self { name, arguments: "{}".to_owned(), wrong: Some(why.into()) }
    }

    /// Returns the call in the form that chat templates expect.
    pub fn field(&self, id: &str) -> Value {
        let arguments: Value = serde_json::from_str(&self.arguments).unwrap_or_default();
        let name = self.name.as_deref().unwrap_or("unknown");
        json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}})
    }
}

/// Syntax of tool calls between the opening and the closing mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// `{"name": "add", "arguments": {"a": 1}}`, or a list of such objects.
    Json,
    /// `add[ARGS]{"a": 1}`, perhaps with `[CALL_ID]` and an id before `[ARGS]`; or like [`Form::Json`].
    Named,
    /// `<function=add><parameter=a>1</parameter></function>`: values without types.
    Tagged,
    /// `add(a=1)` on each line, or in a list; or like [`Form::Json`].
    Python,
    /// `call:add{a:1,b:<|"|>text<|"|>}`: keys without quotes.
    Braced,
    /// Objects like those of [`Form::Json`] that make up the whole turn, separated by semicolons.
    Whole,
}

/// A format of calls.
struct Format {
    /// Strings by which a template is recognised: it contains at least one of them.
    known_by: &'static [&'static str],
    open: &'static str,
    close: &'static str,
    form: Form,
}

/// The formats. The first one whose mark the template contains is used.
const FORMATS: [Format; 7] = [
    Format { known_by: &["[TOOL_CALLS]"], open: "[TOOL_CALLS]", close: "", form: Form::Named },
    Format {
        known_by: &["<function_calls>"],
        open: "<function_calls>",
        close: "</function_calls>",
        form: Form::Python,
    },
    Format {
        known_by: &["<|tool_call_start|>", "<|tool_list_start|>"],
        open: "<|tool_call_start|>",
        close: "<|tool_call_end|>",
        form: Form::Python,
    },
    Format { known_by: &["<|tool_call>"], open: "<|tool_call>", close: "<tool_call|>", form: Form::Braced },
    Format { known_by: &["<function="], open: "<tool_call>", close: "</tool_call>", form: Form::Tagged },
    Format { known_by: &["<tool_call>"], ..HERMES },
    Format {
        known_by: &["python_tag", "\"parameters\":"],
        open: "<|python_tag|>",
        close: "",
        form: Form::Whole,
    },
];

/// The format in which a system message offers the tools if the template doesn't support tools.
const HERMES: Format = Format { known_by: &[], open: "<tool_call>", close: "</tool_call>", form: Form::Json };

/// Returns the text of a turn before its first call, and the calls, except for calls in thoughts. `tools` are the schemas of the tools.
pub fn calls<'a>(turn: &'a str, template: &ChatTemplate, tools: &[Value]) -> (&'a str, Vec<Call>) {
    let source = template.source();
    let format = FORMATS.iter().find(|format| format.known_by.iter().any(|mark| source.contains(mark)));
    let format = format.unwrap_or(&HERMES);
    let tags: Tags = template.tags().unwrap_or_default();
    if format.form == Form::Whole {
        let Some(answer) = tags.answer(turn) else { return (turn, Vec::new()) };
        let all = whole(answer.trim(), format.open, tools);
        let before = if all.is_empty() { turn } else { turn.strip_suffix(answer).unwrap_or_default() };
        return (before, all);
    }
    let (mut rest, mut all, mut before) = (turn, Vec::new(), turn);
    loop {
        let next = [format.open, &tags.open, &tags.close].map(|mark| rest.find(mark).unwrap_or(usize::MAX));
        let first = *next.iter().min().expect("there are three");
        if first == usize::MAX {
            return (before, all);
        }
        if first == next[0] {
            if all.is_empty() {
                before = &turn[..turn.len() - rest.len() + first];
            }
            rest = &rest[first + format.open.len()..];
            let (calls, after) = format.read(rest, tools);
            all.extend(calls);
            rest = after;
        } else if first == next[1] {
            let Some((_, after)) = rest[first..].split_once(tags.close.as_str()) else {
                return (before, all);
            };
            rest = after;
        } else {
            // The prompt opened the thoughts, so everything so far was in them.
            (all, before) = (Vec::new(), turn);
            rest = &rest[first + tags.close.len()..];
        }
    }
}

impl Format {
    /// Reads the calls after an opening mark. Returns them and the text that follows.
    fn read<'a>(&self, text: &'a str, tools: &[Value]) -> (Vec<Call>, &'a str) {
        let mut reader = Reader { rest: text, syntax: Syntax::Json };
        let read = match self.form {
            Form::Named => reader.named(),
            Form::Tagged => reader.tagged(tools).map(|call| vec![call]),
            Form::Python => reader.python_calls(self.close),
            Form::Braced => reader.braced().map(|call| vec![call]),
            Form::Json | Form::Whole => reader.value(0).map(calls_of).map_err(|why| (None, not_json(&why))),
        };
        reader.space();
        let (wrong, after) = match read {
            Ok(calls) if reader.take(self.close) => return (calls, reader.rest),
            Err(wrong) if self.close.is_empty() => (wrong, reader.rest),
            // A call after this one may be valid.
            read => match (text.find(self.close), text.find(self.open)) {
                (Some(end), next) if next.is_none_or(|next| end < next) => {
                    let more = || (None, not_json("there is more after its end"));
                    (read.err().unwrap_or_else(more), &text[end + self.close.len()..])
                }
                (_, next) => {
                    let why = format!("{} isn't closed by {}", self.open, self.close);
                    ((None, why), next.map_or("", |next| &text[next..]))
                }
            },
        };
        let (name, why) = wrong;
        (vec![Call::wrong(name, why)], after)
    }
}

fn not_json(why: &str) -> String {
    format!("the call isn't valid JSON ({why}); write an object with name and arguments")
}

/// Returns the calls of a turn that consists only of calls. Without the mark, JSON counts as a call only if it has the name of a tool.
fn whole(text: &str, mark: &str, tools: &[Value]) -> Vec<Call> {
    let has_mark = text.starts_with(mark);
    let mut reader = Reader { rest: text.strip_prefix(mark).unwrap_or(text), syntax: Syntax::Json };
    let mut all = Vec::new();
    loop {
        reader.rest = reader.rest.trim_start_matches(|c: char| c.is_whitespace() || c == ';');
        reader.take(mark);
        reader.space();
        if reader.rest.is_empty() {
            break;
        }
        match reader.value(0) {
            Ok(value @ (Literal::Map(_) | Literal::List(_))) => all.extend(calls_of(value)),
            _ if !has_mark => return Vec::new(),
            Ok(_) => return vec![Call::wrong(None, not_json("it isn't an object"))],
            Err(why) => return vec![Call::wrong(None, not_json(&why))],
        }
        reader.space();
        if !(has_mark || reader.rest.is_empty() || reader.rest.starts_with([';', '<'])) {
            return Vec::new();
        }
    }
    let exists = |call: &Call| call.wrong.is_none() && tool(tools, call.name.as_deref()).is_some();
    if has_mark || all.iter().all(exists) { all } else { Vec::new() }
}

fn tool<'a>(tools: &'a [Value], name: Option<&str>) -> Option<&'a Value> {
    tools.iter().map(|tool| &tool["function"]).find(|function| function["name"].as_str() == name)
}

/// Returns the calls that a value describes.
fn calls_of(value: Literal) -> Vec<Call> {
    let call = |value: Literal| {
        let mistake = "write an object with name (a string) and arguments (an object)";
        let inner = match value.get("function") {
            Some(Literal::Map(_)) => value.get("function"),
            _ => Some(&value),
        };
        let name = inner.and_then(|inner| inner.get("name")).and_then(Literal::text).map(str::to_owned);
        let arguments = inner.and_then(|inner| inner.get("arguments").or_else(|| inner.get("parameters")));
        let arguments = match arguments {
            Some(Literal::Text(text)) => Reader { rest: text, syntax: Syntax::Json }.only(),
            Some(value) => Ok(value.clone()),
            None => Ok(Literal::Map(Vec::new())),
        };
        match (name, arguments) {
            (Some(name), Ok(arguments @ Literal::Map(_))) => {
                Call { name: Some(name), arguments: arguments.json(), wrong: None }
            }
            (name, _) => Call::wrong(name, mistake),
        }
    };
    match value {
        Literal::List(list) => list.into_iter().map(call).collect(),
        value => vec![call(value)],
    }
}

/// A value of JSON or of Python. Numbers stay as they were written.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Literal {
    Word(&'static str),
    Number(String),
    Text(String),
    List(Vec<Literal>),
    Map(Vec<(String, Literal)>),
}

impl Literal {
    /// Returns the last value with a key.
    fn get(&self, key: &str) -> Option<&Self> {
        let Self::Map(entries) = self else { return None };
        entries.iter().rev().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    fn text(&self) -> Option<&str> {
        let Self::Text(text) = self else { return None };
        Some(text)
    }

    fn json(&self) -> String {
        let join = |parts: Vec<String>| parts.join(", ");
        match self {
            Self::Word(word) => (*word).to_owned(),
            Self::Number(number) => number.clone(),
            Self::Text(text) => Value::from(text.as_str()).to_string(),
            Self::List(list) => format!("[{}]", join(list.iter().map(Self::json).collect())),
            Self::Map(entries) => {
                let entry = |(key, value): &(String, Self)| {
                    format!("{}: {}", Value::from(key.as_str()), value.json())
                };
                format!("{{{}}}", join(entries.iter().map(entry).collect()))
            }
        }
    }

    /// Returns whether the value has the type `kind` of JSON schemas.
    fn has_type(&self, kind: &str) -> bool {
        match self {
            Self::Word("null") => kind == "null",
            Self::Word(_) => kind == "boolean",
            Self::Number(number) => {
                kind == "number" || kind == "integer" && !number.contains(['.', 'e', 'E'])
            }
            Self::Text(_) => kind == "string",
            Self::List(_) => kind == "array",
            Self::Map(_) => kind == "object",
        }
    }
}

/// Maximum nesting of a value.
const LEVELS: usize = 64;

/// Parses the text of tool calls from the front of `rest`.
struct Reader<'a> {
    rest: &'a str,
    syntax: Syntax,
}

/// Syntax of values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Syntax {
    Json,
    /// JSON and Python.
    Python,
    /// JSON with keys that may lack quotes, strings between two [`QUOTE`]s, and Python's words.
    Braced,
}

/// Quotation mark of [`Syntax::Braced`]. Characters between two marks are literal.
const QUOTE: &str = "<|\"|>";

/// The name of a call, if it could be read, and the mistake in the call.
type Wrong = (Option<String>, String);

impl<'a> Reader<'a> {
    fn space(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn take(&mut self, mark: &str) -> bool {
        let after = self.rest.strip_prefix(mark);
        self.rest = after.unwrap_or(self.rest);
        after.is_some()
    }

    /// Takes the text before the first of `marks`, but not the mark.
    fn until(&mut self, marks: &[&str]) -> Option<&'a str> {
        let end = marks.iter().filter_map(|mark| self.rest.find(mark)).min()?;
        let (before, after) = self.rest.split_at(end);
        self.rest = after;
        Some(before)
    }

    fn named(&mut self) -> Result<Vec<Call>, Wrong> {
        self.space();
        if self.rest.starts_with(['[', '{']) && !self.rest.starts_with("[ARGS]") {
            return self.value(0).map(calls_of).map_err(|why| (None, not_json(&why)));
        }
        let name = self.until(&["[CALL_ID]", "[ARGS]", "{"]).map(|name| name.trim().to_owned());
        let Some(name) = name else {
            self.rest = "";
            return Err((None, "the call has no [ARGS] with arguments".to_owned()));
        };
        if self.take("[CALL_ID]") {
            self.until(&["[ARGS]", "{"]);
        }
        self.take("[ARGS]");
        match self.value(0) {
            Ok(arguments @ Literal::Map(_)) => {
                Ok(vec![Call { name: Some(name), arguments: arguments.json(), wrong: None }])
            }
            Ok(_) => Err((Some(name), not_json("its arguments aren't an object"))),
            Err(why) => Err((Some(name), not_json(&why))),
        }
    }

    fn tagged(&mut self, tools: &[Value]) -> Result<Call, Wrong> {
        let refusal = || (None, "the call has no <function=NAME> or isn't closed by </function>".to_owned());
        self.space();
        if !self.take("<function=") {
            return Err(refusal());
        }
        let name = self.until(&[">"]).ok_or_else(refusal)?.trim().to_owned();
        self.take(">");
        let function = tool(tools, Some(&name));
        let mut entries = Vec::new();
        loop {
            self.space();
            if self.take("</function>") {
                let arguments = Literal::Map(entries).json();
                return Ok(Call { name: Some(name), arguments, wrong: None });
            }
            if !self.take("<parameter=") {
                return Err(refusal());
            }
            let key = self.until(&[">"]).ok_or_else(refusal)?.trim().to_owned();
            self.take(">");
            let Some(value) = self.parameter() else {
                return Err((Some(name), format!("the parameter {key} isn't closed by </parameter>")));
            };
            let schema =
                function.map_or(&Value::Null, |function| &function["parameters"]["properties"][&key]);
            match typed(value, schema) {
                Ok(value) => entries.push((key, value)),
                Err(why) => return Err((Some(name), format!("{key}: {why}"))),
            }
        }
    }

    /// Takes the text of a parameter. A closing tag ends the parameter only if another parameter or the end of the call follows.
    fn parameter(&mut self) -> Option<&'a str> {
        const CLOSE: &str = "</parameter>";
        let (whole, mut from) = (self.rest, 0);
        loop {
            let at = from + whole[from..].find(CLOSE)?;
            self.rest = &whole[at + CLOSE.len()..];
            self.space();
            if self.rest.starts_with("<parameter=") || self.rest.starts_with("</function>") {
                let value = &whole[..at];
                let value = value.strip_prefix('\n').unwrap_or(value);
                return Some(value.strip_suffix('\n').unwrap_or(value))
                    .filter(|value| !value.contains("\n<parameter="));
            }
            from = at + CLOSE.len();
        }
    }

    fn python_calls(&mut self, close: &str) -> Result<Vec<Call>, Wrong> {
        self.syntax = Syntax::Python;
        self.space();
        if self.rest.trim_start_matches('[').trim_start().starts_with('{') {
            return self.value(0).map(calls_of).map_err(|why| (None, not_json(&why)));
        }
        let is_list = self.take("[");
        let mut calls = Vec::new();
        loop {
            self.rest = self.rest.trim_start_matches(|c: char| c.is_whitespace() || ",;".contains(c));
            if is_list && self.take("]") || !is_list && self.rest.starts_with(close) {
                return Ok(calls);
            }
            let wrong = |why: &str| format!("the call isn't name(key=value, ...): {why}");
            let name = self.until(&["("]).filter(|name| is_name(name.trim()));
            let Some(name) = name.map(|name| name.trim().to_owned()) else {
                return Err((None, wrong("it has no name")));
            };
            self.take("(");
            let mut entries = Vec::new();
            loop {
                self.space();
                if self.take(")") {
                    break;
                }
                let key = self.until(&["="]).map(str::trim).filter(|key| is_name(key)).map(str::to_owned);
                let Some(key) = key else { return Err((Some(name), wrong("each value needs a key"))) };
                self.take("=");
                match self.value(0) {
                    Ok(value) => entries.push((key, value)),
                    Err(why) => return Err((Some(name), wrong(&why))),
                }
                self.space();
                if !self.take(",") && !self.rest.starts_with(')') {
                    return Err((Some(name), wrong("a comma is missing")));
                }
            }
            calls.push(Call { name: Some(name), arguments: Literal::Map(entries).json(), wrong: None });
        }
    }

    fn braced(&mut self) -> Result<Call, Wrong> {
        self.syntax = Syntax::Braced;
        let wrong = |why: &str| format!("the call isn't call:name{{key:value, ...}}: {why}");
        self.space();
        let name = if self.take("call:") { self.until(&["{"]).map(str::trim) } else { None };
        let Some(name) = name.filter(|name| is_name(name)).map(str::to_owned) else {
            return Err((None, wrong("it has no name")));
        };
        match self.value(0) {
            Ok(arguments) => Ok(Call { name: Some(name), arguments: arguments.json(), wrong: None }),
            Err(why) => Err((Some(name), wrong(&why))),
        }
    }

    /// Reads a value. Fails if anything follows the value.
    fn only(mut self) -> Result<Literal, String> {
        let value = self.value(0)?;
        self.space();
        if self.rest.is_empty() { Ok(value) } else { Err("there is more after its end".to_owned()) }
    }

    fn value(&mut self, level: usize) -> Result<Literal, String> {
        if level == LEVELS {
            return Err(format!("it has more than {LEVELS} levels"));
        }
        self.space();
        let words: [(&str, &str); 6] = [
            ("null", "null"),
            ("true", "true"),
            ("false", "false"),
            ("None", "null"),
            ("True", "true"),
            ("False", "false"),
        ];
        let count = if self.syntax == Syntax::Json { 3 } else { 6 };
        let word = words[..count].iter().find(|(word, _)| self.rest.starts_with(word));
        match self.rest.chars().next() {
            _ if word.is_some() => {
                let (word, json) = word.expect("checked by the guard");
                self.rest = &self.rest[word.len()..];
                Ok(Literal::Word(json))
            }
            Some('{') => {
                let mut entries = Vec::new();
                self.items('}', |reader| {
                    let key = reader.key(level)?;
                    reader.space();
                    if !reader.take(":") {
                        return Err("a colon is missing".to_owned());
                    }
                    entries.push((key, reader.value(level + 1)?));
                    Ok(())
                })?;
                Ok(Literal::Map(entries))
            }
            Some(open @ ('[' | '(')) if open == '[' || self.syntax == Syntax::Python => {
                let (mut list, close) = (Vec::new(), if open == '[' { ']' } else { ')' });
                self.items(close, |reader| {
                    list.push(reader.value(level + 1)?);
                    Ok(())
                })?;
                Ok(Literal::List(list))
            }
            Some('<') if self.syntax == Syntax::Braced && self.take(QUOTE) => {
                let text = self.until(&[QUOTE]).ok_or("a string has no end")?.to_owned();
                self.take(QUOTE);
                Ok(Literal::Text(text))
            }
            Some(quote @ ('"' | '\'')) if quote == '"' || self.syntax == Syntax::Python => {
                self.string(quote).map(Literal::Text)
            }
            _ => self.number(),
        }
    }

    /// Reads the key of an entry, up to the colon.
    fn key(&mut self, level: usize) -> Result<String, String> {
        self.space();
        if self.syntax == Syntax::Braced && !self.rest.starts_with(['"', '<']) {
            let key = self.until(&[":"]).filter(|key| !key.contains([',', '{', '}', '[', ']']));
            return key.map(|key| key.trim().to_owned()).ok_or("a colon is missing".to_owned());
        }
        match self.value(level + 1)? {
            Literal::Text(key) => Ok(key),
            _ => Err("a key isn't a string".to_owned()),
        }
    }

    /// Reads items between two brackets, separated by commas.
    fn items(
        &mut self,
        close: char,
        mut item: impl FnMut(&mut Self) -> Result<(), String>,
    ) -> Result<(), String> {
        let closed = |reader: &mut Self| {
            reader.space();
            reader.take(close.encode_utf8(&mut [0; 4]))
        };
        self.rest = &self.rest[1..];
        if closed(self) {
            return Ok(());
        }
        loop {
            item(self)?;
            if closed(self) {
                return Ok(());
            }
            if !self.take(",") {
                return Err(format!("a comma or {close} is missing"));
            }
            if self.syntax != Syntax::Json && closed(self) {
                return Ok(());
            }
        }
    }

    fn string(&mut self, quote: char) -> Result<String, String> {
        // Converted to JSON, which serde then parses.
        let mut json = String::from("\"");
        let mut chars = self.rest[1..].chars();
        loop {
            match chars.next() {
                None => return Err("a string has no end".to_owned()),
                Some(c) if c == quote => break,
                Some('"') => json.push_str("\\\""),
                Some('\\') => match chars.next() {
                    Some('\'') if self.syntax == Syntax::Python => json.push('\''),
                    Some('x') if self.syntax == Syntax::Python => json.push_str("\\u00"),
                    escaped => json.extend(['\\'].into_iter().chain(escaped)),
                },
                Some(c) if (c as u32) < 0x20 && self.syntax == Syntax::Python => {
                    json.push_str(&format!("\\u{:04x}", c as u32));
                }
                Some(c) => json.push(c),
            }
        }
        self.rest = chars.as_str();
        json.push('"');
        let mistake = "it has a string with an invalid escape, half a surrogate pair or a line break";
        serde_json::from_str(&json).map_err(|_| mistake.to_owned())
    }

    fn number(&mut self) -> Result<Literal, String> {
        let is_part =
            |c: char| c.is_ascii_digit() || "+-.eE".contains(c) || self.syntax == Syntax::Python && c == '_';
        let end = self.rest.find(|c| !is_part(c)).unwrap_or(self.rest.len());
        let (digits, after) = self.rest.split_at(end);
        let mut number = digits.replace('_', "");
        if self.syntax == Syntax::Python {
            let (sign, digits) = number.split_at(usize::from(number.starts_with(['+', '-'])));
            let zero = if digits.starts_with('.') { "0" } else { "" };
            let tail = if digits.ends_with('.') { "0" } else { "" };
            number = format!("{}{zero}{digits}{tail}", sign.trim_start_matches('+'));
        }
        if number.is_empty() {
            return Err("a value is missing".to_owned());
        }
        match serde_json::from_str::<f64>(&number) {
            Ok(value) if value.is_finite() => {
                self.rest = after;
                Ok(Literal::Number(number))
            }
            _ => Err("it has an invalid number, or one that isn't finite".to_owned()),
        }
    }
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || "_-.".contains(c))
}

/// Reads a parameter as the type in its schema. If the schema has no type, the parameter is read as a literal if
/// possible, and otherwise as a string.
fn typed(text: &str, schema: &Value) -> Result<Literal, String> {
    let kinds: Vec<&str> = match (schema["anyOf"].as_array(), schema["type"].as_array()) {
        (Some(schemas), _) => schemas.iter().filter_map(|schema| schema["type"].as_str()).collect(),
        (_, Some(kinds)) => kinds.iter().filter_map(Value::as_str).collect(),
        _ => schema["type"].as_str().into_iter().collect(),
    };
    let value = Reader { rest: text, syntax: Syntax::Python }.only();
    let null = schema["nullable"] == true && matches!(value, Ok(Literal::Word("null")));
    if kinds.is_empty() || null {
        return Ok(value.unwrap_or_else(|_| Literal::Text(text.to_owned())));
    }
    match value {
        Ok(value) if kinds.iter().any(|kind| *kind != "string" && value.has_type(kind)) => Ok(value),
        _ if kinds.contains(&"string") => Ok(Literal::Text(text.to_owned())),
        _ => Err(format!("expected {}, found {text:?}", kinds.join(" or "))),
    }
}
