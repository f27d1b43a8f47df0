//! Converts between text and a model's tokens: tokenizer, chat template, end tokens. The contents of the files are
//! stored unchanged, so that checkpoint folders get identical copies. Only [`Language::end_with_turn`] changes a file.

pub mod calls;
pub mod chat;
mod files;
mod gguf;
mod maze;
mod pieces;
pub mod stop;

pub use files::copy_files;

use crate::language::chat::{ChatOptions, ChatTemplate, special_tokens};
use crate::language::files::{files_of, optional};
use crate::language::stop::{Stop, StopTexts};
use anyhow::Context;
use fgrpo_core::maze::tokens;
use fgrpo_eval::dataset::{Message, plain_text_of};
use fgrpo_eval::failure::OrBadInput;
use fgrpo_eval::io::confined::{self, Limits};
use fgrpo_eval::io::files::write_whole;
use fgrpo_eval::io::harmless::shortened;
use fgrpo_eval::io::json;
use fgrpo_files as input;
use fgrpo_nn::config::end_tokens_of;
use fgrpo_nn::weights::Item;
use fgrpo_verify::thoughts::{self, Tags};
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;
use tokenizers::{AddedToken, Tokenizer};

/// Token ids of at least this value are rejected, because a model has a row of weights for every id up to the largest.
const LARGEST_VOCABULARY: u32 = 1 << 24;

/// Separator between two characters that must be in different tokens. Unicode reserves this code point for internal
/// use.
pub const BREAK: char = '\u{FDD0}';

/// Tokenizer, chat template and special tokens of one model.
#[derive(Debug, Clone)]
pub struct Language {
    /// Path of the tokenizer file, for messages.
    path: String,
    vocabulary: Vocabulary,
    /// Chat template, or `None` for a base model without one.
    template: Option<ChatTemplate>,
    stop: Stop,
    bos: Option<u32>,
    pad: Option<u32>,
    /// Special tokens without their first character, indexed by that character.
    special: BTreeMap<char, Vec<String>>,
    files: Vec<(String, Vec<u8>)>,
}

/// The tokens of a language.
#[derive(Debug, Clone)]
enum Vocabulary {
    /// Tokens of a Hugging Face tokenizer.
    Tokenizer(Box<Tokenizer>),
    /// The words of mazes. Special tokens are ordinary words, even in an answer.
    Mazes,
}

impl Language {
    /// Returns the language of mazes: 32 words, each a token, without a chat template.
    pub fn mazes() -> Self {
        let files =
            maze::tokenizer_files().into_iter().map(|(name, text)| (name.to_owned(), text.into_bytes()));
        Self {
            path: "the language of mazes".to_owned(),
            vocabulary: Vocabulary::Mazes,
            template: None,
            stop: Stop { tokens: tokens::STOP.to_vec(), texts: StopTexts::default() },
            bos: Some(tokens::Token::Bos as u32),
            pad: Some(tokens::Token::Pad as u32),
            special: BTreeMap::new(),
            files: files.collect(),
        }
    }

    /// Reads a model folder. Completions end at the end tokens in `generation_config.json`, `config.json` or the
    /// tokenizer's files, at added tokens listed in `stop`, and at other strings in `stop`. Fails if there is no
    /// tokenizer, template or end token, or a stop string is empty; the error names the folder or file.
    pub fn open(folder: &Path, stop: &[String]) -> anyhow::Result<Self> {
        let language = Self::read(folder, stop)?;
        if language.template.is_none() {
            return Err(chat::missing(folder));
        }
        if language.stop.tokens.is_empty() && language.stop.texts.is_empty() {
            bad_input!(
                "{}: there is no end token; set eos_token_id in generation_config.json or config.json, eos_token in tokenizer_config.json, or task.stop",
                folder.display()
            );
        }
        Ok(language)
    }

