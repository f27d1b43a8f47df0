//! The fenced block of a completion that holds its answer.

/// What follows the thoughts.
pub(super) fn answer(completion: &str) -> &str {
    completion.rsplit_once("</think>").map_or(completion, |(_, answer)| answer)
}

/// The last block that isn't empty and has one of these tags, also one that the end of the text cuts off, as with a stop
/// at the fence.
pub(super) fn last_block<'a>(answer: &'a str, tags: &[&str]) -> Option<&'a str> {
    let block = |text: &'a str, tag: &str| {
        let ours = tags.iter().any(|ours| ours.eq_ignore_ascii_case(tag.trim()));
        (ours && !text.trim().is_empty()).then_some(text)
    };
    let (mut found, mut opened) = (None, None);
    let mut at = 0;
    for line in answer.split_inclusive('\n') {
        let (start, end) = (at, at + line.len());
        at = end;
        let Some(tag) = line.trim().strip_prefix("```") else { continue };
        match opened.take() {
            None => opened = Some((end, tag)),
            Some((from, tag)) => found = block(&answer[from..start], tag).or(found),
        }
    }
    opened.and_then(|(from, tag)| block(&answer[from..], tag)).or(found)
}
