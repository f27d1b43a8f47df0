//! Generators of sorting tasks: word_sorting and word_sorting_mistake.

use serde_json::json;

use super::{Draft, Source, values, words};

pub(crate) fn word_sorting(difficulty: usize, source: &mut Source<'_>) -> Option<Draft> {
    let mut words = source.sample(&words("words"), 4 + 2 * difficulty);
    let letters: Vec<char> = ('a'..='z').collect();
    let front = source.sample(&letters, 1 + difficulty.div_ceil(2));
    let rank = |c: char| match front.iter().position(|f| *f == c) {
        Some(at) => at,
        None => front.len() + (u32::from(c) - u32::from('a')) as usize,
    };
    let shown = words.join(", ");
    words.sort_by_key(|w| w.chars().map(rank).collect::<Vec<_>>());
    let descending = source.chance(1, 2);
    if descending {
        words.reverse();
    }
    let answer = words.join(",");
    let front_text = front.iter().map(char::to_string).collect::<Vec<_>>().join(", ");
    Some(Draft::boxed(
        answer,
        values![front_text, order = if descending { "the last first" } else { "the first first" }, shown],
        json!({
            "original_words": shown, "front_letters": front_text, "order": if descending { "decreasing" } else { "increasing" },
        }),
    ))
}

/// Writes an insertion sort as thoughts: each word is compared with the list's words from the left and then inserted.
/// If `wrong` is an index, that thought has a wrong comparison, a wrong position, or loses a word.
fn insertion_sort(words: &[&str], wrong: Option<usize>, source: &mut Source<'_>) -> Vec<String> {
    let mut list: Vec<&str> = Vec::new();
    let mut thoughts: Vec<String> = Vec::new();
    for word in words {
        let mut at = 0;
        while let Some(other) = list.get(at) {
            let later = (word > other) != (wrong == Some(thoughts.len()));
            thoughts.push(format!("{word} comes {} {other}.", if later { "after" } else { "before" }));
            if !later {
                break;
            }
            at += 1;
        }
        if wrong == Some(thoughts.len()) {
            if list.len() > 1 && source.chance(1, 3) {
                let lost = source.below(list.len());
                list.remove(lost);
                at -= usize::from(lost < at);
            } else {
                let places: Vec<usize> = (0..=list.len()).filter(|place| *place != at).collect();
                at = source.pick(&places);
            }
        }
        list.insert(at, word);
        thoughts.push(format!("I put in {word}. The list is now: {}.", list.join(", ")));
    }
    thoughts
}

pub(crate) fn word_sorting_mistake(difficulty: usize, source: &mut Source<'_>) -> Option<Draft> {
    let words = source.sample(&words("words"), 13 + difficulty / 2);
    // There are so many thoughts that each is unlikely to be the first wrong one. Few sorts are without a mistake.
    let steps = insertion_sort(&words, None, source).len();
    let wrong = if source.chance(1, 60) { None } else { Some(1 + source.below(steps - 1)) };
    let start = "I start with an empty list. I compare each word with those of the list, from the left, and put it in.";
    let thoughts: Vec<String> = std::iter::once(start.to_owned())
        .chain(insertion_sort(&words, wrong, source))
        .enumerate()
        .map(|(at, thought)| format!("Thought {}: {thought}", at + 1))
        .collect();
    let answer = wrong.map_or("No".to_owned(), |at| (at + 2).to_string());
    Some(Draft::boxed(
        answer,
        values![words = words.join(", "), thoughts = thoughts.join("\n")],
        json!({"words": words, "thoughts": thoughts}),
    ))
}