    /// Reads a model folder like [`Language::open`], but also accepts a base model without a template or end token.
    /// Such a model is prompted with plain text and stops at the length limit. Fails if there is no tokenizer, or a
    /// stop string is empty; the error names the folder or file.
    pub fn read(folder: &Path, stop: &[String]) -> anyhow::Result<Self> {
        let files = files_of(folder)?;
        let mut ends = Vec::new();
        let generation = files.iter().find(|(name, _)| name == "generation_config.json").cloned();
        let config = optional(&folder.join("config.json"), input::SETTINGS)?;
        for (name, bytes) in
            generation.into_iter().chain(config.map(|bytes| ("config.json".to_owned(), bytes)))
        {
            let place = folder.join(name).display().to_string();
            let fields: Map<String, Value> =
                json::parse(&bytes).with_context(|| place.clone()).or_bad_input()?;
            ends.extend(end_tokens_of(&fields, &place).or_bad_input()?.unwrap_or_default());
        }
        let template = ChatTemplate::of_files(folder, &files)?;
        let mut language = Self::from_files(files, template, ends, stop)
            .with_context(|| folder.display().to_string())
            .or_bad_input()?;
        language.path = folder.join("tokenizer.json").display().to_string();
        Ok(language)
    }

    /// Makes a language from the contents of its files.
    pub fn from_files(
        files: Vec<(String, Vec<u8>)>,
        template: Option<ChatTemplate>,
        mut ends: Vec<u32>,
        stop: &[String],
    ) -> anyhow::Result<Self> {
        let contents = |name: &str| files.iter().find(|(n, _)| n == name).map(|(_, bytes)| bytes);
        let Some(json) = contents("tokenizer.json") else {
            bad_input!("tokenizer.json is missing");
        };
        let mut tokenizer = tokenizer(json.clone()).context("tokenizer.json").or_bad_input()?;
        let object = |name: &str| -> anyhow::Result<Map<String, Value>> {
            let Some(bytes) = contents(name) else { return Ok(Map::new()) };
            json::parse(bytes).with_context(|| name.to_owned()).or_bad_input()
        };
        let config = object("tokenizer_config.json")?;
        let map = object("special_tokens_map.json")?;
        let special = special_tokens("tokenizer_config.json", &config, "special_tokens_map.json", &map)
            .or_bad_input()?;
        let added = object("added_tokens.json")?;
        declare(&mut tokenizer, [&config, &map, &added], &special)
            .context("tokenizer_config.json")
            .or_bad_input()?;
        let token_of = |name: &str| tokenizer.token_to_id(special.get(name)?);
        ends.extend(token_of("eos_token"));
        let added = tokenizer.get_added_tokens_decoder();
        let mut specials: BTreeMap<char, Vec<String>> = BTreeMap::new();
        for token in added.values().filter(|token| token.special) {
            let mut rest = token.content.chars();
            if let Some(first) = rest.next() {
                specials.entry(first).or_default().push(rest.as_str().to_owned());
            }
        }
        let added = |text: &String| added.iter().find(|(_, token)| token.content == *text);
        ends.extend(stop.iter().filter_map(added).map(|(id, _)| *id));
        // An added token that isn't special may also be spelt with other tokens, so it is searched for as a string
        // too.
        let texts = stop.iter().filter(|text| !added(text).is_some_and(|(_, token)| token.special));
        let texts = StopTexts::new("task.stop", texts.cloned().collect())?;
        // The token with which the chat template ends a turn comes first, because demonstrations end with it. The
        // first `eos_token_id` may end a whole text instead of a turn (Llama's instruct models).
        let is_end = |id| ends.contains(&id);
        if let Some(end) = template.as_ref().and_then(|t| turn_end(&tokenizer, t, is_end)) {
            ends.insert(0, end);
        }
        let mut stop = Vec::new();
        for id in ends {
            if !stop.contains(&id) {
                stop.push(id);
            }
        }
        let (bos, pad) = (token_of("bos_token"), token_of("pad_token"));
        Ok(Self {
            path: "tokenizer.json".to_owned(),
            vocabulary: Vocabulary::Tokenizer(Box::new(tokenizer)),
            template,
            stop: Stop { tokens: stop, texts },
            bos,
            pad,
            special: specials,
            files,
        })
    }

