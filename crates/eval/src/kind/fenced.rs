//! Finds the fenced blocks of an answer, as CommonMark defines them.

use pulldown_cmark::{CodeBlockKind, Event, Parser, Tag, TagEnd};
use std::borrow::Cow;
use std::ops::Range;

/// A fenced block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Block {
    /// The language after the opening fence, in lower case and without attributes.
    pub(super) language: String,
    /// The block's lines, without the fence's indentation.
    pub(super) text: String,
}

/// Returns the blocks that aren't empty. The last block may lack its closing fence, for example if generation stopped
/// inside it. If the first block lacks its opening fence, because the prompt ended with the fence, the block begins at the
/// first line for which `begins` returns true.
pub(super) fn blocks(answer: &str, begins: impl Fn(&str) -> bool + Copy) -> Vec<Block> {
    let mut text = Cow::Borrowed(answer);
    let mut all = parsed(&text);
    if all.is_empty() {
        text = dedented(answer);
        all = parsed(&text);
    }
    if let Some((first, place)) = all.first()
        && first.language.is_empty()
        && !first.text.lines().any(begins)
        && let Some(start) = line_starts(&text[..place.start]).find(|at| begins(&text[*at..]))
    {
        // The first fence closes the block that the prompt opened.
        let end = text[place.start..].find('\n').map_or(text.len(), |length| place.start + length + 1);
        let begun = text[start..place.start].trim_end_matches([' ', '\t', '>']).to_owned();
        let whole = Block { language: String::new(), text: begun };
        return std::iter::once(whole).chain(blocks(&text[end..], begins)).collect();
    }
    all.into_iter().map(|(block, _)| block).filter(|block| !block.text.trim().is_empty()).collect()
}

/// Parses all blocks and returns each with its range in `text`.
fn parsed(text: &str) -> Vec<(Block, Range<usize>)> {
    // A tag such as `<answer>` alone on a line would begin a block of HTML, in which fences aren't parsed.
    const ANGLE: char = '\u{1}';
    let plain = text.replace('<', ANGLE.encode_utf8(&mut [0]));
    let mut blocks: Vec<(Block, Range<usize>)> = Vec::new();
    let mut inside = false;
    for (event, place) in Parser::new(&plain).into_offset_iter() {
        match event {
            Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(info))) => {
                let word = info.trim_start_matches(['{', '.', ' ']);
                let end = word.find(|c: char| !(c.is_alphanumeric() || "+#-_".contains(c)));
                let language = word[..end.unwrap_or(word.len())].to_lowercase();
                blocks.push((Block { language, text: String::new() }, place));
                inside = true;
            }
            Event::End(TagEnd::CodeBlock) => inside = false,
            Event::Text(line) if inside => {
                if let Some((block, _)) = blocks.last_mut() {
                    block.text.push_str(&line.replace(ANGLE, "<"));
                }
            }
            _ => {}
        }
    }
    blocks
}

/// Removes the indentation of the first fence from each line, since CommonMark reads an indented fence as part of a
/// paragraph. Returns an empty string if no fence is indented.
fn dedented(text: &str) -> Cow<'_, str> {
    let fence = text.lines().find_map(|line| {
        let bare = line.trim_start();
        (bare.starts_with("```") || bare.starts_with("~~~")).then_some(line.len() - bare.len())
    });
    let Some(indented) = fence.filter(|indented| *indented > 0) else { return Cow::Borrowed("") };
    let line = |line: &str| {
        let blank = line.len() - line.trim_start_matches([' ', '\t']).len();
        line[blank.min(indented)..].to_owned()
    };
    Cow::Owned(text.split_inclusive('\n').map(line).collect())
}

fn line_starts(text: &str) -> impl Iterator<Item = usize> {
    let after = text.match_indices('\n').map(|(at, _)| at + 1);
    std::iter::once(0).chain(after).filter(|at| *at < text.len())
}
