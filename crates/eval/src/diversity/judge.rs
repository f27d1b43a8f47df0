//! A judge's rubric on mathematical strategy: the request, its sampling settings and the score in the reply.

use crate::from_server::End;
use crate::io::server::sampling::RequestSampling;
use crate::io::server::sampling::ServerApi;
use crate::texts::Correct;
use serde_json::{Map, Value, json};

/// Number of correct responses that a judge compares at a time.
pub(super) const GROUP: usize = 8;

/// Returns the sampling settings of a judge: greedy, without truncation or penalties. The server chooses the maximum
/// length, since a judge may reason first. A reply that was cut off isn't used.
pub(super) fn sampling(api: Option<ServerApi>) -> Map<String, Value> {
    let greedy = RequestSampling { temperature: 0.0, top_p: 1.0, top_k: 0, min_p: 0.0, max_tokens: 0 };
    let mut fields = greedy.fields(api);
    fields.remove("max_tokens");
    fields
}

const RUBRIC: &str = "You are given a problem and eight correct solutions of it. Compare the solutions and rate how diverse their mathematical strategies are. \
Wording, order, notation and length don't count, only the mathematics.\n\
0: all follow the same line of reasoning, rephrased.\n\
1: the same approach with small differences in the steps.\n\
2: clearly different derivations among them.\n\
3: fundamentally different mathematical approaches among them.\n\
Answer with one line: Score: 0, Score: 1, Score: 2 or Score: 3.";

pub(super) fn request(
    model: &str,
    sampling: &Map<String, Value>,
    problem: &str,
    group: &[&Correct],
) -> Value {
    let mut text = format!("### Problem\n{}\n\n", problem.trim());
    for (i, c) in group.iter().enumerate() {
        text.push_str(&format!("### Solution {}\n{}\n\n", i + 1, c.text.trim()));
    }
    let mut body = sampling.clone();
    body.insert("model".to_owned(), model.into());
    let messages = json!([{"role": "system", "content": RUBRIC}, {"role": "user", "content": text}]);
    body.insert("messages".to_owned(), messages);
    body.into()
}

/// Reads the score in a judge's answer. Returns `None` if the reply wasn't finished or lacks a score.
pub(super) fn judged(answer: &Value) -> Option<Value> {
    let choice = &answer["choices"][0];
    if End::of(choice) != Ok(End::Stop) {
        return None;
    }
    read_score(choice["message"]["content"].as_str()?).map(Value::from)
}

/// Reads the score in a judge's reply: the digit after the last "Score:", or the digit of which the reply consists.
fn read_score(reply: &str) -> Option<u64> {
    let (has_label, tail) = reply.rsplit_once("Score:").map_or((false, reply), |(_, tail)| (true, tail));
    let tail = tail.trim_start_matches(|c: char| c.is_whitespace() || "*_`$([".contains(c));
    let end = tail.find(|c: char| !c.is_ascii_digit()).unwrap_or(tail.len());
    let (digits, rest) = tail.split_at(end);
    let followed = if has_label {
        // Rejects the digit in 2.5 and 2nd.
        rest.trim_start_matches('.').starts_with(char::is_alphanumeric)
    } else {
        rest.contains(char::is_alphanumeric)
    };
    digits.parse().ok().filter(|&s| s <= 3 && !followed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_are_read_from_replies_and_nothing_else_is_one() {
        for (reply, expected) in [
            ("Score: 2", Some(2)),
            ("They differ. Score: 1 at first...\nScore: **3**", Some(3)),
            ("0", Some(0)),
            ("**2**.", Some(2)),
            ("Score: 2. They differ", Some(2)),
            ("Score: 7", None),
            ("Score: 2.5", None),
            ("Score: -1", None),
            ("3 of the solutions use induction", None),
            ("I can't tell", None),
            ("", None),
        ] {
            assert_eq!(read_score(reply), expected, "{reply}");
        }
    }
}
