//! Reads a server's answer for one sample: token ids, log-probabilities, finish reason.
//!
//! Servers report the sampled tokens in four ways: as ids (vLLM, SGLang), as strings `token_id:7` (older vLLM), as an
//! id with each log-probability (llama.cpp), or only as strings. Strings are accepted if each is the text of exactly
//! one token of the vocabulary, or if tokenizing their concatenation gives the same number of tokens. Other answers are
//! rejected, because training on tokens that weren't sampled would be silently wrong. An answer is also rejected if it
//! lists a different number of tokens than its `usage` reports: llama.cpp omits the ids of incomplete UTF-8 characters.

use crate::language::Language;
use fgrpo_eval::from_server::End;
use fgrpo_eval::io::server::sampling::ServerApi;
use fgrpo_nn::Finish;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::HashMap;
use std::sync::OnceLock;

/// The completion in an answer, as stored in the run folder.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Answer {
    /// Hash of all fields of the request.
    pub(super) request: String,
    pub(super) tokens: Vec<u32>,
    /// The server's log-probability of each token, rounded to f32, or `None` for an end token that the server left out.
    pub(super) logp: Vec<Option<f64>>,
    /// Whether the length limit cut off the completion.
    pub(super) truncated: bool,
}

/// Reason why an answer can't be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Unusable {
    /// A retry may succeed.
    Transient(String),
    /// The format of the server's answers isn't supported.
    Form(String),
}

