//! OpenAI's endpoints: `/v1/models`, `/v1/completions` and `/v1/chat/completions`, with the fields that vLLM adds for
//! token ids.
//!
//! Such requests aren't in the journal: the client waits on the connection and repeats the request if the connection
//! breaks. An unsupported field is rejected with an error that names it. If `logprobs` is above 1 or a chat requests top
//! log-probabilities, the network runs again over each completion.

use crate::catalogue::Source;
use crate::chat::{self, Tools};
use crate::fields::{Fields, Refusal, check, empty};
use crate::ledger::Rejection;
use crate::metrics::Count;
use crate::request::{Sample, Stop, check_sampling};
use crate::sampled::{Sampled, Sequence, TopK};
use crate::server::{Handled, Server, Shared, error, read_body, refusal, reply, unknown};
use crate::storage::{self, Kind};
use axum::Router;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use fgrpo_nn::Finish;
use fgrpo_train::language::Language;
use fgrpo_train::language::stop::StopTexts;
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::convert::Infallible;

/// Default maximum length of a completion in tokens.
const COMPLETION_TOKENS: usize = 16;
/// Values at which fields don't have an effect, with the fields that are accepted only with this value.
const NEUTRAL: [(f64, &[&str]); 3] = [
    (
        0.0,
        &[
            "presence_penalty",
            "frequency_penalty",
            "dry_multiplier",
            "xtc_probability",
            "dynatemp_range",
            "mirostat",
            "min_tokens",
        ],
    ),
    (1.0, &["repetition_penalty", "repeat_penalty", "typical_p", "best_of"]),
    (-1.0, &["top_n_sigma"]),
];
/// Fields that don't have an effect if they are true.
const ON: [&str; 4] = ["add_generation_prompt", "parallel_tool_calls", "include_reasoning", "detokenize"];
/// Fields that don't affect the completion.
const IGNORED: [&str; 7] =
    ["user", "metadata", "store", "n_probs", "cache_prompt", "no_stop_trim", "spaces_between_special_tokens"];

pub(crate) fn routes() -> Router<Shared> {
    Router::new()
        .route("/v1/models", get(models))
        .route("/v1/models/{*id}", get(model))
        .route("/v1/completions", post(completions))
        .route("/v1/chat/completions", post(chat))
}

async fn models(State(server): State<Shared>) -> Response {
    reply(json!({"object": "list", "data": listed(&server)}))
}

async fn model(State(server): State<Shared>, Path(id): Path<String>) -> Response {
    let found = listed(&server).into_iter().find(|model| model["id"] == id.as_str());
    found.map_or_else(|| unknown("model", &id, "a model of this server"), reply)
}

fn listed(server: &Server) -> Vec<Value> {
    let served = server.ledger.served();
    let model = |id: &str| json!({"id": id, "object": "model", "created": 0, "owned_by": "fgrpo", "max_model_len": served.bounds.positions});
    let saved = storage::all_saved(&served.folder);
    let saved = saved.iter().filter(|(_, kind, _)| *kind == Kind::Sampler).map(|(path, ..)| model(path));
    std::iter::once(model(&served.name)).chain(saved).collect()
}

/// Returns an error if a remaining field has an effect.
fn end(mut fields: Fields) -> Result<(), String> {
    let all = NEUTRAL.iter().flat_map(|(neutral, names)| names.iter().map(move |name| (*name, *neutral)));
    for (name, neutral) in all {
        if let Some(value) = fields.rest.remove(name).filter(|value| !value.is_null()) {
            let expected = format!("{neutral} (other values aren't supported)");
            check(value.as_f64() == Some(neutral), name, value, expected)?;
        }
    }
    let has_no_effect = |name: &str, value: &Value| match name {
        "response_format" => *value == json!({"type": "text"}),
        _ if ON.contains(&name) => *value == true,
        _ => IGNORED.contains(&name) || empty(value),
    };
    fields.rest.retain(|name, value| !(value.is_null() || has_no_effect(name, value)));
    match fields.rest.iter().next() {
        Some((name, value)) => Err(format!("{name}: {value} isn't supported")),
        None => Ok(()),
    }
}