    /// Makes completions also end at the special token with which the chat template ends a turn, even if the model's
    /// files don't list it, and adds it to `generation_config.json`. Demonstrations then end with this token, as in
    /// the template. Qwen2.5's base models, for example, list only `<|endoftext|>`, but their template ends a turn with
    /// `<|im_end|>`.
    pub fn end_with_turn(&mut self) -> anyhow::Result<()> {
        const FILE: &str = "generation_config.json";
        let (Vocabulary::Tokenizer(tokenizer), Some(template)) = (&self.vocabulary, &self.template) else {
            return Ok(());
        };
        let added = tokenizer.get_added_tokens_decoder();
        let ends = &mut self.stop.tokens;
        let is_end = |id| ends.contains(&id) || added.get(&id).is_some_and(|token| token.special);
        let Some(end) = turn_end(tokenizer, template, is_end) else { return Ok(()) };
        if ends.contains(&end) {
            return Ok(());
        }
        let at = self.files.iter().position(|(name, _)| name == FILE);
        let mut fields: Map<String, Value> = match at {
            Some(at) => json::parse(&self.files[at].1).context(FILE).or_bad_input()?,
            None => Map::new(),
        };
        let mut listed = end_tokens_of(&fields, FILE).or_bad_input()?.unwrap_or_else(|| ends.clone());
        listed.insert(0, end);
        ends.insert(0, end);
        fields.insert("eos_token_id".to_owned(), json!(listed));
        let file = (FILE.to_owned(), serde_json::to_vec_pretty(&fields)?);
        match at {
            Some(at) => self.files[at] = file,
            None => self.files.push(file),
        }
        Ok(())
    }

    /// Returns the token ids of a prompt: the conversation rendered by the chat template, with the generation prompt.
    /// Without a template, the prompt is the text of the messages with the special tokens that the tokenizer adds.
    pub fn prompt(&self, messages: &[Message], thinking: Option<bool>) -> anyhow::Result<Vec<u32>> {
        if let Some(template) = &self.template {
            let options = ChatOptions { enable_thinking: thinking, ..ChatOptions::default() };
            return self.encode(&template.render(messages, &options)?);
        }
        self.plain(&plain_text_of(messages))
    }

    /// Returns the token ids of a text to be continued, including the special tokens that the tokenizer adds.
    pub fn plain(&self, text: &str) -> anyhow::Result<Vec<u32>> {
        self.ids(text, true)
    }

    /// Returns the chat template, if the model has one.
    pub fn template(&self) -> Option<&ChatTemplate> {
        self.template.as_ref()
    }

    /// Returns whether the model has a chat template.
    pub fn has_template(&self) -> bool {
        self.template.is_some()
    }

    /// Returns the token ids of a text. Special tokens in the text are recognised, but the tokenizer doesn't add any,
    /// because the template writes the beginning-of-sequence token if the model needs one.
    pub fn encode(&self, text: &str) -> anyhow::Result<Vec<u32>> {
        self.ids(text, false)
    }

    /// Encodes the parts of a string between [`BREAK`]s separately, so that no token crosses one.
    pub fn encode_parts(&self, text: &str) -> anyhow::Result<Vec<u32>> {
        let parts: anyhow::Result<Vec<Vec<u32>>> = text.split(BREAK).map(|part| self.encode(part)).collect();
        Ok(parts?.concat())
    }

    /// Inserts a [`BREAK`] into each special token in a string, so that [`Self::encode_parts`] encodes the special
    /// token as plain text.
    pub fn broken(&self, text: &str) -> String {
        let mut text = text.replace(BREAK, "\u{FFFD}");
        if text.contains(|c| self.special.iter().any(|(first, _)| *first == c)) {
            for (first, rest) in
                self.special.iter().flat_map(|(first, rests)| rests.iter().map(move |r| (first, r)))
            {
                text = text.replace(&format!("{first}{rest}"), &format!("{first}{BREAK}{rest}"));
            }
        }
        text
    }

    fn ids(&self, text: &str, special: bool) -> anyhow::Result<Vec<u32>> {
        match &self.vocabulary {
            Vocabulary::Tokenizer(tokenizer) => {
                encode(tokenizer, text, special).with_context(|| self.path.clone()).or_bad_input()
            }
            Vocabulary::Mazes => Ok(tokens::read(text)),
        }
    }

    /// Returns the text of token ids for display, including special tokens.
    pub fn text(&self, ids: &[u32]) -> String {
        self.decoded(ids, true).unwrap_or_else(|e| format!("<not text: {e}>"))
    }

