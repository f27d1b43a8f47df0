//! Decides whether the sentences after an answer take it back.
//!
//! A sentence takes an answer back if it begins as a correction, orders another step, or says that the answer is wrong, a guess
//! or somebody else's. This holds for answers of every kind. After a number or formula more is required. A sentence about the answer (`This is ..`, `The answer is ..`) must have a form that is known to agree with it. Any other
//! sentence may follow, for example an explanation, unless it begins as a correction, orders another step or states another
//! value. The sentence right after the answer must also have a known form if it is short, and may not name a fault or
//! another result.

use std::ops::Range;

use crate::math::same_value;
use crate::math::words::number_in_words;
use crate::python_text::regex;
use crate::statement::{is_denied_before, is_neutral, praises};

/// Maximum number of sentences after an answer that are searched for a retraction.
const SENTENCES: usize = 4;

/// Whether the text around a value denies the value, supposes it, attributes it to somebody else or takes it back. The value
/// may be of any kind.
pub(crate) fn is_refused(text: &str, place: Range<usize>) -> bool {
    let behind = &text[place.end..];
    let behind = regex!(r"^\s*```").find(behind).map_or(behind, |fence| &behind[fence.end()..]);
    // The rest of the sentence may follow the value's own full stop.
    let rest = behind.trim_start_matches(|c: char| "`\"*$)]}. ".contains(c));
    let behind = if rest.starts_with(char::is_lowercase) { rest } else { behind };
    is_denied_before(&text[..place.start]) || is_withdrawn(behind, None)
}

/// Returns the beginning of a string, up to 300 characters, in which the next sentences are read.
pub(crate) fn clip(text: &str) -> &str {
    &text[..text.char_indices().nth(300).map_or(text.len(), |(at, _)| at)]
}

/// Whether a sentence after an answer retracts it or offers another answer. `value` is the answer as it is written, if it is a
/// number or formula.
pub(crate) fn is_withdrawn(behind: &str, value: Option<&str>) -> bool {
    let behind = clip(behind);
    if value.is_none() && regex!(r"^[^\w\n]*\?").is_match(behind) {
        return true;
    }
    if behind.trim_end().len() < 2 {
        return false;
    }
    // `statement` reads the rest of the answer's sentence.
    let rest =
        behind.trim_start_matches(|c: char| !c.is_alphanumeric() && !matches!(c, '.' | '!' | '?' | '\n'));
    let own = usize::from(rest.starts_with(|c: char| c.is_alphanumeric() && !c.is_uppercase()));
    let ends = || regex!(r"[.!?](?:[^0-9A-Za-z]|$)|\n").find_iter(behind).map(|found| found.start() + 1);
    let mut from = 0;
    let sentences = ends().chain([behind.len()]).map(|end| {
        let sentence = &behind[from.min(end)..end];
        from = end;
        plain(sentence)
    });
    if value.is_none() {
        // The end of the value's sentence is about the value.
        let end = plain(
            &regex!(r"^\W*(?:,? ?(?:which|that|but it|though it|and it)\b)?")
                .replace(&behind[..ends().next().unwrap_or(behind.len())], ""),
        );
        let end = end.trim_end_matches(['?', '.', '!', ' ']);
        // `B, not A` denies A.
        let blamed = !end.starts_with("not ") && regex!(BLAMES).is_match(end)
            || regex!(r"^(?:it|this|that)\b").is_match(end) && takes_back(end, None);
        if own == 1
            && (blamed
                || regex!(r"^(?:oh )?(?:no|nope|wait|oops|sorry)\b[, ]*(?:wait|sorry|no)?$").is_match(end))
        {
            return true;
        }
    }
    let sentences = sentences.skip(own).filter(|sentence| sentence.contains(|c: char| c.is_alphanumeric()));
    let mut sentences = sentences.take(SENTENCES).enumerate();
    // Later sentences may discuss the problem: `However, it asks for ..`
    let contrasts =
        |sentence: &str| regex!(r"^(?:and )?(?:but|however|yet)\b,? (?:[^n]|n[^o])").is_match(sentence);
    sentences.any(|(at, sentence)| {
        at == 0 && value.is_some_and(|value| contrasts(&sentence) || is_unclear(&sentence, value))
            || takes_back(&sentence, value)
    })
}

