//! Whether the text before a value denies the value, supposes it, or attributes it to somebody else.

use super::pieces::{Kind, Piece, Pieces, Roles, is_foreign, is_neutral, is_writer, phrase};
use super::{cites, low_end, sentence};
use crate::forms::{SENTENCES, form, source};
use crate::languages;
use crate::math::units;
use crate::python_text::regex;

/// Whether the text before a value denies the value, supposes it, or attributes it to somebody else.
pub(crate) fn is_denied_before(before: &str) -> bool {
    let before = &before[low_end(before)..];
    let bare = regex!(r"\s*```[a-z]*\s*$").find(before).map_or(before, |fence| &before[..fence.start()]);
    // `It is not:`, and on the next line `The answer is`.
    let announced = regex!(r"(?i)(^|[:：]|\n)\W*(?:(?:the|my|final) )*answer(?: is)?\W*$").captures(bare);
    let above = announced.and_then(|announced| announced.get(1)).map(|mark| &bare[..mark.end()]);
    // `No doubt about it: the answer is` isn't a denial.
    let goes_on =
        |above: &&str| regex!(r"(?i)(?:\b(?:is|are|be|was|were|not|isn't)|[:：,–—-])[*\s]*$").is_match(above);
    let above = above.filter(goes_on).filter(|above| !form!("idioms").is_match(sentence(above)));
    let texts = [Some(bare), above];
    let above = bare.trim_end().trim_end_matches(['.', '!', ' ']);
    let same_line = sentence(bare).contains(char::is_alphanumeric);
    is_struck(before)
        || gives_up(bare)
        || !same_line && is_deferral(&sentence(above).to_lowercase())
        || texts.into_iter().flatten().any(|text| {
            let pieces = Pieces::new().read(introduction(text), false);
            // All of the last clause of a line above introduces the value.
            let above = !same_line && pieces.all.last().is_some_and(|last| last.is(":"));
            let mut clauses = pieces.all.rsplit(|piece| matches!(piece.text, "," | ";" | "but" | "so"));
            let clause = clauses.next().unwrap_or_default();
            let denied = above && clause.iter().any(|piece| piece.is_word(Roles::DENIES));
            denied || denies(&pieces.all) || is_disowned(&pieces.all)
        })
}

/// Whether the sentence before the value's sentence says that the writer gave up: `I couldn't solve it. 8`
fn gives_up(before: &str) -> bool {
    let own = sentence(before);
    let above = before[..before.len() - own.len()].trim_end().trim_end_matches(['.', '!', ':']);
    form!("gives up").is_match(sentence(above))
}

/// Returns the words that introduce a value: the words before it in its sentence or, without any, the line above if
/// that line doesn't end a sentence.
fn introduction(before: &str) -> &str {
    let same_line = sentence(before);
    if same_line.contains(char::is_alphanumeric) {
        return same_line;
    }
    let above = before.trim_end_matches(|c: char| c.is_whitespace() || "*_`$\"“([{>\\".contains(c));
    // A list or a table introduces nothing.
    let closed = regex!(r"(?:</\w+>\s*|\n\s*(?:[-*•|]|\d+[.)])\s[^\n:]*\n\W*)$").is_match(before);
    if closed || above.ends_with(['.', '!', '?', '。']) { "" } else { sentence(above) }
}

/// Whether the text before a value strikes the value out or begins a comment.
pub(crate) fn is_struck(before: &str) -> bool {
    regex!(r"(?:<!--|<(?:s|del|strike)>|~~)[^\w<~\n]*(?:```[a-z]*\s*)?[^\w<~\n]*$")
        .is_match(&before[low_end(before)..])
}