    /// Returns the text of token ids, with all special tokens if `special`, or otherwise with only the tags of
    /// thoughts.
    pub fn decoded(&self, ids: &[u32], special: bool) -> anyhow::Result<String> {
        match &self.vocabulary {
            Vocabulary::Tokenizer(tokenizer) => decode(tokenizer, ids, special),
            Vocabulary::Mazes => Ok(tokens::spell(ids)),
        }
    }

    /// Returns the text of a completion for its verifier, up to the end token or stop string. Special tokens are left
    /// out, except for the tags of thoughts.
    pub fn answer(&self, completion: &[u32]) -> anyhow::Result<String> {
        self.answer_until(&self.stop.texts, completion)
    }

    /// Like [`Language::answer`], but with the stop strings `texts`.
    pub fn answer_until(&self, texts: &StopTexts, completion: &[u32]) -> anyhow::Result<String> {
        match &self.vocabulary {
            Vocabulary::Tokenizer(tokenizer) => {
                let end = completion
                    .iter()
                    .position(|id| self.stop.tokens.contains(id))
                    .unwrap_or(completion.len());
                answer(tokenizer, &completion[..end], texts)
            }
            Vocabulary::Mazes => Ok(tokens::spell(completion)),
        }
    }

    /// Fails if a tag of thoughts is a special token that the text of an answer leaves out.
    pub fn check_tags(&self, tags: &Tags) -> anyhow::Result<()> {
        let Vocabulary::Tokenizer(tokenizer) = &self.vocabulary else { return Ok(()) };
        let special = tokenizer.get_added_vocabulary();
        let lost = [&tags.open, &tags.close]
            .into_iter()
            .find(|tag| special.is_special_token(tag) && !thoughts::is_tag(tag));
        if let Some(tag) = lost {
            bad_input!(
                "task.reasoning: {tag:?} is a special token in {}, so the text of an answer doesn't contain it; set \"special\": false there",
                self.path
            );
        }
        Ok(())
    }

    /// Returns the strings that end a completion.
    pub fn stop_texts(&self) -> &StopTexts {
        &self.stop.texts
    }

    /// Returns the tokens and strings that end a completion.
    pub fn stop(&self) -> &Stop {
        &self.stop
    }

    /// Returns whether the last token of a completion completed a stop string.
    pub fn ended(&self, completion: &[u32]) -> bool {
        self.ended_by(&self.stop.texts, completion)
    }

    /// Returns whether the last token of a completion completed one of the strings `texts`.
    pub fn ended_by(&self, texts: &StopTexts, completion: &[u32]) -> bool {
        match &self.vocabulary {
            Vocabulary::Tokenizer(tokenizer) => texts.ended(tokenizer, completion),
            Vocabulary::Mazes => false,
        }
    }

    /// Returns the tokens of a worked answer, followed by the end token.
    pub fn demonstration(&self, answer: &str) -> anyhow::Result<Vec<u32>> {
        let mut tokens = self.encode(answer)?;
        match (self.stop.tokens.first(), self.stop.texts.texts().first()) {
            (Some(&end), _) => tokens.push(end),
            (None, Some(text)) => tokens.extend(self.encode(text)?),
            (None, None) => {}
        }
        Ok(tokens)
    }

    /// Returns the tokens that end a completion. The model's end tokens come first.
    pub fn stop_tokens(&self) -> &[u32] {
        &self.stop.tokens
    }

    /// Returns the beginning-of-sequence token, if there is one.
    pub fn bos_token(&self) -> Option<u32> {
        self.bos
    }

    /// Returns the padding token, if there is one.
    pub fn pad_token(&self) -> Option<u32> {
        self.pad
    }

    /// Returns the vocabulary size, including added tokens.
    pub fn vocab_size(&self) -> usize {
        match &self.vocabulary {
            // Ids may have gaps; a model needs a row for the largest.
            Vocabulary::Tokenizer(tokenizer) => {
                tokenizer.get_vocab(true).values().max().map_or(0, |&id| id as usize + 1)
            }
            Vocabulary::Mazes => tokens::VOCABULARY.len(),
        }
    }

    /// Returns every token of the vocabulary with its id.
    pub fn tokens(&self) -> BTreeMap<String, u32> {
        match &self.vocabulary {
            Vocabulary::Tokenizer(tokenizer) => tokenizer.get_vocab(true).into_iter().collect(),
            Vocabulary::Mazes => {
                tokens::VOCABULARY.iter().map(|token| (*token).to_owned()).zip(0..).collect()
            }
        }
    }