/// Returns a sentence in lower case, without the marks of formulas and boxes and without the marks before its first word.
fn plain(sentence: &str) -> String {
    const MARKS: &str = concat!(
        r##"\\(?:boxed|text|mathbf|textbf|displaystyle|(?:begin|end)\{[a-z]+\*?\}|blacksquare|square|qed|checkmark|q?quad|[()\[\],;:!])|"##,
        r##"<\|[^|]*\|>(?:user|assistant)?|[$*_{}`"“”#]"##
    );
    let bare = regex!(MARKS).replace_all(sentence, " ");
    let words: Vec<&str> = bare.split_whitespace().collect();
    let plain = words.join(" ").to_lowercase().replace('’', "'");
    plain.trim_start_matches(|c: char| !c.is_alphanumeric() && !matches!(c, '-' | '−' | '±')).to_owned()
}

/// Whether a sentence of neutral words states a number other than the value: `So 10.`, `10 works too`.
fn states_another(words: &str, value: &str) -> bool {
    const ALSO: [&str; 14] = [
        "no", "or", "and", "also", "too", "works", "possible", "together", "final", "result", "times",
        "plus", "minus", "another",
    ];
    let mut numbers = Vec::new();
    for word in words.split(|c: char| c.is_whitespace() || matches!(c, ':' | ';' | '=')) {
        let word = word.trim_matches(|c: char| !c.is_alphanumeric());
        let number = word.replace(',', "");
        if number.parse::<f64>().is_ok() {
            numbers.push(number);
        } else if let Some(number) = number_in_words(word) {
            numbers.push(number.to_string());
        } else if !word.is_empty() && !is_neutral(word) && !ALSO.contains(&word) {
            return false;
        }
    }
    let value = value.replace([',', '$', ' '], "");
    let aside = regex!(r"^(?:he|she|they)\b").is_match(words);
    let rewritten = value.parse::<f64>().is_err() && regex!(r"^(?:that|this|it|which) is\b").is_match(words);
    matches!(&numbers[..], [number] if *number != value) && !rewritten && !aside
}

/// Whether a sentence disputes the answer, or is short without closing a solution, beginning an explanation or having a
/// different subject than the answer.
fn is_unclear(sentence: &str, value: &str) -> bool {
    /// Minimum number of words of a sentence that counts as an explanation.
    const LONG: usize = 7;
    const OPENS: &str = concat!(
        r"^(?:(?:but|however),? )?(?:done|q\.?\s?e\.?\s?d|the end|end of|thanks?|good|great|nice|well done|cheers|bye|i hope|hope|i apologi[sz]e for|",
        r"let me know|feel free|if you|would you|do you|note|here|(?:we|you|one) can|check|verify|verification|explanation|proof|reason|reasoning|",
        r"solution|details?|steps?|first|second|there (?:are|is) no|we are done|we have (?:shown|proved|verified)|see|recall|since|because|by|using|",
        r"let \S+ be|finally|remember|interestingly|geometrically|algebraically|substituting|plugging|another way|both methods|students|many people|",
        r"in other words|to (?:summari[sz]e|recap|conclude)|python|dimensional analysis|for|this|that|it|these|those|so|thus|hence|therefore|and|answer|final|in (?:summary|conclusion)|equivalently|alternatively|",
        r"as (?:wanted|desired|required|requested|claimed|needed|expected|above|before|shown)|which|where|with|when|units?)\b"
    );
    const CONFIRMS: &str = concat!(
        r"^(?:(?:i|we)(?:'ve| have| also| then| just)* (?:verified|checked|confirmed|used|applied|computed|rounded|simplified|factored)|",
        r"(?:i|we)(?: am| are|'m|'re) (?:confident|certain|happy|glad)|(?:\pL+ ){1,3}(?:confirms?|agrees?|verif(?:y|ies))) [^0-9]*$|",
        r"^(?:all|every|both|each)\b[^0-9]* (?:holds?|satisfied|met|fulfilled|correct|true|valid)\W*$|^no other\b[^0-9]*$|^the other(?:s| \pL+) (?:are|fail)\b[^0-9]*$"
    );
    let restates = !value.is_empty() && sentence.contains(&*plain(value));
    let known = || [regex!(OPENS), regex!(CONFIRMS)].iter().any(|form| form.is_match(sentence));
    let is_short = sentence.split_whitespace().count() < LONG;
    let opens = restates || sentence.ends_with(':') || known() || is_aside(sentence);
    disputes(sentence, value) || is_short && !opens
}