/// A request to either endpoint for completions.
struct Ask {
    model: String,
    samples: Vec<Sample>,
    stream: bool,
    /// Whether a stream ends with the token counts.
    usage: bool,
    /// Whether end tokens are treated as ordinary tokens.
    ignore_eos: bool,
    /// Whether the completion is hidden, because only the prompt's log-probabilities are requested.
    hidden: bool,
    /// Whether log-probabilities are requested, and for how many of the most likely tokens.
    logprobs: Option<usize>,
    /// Text of each prompt, if a completion begins with it.
    echo: Option<Vec<String>>,
    token_ids: bool,
    named_ids: bool,
    special: bool,
    /// The tools that a chat offers.
    tools: Option<Tools>,
}

/// Reads the fields that both endpoints have. `default_length` is the default maximum length of a completion.
fn common(
    server: &Server,
    fields: &mut Fields,
    prompts: Vec<Vec<u32>>,
    default_length: Option<usize>,
    logprobs: Option<usize>,
    echo: Option<Vec<String>>,
) -> Result<Ask, Refusal> {
    let served = server.ledger.served();
    let model: String = fields.take("model")?.unwrap_or_else(|| served.name.clone());
    let source = if model == served.name {
        Source::Base
    } else if storage::saved(&served.folder, &model).is_some() {
        Source::Saved(model.clone())
    } else {
        let source = server.ledger.with(|registry| registry.sampler(&model).map(|(source, _)| source));
        source.map_err(|_| {
            let kind = format!("{:?} or the path of saved weights, tinker://...", served.name);
            Refusal::unknown("model", &model, &kind)
        })?
    };
    let texts: Vec<String> = match fields.take::<Value>("stop")? {
        None => Vec::new(),
        Some(Value::String(text)) => vec![text],
        Some(list) => serde_json::from_value(list.clone())
            .map_err(|_| format!("stop: expected a string or a list of strings, found {list}"))?,
    };
    let ignore_eos: bool = fields.or("ignore_eos", false)?;
    let mut tokens = ignore_eos.then(Vec::new);
    for id in fields.or("stop_token_ids", Vec::new())? {
        let token = served.bounds.token(id).map_err(|why| format!("stop_token_ids: {why}"))?;
        tokens.get_or_insert_with(|| server.language.stop_tokens().to_vec()).push(token);
    }
    let stop = Stop { tokens, texts };
    let temperature: f32 = fields.or("temperature", 1.0)?;
    let top_k: i64 = fields.or("top_k", -1)?;
    check(top_k >= -1, "top_k", top_k, "at least 1, or -1 or 0 for no limit")?;
    let requested: Option<i64> = fields.take("max_tokens")?;
    let max_tokens = match requested {
        None => default_length,
        // With `echo`, 0 is allowed: one token is sampled and hidden.
        Some(0) if echo.is_some() => Some(1),
        Some(n) => {
            Some(usize::try_from(n).map_err(|_| format!("max_tokens: expected at least 1, found {n}"))?)
        }
    };
    let count: usize = fields.or("n", 1)?;
    let seed: Option<i64> = fields.take("seed")?;
    let (top_p, min_p) = (fields.or("top_p", 1.0)?, fields.or("min_p", 0.0)?);
    let topk = logprobs.filter(|&k| k > 1).unwrap_or(0);
    let make = |(index, prompt): (usize, Vec<u32>)| {
        let scored = if echo.is_some() && logprobs.is_some() { prompt.len().saturating_sub(1) } else { 0 };
        let sample = Sample {
            sampler: source.clone(),
            samples: count,
            max_tokens,
            // Choice `c` of the answer has seed `seed + c`, as vLLM's choices of one prompt have.
            seed: seed.map(|seed| (seed as u64).wrapping_add((index * count) as u64)),
            place: None,
            stop: stop.clone(),
            temperature,
            top_k: usize::try_from(top_k).unwrap_or(0),
            top_p,
            min_p,
            prompt_logprobs: (scored > 0).then_some(scored),
            topk_prompt: if scored > 0 { logprobs.unwrap_or(0) } else { 0 },
            topk_sample: topk,
            targets: None,
            prompt,
        };
        check_sampling(&sample, served.bounds, "n")?;
        Ok(sample)
    };
    let ask = Ask {
        model,
        samples: prompts.into_iter().enumerate().map(make).collect::<Result<_, String>>()?,
        stream: fields.or("stream", false)?,
        usage: usage(fields)?,
        ignore_eos,
        hidden: requested == Some(0),
        logprobs,
        echo,
        token_ids: fields.or("return_token_ids", false)?,
        named_ids: fields.or("return_tokens_as_token_ids", false)?,
        special: !fields.or("skip_special_tokens", true)?,
        tools: None,
    };
    let whole = ask.logprobs.is_some() || ask.echo.is_some() || ask.token_ids;
    if ask.stream && (ask.samples.len() > 1 || count > 1 || whole) {
        return Err("stream can't be combined with several completions, logprobs, echo or return_token_ids"
            .to_owned()
            .into());
    }
    Ok(ask)
}