    /// Returns the metadata of a GGUF file with the tokenizer, the template and the special tokens, for a model whose
    /// embedding has `rows` rows. Fails if a GGUF file can't represent the tokenizer.
    pub fn gguf_metadata(&self, rows: usize) -> anyhow::Result<Vec<(String, Item)>> {
        let file = self.files.iter().find(|(name, _)| name == "tokenizer.json");
        let json: Value = json::parse(file.map_or(&[], |(_, bytes)| bytes.as_slice())).or_bad_input()?;
        let context = || format!("{}: a GGUF file can't have this tokenizer", self.path);
        let mut items = gguf::tokens_of(&json, rows).with_context(context).or_bad_input()?;
        let mut put = |name: &str, item: Item| items.push((format!("tokenizer.{name}"), item));
        let ends = ["eos", "eot", "eom"].into_iter().zip(self.stop.tokens.iter().copied());
        let special = [("bos", self.bos), ("padding", self.pad)];
        let ids = special.into_iter().filter_map(|(name, id)| Some((name, id?))).chain(ends);
        ids.for_each(|(name, id)| put(&format!("ggml.{name}_token_id"), Item::Number(id)));
        // The special tokens that the tokenizer adds to every text.
        let added = self.plain("")?;
        let begins = self.bos.is_some_and(|bos| added.first() == Some(&bos));
        put("ggml.add_bos_token", Item::Flag(begins));
        put("ggml.add_eos_token", Item::Flag(added.len() > usize::from(begins)));
        if let Some(template) = &self.template {
            put("chat_template", Item::Text(template.source().to_owned()));
        }
        Ok(items)
    }

    /// Writes identical copies of the files to a folder.
    pub fn write(&self, folder: &Path) -> anyhow::Result<()> {
        self.files.iter().try_for_each(|(name, bytes)| write_whole(&folder.join(name), bytes))
    }
}

/// Parses a `tokenizer.json` and tries it on a text, because some files can be parsed but make the library panic later.
fn tokenizer(json: Vec<u8>) -> anyhow::Result<Tokenizer> {
    confined::run(Limits::for_file(json.len() as u64), move || {
        bounded_charsmap(&json)?;
        let mut tokenizer = Tokenizer::from_bytes(&json).map_err(|e| refused(&json, &e.to_string()))?;
        // The file may enable truncation or padding, which must not apply to prompts.
        tokenizer.with_padding(None);
        tokenizer.with_truncation(None).map_err(|e| anyhow::anyhow!("{e}"))?;
        let largest = tokenizer.get_vocab(true).values().max().copied().unwrap_or(0);
        if largest >= LARGEST_VOCABULARY {
            anyhow::bail!("expected token ids below {LARGEST_VOCABULARY}, found {largest}");
        }
        for text in ["", "2 + 2 = 4.\n\nSo it is.", " \u{df}\u{6f22}\u{1f642}\0"] {
            // The vocabulary need not be able to express every text.
            if let Ok(encoding) = tokenizer.encode_fast(text, true) {
                let _ = tokenizer.decode(encoding.get_ids(), false);
            }
        }
        let _ = tokenizer.decode(&(0..256).collect::<Vec<u32>>(), true);
        Ok(tokenizer)
    })
}

/// Rejects a `precompiled_charsmap` that claims to be larger than it is, because the library would allocate that much
/// memory.
fn bounded_charsmap(json: &[u8]) -> anyhow::Result<()> {
    const KEY: &str = "\"precompiled_charsmap\"";
    let text = std::str::from_utf8(json)?;
    for (at, _) in text.match_indices(KEY) {
        let value = text[at + KEY.len()..].trim_start_matches([':', ' ', '\t', '\n', '\r']);
        let Some(value) = value.strip_prefix('"') else { continue };
        let value = &value[..value.find('"').unwrap_or(value.len())];
        // Base64 of the size of a table, as four bytes in little-endian order, and of the table.
        let digit = |c: u8| match c {
            b'A'..=b'Z' => u64::from(c - b'A'),
            b'a'..=b'z' => u64::from(c - b'a') + 26,
            b'0'..=b'9' => u64::from(c - b'0') + 52,
            b'+' => 62,
            _ => 63,
        };
        let Some(head) = value.as_bytes().get(..8) else { continue };
        let bits = head.iter().fold(0, |bits, &c| bits << 6 | digit(c));
        let size = u64::from(((bits >> 16) as u32).swap_bytes());
        if size > value.len() as u64 {
            anyhow::bail!(
                "precompiled_charsmap: a table of {size} bytes can't be in a string of {} bytes",
                value.len()
            );
        }
    }
    Ok(())
}

