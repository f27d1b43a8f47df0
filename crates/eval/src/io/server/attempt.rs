//! Sends a request once and reads the answer.

use super::Server;
use crate::io::harmless::shortened;
use crate::io::json;
use chrono::DateTime;
use serde_json::Value;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Smallest size limit of an answer, in bytes.
const LEAST_BODY: u64 = 1 << 20;
/// Maximum bytes per generated token, without log-probabilities and with them.
const TOKEN_BYTES: u64 = 512;
const SCORED_TOKEN_BYTES: u64 = 2048;
/// Maximum bytes per embedded text, enough for 16,384 numbers.
const EMBEDDING_BYTES: u64 = 16_384 * 32;
/// Maximum number of tokens in an answer if the request doesn't limit them.
const TOKENS: u64 = 32_768;
/// Maximum number of characters of an answer that a message quotes.
const QUOTED: usize = 300;
/// Reason why an attempt failed.
pub(super) enum Unanswered {
    /// The server rejected the request with this status and message, and would reject it again.
    Refused(u16, String),
    /// The server wasn't reached, or the connection was lost.
    Lost(String),
    /// The answer reports an error or is unreadable. The server may have requested a wait.
    Fault(String, Option<Duration>),
}

impl Server {
    /// Sends a request once.
    pub(super) fn attempt(
        &self,
        url: &str,
        body: Option<&Value>,
        timeout: Duration,
    ) -> Result<Value, Unanswered> {
        let fault = |message: String| Err(Unanswered::Fault(message, None));
        let sent = match body {
            Some(body) => {
                let request = self.agent.post(url).header("content-type", "application/json");
                self.authorised(request).send(body.to_string())
            }
            None => {
                let request = self.authorised(self.agent.get(url));
                request.config().timeout_global(Some(timeout)).build().call()
            }
        };
        let mut response = match sent {
            Ok(response) => response,
            Err(ureq::Error::BadUri(message)) => return Err(Unanswered::Refused(0, message)),
            Err(error) => return Err(Unanswered::Lost(error.to_string())),
        };
        let status = response.status().as_u16();
        if (300..400).contains(&status) {
            let location =
                response.headers().get("location").and_then(|v| v.to_str().ok()).unwrap_or("nowhere");
            let message = format!(
                "a redirect to {}, which isn't followed, since another address would receive the prompts and the key; give the server's address itself",
                shortened(location, QUOTED)
            );
            return Err(Unanswered::Refused(status, message));
        }
        let header = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok());
        let wait = header("retry-after").and_then(|after| retry_after(after, header("date")));
        let longest = longest_answer(body.unwrap_or(&Value::Null));
        let text = match response.body_mut().with_config().limit(longest).read_to_string() {
            Ok(text) => text,
            Err(ureq::Error::BodyExceedsLimit(_)) => {
                return fault(format!(
                    "the answer has more than {longest} bytes, more than the request can produce"
                ));
            }
            Err(error) => return fault(format!("status {status}, then {error}")),
        };
        if !(200..300).contains(&status) {
            let message = message_of(&self.without_key(&text));
            return Err(if matches!(status, 408 | 409 | 425 | 429) || status >= 500 {
                Unanswered::Fault(format!("status {status}: {message}"), wait)
            } else {
                Unanswered::Refused(status, message)
            });
        }
        match serde_json::from_slice::<Value>(&json::of_others(text.as_bytes())) {
            Ok(answer) if answer.get("error").is_some_and(|e| !e.is_null()) => {
                let message = message_of(&self.without_key(&text));
                fault(format!("a successful answer reports an error: {message}"))
            }
            Ok(answer) => Ok(answer),
            Err(error) => {
                let text = self.without_key(&text);
                fault(format!("the answer isn't JSON ({error}): {}", shortened(&text, QUOTED)))
            }
        }
    }

    /// Adds the key as a bearer token. A key with its own scheme, `Basic ...`, is sent unchanged.
    fn authorised<T>(&self, request: ureq::RequestBuilder<T>) -> ureq::RequestBuilder<T> {
        match &self.key {
            Some(key) if key.starts_with("Basic ") => request.header("authorization", key),
            Some(key) => request.header("authorization", format!("Bearer {key}")),
            None => request,
        }
    }
}