/// Returns whether the client requests token counts at the end of a stream.
fn usage(fields: &mut Fields) -> Result<bool, String> {
    let mut options = fields.inner("stream_options.")?;
    let usage = options.or("include_usage", false)?;
    options.rest.retain(|_, value| !empty(value));
    options.end()?;
    Ok(usage)
}

/// Reads the prompts of a completion, a string, token ids, or a list of either. Returns each as token ids and as text.
fn prompts(server: &Server, prompt: &Value, special: bool) -> Result<Vec<(Vec<u32>, String)>, Refusal> {
    let language = &server.language;
    let text = |text: &str| {
        let ids = if special { language.plain(text) } else { language.encode(text) };
        Ok((ids.map_err(|why| format!("prompt: {why:#}"))?, text.to_owned()))
    };
    let tokens = |list: &[Value]| -> Result<(Vec<u32>, String), String> {
        let token = |id: &Value| {
            let id = id.as_i64().ok_or_else(|| format!("prompt: expected a token id, found {id}"))?;
            server.ledger.served().bounds.token(id).map_err(|why| format!("prompt: {why}"))
        };
        let ids: Vec<u32> = list.iter().map(token).collect::<Result<_, _>>()?;
        let text = language.text(&ids);
        Ok((ids, text))
    };
    Ok(match prompt {
        Value::String(one) => vec![text(one)?],
        Value::Array(list) if list.first().is_some_and(Value::is_number) => vec![tokens(list)?],
        Value::Array(list) if !list.is_empty() => list
            .iter()
            .map(|item| match item {
                Value::String(one) => text(one),
                Value::Array(ids) => tokens(ids),
                other => Err(format!("prompt: expected a string or token ids, found {other}")),
            })
            .collect::<Result<_, String>>()?,
        other => {
            return Err(
                format!("prompt: expected a string, token ids or a list of these, found {other}").into()
            );
        }
    })
}

/// Creates the body of an error answer in OpenAI's form.
pub(crate) fn refused(status: StatusCode, message: &str) -> Body {
    let kind = if status.is_client_error() { "invalid_request_error" } else { "server_error" };
    let error = json!({"message": message, "type": kind, "code": status.as_u16()});
    json!({"error": error}).to_string().into()
}

/// Reads a request's fields with `read`, rejects unknown fields, and answers.
async fn answered(
    server: Shared,
    headers: HeaderMap,
    body: Body,
    read: fn(&Server, &mut Fields) -> Result<Ask, Refusal>,
    chat: bool,
) -> Handled {
    let body = read_body(&server, &headers, body).await?;
    let all = || {
        let mut fields = Fields::read(&body)?;
        let ask = read(&server, &mut fields)?;
        end(fields)?;
        Ok(ask)
    };
    let ask = all().map_err(refusal)?;
    Ok(respond(server, ask, chat).await)
}

async fn completions(State(server): State<Shared>, headers: HeaderMap, body: Body) -> Handled {
    answered(server, headers, body, completion, false).await
}

async fn chat(State(server): State<Shared>, headers: HeaderMap, body: Body) -> Handled {
    answered(server, headers, body, conversation, true).await
}

fn completion(server: &Server, fields: &mut Fields) -> Result<Ask, Refusal> {
    let special: bool = fields.or("add_special_tokens", true)?;
    let prompt: Value = fields.or("prompt", Value::Null)?;
    let (prompts, texts): (Vec<_>, Vec<_>) = prompts(server, &prompt, special)?.into_iter().unzip();
    let (count, limit) = (prompts.len(), server.ledger.served().most_waiting);
    check(
        count <= limit,
        "prompt",
        count,
        format!("at most {limit} prompts, the limit of waiting requests"),
    )?;
    let logprobs: Option<usize> = fields.take("logprobs")?;
    let echo = fields.or("echo", false)?.then_some(texts);
    common(server, fields, prompts, Some(COMPLETION_TOKENS), logprobs, echo)
}