/// Whether a sentence disputes the answer: it names a fault of the solution, or another number as the result.
fn disputes(sentence: &str, value: &str) -> bool {
    const FAULTS: &str = concat!(
        r"\bbetter$|\b(?:disagree[sd]?|insist(?:s|ed)?|shout(?:s|ed)?|claims|in the box|my (?:response|answer)|placeholder|",
        r"intermediate result|slip|miscounted|flawed|(?:contains|made|has) an? (?:\pL+ )?(?:error|mistake)|",
        r"asked for the (?:square|cube|sum|product|double|half|negative|opposite|reciprocal)|case was missed)\b"
    );
    const RESULT: &str = concat!(
        r"\b(?:(?:total|count|result|answer|value|number of \pL+|there)(?: is| are| was)|(?:should|must|would) be|",
        r"(?:i|everyone.*|somebody) (?:get|got)|says that it is)(?: in fact| really)? (\S+?)",
        r"(?: ways| rather than.*| instead.*| after all)?(?:, (?:since|because|so|not)\b.*)?$"
    );
    let words = sentence.trim_end_matches(['?', '.', '!', ' ']);
    let another = || {
        let number = &regex!(RESULT).captures(words)?[1];
        let in_words = || number_in_words(number)?.to_string().parse().ok();
        let number: f64 = number.parse().ok().or_else(in_words)?;
        let value: f64 = value.replace([',', '$', ' '], "").parse().ok()?;
        Some(number != value)
    };
    regex!(FAULTS).is_match(words) || another().unwrap_or(false)
}

/// Whether a sentence is about a person or thing of the problem and not about the answer.
fn is_aside(sentence: &str) -> bool {
    const SUBJECT: &str = concat!(
        r"^(?:(?:also|meanwhile|now|then|so|and|both|all|each|every|no) )*(?:he|she|they|the|his|her|their|an?|other|",
        r"(?:\pL+ ){1,4}(?:is|are|was|were|has|have|had|can|needs?|gets?|costs?|holds?|weighs?)) "
    );
    const ANSWER: &str = concat!(
        r"^(?:(?:\pL+ ){0,3}(?:i|we|you|it|this|that|what|who|one|ten)|there|\pL)\b|",
        r"\b(?:answers?|boxe?d?|says?|said|thinks?|thought|claims?|disagrees?|objects?|lie[sd]?|instead|actually|opposite|",
        r"wrong|incorrect|correct|mistakes?|errors?|missing|truth|got|recount|(?:is|are) right|should be)\b"
    );
    regex!(SUBJECT).is_match(sentence) && !regex!(ANSWER).is_match(sentence)
}

/// Whether a sentence computes in another way and ends with the same value: `Alternatively, 27/3 = 9`.
fn checks(words: &str, value: &str) -> bool {
    let end =
        regex!(r"^(?:also|alternatively|equivalently|indeed|again)\b,? ?.*=\s*([^=]+)$").captures(words);
    end.is_some_and(|end| same_value(&end[1], value))
}