/// Parses answers.
pub(super) struct Reader<'a> {
    language: &'a Language,
    api: ServerApi,
    stop_tokens: &'a [u32],
    max_new_tokens: usize,
    /// The token of each string, or `None` if several tokens have the same text.
    pieces: OnceLock<HashMap<String, Option<u32>>>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(
        language: &'a Language,
        api: ServerApi,
        stop_tokens: &'a [u32],
        max_new_tokens: usize,
    ) -> Self {
        Self { language, api, stop_tokens, max_new_tokens, pieces: OnceLock::new() }
    }

    /// Reads the answer to a request for a completion of `prompt`.
    pub(super) fn read(&self, request: &str, prompt: &[u32], answer: &Value) -> Result<Answer, Unusable> {
        let transient = |message: &str| Err(Unusable::Transient(message.to_owned()));
        let Some(choice) = answer["choices"].as_array().and_then(|c| c.first()) else {
            return transient("the answer has no choices");
        };
        if let Some(echo) = ids(&choice["prompt_token_ids"])
            && echo != prompt
        {
            return Err(Unusable::Form(format!(
                "the server read a prompt of {} tokens, which isn't the one of {} tokens that was sent",
                echo.len(),
                prompt.len()
            )));
        }
        let mut finish = match End::of(choice).map_err(Unusable::Transient)? {
            End::Stop => Finish::Stop,
            End::Length => Finish::Length,
            other => return transient(&format!("the answer has the finish_reason {}", other.name())),
        };
        let (mut tokens, mut logp) = self.tokens(choice)?;
        self.check_count(&tokens, finish, choice, &answer["usage"]["completion_tokens"])?;
        if let Some(token) = tokens.iter().find(|&&t| t as usize >= self.language.vocab_size()) {
            return Err(Unusable::Form(format!(
                "token {token} isn't in the vocabulary of {} tokens: the server's model has another vocabulary",
                self.language.vocab_size()
            )));
        }
        // A server that doesn't know our end tokens continues after them.
        let by_token = tokens.iter().position(|t| self.stop_tokens.contains(t)).map(|at| at + 1);
        let by_text = match self.language.stop_texts().texts() {
            [] => None,
            _ => (1..=by_token.unwrap_or(tokens.len())).find(|&n| self.language.ended(&tokens[..n])),
        };
        if let Some(end) = by_text.or(by_token) {
            tokens.truncate(end);
            finish = Finish::Stop;
        } else if finish == Finish::Stop && matches!(self.api, ServerApi::LlamaCpp | ServerApi::Openai) {
            tokens.push(self.stop_tokens[0]);
            logp.push(None);
        }
        if tokens.len() > self.max_new_tokens {
            tokens.truncate(self.max_new_tokens);
            finish = Finish::Length;
        }
        logp.truncate(tokens.len());
        if tokens.is_empty() {
            return transient("the answer has no tokens");
        }
        Ok(Answer { request: request.to_owned(), tokens, logp, truncated: finish == Finish::Length })
    }

    /// Compares the number of listed tokens with the server's count. An end token may be listed but not counted. It
    /// may also be counted but not listed, if the text shows that nothing else is missing.
    fn check_count(
        &self,
        tokens: &[u32],
        finish: Finish,
        choice: &Value,
        counted: &Value,
    ) -> Result<(), Unusable> {
        let Some(counted) = counted.as_u64().map(|n| n as usize) else { return Ok(()) };
        let listed = tokens.len();
        let ends = tokens.last().is_some_and(|t| self.stop_tokens.contains(t));
        let end_unlisted = counted == listed + 1
            && finish == Finish::Stop
            && !ends
            && choice["text"].as_str() == Some(self.language.text(tokens).as_str());
        if counted == listed || end_unlisted || (ends && counted + 1 == listed) {
            return Ok(());
        }
        Err(Unusable::Form(format!(
            "the answer has {listed} token ids, but its usage counts {counted}, and training on a part of the sampled tokens would be wrong (llama.cpp leaves out bytes that aren't a whole character); use a server that lists every token, such as vLLM or SGLang"
        )))
    }

    fn tokens(&self, choice: &Value) -> Result<(Vec<u32>, Vec<Option<f64>>), Unusable> {
        let form = |message: String| Err(Unusable::Form(message));
        let logprobs = &choice["logprobs"];
        if let Some(content) = logprobs["content"].as_array() {
            let tokens = content.iter().map(|c| id(&c["id"])).collect::<Option<Vec<u32>>>();
            let values: Vec<&Value> = content.iter().map(|c| &c["logprob"]).collect();
            let tokens = match tokens {
                Some(tokens) => tokens,
                None => self.tokens_of_pieces(&content.iter().map(|c| &c["token"]).collect::<Vec<_>>())?,
            };
            return Ok((tokens, numbers(&values)?));
        }
        let Some(values) = logprobs["token_logprobs"].as_array() else {
            return form(format!(
                "choices[0].logprobs {}: the server must return log-probabilities, in token_logprobs or content",
                shape(logprobs)
            ));
        };
        let pieces: Vec<&Value> =
            logprobs["tokens"].as_array().map(|t| t.iter().collect()).unwrap_or_default();
        let tokens = match ids(&choice["token_ids"]) {
            Some(tokens) => tokens,
            None => {
                match pieces.iter().map(|p| p.as_str()?.strip_prefix("token_id:")?.parse().ok()).collect() {
                    Some(tokens) => tokens,
                    None => self.tokens_of_pieces(&pieces)?,
                }
            }
        };
        let logp = numbers(&values.iter().collect::<Vec<_>>())?;
        if tokens.len() != logp.len() {
            return form(format!(
                "the answer has {} token ids, but {} log-probabilities",
                tokens.len(),
                logp.len()
            ));
        }
        Ok((tokens, logp))
    }

    /// Finds the tokens of the strings `pieces`.
    fn tokens_of_pieces(&self, pieces: &[&Value]) -> Result<Vec<u32>, Unusable> {
        let Some(pieces) = pieces.iter().map(|p| p.as_str()).collect::<Option<Vec<&str>>>() else {
            return Err(Unusable::Form("the tokens aren't strings".into()));
        };
        let known = self.pieces.get_or_init(|| {
            let mut known: HashMap<String, Option<u32>> = HashMap::new();
            for id in 0..self.language.vocab_size() as u32 {
                known
                    .entry(self.language.text(&[id]))
                    .and_modify(|several| *several = None)
                    .or_insert(Some(id));
            }
            known
        });
        let single: Option<Vec<u32>> = pieces.iter().map(|&p| known.get(p).copied().flatten()).collect();
        if let Some(tokens) = single {
            return Ok(tokens);
        }
        let text = pieces.concat();
        if let Ok(tokens) = self.language.encode(&text)
            && tokens.len() == pieces.len()
            && self.language.text(&tokens) == text
        {
            return Ok(tokens);
        }
        Err(Unusable::Form(format!(
            "the answer has no token ids, and its strings are ambiguous ({}); use vLLM 0.10.2 or newer, SGLang or llama.cpp as rollout.server.api",
            pieces
                .iter()
                .find(|p| known.get(**p).copied().flatten().is_none())
                .map_or_else(String::new, |p| format!("{p:?}"))
        )))
    }
}