fn conversation(server: &Server, fields: &mut Fields) -> Result<Ask, Refusal> {
    let (prompt, tools) = chat::read(&server.language, fields)?;
    if let Some(limit) = fields.take::<Value>("max_completion_tokens")? {
        fields.rest.insert("max_tokens".into(), limit);
    }
    let scored: bool = fields.or("logprobs", false)?;
    let top: usize = fields.or("top_logprobs", 0)?;
    if !scored && top > 0 {
        return Err("top_logprobs requires logprobs: true".to_owned().into());
    }
    // A list of one token needs the extra pass too, and only lists of at least 2 request it.
    let logprobs = scored.then_some(if top > 0 { top.max(2) } else { 0 });
    let mut ask = common(server, fields, vec![prompt], None, logprobs, None)?;
    ask.logprobs = scored.then_some(top);
    ask.tools = tools;
    Ok(ask)
}

/// Returns the fields that all answers have.
fn head(server: &Server, ask: &Ask, chat: bool, object: &str) -> Map<String, Value> {
    let created = storage::now();
    let prefix = if chat { "chatcmpl" } else { "cmpl" };
    let id = format!("{prefix}-{}-{}", created, server.metrics.get(Count::Requests));
    let Value::Object(head) = json!({"id": id, "object": object, "created": created, "model": ask.model})
    else {
        unreachable!("an object")
    };
    head
}

async fn respond(server: Shared, ask: Ask, chat: bool) -> Response {
    if ask.stream {
        return stream(server, ask, chat);
    }
    let waiting: Result<Vec<_>, Rejection> =
        ask.samples.iter().map(|sample| server.ledger.ask(sample.clone(), None)).collect();
    let waiting = match waiting {
        Ok(waiting) => waiting,
        Err(rejection) => return rejection.into_response(),
    };
    let mut choices = Vec::new();
    let (mut prompt_tokens, mut completion_tokens) = (0, 0);
    for (prompt, answer) in waiting.into_iter().enumerate() {
        let answer = match answer.await {
            Ok(Ok(answer)) => answer,
            Ok(Err(why)) => return error(StatusCode::INTERNAL_SERVER_ERROR, &why),
            Err(_) => return Rejection::Stopped.into_response(),
        };
        prompt_tokens += ask.samples[prompt].prompt.len();
        for sequence in 0..answer.sequences.len() {
            let result = choice(&server, &ask, prompt, &answer, sequence, choices.len(), chat);
            let (choice, tokens) = match result {
                Ok(choice) => choice,
                Err(why) => return error(StatusCode::INTERNAL_SERVER_ERROR, &why),
            };
            completion_tokens += tokens;
            choices.push(choice);
        }
    }
    let mut body = head(&server, &ask, chat, if chat { "chat.completion" } else { "text_completion" });
    body.insert("choices".into(), choices.into());
    if chat && ask.token_ids {
        body.insert("prompt_token_ids".into(), json!(ask.samples[0].prompt));
    }
    body.insert("usage".into(), tokens_used(prompt_tokens, completion_tokens));
    reply(Value::Object(body))
}

fn tokens_used(prompt: usize, completion: usize) -> Value {
    json!({"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion})
}

/// Decodes a completion's tokens up to the first stop string.
fn text_of(language: &Language, tokens: &[u32], ask: &Ask) -> Result<String, String> {
    let text = if ask.special || ask.ignore_eos {
        language.decoded(tokens, ask.special)
    } else {
        language.answer(tokens)
    };
    cut(text, ask)
}

/// Cuts a decoded completion at the first stop string.
fn cut(text: anyhow::Result<String>, ask: &Ask) -> Result<String, String> {
    let cut =
        |text: String| Ok(StopTexts::new("stop", ask.samples[0].stop.texts.clone())?.cut(&text).to_owned());
    text.and_then(cut).map_err(|why| format!("{why:#}"))
}

/// Returns the message of a chat's answer and the reason why it ended, which is `finish` unless the answer calls tools.
fn message<'a>(
    server: &Server,
    ask: &Ask,
    tokens: &[u32],
    finish: &'a str,
) -> Result<(Value, &'a str), String> {
    let language = &server.language;
    if let Some(tools) = &ask.tools {
        let length = tokens.len()
            - usize::from(tokens.last().is_some_and(|token| language.stop_tokens().contains(token)));
        let text = cut(language.decoded(&tokens[..length], true), ask)?;
        let request = server.metrics.get(Count::Requests) as u64;
        if let Some(message) = tools.message(language, text, request)? {
            return Ok((message, "tool_calls"));
        }
    }
    Ok((json!({"role": "assistant", "content": text_of(language, tokens, ask)?}), finish))
}

fn reason(sequence: &Sequence) -> &'static str {
    match sequence.finish {
        Finish::Stop => "stop",
        Finish::Length => "length",
    }
}