/// Predicates that call an answer wrong, uncertain or somebody else's.
const BLAMES: &str = concat!(
    r"^(?:(?:is|are|was|were|be|being|would|could|can|might|may|must|should|does|do|did|has|have|seems?|looks?|to|in|fact|just|only|also|",
    r"still|clearly|certainly|probably|really|of|course|merely|simply|an?|the|my|one|some|first) )*",
    r"(?:(?:not|never|(?:is|was|does|did|ca|could|would|should)n't|cannot)(?: (?:be|quite|really|exactly|even))*(?:$| (?:(?:the|an?|my) )?(?:right|correct|true|valid|",
    r"answers?|solutions?|allowed|work|works|hold|satisfy|fit|solve|meet|obey|follow|add|count)\b| (?:it|so)$)|",
    r"(?:wrong|incorrect|false|mistaken|invalid|flawed|bogus|nonsense|untrue|guess(?:es|work)?|jokes?|lies?|mistakes?|errors?|placeholders?|examples?|",
    r"traps?|decoy|trick|possible|possibly|maybe|perhaps|unlikely|doubtful|wrong answer|opposite)\b|",
    r"(?:fails?|failed|breaks?|violates?|contradicts?|overcounts?|undercounts?|misses|forgets|ignores)\b|",
    r"(?:contains?|has|makes|made|have) (?:an?|one|two|some|several) (?:\pL+ )?(?:error|mistake|flaw|problem|fault)s?\b|",
    r"\pL+'s (?:answer|solution|result|guess|idea)\b|what (?:they|he|she|people|everyone|everybody)\b)"
);

/// Whether a sentence denies another answer: `Not A.`
fn denies_another(words: &str) -> bool {
    const OWN: &str = r"^not (?:really|quite|exactly|right|correct|so|it|sure|the answer|an? answer)$";
    words.starts_with("not ") && !regex!(OWN).is_match(words)
}

/// Whether a sentence rejects another answer: `I considered A, but it is wrong`.
fn considers_another(words: &str) -> bool {
    const OTHER: &str = r"^(?:i|we)(?:'ve| have)?(?: also| first)? (?:considered|tried|tested|examined) (\S+)\b.*?,? (?:but|which)\b";
    let other = regex!(OTHER).captures(words);
    other.is_some_and(|other| !matches!(&other[1], "it" | "this" | "that" | "the" | "my"))
}