fn id(value: &Value) -> Option<u32> {
    value.as_u64().and_then(|id| u32::try_from(id).ok())
}

fn ids(value: &Value) -> Option<Vec<u32>> {
    value.as_array()?.iter().map(id).collect()
}

fn numbers(values: &[&Value]) -> Result<Vec<Option<f64>>, Unusable> {
    let number = |v: &&Value| match v.as_f64() {
        Some(x) if x <= 1e-3 => Ok(Some(f64::from((x as f32).min(0.0)))),
        _ => Err(Unusable::Form(format!("{v} isn't a log-probability, which is a number of at most 0"))),
    };
    values.iter().map(number).collect()
}

fn shape(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            format!("has {}", fields.keys().map(String::as_str).collect::<Vec<_>>().join(", "))
        }
        Value::Null => "is missing".into(),
        _ => "isn't an object".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ArithmeticConfig;
    use crate::problem::generated;
    use serde_json::json;

    fn language() -> Language {
        generated::language(&ArithmeticConfig::default(), &[]).unwrap()
    }

    fn choice(choice: Value) -> Value {
        json!({"choices": [choice]})
    }

    fn refused(read: Result<Answer, Unusable>, fact: &str) {
        match read {
            Err(Unusable::Form(message)) => assert!(message.contains(fact), "{message} lacks {fact}"),
            other => panic!("{other:?} lacks {fact}"),
        }
    }

    fn ids_and_logp(answer: &Answer) -> (Vec<u32>, Vec<Option<f64>>) {
        (answer.tokens.clone(), answer.logp.clone())
    }

    #[test]
    fn the_four_forms_of_token_ids_give_the_same_answer() {
        let language = language();
        let end = language.stop_tokens()[0];
        let words = language.encode("12 + 3").unwrap();
        let mut tokens = words.clone();
        tokens.push(end);
        let values: Vec<f64> = (0..tokens.len()).map(|i| -0.5 * i as f64).collect();
        let expected: Vec<Option<f64>> = values.iter().map(|&v| Some(f64::from(v as f32))).collect();
        let pieces: Vec<String> = tokens.iter().map(|&t| language.text(&[t])).collect();
        let named: Vec<String> = tokens.iter().map(|t| format!("token_id:{t}")).collect();
        let content: Vec<Value> =
            tokens.iter().zip(&values).map(|(t, v)| json!({"id": t, "token": "x", "logprob": v})).collect();
        let reader = |api| Reader::new(&language, api, language.stop_tokens(), 50);
        for (api, given) in [
            (
                ServerApi::Vllm,
                json!({"token_ids": tokens, "prompt_token_ids": [5, 6], "logprobs": {"tokens": pieces, "token_logprobs": values}, "finish_reason": "stop"}),
            ),
            (
                ServerApi::Vllm,
                json!({"logprobs": {"tokens": named, "token_logprobs": values}, "finish_reason": "stop"}),
            ),
            (ServerApi::LlamaCpp, json!({"logprobs": {"content": content}, "finish_reason": "stop"})),
            (
                ServerApi::Openai,
                json!({"logprobs": {"tokens": pieces, "token_logprobs": values}, "finish_reason": "stop"}),
            ),
        ] {
            let answer = reader(api).read("r", &[5, 6], &choice(given.clone())).unwrap();
            assert_eq!(ids_and_logp(&answer), (tokens.clone(), expected.clone()), "{given}");
            assert!(!answer.truncated);
        }
        // The server left the end token out: it is added with an unknown log-probability.
        let n = words.len();
        let given = json!({"logprobs": {"tokens": pieces[..n], "token_logprobs": values[..n]}, "finish_reason": "stop"});
        let answer = reader(ServerApi::Openai).read("r", &[5], &choice(given)).unwrap();
        assert_eq!((answer.tokens, answer.logp.last()), (tokens.clone(), Some(&None)));
        // The server continued after the end token: later tokens are cut off.
        let mut more = tokens.clone();
        more.push(words[0]);
        let mut long = values.clone();
        long.push(-1.0);
        let given =
            json!({"token_ids": more, "logprobs": {"token_logprobs": long}, "finish_reason": "length"});
        let answer = reader(ServerApi::Vllm).read("r", &[5], &choice(given)).unwrap();
        assert_eq!((answer.tokens, answer.truncated), (tokens, false));
    }

    #[test]
    fn strings_that_several_tokens_share_are_resolved_by_tokenizing_or_refused() {
        let language = language();
        let reader = Reader::new(&language, ServerApi::Openai, language.stop_tokens(), 50);
        // Each byte of the umlaut is a token that decodes to the replacement character if decoded separately.
        let given = |pieces: Value| {
            let n = pieces.as_array().unwrap().len();
            choice(
                json!({"logprobs": {"tokens": pieces, "token_logprobs": vec![-1.0; n]}, "finish_reason": "length"}),
            )
        };
        let umlaut = language.encode("ä").unwrap();
        assert_eq!(umlaut.len(), 2);
        let whole = reader.read("r", &[5], &given(json!(["ä", ""]))).unwrap();
        assert_eq!(whole.tokens, umlaut);
        refused(reader.read("r", &[5], &given(json!(["\u{fffd}", "\u{fffd}"]))), "no token ids");
    }

    #[test]
    fn a_list_that_lacks_tokens_of_the_usage_is_refused() {
        let language = language();
        let end = language.stop_tokens()[0];
        let words = language.encode("12 + 3").unwrap();
        let reader = Reader::new(&language, ServerApi::LlamaCpp, language.stop_tokens(), 50);
        let read = |tokens: &[u32], text: &str, finish: &str, counted: usize| {
            let content: Vec<Value> =
                tokens.iter().map(|t| json!({"id": t, "token": "x", "logprob": -1.0})).collect();
            let choice = json!({"text": text, "logprobs": {"content": content}, "finish_reason": finish});
            reader.read("r", &[5], &json!({"choices": [choice], "usage": {"completion_tokens": counted}}))
        };
        let n = words.len();
        let whole = [&words[..], &[end]].concat();
        for good in [
            read(&words, "12 + 3", "length", n),
            read(&whole, "12 + 3", "stop", n + 1),
            read(&whole, "12 + 3", "stop", n),
            // The end token is counted but not listed, and the text matches the tokens.
            read(&words, "12 + 3", "stop", n + 1),
        ] {
            assert!(good.is_ok(), "{good:?}");
        }
        for bad in [
            read(&words, "12 + 3", "length", n + 2),
            read(&words, "12 + 3", "length", n + 1),
            read(&words, "12 + 3 ä", "stop", n + 1),
            read(&whole, "12 + 3", "stop", n + 2),
            read(&words, "12 + 3", "length", n - 1),
        ] {
            refused(bad, "usage counts");
        }
    }

    #[test]
    fn answers_that_cannot_be_trained_on_are_refused_with_what_is_wrong() {
        let language = language();
        let reader = Reader::new(&language, ServerApi::Vllm, language.stop_tokens(), 50);
        let given = |ids: Value, logp: Value| json!({"token_ids": ids, "logprobs": {"token_logprobs": logp}, "finish_reason": "stop"});
        for (given, says) in [
            (json!({"text": "7", "finish_reason": "stop"}), "must return log-probabilities"),
            (given(json!([5]), json!([null])), "null isn't a log-probability"),
            (given(json!([5]), json!([0.7])), "0.7 isn't a log-probability"),
            (given(json!([5, 6]), json!([-1.0])), "2 token ids"),
            (given(json!([999_999]), json!([-1.0])), "token 999999"),
            (json!({"prompt_token_ids": [1, 5], "finish_reason": "stop"}), "a prompt of 2 tokens"),
        ] {
            refused(reader.read("r", &[5], &choice(given)), says);
        }
        for given in [json!({"choices": []}), choice(json!({"finish_reason": "abort"}))] {
            assert!(matches!(reader.read("r", &[5], &given), Err(Unusable::Transient(_))), "{given}");
        }
    }
}
