//! Decides whether the sentences after an answer take it back, for every kind of problem.
//!
//! A sentence takes an answer back if it begins as a correction, orders another step, or says that the answer is wrong, a guess
//! or somebody else's. A sentence about the answer (`This is ..`, `The answer is ..`) must have a form that is known to agree
//! with it. Any other sentence may follow, for example an explanation, unless it states another value. The sentence right
//! after the answer may not name a fault or another result either and, after a number or formula, must have a known form if it
//! is short.

use crate::math::words::number_in_words;
use crate::python_text::regex;
use crate::statement::{is_correction, is_neutral, praises};

/// A value as it is written, and the comparison of values of its kind.
#[derive(Clone, Copy)]
pub(crate) struct Written<'a> {
    pub(crate) text: &'a str,
    pub(crate) same: fn(&str, &str) -> bool,
}

impl Written<'_> {
    /// A value that sentences don't repeat in another form: a grid, a letter, several boxes.
    pub(crate) const OTHER: Self = Self { text: "", same: |_, _| false };
}

/// Maximum number of sentences after an answer that are searched for a retraction.
const SENTENCES: usize = 4;

/// Returns the beginning of a string, up to 300 characters, in which the next sentences are read.
pub(crate) fn clip(text: &str) -> &str {
    &text[..text.char_indices().nth(300).map_or(text.len(), |(at, _)| at)]
}

/// Whether a sentence after an answer retracts it or offers another answer. `value` is the answer as it is written, if it is a
/// number or formula.
pub(crate) fn is_withdrawn(behind: &str, value: Written<'_>) -> bool {
    let behind = clip(behind);
    if behind.trim_end().len() < 2 {
        return false;
    }
    // `statement` reads the rest of the answer's sentence.
    let rest =
        behind.trim_start_matches(|c: char| !c.is_alphanumeric() && !matches!(c, '.' | '!' | '?' | '\n'));
    let joined = behind[..behind.len() - rest.len()].contains([',', '—', '–']);
    let lower = rest.starts_with(|c: char| c.is_alphanumeric() && !c.is_uppercase());
    let own = usize::from(lower || joined && rest.starts_with('I'));
    let ends = regex!(r"[.!?](?:[^0-9A-Za-z]|$)|\n").find_iter(behind).map(|found| found.start() + 1);
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
    // Minimum number of words of a sentence that counts as an explanation. Behind a letter or grid a shorter one can explain too.
    let long = if value.is_empty() { 3 } else { 7 };
    const OPENS: &str = concat!(
        r"^(?:(?:but|however),? )?(?:done|makes sense|quite (?:neat|nice|simple|easy)|you're welcome|ask|nothing else|took|happy|glad|i'm (?:sure|certain|confident)|does (?:that|this)|easy|simple|checked|all good|perfect|enjoy|have a|want me|shall i|yes|end|good luck|that was|option|choice|correct|right|q\.?\s?e\.?\s?d|the end|end of|thanks?|good|great|nice|well done|cheers|bye|i hope|hope|i apologi[sz]e for|",
        r"let me (?:know|explain|show|summari[sz]e|walk|elaborate)|quite an?|feel free|if you|would you|do you|note|here|(?:we|you|one) can|check(?:ed)?|verif(?:y|ied|ication)|explanation|proof|reason|reasoning|",
        r"solution|details?|steps?|first|second|there (?:are|is) no|(?:we|i)(?:'re| are|'m| am) (?:done|finished|sure|certain)|everything (?:checks out|fits|works|agrees)|we have (?:shown|proved|verified)|see|recall|since|because|by|using|",
        r"let \S+ be|finally|remember|interestingly|geometrically|algebraically|substituting|plugging|another way|both methods|students|many people|",
        r"in other words|to (?:summari[sz]e|recap|conclude)|python|dimensional analysis|for|this|that|it|these|those|so|thus|hence|therefore|and|answer|final|in (?:summary|conclusion)|equivalently|alternatively|",
        r"as (?:wanted|desired|required|requested|claimed|needed|expected|above|before|shown)|which|where|with|when|units?)\b"
    );
    let restates = !value.is_empty() && sentence.contains(&*plain(value));
    let words = sentence.trim_end_matches(['?', '.', '!', ' ']);
    let orders = regex!(r"^\pL+(?: \pL+)? (?:that|this|it|the above|everything)$").is_match(words);
    let is_short = sentence.split_whitespace().count() < long || orders;
    let opens = restates || sentence.ends_with(':') || regex!(OPENS).is_match(sentence) || is_aside(sentence);
    disputes(sentence, value) || is_short && !opens
}