/// Explains why the library rejects a `tokenizer.json`, by finding a part without which the library accepts the file.
fn refused(bytes: &[u8], message: &str) -> anyhow::Error {
    let mut whole: Map<String, Value> = match json::parse(bytes) {
        Ok(whole) => whole,
        Err(error) => return error.into(),
    };
    let fails = |whole: &Map<String, Value>| {
        serde_json::to_vec(whole).is_ok_and(|bytes| Tokenizer::from_bytes(bytes).is_err())
    };
    // The vocabulary, which is most of the file, is left out while the other parts are tried.
    let empty = json!({"type": "BPE", "vocab": {}, "merges": []});
    let mut cause = whole.insert("model".to_owned(), empty).map(|model| ("model", model));
    if fails(&whole) {
        let parts = [
            "normalizer",
            "pre_tokenizer",
            "post_processor",
            "decoder",
            "added_tokens",
            "truncation",
            "padding",
        ];
        cause = parts.into_iter().find_map(|part| {
            let mut rest = whole.clone();
            let value = rest.remove(part)?;
            if part == "added_tokens" {
                rest.insert(part.to_owned(), json!([]));
            }
            (!fails(&rest)).then_some((part, value))
        });
    }
    match cause {
        Some((part, value)) => {
            let value = shortened(&value.to_string(), 80);
            anyhow::anyhow!(
                "{part}: expected a value that the tokenizers library supports, found {value} ({message})"
            )
        }
        None => anyhow::anyhow!("this isn't a file of the tokenizers library ({message})"),
    }
}

fn encode(tokenizer: &Tokenizer, text: &str, special: bool) -> anyhow::Result<Vec<u32>> {
    if text.len() > input::PROMPT {
        bad_input!("the text has {} bytes, but at most {} are supported", text.len(), input::PROMPT);
    }
    confined::catch(|| {
        let encoding = tokenizer.encode_fast(text, special).map_err(|e| anyhow::anyhow!("{e}"))?;
        Ok(encoding.get_ids().to_vec())
    })
}

/// Decodes tokens, with the text of all special tokens if `special`. Otherwise only the tags of thoughts are kept,
/// because verifiers need them.
pub(super) fn decode(tokenizer: &Tokenizer, tokens: &[u32], special: bool) -> anyhow::Result<String> {
    let added = tokenizer.get_added_vocabulary();
    let is_hidden = |id: &u32| {
        let token = tokenizer.id_to_token(*id);
        token.is_some_and(|token| added.is_special_token(&token) && !thoughts::is_tag(&token))
    };
    confined::catch(|| {
        let visible = if special {
            Cow::Borrowed(tokens)
        } else {
            tokens.iter().copied().filter(|id| !is_hidden(id)).collect()
        };
        tokenizer.decode(&visible, false).map_err(|e| anyhow::anyhow!("{e}"))
    })
    .context("tokenizer")
}

/// Returns the first token that the chat template writes after an answer and that `is_end` accepts.
fn turn_end(tokenizer: &Tokenizer, template: &ChatTemplate, is_end: impl Fn(u32) -> bool) -> Option<u32> {
    const ANSWER: &str = "fgrpoanswer";
    let messages = [Message::new("user", "question"), Message::new("assistant", ANSWER)];
    let options = ChatOptions { add_generation_prompt: false, ..ChatOptions::default() };
    let text = template.render(&messages, &options).ok()?;
    let (_, rest) = text.rsplit_once(ANSWER)?;
    encode(tokenizer, rest, false).ok()?.into_iter().find(|id| is_end(*id))
}