/// Whether one sentence retracts the answer before it.
fn takes_back(sentence: &str, value: Option<&str>) -> bool {
    const CORRECTS: &str = concat!(
        r"^(?:(?:or|and|oh|well|so|ok|okay) )*(?:(?:actually|wait|hmm+|oops|sorry|correction|edit|update|scratch that|psych|",
        r"nope|kidding|joking|just (?:kidding|joking)|wrong|false|incorrect|not|maybe|perhaps|possibly|probably|otherwise|else|unless|",
        r"only if|as if|if only|alternatively|rather|instead|my (?:bad|mistake|apologies)|i mean|make that|on second thought|hold on|",
        r"in your dreams|who knows|says|sadly|unfortunately|times|plus|minus|squared|cubed|divided by|right)\b|",
        r"no(?:$|[^a-z0-9 ]| (?:it|that|this|wait|i|the answer|but)\b| \d)|",
        r"if [^,]*$|(?:or|and|also|but|however)(?: also| maybe| is it| perhaps| even)* (?:\d|not\b|is it\b|so\b))|",
        r"^more (?:precisely|exactly|accurately)\b|^rounded\b.*\bexact\b|",
        // Steps that are left to the reader.
        r"^(?:(?:now|then|next|so|finally|and|please) )*(?:add|subtract|multiply|divide|double|halve|triple|square|cube|negate|invert|replace|",
        r"round|change|flip|take|swap|reverse|ignore|disregard|forget|discard|don't|do not|never)(?: \S+){0,6}$|",
        r"^(?:i|i'm|we|we're|you)\b.*\b(?:forgot|lied|lying|joking|kidding|mistake|error|wrong|not sure|unsure|(?:my|our) mind|",
        r"take (?:it|that|this) back|retract|withdraw|doubt|guess|guessed|(?:don't|do not) (?:think|believe)|still (?:have|need|must)|guessing|give up|(?:don't|do not|cannot|can't) (?:know|tell|say|solve)|made (?:it|that|this) up|retract|flipped|",
        r"must still|off by|(?:need|want|asked for) (?:the )?(?:double|twice|half|negative|opposite))\b|",
        r"^we need \S+ not\b|^the (?:problem|question|task) (?:asks|wants|needs|was)\b|\bonly$|\b(?:last|final|next|more) step\b|^what remains\b|\bremains? (?:is )?to\b|^to (?:finish|get)\b|^(?:adding|doubling|subtracting|counting|including)\b|\bin the other case\b|^the (?:opposite|negative|reverse)\b|^none of (?:this|that|it|the above)\b|",
        r"^there (?:is|are|may be|might be) (?:an?|some) (?:error|mistake|flaw|problem)s?\b|^(?:an? |my )?\pL+'s (?:answer|solution|guess|idea)\b|",
        r"^\S+ (?:says|thinks|claims|said) so$|^for \S+ n\b",
    );
    const SUBJECT: &str = concat!(
        r"^(?:(?:at least|so|and|but|yet|however|well|of course|clearly|note that|then|thus|hence|therefore) )*(?:(?:that|this|it|these|those)",
        r"(?: (?:\w+ )?(?:answer|value|result|box|number|line|sentence))?|",
        r"(?:the|my|our) (?:\w+ )?(?:answer|value|result|box|number|sign|line|sentence)(?: above| in the box)?|the above|",
        r"(?:everything|all)(?: of (?:this|that|it))?(?: above)?)(?:'s|'ll)?(?: |$)",
    );
    // Predicates that a sentence with such a subject may have.
    const AGREES: &str = concat!(
        r"^(?:(?:also|indeed|then|thus|therefore|clearly|now|in fact) )*(?:(?:completes|concludes|ends|finishes|matches|satisfies|means|",
        r"follows|works|agrees|shows|proves|confirms|checks|fits|verifies|corresponds|represents|comes|happens|occurs|was (?:obtained|found|computed|problem|question))\b|",
        r"(?:gives|makes|equals|is|are|amounts to|comes to|must be)? ?-?\\?(?:\d|frac|sqrt)|",
        r"(?:is|are)? ?(?:(?:also|indeed|thus|therefore|then|exactly|clearly|in fact|just|simply) )*(?:because|since|by|from|due|how|why|",
        r"achieved|attained|obtained|reached|consistent|valid|verified|confirmed|equal to|equivalent|positive|negative|non-?(?:negative|positive|zero|empty|trivial)|less|",
        r"greater|larger|smaller|between|within|possible|in|at|on|when|where|easy|clear|known|obvious|straightforward|worth|",
        r"what (?:we|was) (?:wanted|want|needed|need|asked)|one of|an? (?:prime|perfect|integer|whole|natural|rational|real|positive|valid|",
        r"multiple|divisor|square|cube|fraction|well|standard|classic|direct|consequence|number|maximum|minimum|unique|reasonable|",
        r"simple))(?:\W|$)|",
        // A comment.
        r"(?:is|are)? ?(?:(?:very|quite|really|pretty|rather|so) )?(?:fast|slow|a lot|a big|many|few|long|short|high|low|cheap|expensive|heavy|great|nice|neat|impressive)\b)",
    );
    let words = sentence.trim_end_matches(['?', '.', '!', ' ']);
    if regex!(r"^(?:(?:(?:i )?hope|(?:but |however,? )?note)\b|wait (?:for|until) [\pL ]+$)").is_match(words)
        || value.is_some_and(|value| checks(words, value))
        || considers_another(words)
        || value.is_none() && denies_another(words)
    {
        return false;
    }
    const DOUBTS: &str = r"^(?:(?:or|is|isn't|was|really|who|why|are you|am i|could|should|what)\b.*|\S+)\?$";
    if regex!(DOUBTS).is_match(sentence)
        || regex!(CORRECTS).is_match(words)
        || value.is_some_and(|value| states_another(words, value))
    {
        return true;
    }
    let Some(subject) = regex!(SUBJECT).find(words) else { return false };
    let said = &words[subject.end()..];
    if value.is_none() {
        return regex!(BLAMES).is_match(said);
    }
    let predicate = regex!(r"^(?:is|are) ").replace(said, "");
    !said.is_empty() && !regex!(AGREES).is_match(said) && !praises(&predicate)
}
