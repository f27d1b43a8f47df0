//! Finding the answer in a response: the format gate, boxes and code blocks.

/// Why a response does not pass the format gate.
///
/// The gate requires a response that starts with `<think>`, ends with `</answer>`, and contains each of the four tags
/// once.
pub fn passes_format_gate(response: &str) -> bool {
    response.starts_with("<think>")
        && response.ends_with("</answer>")
        && ["<think>", "</think>", "<answer>", "</answer>"]
            .iter()
            .all(|tag| response.matches(tag).count() == 1)
}

/// The answer in a response with tags: the stripped text of the first `<answer>` after `</think>`, or else all the text
/// there.
pub fn answer_text(response: &str) -> &str {
    let rest = match response.split_once("</think>") {
        Some((_, rest)) => rest.split_once("</think>").map_or(rest, |(first, _)| first),
        None => response,
    };
    let answer = rest.split_once("<answer>").and_then(|(_, tail)| tail.split_once("</answer>"));
    answer.map_or(rest, |(answer, _)| super::text::strip(answer))
}

/// The stripped content of the last `\boxed{`, with balanced braces. `None` without a box or if it does not close.
pub fn last_boxed(text: &str) -> Option<&str> {
    let start = text.rfind("\\boxed{")? + "\\boxed{".len();
    let mut open = 1_usize;
    for (at, c) in text[start..].char_indices() {
        match c {
            '{' => open += 1,
            '}' => {
                open -= 1;
                if open == 0 {
                    return Some(super::text::strip(&text[start..start + at]));
                }
            }
            _ => {}
        }
    }
    None
}

/// The stripped content of the last `\boxed{` up to the first `}`. `None` without a box or if it does not close.
pub fn last_boxed_simple(text: &str) -> Option<&str> {
    let start = text.rfind("\\boxed{")? + "\\boxed{".len();
    text[start..].split_once('}').map(|(content, _)| super::text::strip(content))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gate_wants_each_tag_once_and_in_its_place() {
        assert!(passes_format_gate("<think>a</think><answer>b</answer>"));
        for bad in [
            "",
            "a<think></think><answer></answer>",
            "<think></think><answer></answer> ",
            "<think></think><answer></answer><answer></answer>",
            "<think><think></think><answer></answer>",
            "<think></think></answer>",
        ] {
            assert!(!passes_format_gate(bad), "{bad}");
        }
    }

    #[test]
    fn the_answer_is_read_after_the_thinking() {
        assert_eq!(answer_text("<think><answer>no</answer></think> <answer> yes </answer>"), "yes");
        assert_eq!(answer_text("<think>x</think> bare"), " bare");
        assert_eq!(answer_text("<answer>a</answer><answer>b</answer>"), "a");
    }

    #[test]
    fn boxes_balance_their_braces_or_stop_at_the_first() {
        let text = r"\boxed{a} then \boxed{ \text{b}, {c} } end";
        assert_eq!(last_boxed(text), Some(r"\text{b}, {c}"));
        assert_eq!(last_boxed_simple(text), Some(r"\text{b"));
        assert_eq!(last_boxed(r"\boxed{a"), None);
        assert_eq!(last_boxed_simple("none"), None);
    }
}