/// Returns the text of a completion up to the first stop string. Special tokens are left out, except for the tags of
/// thoughts.
fn answer(tokenizer: &Tokenizer, completion: &[u32], stop: &StopTexts) -> anyhow::Result<String> {
    let plain = decode(tokenizer, completion, false)?;
    if stop.is_empty() {
        return Ok(plain);
    }
    // A stop string may contain a special token, so the search includes special tokens.
    let whole = decode(tokenizer, completion, true)?;
    let mut cut = stop.cut(&whole).to_owned();
    if cut.len() == whole.len() {
        return Ok(plain);
    }
    for token in
        tokenizer.get_added_tokens_decoder().values().filter(|t| t.special && !thoughts::is_tag(&t.content))
    {
        cut = cut.replace(&token.content, "");
    }
    Ok(cut)
}

/// Makes special tokens of the vocabulary's tokens that `tokenizer_config.json` declares special, as transformers
/// does. Otherwise the tokenizer would split them. Without `added_tokens_decoder`, also reads `special_tokens_map.json`
/// and `added_tokens.json`.
fn declare<'a>(
    tokenizer: &mut Tokenizer,
    [config, map, added]: [&'a Map<String, Value>; 3],
    special: &BTreeMap<String, String>,
) -> anyhow::Result<()> {
    if config.get("split_special_tokens").is_some_and(|split| split == true) {
        anyhow::bail!(
            "split_special_tokens: expected false, found true: splitting special tokens isn't supported"
        );
    }
    let newer = config.contains_key("added_tokens_decoder");
    let lists = |file: &'a Map<String, Value>| {
        ["additional_special_tokens", "extra_special_tokens"]
            .into_iter()
            .filter_map(|name| file.get(name)?.as_array())
    };
    let lists = lists(config).chain(lists(map).filter(|_| !newer));
    let listed = lists.flatten().filter_map(|v| v.as_str().or_else(|| v.get("content")?.as_str()));
    let declared = special.values().map(String::as_str).chain(listed);
    let vocabulary = tokenizer.get_added_vocabulary().get_vocab();
    let new = |text: &&str| !vocabulary.contains_key(*text) && tokenizer.token_to_id(text).is_some();
    let mut tokens: Vec<AddedToken> = declared.filter(new).map(|text| AddedToken::from(text, true)).collect();
    let mut ids = Vec::new();
    for (id, token) in config.get("added_tokens_decoder").and_then(Value::as_object).into_iter().flatten() {
        let place = || format!("added_tokens_decoder, {id}");
        ids.push((id.parse::<u32>().with_context(place)?, tokens.len()));
        let Some(content) = token.get("content").and_then(Value::as_str) else {
            anyhow::bail!("{}: content, the token's text, is missing", place());
        };
        let flag = |name: &str| token.get(name).and_then(Value::as_bool);
        let special = flag("special").unwrap_or(false);
        let [lstrip, rstrip, single_word] =
            ["lstrip", "rstrip", "single_word"].map(|n| flag(n).unwrap_or(false));
        let normalized = flag("normalized").unwrap_or(!special);
        let content = content.to_owned();
        tokens.push(AddedToken { content, single_word, lstrip, rstrip, normalized, special });
    }
    let older = added.iter().filter(|(text, _)| !newer && !vocabulary.contains_key(text.as_str()));
    let mut older: Vec<(Option<u64>, &String)> = older.map(|(text, id)| (id.as_u64(), text)).collect();
    // The tokenizer gives new tokens the next ids in this order.
    older.sort();
    for (id, text) in older {
        let id = id.and_then(|id| u32::try_from(id).ok());
        ids.push((id.with_context(|| format!("added_tokens.json: {text:?}: expected an id"))?, tokens.len()));
        tokens.push(AddedToken::from(text, special.values().any(|token| token == text)));
    }
    // Tokens in `added_tokens_decoder` override the others.
    tokenizer.add_tokens(tokens.iter().cloned()).map_err(|e| anyhow::anyhow!("{e}"))?;
    for (id, at) in ids {
        let text = &tokens[at].content;
        if tokenizer.token_to_id(text) != Some(id) {
            let list = if newer { "added_tokens_decoder" } else { "added_tokens.json" };
            anyhow::bail!("{list}: {text:?} has the id {id}, but another one in tokenizer.json");
        }
    }
    Ok(())
}