/// Returns the `count` most likely tokens at a position, or `None` if they weren't requested.
fn row(topk: &Option<TopK>, at: usize, count: usize) -> Option<&[(u32, f32)]> {
    let row = topk.as_ref()?.rows.get(at).filter(|row| !row.is_empty())?;
    Some(&row[..count.min(row.len())])
}

/// Token, its log-probability, and the most likely tokens in its position.
type Scored<'a> = (u32, Option<f32>, Option<&'a [(u32, f32)]>);

/// Formats one completion. Returns it with its number of tokens.
fn choice(
    server: &Server,
    ask: &Ask,
    prompt: usize,
    answer: &Sampled,
    sequence: usize,
    index: usize,
    chat: bool,
) -> Result<(Value, usize), String> {
    let language = &server.language;
    let (sample, sequence) = (&ask.samples[prompt], &answer.sequences[sequence]);
    let (tokens, logp, finish): (&[u32], &[f32], &str) =
        if ask.hidden { (&[], &[], "length") } else { (&sequence.tokens, &sequence.logp, reason(sequence)) };
    let name = |token: u32| if ask.named_ids { format!("token_id:{token}") } else { language.text(&[token]) };
    let count = ask.logprobs.unwrap_or(0);
    let mut choice = if chat {
        let content = ask.logprobs.map(|_| {
            let entry = |token: u32, logp: f32| json!({"token": name(token), "logprob": logp, "bytes": language.token_bytes(token)});
            let entries = tokens.iter().zip(logp).enumerate().map(|(at, (&token, &logp))| {
                let mut scored = entry(token, logp);
                let top = row(&sequence.topk, at, count).unwrap_or_default();
                scored["top_logprobs"] = top.iter().map(|&(t, l)| entry(t, l)).collect();
                scored["id"] = json!(token);
                scored
            });
            json!({"content": entries.collect::<Vec<_>>()})
        });
        let (message, finish) = message(server, ask, tokens, finish)?;
        json!({"index": index, "message": message, "finish_reason": finish, "logprobs": content})
    } else {
        let mut whole = text_of(language, tokens, ask)?;
        let mut scored: Vec<Scored<'_>> = Vec::new();
        if let Some(texts) = &ask.echo {
            let logp = answer.prompt.tokens.as_deref().unwrap_or_default();
            let logp = |at: usize| logp.get(at).copied().filter(|l| l.is_finite());
            let tokens = sample.prompt.iter().enumerate();
            scored.extend(tokens.map(|(at, &token)| (token, logp(at), row(&answer.prompt_topk, at, count))));
            whole = texts[prompt].clone() + &whole;
        }
        let drawn = tokens.iter().zip(logp).enumerate();
        scored.extend(drawn.map(|(at, (&token, &logp))| (token, Some(logp), row(&sequence.topk, at, count))));
        let logprobs = ask.logprobs.map(|_| {
            let offsets = scored.iter().scan(0, |end, &(token, ..)| {
                let start = *end;
                *end += language.text(&[token]).chars().count();
                Some(start)
            });
            let list = |&(token, logp, row): &Scored<'_>| {
                // Several tokens may have the same text. The most likely one comes first and is stored. The token itself
                // is in the list too, even if it is unlikely.
                let mut by_name: HashMap<String, f32> = HashMap::new();
                for (token, logp) in row?.iter().copied().chain(logp.map(|logp| (token, logp))) {
                    by_name.entry(name(token)).or_insert(logp);
                }
                Some(json!(by_name))
            };
            let top: Vec<Option<Value>> = scored.iter().map(list).collect();
            json!({
                "tokens": scored.iter().map(|&(token, ..)| name(token)).collect::<Vec<_>>(),
                "token_logprobs": scored.iter().map(|&(_, logp, _)| logp).collect::<Vec<_>>(),
                "top_logprobs": top.iter().any(Option::is_some).then_some(top),
                "text_offset": offsets.collect::<Vec<usize>>(),
            })
        });
        json!({"index": index, "text": whole, "finish_reason": finish, "logprobs": logprobs})
    };
    if ask.token_ids {
        choice["token_ids"] = json!(tokens);
        choice["prompt_token_ids"] = json!(sample.prompt);
    }
    Ok((choice, tokens.len()))
}