/// Whether the words directly before a value, except neutral ones, deny it, suppose it or attribute it to others.
pub(super) fn denies(words: &[Piece<'_>]) -> bool {
    let mut next_text = "";
    // Whether the subject of a verb of thinking is looked for.
    let mut thinks = false;
    // `No: 8`
    if let [.., no, mark] = words
        && no.text.eq_ignore_ascii_case("no")
        && mark.kind == Kind::Sign
        && matches!(mark.text, "," | ":" | ";")
    {
        return false;
    }
    for (at, piece) in words.iter().enumerate().rev() {
        if piece.is(".")
            || piece.kind == Kind::Sign && matches!(piece.text, "," | ";" | ":") && !next_text.is_empty()
        {
            return false;
        }
        if piece.kind != Kind::Word || piece.formula {
            // `half of 18` is a separate value.
            if next_text == "is" && piece.kind == Kind::Number {
                return false;
            }
            continue;
        }
        let roles = piece.roles();
        let lower = next_text.to_lowercase();
        let answer = matches!(&*lower, "answer" | "answers");
        let own = roles.has(Roles::OWNS) || roles.has(Roles::QUALIFIES);
        let earlier = words[..at].last().map_or("", |piece| piece.text);
        // `Without a doubt, it is 8.`
        if piece.text == "doubt" && matches!(&*earlier.to_lowercase(), "no" | "a" | "without" | "any") {
            return false;
        }
        // `The least value is 8.`
        let superlative = matches!(piece.text, "least" | "most") && !next_text.is_empty();
        if superlative && earlier.eq_ignore_ascii_case("the") {
            return false;
        }
        if roles.has(Roles::DENIES)
            || answer && !own && !(is_auxiliary(piece.text) && is_writer(earlier))
            || thinks
                && !is_writer(piece.text)
                && !roles.has(Roles::LEADS.with(Roles::THINKS))
                && !is_auxiliary(piece.text)
        {
            return true;
        }
        thinks = roles.has(Roles::THINKS) || thinks && !is_writer(piece.text);
        // The verb that states the value may be denied: `It doesn't take`.
        let states = next_text.is_empty() && roles.has(Roles::STATES);
        if !states && !roles.has(Roles::FILLS.with(Roles::OWNS)) {
            return false;
        }
        next_text = piece.text;
    }
    // `Say it is 8.`
    thinks
}

/// Whether a word can be between `I` or `we` and a verb, as in `I would say`.
fn is_auxiliary(word: &str) -> bool {
    regex!("^(?:would|will|can|do|must|should|have|to|also|going|still)$").is_match(word)
}

/// Whether the sentence up to a value attributes it to somebody else, supposes it, or is about something else.
pub(super) fn is_disowned(before: &[Piece<'_>]) -> bool {
    let said = phrase(before);
    const ADJUNCT: &str = r"(?i)^(?:(?:so|well|ok|okay|and) ,? ?)?(?:as|for|in|by|at|on|with|through|just|only|picking|choosing|guessing)\b(?: \S+){0,4}? ";
    const CLOSED: &str = r"(?: (?:\w+ )?,| (?:i|we|you|it|it's|this|that|the)\b| :|$)";
    const EXCEPT: &str = r"(?i)\b(?:(?:any|every)thing|all|nothing) (?:but|except)(?: \S+){0,2}$";
    let trial =
        || regex!(&format!(r"{ADJUNCT}(?:{}|fun)\b{CLOSED}", source(SENTENCES, "trials"))).is_match(&said);
    if is_ignorant(&said)
        || form!("surrenders").is_match(&said)
        || form!("omitted").is_match(contrasted(&said))
        || trial()
    {
        return true;
    }
    let main = main_clause(&said);
    regex!(EXCEPT).is_match(&said)
        || form!("disowned").is_match(main)
        || is_foreign(before) && languages::doubts(main)
        || cites(main)
        || is_of_another(main)
}

/// Returns the clause of a sentence that states the value, without `I am sure that`.
fn main_clause(said: &str) -> &str {
    // What a contrast or a conclusion states is separate: `Bob says 9, but the answer is`.
    let turn = form!("turns").captures_iter(said).last().and_then(|turn| turn.get(1));
    let said = turn.map_or(said, |turn| said[turn.start()..].trim_start());
    // The clause before the main one, as in `though I doubted it, the answer is`, counts if it is a condition or a source.
    let dismissed = |clause: &str| {
        form!("polite").is_match(clause)
            && !regex!(r"(?i)\b(?:were|had been|lied|wrong about)\b").is_match(clause)
            || !form!("condition").is_match(clause) && !form!("reporters").is_match(clause)
    };
    let main = form!("main clause").captures(said).filter(|main| dismissed(&main[1]));
    let said = main.and_then(|main| main.get(2)).map_or(said, |main| main.as_str());
    form!("sure").find(said).map_or(said, |sure| said[sure.end()..].trim_start())
}

/// Whether a clause is about something other than the problem's answer: `the square of the answer`, `Bob's answer`,
/// `the answer to another problem`.
fn is_of_another(said: &str) -> bool {
    let Some(answer) = regex!(r"(?i)^(.*)\b(?:answers?|ans)\b(.*)$").captures(said) else { return false };
    let mut owners = answer[1].rsplit(' ').filter(|word| !word.is_empty());
    let owner = owners.find(|word| !Roles::of(word).has(Roles::QUALIFIES)).unwrap_or_default();
    // `I would answer with`
    if is_auxiliary(owner) && regex!(r"(?i)\b(?:i|we) \w+ $").is_match(&answer[1]) {
        return false;
    }
    let leads =
        || regex!(r"(?i)\b(?:leads?|led|comes?|gets?|going|have|had) (?:us |me )?to\b").is_match(&answer[1]);
    const OWN: Roles = Roles::THINKS.with(Roles::LABELS).with(Roles::CHOOSES).with(Roles::OWNS);
    if owner == "to" && !leads()
        || matches!(owner, "of" | "about" | "on" | "for" | "by" | "in" | "at" | "as" | "with" | "without")
        || owner.starts_with(char::is_alphabetic) && !is_neutral(owner) && !Roles::of(owner).has(OWN)
    {
        return true;
    }
    let tail = answer[2].split(':').next().unwrap_or_default();
    // `the answer has 8 digits`
    if regex!(r"^ (?:has|had|contains?|needs|requires)$").is_match(tail.trim_end()) {
        return true;
    }
    let denied = regex!(r"^ (?:is|are) not \S+ ,? ?but").find(tail);
    let tail = denied.map_or(tail, |denied| &tail[denied.end()..]);
    // `the answer is the total`
    const IS_THE: &str =
        r"^(?: (?:is|should be|must be|will be))(?: (?:simply|just|therefore|thus|then|now))* the (\w+)";
    let value = regex!(IS_THE).captures(tail);
    if value.is_some_and(|found| Roles::of(&found[1]).has(Roles::JOINS.with(Roles::PRAISES))) {
        return false;
    }
    let denies = |text: &str| text.split(' ').any(|word| Roles::of(word).has(Roles::DENIES));
    let aside = form!("aside").is_match(tail) && !denies(tail) && !form!("reporters").is_match(tail);
    !aside && !tail.split(' ').all(is_about_answer)
}

/// Whether a word can occur between `answer` and its verb, as in `The answer to the given problem is`.
fn is_about_answer(word: &str) -> bool {
    !word.starts_with(char::is_alphabetic)
        || !matches!(&*word.to_lowercase(), "he" | "she" | "they" | "his" | "her" | "their")
            && (Roles::of(word).has(Roles::FILLS.with(Roles::LEADS).with(Roles::DESCRIBES))
                || units::canonical(&word.to_lowercase()).is_some())
}

/// Returns the part of a sentence after its last "but", "however" or "yet", or the whole sentence.
fn contrasted(said: &str) -> &str {
    regex!(r"(?i)^.*\b(?:but|however|yet)\b").find(said).map_or(said, |turn| said[turn.end()..].trim_start())
}

/// Whether the writer doesn't know the answer: `I don't know`. Text before a "but" doesn't count.
pub(super) fn is_ignorant(said: &str) -> bool {
    form!("ignorant").is_match(contrasted(said))
}

/// Whether a sentence in lower case says that the answer follows later.
pub(super) fn is_deferral(words: &str) -> bool {
    form!("defers").is_match(words)
}
