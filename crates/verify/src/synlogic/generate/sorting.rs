//! Generators of sorting tasks: word_sorting and word_sorting_mistake.

use serde_json::json;

use super::words::WORDS;
use super::{Draft, Source};

pub(super) fn word_sorting(difficulty: usize, source: &mut Source<'_>) -> Option<Draft> {
    let mut words = source.sample(&WORDS, 4 + 2 * difficulty);
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
    Some(Draft {
        question: format!(
            "In a changed alphabet the letters {front_text} come first, in this order, and the others follow in their usual \
             order. Sort these words by it, {}: {shown}. Put the sorted list, separated by commas, in \\boxed{{}}, such as \
             \\boxed{{word1,word2,word3}}.",
            if descending { "the last first" } else { "the first first" }
        ),
        metadata: json!({
            "original_words": shown, "front_letters": front_text, "order": if descending { "decreasing" } else { "increasing" },
        }),
        solution: format!("\\boxed{{{answer}}}"),
        answer: json!(answer),
    })
}

pub(super) fn word_sorting_mistake(difficulty: usize, source: &mut Source<'_>) -> Option<Draft> {
    let words = source.sample(&WORDS, 3 + difficulty);
    let wrong_at = if source.chance(1, 4) { None } else { Some(1 + source.below(words.len() - 1)) };
    let mut list: Vec<&str> = Vec::new();
    let mut thoughts =
        vec!["Thought 1: I start with an empty list and put in the words one by one.".to_owned()];
    for (i, word) in words.iter().enumerate() {
        if wrong_at == Some(i) {
            // At a wrong place, or with a word lost on the way.
            if list.len() > 2 && source.chance(1, 3) {
                list.remove(source.below(list.len()));
                let at = list.partition_point(|w| w < word);
                list.insert(at, word);
            } else {
                let right = list.partition_point(|w| w < word);
                let places: Vec<usize> = (0..=list.len()).filter(|p| *p != right).collect();
                list.insert(source.pick(&places), word);
            }
        } else {
            // Before the first word that comes later: right for a sorted list, and sensible for the list as it stands.
            let at = list.iter().position(|w| w > word).unwrap_or(list.len());
            list.insert(at, word);
        }
        thoughts.push(format!("Thought {}: I put in {word}. The list is now: {}.", i + 2, list.join(", ")));
    }
    let answer = wrong_at.map_or("No".to_owned(), |i| (i + 2).to_string());
    Some(Draft {
        question: format!(
            "Somebody sorts the words {} alphabetically, so that the list is in order after each thought:\n{}\nIs there a \
             mistake? Put the number of the first thought that is wrong in \\boxed{{}}, or \\boxed{{No}} if all are right.",
            words.join(", "),
            thoughts.join("\n")
        ),
        metadata: json!({"words": words, "thoughts": thoughts}),
        solution: format!("\\boxed{{{answer}}}"),
        answer: json!(answer),
    })
}
