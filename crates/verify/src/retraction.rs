//! Decides whether the sentences after an answer take it back, for every kind of problem.
//!
//! A sentence takes an answer back if it begins as a correction, orders another step, or says that the answer is wrong, a guess
//! or somebody else's. A sentence about the answer (`This is ..`, `The answer is ..`) must have a form that is known to agree
//! with it. Any other sentence may follow, for example an explanation, unless it states another value. The sentence right
//! after the answer may not name a fault or another result either and, after a number or formula, must have a known form if it
//! is short.

use crate::forms::form;
use crate::languages;
use crate::math::words::number_in_words;
use crate::python_text::regex;
use crate::statement::{is_correction, is_neutral, praises};

/// A value as written, and a function that compares two values of this kind.
#[derive(Clone, Copy)]
pub(crate) struct Written<'a> {
    pub(crate) text: &'a str,
    pub(crate) same: fn(&str, &str) -> bool,
}

impl Written<'_> {
    /// A value whose repetition isn't recognised: a grid, a letter, several boxes.
    pub(crate) const OTHER: Self = Self { text: "", same: |_, _| false };
}

/// Maximum number of sentences after an answer that are searched for a retraction.
const SENTENCES: usize = 4;

/// Returns the first 300 characters of a string, to which the search for a retraction is limited.
pub(crate) fn clip(text: &str) -> &str {
    &text[..text.char_indices().nth(300).map_or(text.len(), |(at, _)| at)]
}