/// Streams a completion. Pieces are sent as they are sampled if the request is alone in its batch, and otherwise when
/// the completion is finished.
fn stream(server: Shared, ask: Ask, chat: bool) -> Response {
    let (pieces, mut arriving) = tokio::sync::mpsc::unbounded_channel();
    let sample = ask.samples[0].clone();
    let mut answer = match server.ledger.ask(sample, Some(pieces)) {
        Ok(answer) => answer,
        Err(rejection) => return rejection.into_response(),
    };
    let (lines, mut body) = tokio::sync::mpsc::channel::<Result<Vec<u8>, Infallible>>(64);
    tokio::spawn(async move {
        let head = head(&server, &ask, chat, if chat { "chat.completion.chunk" } else { "text_completion" });
        let event =
            |value: Value| -> Result<Vec<u8>, Infallible> { Ok(format!("data: {value}\n\n").into_bytes()) };
        let chunk = |text: &str, first: bool, finish: Option<&str>| {
            let mut body = head.clone();
            let choice = if chat {
                let mut delta = json!({"content": text});
                if first {
                    delta["role"] = json!("assistant");
                }
                json!({"index": 0, "delta": delta, "finish_reason": finish})
            } else {
                json!({"index": 0, "text": text, "finish_reason": finish})
            };
            body.insert("choices".into(), json!([choice]));
            Value::Object(body)
        };
        let longest_stop = ask.samples[0].stop.texts.iter().map(String::len).max().unwrap_or(0);
        let (mut tokens, mut sent, mut first): (Vec<u32>, String, bool) = (Vec::new(), String::new(), true);
        let outcome = loop {
            tokio::select! {
                // Tokens that have arrived are sent before the end.
                biased;
                () = lines.closed() => return,
                Some((length, token)) = arriving.recv() => {
                    // The engine may sample a completion again from its start if memory is short.
                    tokens.truncate(length - 1);
                    if tokens.len() + 1 != length {
                        continue;
                    }
                    tokens.push(token);
                    // A call is sent whole, so an answer that may have one is sent when it is finished.
                    if ask.tools.is_some() {
                        continue;
                    }
                    let settled = &tokens[..server.language.settled(&tokens)];
                    // The last event reports the error.
                    let Ok(text) = text_of(&server.language, settled, &ask) else { continue };
                    let mut end = text.len().saturating_sub(longest_stop);
                    while !text.is_char_boundary(end) {
                        end -= 1;
                    }
                    // The text may end within a character.
                    let text = text[..end].trim_end_matches('\u{fffd}');
                    if let Some(piece) = text.strip_prefix(sent.as_str()).filter(|piece| !piece.is_empty()) {
                        if lines.send(event(chunk(piece, std::mem::take(&mut first), None))).await.is_err() {
                            return;
                        }
                        sent = text.to_owned();
                    }
                }
                outcome = &mut answer => break outcome,
            }
        };
        let mut tokens = None;
        let last = match outcome {
            Ok(Ok(response)) => {
                let sequence = &response.sequences[0];
                tokens = Some(sequence.tokens.len());
                let (tokens, finish) = (&sequence.tokens, reason(sequence));
                let last = if ask.tools.is_some() {
                    message(&server, &ask, tokens, finish).map(|(message, finish)| {
                        let mut last = chunk("", true, Some(finish));
                        last["choices"][0]["delta"] = message;
                        last
                    })
                } else {
                    text_of(&server.language, tokens, &ask).map(|text| match text.strip_prefix(sent.as_str()) {
                        Some(piece) => chunk(piece, first, Some(finish)),
                        None => {
                            json!({"error": {"message": "the tokenizer changed text that was already sent; repeat the request without stream"}})
                        }
                    })
                };
                last.unwrap_or_else(|why| json!({"error": {"message": why}}))
            }
            Ok(Err(why)) => json!({"error": {"message": why}}),
            Err(_) => json!({"error": {"message": "the server is stopping"}}),
        };
        let _ = lines.send(event(last)).await;
        if let Some(tokens) = tokens.filter(|_| ask.usage) {
            let mut last = head;
            last.insert("choices".into(), json!([]));
            last.insert("usage".into(), tokens_used(ask.samples[0].prompt.len(), tokens));
            let _ = lines.send(event(Value::Object(last))).await;
        }
        let _ = lines.send(Ok(b"data: [DONE]\n\n".to_vec())).await;
    });
    let body = Body::from_stream(futures_util::stream::poll_fn(move |context| body.poll_recv(context)));
    ([(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-cache")], body).into_response()
}