/// Returns the wait requested by a `Retry-After` header, at most an hour. The header is a number of seconds, or a date,
/// which is compared with the answer's `Date` header.
fn retry_after(after: &str, answered: Option<&str>) -> Option<Duration> {
    let date =
        |text: &str| DateTime::parse_from_rfc2822(text.trim()).ok().map(|date| date.timestamp() as f64);
    let seconds = after.trim().parse::<f64>().ok().or_else(|| {
        let now = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |now| now.as_secs_f64());
        Some((date(after)? - answered.and_then(date).unwrap_or_else(now)).max(0.0))
    });
    seconds.filter(|s| s.is_finite() && *s >= 0.0).map(|s| Duration::from_secs_f64(s.min(3600.0)))
}

/// Returns the maximum size of an answer to `body` in bytes: a bound per token, with or without log-probabilities, or
/// per embedding, plus the prompt, which some servers repeat.
fn longest_answer(body: &Value) -> u64 {
    let count = |name: &str| body[name].as_u64();
    let samples = count("n").unwrap_or(1).max(1);
    let tokens = count("max_tokens").or_else(|| count("max_completion_tokens")).unwrap_or(TOKENS);
    let scored = !matches!(body["logprobs"], Value::Null | Value::Bool(false));
    let token_bytes = if scored { SCORED_TOKEN_BYTES } else { TOKEN_BYTES };
    let inputs = match &body["input"] {
        Value::Null => 0,
        Value::Array(list) => list.len() as u64,
        _ => 1,
    };
    let content = if inputs > 0 {
        inputs.saturating_mul(EMBEDDING_BYTES)
    } else {
        samples.saturating_mul(tokens).saturating_mul(token_bytes)
    };
    let prompt = [&body["prompt"], &body["messages"]];
    let prompt: u64 = prompt.iter().filter(|p| !p.is_null()).map(|p| p.to_string().len() as u64).sum();
    LEAST_BODY.saturating_add(content).saturating_add(samples.saturating_mul(prompt).saturating_mul(2))
}

/// Finds the error message in a server's answer. Servers use different fields for it.
fn message_of(text: &str) -> String {
    let value: Value = serde_json::from_slice(&json::of_others(text.as_bytes())).unwrap_or(Value::Null);
    let candidates = [&value["error"]["message"], &value["error"], &value["message"], &value["detail"]];
    let message = candidates.into_iter().find_map(Value::as_str).map(str::to_owned);
    shortened(&message.unwrap_or_else(|| text.trim().to_owned()), QUOTED)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_wait_is_a_number_of_seconds_or_a_date() {
        let seconds =
            |after: &str, date: Option<&str>| retry_after(after, date).map(|wait| wait.as_secs_f64());
        let noon = Some("Wed, 21 Oct 2015 12:00:00 GMT");
        for (after, wanted) in [
            ("0", Some(0.0)),
            (" 2.5 ", Some(2.5)),
            ("Wed, 21 Oct 2015 12:00:07 GMT", Some(7.0)),
            ("Wed, 21 Oct 2015 11:59:00 GMT", Some(0.0)),
            ("Thu, 22 Oct 2015 12:00:00 GMT", Some(3600.0)),
            ("100000", Some(3600.0)),
            ("-1", None),
            ("soon", None),
            ("inf", None),
        ] {
            assert_eq!(seconds(after, noon), wanted, "{after}");
        }
        assert_eq!(
            seconds("Wed, 21 Oct 2015 12:00:07 GMT", None),
            Some(0.0),
            "long ago by this machine's clock"
        );
    }

    #[test]
    fn an_answer_is_read_as_far_as_the_request_explains() {
        let asked = |body: Value| longest_answer(&body);
        let small = asked(json!({"prompt": [1, 2], "max_tokens": 10, "n": 1, "logprobs": 1}));
        assert!(small < 2 << 20, "{small}");
        let text = asked(json!({"messages": [], "max_tokens": 8192, "n": 8}));
        assert!((16 << 20..64 << 20).contains(&text), "{text}");
        let scored = asked(json!({"messages": [], "max_tokens": 8192, "n": 8, "logprobs": 1}));
        assert!(scored > 2 * text);
        assert_eq!(asked(json!({"n": u64::MAX, "max_tokens": u64::MAX})), u64::MAX);
    }
}