/// Whether one of the sentences after an answer retracts it or offers another one. `behind` is the text after the
/// answer, `value` the answer as written, or [`Written::OTHER`] unless it is a number or formula.
pub(crate) fn is_withdrawn(behind: &str, value: Written<'_>) -> bool {
    let behind = clip(behind);
    let behind = regex!(r"^(?:\s*</\w+>)+").find(behind).map_or(behind, |tags| &behind[tags.end()..]);
    if behind.trim_end().len() < 2 {
        return false;
    }
    // `Why? Because ..` and `Why not A? Because ..` explain the answer.
    const WHY: &str = r"(?i)\bwhy(?: not [\w() ]{1,20}\?\W*(because|since|as|for)\b|\?\W*(\w))";
    let behind = &*regex!(WHY).replace_all(behind, "$1$2");
    // `statement` reads the rest of the answer's sentence.
    let rest =
        behind.trim_start_matches(|c: char| !c.is_alphanumeric() && !matches!(c, '.' | '!' | '?' | '\n'));
    let joined = behind[..behind.len() - rest.len()].contains([',', '—', '–']);
    let lower = rest.starts_with(|c: char| c.is_alphanumeric() && !c.is_uppercase());
    // A noun in German begins with a capital letter.
    let noun = regex!(r"^\p{Lu}\p{Ll}+[.!]?\s*$").is_match(rest) && !is_correction(&plain(rest));
    let own = usize::from(lower || noun || joined && rest.starts_with('I'));
    // Neither the number of an item, `1. There are`, nor a factorial, `$4!$`, ends a sentence.
    let is_end = |at: &usize| {
        let line = behind[..*at].rfind('\n').map_or(0, |start| start + 1);
        let item = behind[line..*at].trim();
        let factorial = behind[*at..].starts_with('!') && item.ends_with(|c: char| c.is_ascii_digit());
        behind[*at..].starts_with('\n')
            || !factorial && (line == 0 || item.is_empty() || !item.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let ends = regex!(r"[.!?](?:[^0-9A-Za-z]|$)|\n|。").find_iter(behind).map(|found| found.start());
    let ends = ends.filter(is_end).map(|at| at + behind[at..].chars().next().map_or(1, char::len_utf8));
    let mut from = 0;
    let sentences = ends.chain([behind.len()]).map(|end| {
        let sentence = &behind[from.min(end)..end];
        from = end;
        plain(sentence)
    });
    // The rest of the value's sentence may be a clause about the value.
    let clause = regex!(r"^(?:it|this|that)\b").is_match(rest)
        && !regex!(r"^it is\W*(?:\n|$)").is_match(rest)
        && value.text.is_empty();
    let sentences = sentences
        .skip(if clause { 0 } else { own })
        .filter(|sentence| sentence.contains(|c: char| c.is_alphanumeric()));
    // Later sentences may discuss the problem: `However, it asks for ..`
    let contrasts =
        |sentence: &str| regex!(r"^(?:and )?(?:but|however|yet)\b,? (?:[^n]|n[^o])").is_match(sentence);
    sentences.take(SENTENCES).enumerate().any(|(at, sentence)| {
        let unclear = || at == 0 && (contrasts(&sentence) || is_unclear(&sentence, value.text));
        !agrees(&sentence, value) && (unclear() || takes_back(&sentence, value))
    })
}

/// Whether a sentence confirms the answer, denies another one or ends the response.
fn agrees(sentence: &str, value: Written<'_>) -> bool {
    const CLOSES: &str = r"^(?:(?:(?:i )?hope|(?:but |however,? )?note)\b|wait (?:for|until) [\pL ]+$|\W*(?:that's|that is|this is|it's|it is) (?:my|the|our) (?:final )?(?:answer|choice|pick|result)$)";
    let words = sentence.trim_end_matches(['?', '.', '!', ' ']);
    regex!(CLOSES).is_match(words)
        || confirms(sentence)
        || !sentence.ends_with('?') && restates(words, value.text)
        || checks(words, value)
        || considers_another(words)
        || denies_another(words, value)
}

/// Returns a sentence in lower case, without the marks of formulas and boxes and without the marks before its first word.
fn plain(sentence: &str) -> String {
    const MARKS: &str = concat!(
        r##"\\(?:boxed|text|mathbf|textbf|displaystyle|(?:begin|end)\{[a-z]+\*?\}|blacksquare|square|qed|checkmark|q?quad|[()\[\],;:!])|"##,
        r##"<\|[^|]*\|>(?:user|assistant)?|</?[[:alpha:]]+>|[$*_{}`"“”#]"##
    );
    let bare = regex!(MARKS).replace_all(sentence, " ");
    let words: Vec<&str> = bare.split_whitespace().collect();
    let plain = words.join(" ").to_lowercase().replace('’', "'");
    plain.trim_start_matches(|c: char| !c.is_alphanumeric() && !matches!(c, '-' | '−' | '±')).to_owned()
}

/// Whether a sentence of one number and neutral words states another number than the value: `So 10.`, `10 works too`.
fn states_another(words: &str, value: &str) -> bool {
    const ALSO: &str =
        "^(?:no|or|and|also|too|works|possible|together|final|result|times|plus|minus|another)$";
    let mut numbers = Vec::new();
    for word in words.split(|c: char| c.is_whitespace() || matches!(c, ':' | ';' | '=')) {
        let word = word.trim_matches(|c: char| !c.is_alphanumeric());
        let number = word.replace(',', "");
        if number.parse::<f64>().is_ok() {
            numbers.push(number);
        } else if let Some(number) = number_in_words(word) {
            numbers.push(number.to_string());
        } else if !word.is_empty() && !is_neutral(word) && !regex!(ALSO).is_match(word) {
            return false;
        }
    }
    let value = value.replace([',', '$', ' '], "");
    let aside = regex!(r"^(?:he|she|they)\b").is_match(words);
    let rewritten = value.parse::<f64>().is_err() && regex!(r"^(?:that|this|it|which) is\b").is_match(words);
    matches!(&numbers[..], [number] if *number != value) && !rewritten && !aside
}

/// Whether a sentence disputes the answer, or is short and of an unknown form: it doesn't begin an explanation, repeat
/// the value or have another subject than the answer.
fn is_unclear(sentence: &str, value: &str) -> bool {
    // Minimum number of words of a sentence that counts as an explanation. Behind a letter or grid a shorter one can explain too.
    let long = if value.is_empty() { 3 } else { 7 };
    let restates = !value.is_empty() && sentence.contains(&*plain(value));
    let words = sentence.trim_end_matches(['?', '.', '!', ' ']);
    let orders = regex!(r"^\pL+(?: \pL+)? (?:that|this|it|the above|everything)$").is_match(words);
    let is_short = languages::word_count(sentence) < long || orders;
    let opens = restates
        || sentence.ends_with([':', '：'])
        || form!("opens an explanation").is_match(sentence)
        || is_aside(sentence);
    disputes(sentence, value) || is_short && !opens
}

/// Whether a sentence confirms the solution or refutes every other answer.
fn confirms(sentence: &str) -> bool {
    form!("confirms").is_match(sentence)
        && !regex!(r"^(?:i|we)\b.*(?:not\b|n't\b|neither\b)").is_match(sentence)
}

/// Whether a sentence disputes the answer: it names a fault of the solution, or another number as the result.
fn disputes(sentence: &str, value: &str) -> bool {
    let words = sentence.trim_end_matches(['?', '.', '!', ' ']);
    let another = || {
        let number = &form!("result").captures(words)?[1];
        let in_words = || number_in_words(number)?.to_string().parse().ok();
        let number: f64 = number.parse().ok().or_else(in_words)?;
        let value: f64 = value.replace([',', '$', ' '], "").parse().ok()?;
        Some(number != value)
    };
    // `If the rows had 5 seats, it would be 15.`
    let supposed = regex!(r"^(?:had|were|if\b[^,]*\b(?:had|were))\b[^,]*, ").is_match(words);
    form!("faults").is_match(words) || !supposed && another().unwrap_or(false)
}

/// Whether a sentence is about a person or thing of the problem and not about the answer.
fn is_aside(sentence: &str) -> bool {
    form!("subject of the problem").is_match(sentence) && !form!("about the answer").is_match(sentence)
}

/// Whether a sentence computes in another way and ends with the same value: `Alternatively, 27/3 = 9`.
fn checks(words: &str, value: Written<'_>) -> bool {
    let end =
        regex!(r"^(?:also|alternatively|equivalently|indeed|again)\b,? ?.*=\s*([^=]+)$").captures(words);
    end.is_some_and(|end| (value.same)(&end[1], value.text))
}

/// Whether a sentence denies another answer, `Not A.`: a word or number, or anything for [`Written::OTHER`].
fn denies_another(words: &str, value: Written<'_>) -> bool {
    const OWN: &str = r"^not (?:really|quite|exactly|right|correct|so|it|sure|the answer|an? answer)$";
    let named = regex!(r"^not (?:option )?(?:\pL|[-\d]\S*)$").is_match(words);
    const CONFUSED: &str =
        r"^(?:this is )?(?:not to be|don't|do not|never) (?:confused?|mistaken?|mix(?:ed)?)\b";
    named
        || regex!(CONFUSED).is_match(words) && !words.contains("answer")
        || value.text.is_empty() && words.starts_with("not ") && !regex!(OWN).is_match(words)
}

/// Whether a sentence rejects another answer: `I considered A, but it is wrong`.
fn considers_another(words: &str) -> bool {
    const OTHER: &str = r"^(?:i|we)(?:'ve| have)?(?: also| first)? (?:considered|tried|tested|examined) (\S+)\b.*?,? (?:but|which)\b";
    let other = regex!(OTHER).captures(words);
    other.is_some_and(|other| !matches!(&other[1], "it" | "this" | "that" | "the" | "my"))
}

/// Whether a sentence concludes with another number than the value: `After removing the doubles we have 47`.
fn concludes(words: &str, value: &str) -> bool {
    let Some(found) = form!("concludes").captures(words) else { return false };
    let number = |text: &str| text.replace([',', '$', ' '], "").parse::<f64>().ok();
    found.get(1).and_then(|found| number(found.as_str())).zip(number(value)).is_some_and(|(a, b)| a != b)
}

/// Whether a sentence ends with the value and doesn't deny it: `So the total number of apples is 50`.
fn restates(words: &str, value: &str) -> bool {
    const DENIALS: &str =
        r"\b(?:not|no|never|wrong|incorrect|false|unless|if|only|says?|said|thinks?)\b|n't\b";
    let end = words.rsplit(' ').next().unwrap_or_default().trim_matches(['$', '\\', '(', ')']);
    !value.is_empty() && end == plain(value) && !regex!(DENIALS).is_match(words)
}

/// Whether a sentence retracts the answer before it.
fn takes_back(sentence: &str, value: Written<'_>) -> bool {
    let words = sentence.trim_end_matches(['?', '.', '!', ' ']);
    const DOUBTS: &str = r"^(?:(?:or|is|isn't|was|really|who|why|are you|am i|could|should|what)\b.*|\S+)\?$";
    if regex!(DOUBTS).is_match(sentence)
        || is_correction(words)
        || states_another(words, value.text)
        || concludes(words, value.text)
        || languages::condemns(words)
    {
        return true;
    }
    let Some(subject) = form!("subject is the answer").find(words) else { return false };
    let said = &words[subject.end()..];
    let predicate = regex!(r"^(?:is|are) ").replace(said, "");
    !said.is_empty() && !form!("agrees").is_match(said) && !praises(&predicate)
}