/// Whether a sentence confirms the solution or refutes every other answer.
fn confirms(sentence: &str) -> bool {
    const CONFIRMS: &str = concat!(
        r"^(?:(?:i|we)(?:'ve| have| also| then| just)* (?:verified|(?:double[ -]?)?checked|confirmed|used|applied|computed|rounded|simplified|factored)|",
        r"(?:i|we)(?: am| are|'m|'re) (?:confident|certain|happy|glad)|(?:\pL+ ){1,3}(?:confirms?|agrees?|verif(?:y|ies))) [^0-9]*$|",
        r"^(?:all|every|both|each)\b[^0-9]* (?:holds?|pass|passes|checked|verified|excluded|satisfied|met|fulfilled|correct|true|valid)\W*$|^no other\b[^0-9]*$|",
        r"^(?:the|all|all the|every|each|any) other(?:s| \pL+) (?:are|can|fails?|leads?|contradicts?|violates?|breaks?)\b[^0-9]*$"
    );
    regex!(CONFIRMS).is_match(sentence)
}

/// Whether a sentence disputes the answer: it names a fault of the solution, or another number as the result.
fn disputes(sentence: &str, value: &str) -> bool {
    const FAULTS: &str = concat!(
        r"\bbetter$|\b(?:disagree[sd]?|insist(?:s|ed)?|shout(?:s|ed)?|claims|in the box|my (?:response|answer)|placeholder|",
        r"intermediate result|slip|went wrong|miscounted|flawed|(?:contains|made|has) an? (?:\pL+ )?(?:error|mistake)|",
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
fn checks(words: &str, value: Written<'_>) -> bool {
    let end =
        regex!(r"^(?:also|alternatively|equivalently|indeed|again)\b,? ?.*=\s*([^=]+)$").captures(words);
    end.is_some_and(|end| (value.same)(&end[1], value.text))
}

/// Whether a sentence denies another answer, `Not A.`, which is a letter or number unless the value is neither.
fn denies_another(words: &str, value: Written<'_>) -> bool {
    const OWN: &str = r"^not (?:really|quite|exactly|right|correct|so|it|sure|the answer|an? answer)$";
    let named = regex!(r"^not (?:option )?(?:\pL|[-\d]\S*)$").is_match(words);
    named || value.text.is_empty() && words.starts_with("not ") && !regex!(OWN).is_match(words)
}

/// Whether a sentence rejects another answer: `I considered A, but it is wrong`.
fn considers_another(words: &str) -> bool {
    const OTHER: &str = r"^(?:i|we)(?:'ve| have)?(?: also| first)? (?:considered|tried|tested|examined) (\S+)\b.*?,? (?:but|which)\b";
    let other = regex!(OTHER).captures(words);
    other.is_some_and(|other| !matches!(&other[1], "it" | "this" | "that" | "the" | "my"))
}

/// Whether one sentence retracts the answer before it.
fn takes_back(sentence: &str, value: Written<'_>) -> bool {
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
        r"(?:(?:is|are) )?(?:the one|it|all|(?:that|so|as) (?:simple|easy|straightforward))$|(?:gives|makes|equals|is|are|amounts to|comes to|must be)? ?-?\\?(?:\d|frac|sqrt)|",
        r"(?:is|are)? ?(?:(?:also|indeed|thus|therefore|then|exactly|clearly|in fact|just|simply) )*(?:because|since|by|from|due|how|why|",
        r"achieved|attained|obtained|reached|consistent|valid|verified|confirmed|equal to|equivalent|positive|negative|non-?(?:negative|positive|zero|empty|trivial)|less|",
        r"greater|larger|smaller|between|within|possible|in|at|on|when|where|easy|clear|known|obvious|straightforward|worth|",
        r"what (?:we|was) (?:wanted|want|needed|need|asked)|one of|an? (?:prime|perfect|integer|whole|natural|rational|real|positive|valid|",
        r"multiple|divisor|square|cube|fraction|well|standard|classic|direct|consequence|number|maximum|minimum|unique|reasonable|",
        r"simple))(?:\W|$)|",
        // A comment.
        r"(?:can|may) (?:also )?be (?:verified|checked|seen|confirmed|shown|simplified|written)\b|was (?:fun|easy|tricky|hard|interesting)\b|(?:is|are)? ?(?:(?:very|quite|really|pretty|rather|so) )?(?:fast|slow|a lot|a big|many|few|long|short|high|low|cheap|expensive|heavy|great|nice|neat|impressive)\b)",
    );
    let words = sentence.trim_end_matches(['?', '.', '!', ' ']);
    const DOUBTS: &str = r"^(?:(?:or|is|isn't|was|really|who|why|are you|am i|could|should|what)\b.*|\S+)\?$";
    if regex!(DOUBTS).is_match(sentence) || is_correction(words) || states_another(words, value.text) {
        return true;
    }
    let Some(subject) = regex!(SUBJECT).find(words) else { return false };
    let said = &words[subject.end()..];
    let predicate = regex!(r"^(?:is|are) ").replace(said, "");
    !said.is_empty() && !regex!(AGREES).is_match(said) && !praises(&predicate)
}
