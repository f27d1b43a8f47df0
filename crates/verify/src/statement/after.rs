//! Reads the words and signs after a value.

use std::ops::ControlFlow::{self, Break, Continue};

use super::cites;
use super::denial::{is_deferral, is_ignorant};
use super::pieces::{
    Kind, Piece, Pieces, Roles, is_decoration, is_foreign, is_neutral, is_writer, phrase, spelled,
};
use crate::forms::{SENTENCES, form, source};
use crate::languages;
use crate::math::units;
use crate::math::words::{SCALES, number_in_words, spells};
use crate::python_text::regex;

/// Whether the text after a value on its line lets the value be the answer: a counted noun, a reason, or the end of the
/// sentence. `words` is the number of words that were already read as a unit. `worded` is whether words precede the
/// value, so that an exclamation mark isn't a factorial.
pub(crate) fn is_ended(after: &Pieces<'_>, words: usize, value: &str, worded: bool) -> bool {
    let doubted = || is_foreign(&after.all) && languages::doubts(&phrase(&after.all));
    ends(&after.all, words, value, worded) && !is_redirected(after) && !doubted()
}

/// Effect of a piece after a value: `Break` decides whether the value is the answer, `Continue` goes on and has the
/// number of further pieces to skip and of words read.
type Effect = ControlFlow<bool, (usize, usize)>;

/// Effect of a word that doesn't change the value.
const WORD: Effect = Continue((0, 1));

fn ends(after: &[Piece<'_>], mut words: usize, value: &str, worded: bool) -> bool {
    let mut at = 0;
    while let Some(piece) = after.get(at) {
        let rest = &after[at + 1..];
        let effect = match piece.kind {
            Kind::Number => Break(words > 2 && piece.spaced),
            Kind::Command => Break(false),
            // A formula that describes the counted things: `8 pairs $(a,b)$`.
            Kind::Word if piece.formula => Break(words > 0),
            // A language without spaces between words.
            Kind::Word if piece.text.starts_with(languages::is_unspaced) => WORD,
            Kind::Word if words == 0 && at == 0 && !piece.spaced => Break(false),
            Kind::Word => word(piece, rest, words, value),
            Kind::Sign => mark(piece, rest, words, value, worded),
        };
        match effect {
            Break(ended) => return ended,
            Continue((pieces, more)) => (at, words) = (at + 1 + pieces, words + more),
        }
    }
    true
}

/// Returns the effect of a word. `words` other words are between the value and this word.
fn word(piece: &Piece<'_>, rest: &[Piece<'_>], words: usize, value: &str) -> Effect {
    let next = rest.first();
    let next_text = next.map_or("", |next| next.text);
    let number = next.is_some_and(|next| next.kind != Kind::Word && !next.is(".") || spelled(next).is_some());
    let lower = piece.text.to_lowercase();
    Break(match &*lower {
        // `So 8 it is.`
        "it" if next_text == "is" && rest.get(1).is_none_or(|end| end.kind == Kind::Sign) => true,
        // `8 must be the answer.`
        "must" | "has" | "would" | "should" | "will" if words == 0 => {
            let said = phrase(rest);
            let named = regex!(r"(?i)^(?:to )?be (.*)$").captures(&said);
            named.is_some_and(|named| praises(&named[1])) && !offers(rest)
        }
        "and" if next_text == "not" => rest.get(1).is_some_and(|other| other.kind == Kind::Number),
        "and" => continues(next, rest.get(1)) && !taken_back(rest),
        "or" => {
            let equal = |piece: &Piece<'_>| {
                piece.text == value || piece.kind == Kind::Word && spells(piece.text, value)
            };
            next_text == "equivalently" && rest.get(1).is_some_and(equal)
        }
        "of" if words == 0 && number => false,
        "not" => next.is_some_and(|next| next.kind == Kind::Number),
        "times" if next.is_none_or(|next| next.kind == Kind::Sign && !next.formula) => return WORD,
        "to" => !number && next.is_some_and(|next| !matches!(next.text, "the" | "a")),
        "more" | "fewer" | "less"
            if words == 0
                && !number
                && next.is_some_and(|next| next.kind == Kind::Word && next.text != "than") =>
        {
            return WORD;
        }
        "than" if words > 1 => !number,
        "is" | "are" | "was" | "were" | "equals" if words > 0 => !taken_back(rest),
        "is" | "are" | "was" | "were" | "equals" => praises(&phrase(rest)) && !offers(rest),
        _ if piece.is_word(Roles::GOES_ON) => {
            let reason = matches!(&*lower, "since" | "because" | "so" | "where" | "when" | "as");
            let numbered =
                words == 0 && number && matches!(&*lower, "by" | "at" | "per" | "in" | "with" | "on");
            !numbered && !matches!(next_text, "base" | "if") && (reason && !offers(rest) || !taken_back(rest))
        }
        word if is_changing(word) => false,
        _ => return WORD,
    })
}

/// Returns the effect of a sign. `words` words are between the value and the sign.
fn mark(piece: &Piece<'_>, rest: &[Piece<'_>], words: usize, value: &str, worded: bool) -> Effect {
    const NOTHING: Effect = Continue((0, 0));
    let next = rest.first();
    match piece.text {
        "." | "。" | "।" | "!" if next.is_none_or(|next| next.spaced) => {
            let last = piece.text != "!" || worded || words > 0 || piece.spaced;
            // A number alone is another answer.
            let another = next.is_some_and(|next| next.kind == Kind::Number || next.is("-"));
            Break(last && !(another && rest.len() < 4))
        }
        "." => {
            Break(next.is_some_and(|next| {
                next.kind == Kind::Word || matches!(next.text, ")" | "]" | "'" | "’" | "»")
            }))
        }
        "," | ";" => Break(next.is_none_or(|next| opens_remark(next, rest))),
        ":" => Break(words > 0 || next.is_none_or(|next| opens_remark(next, rest))),
        "-" | "–" | "—" => {
            let dash = piece.spaced && next.is_some_and(|next| next.spaced);
            Break(dash && next.is_some_and(|next| opens_remark(next, rest)))
        }
        "(" if piece.formula && words > 0 => Break(true),
        "^" if words > 0 && next.is_some_and(|next| matches!(next.text, "2" | "3")) => Continue((1, 0)),
        "(" | "[" | "{" => {
            let close = rest.iter().position(|piece| matches!(piece.text, ")" | "]" | "}"));
            let inside = &rest[..close.unwrap_or(rest.len())];
            if is_harmless(inside, piece.formula, value) { Continue((inside.len(), 1)) } else { Break(false) }
        }
        // Decoration, unless it marks an error.
        mark if mark.chars().all(is_decoration) => NOTHING,
        // The end of a cell.
        "|" if !piece.formula && next.is_none() => NOTHING,
        ")" | "]" | "’" | "»" | "}" => NOTHING,
        "'" if !piece.formula => NOTHING,
        _ => Break(false),
    }
}

/// Whether the pieces after a comma, a colon or a dash begin a remark that keeps the value: `I believe`, `no question`.
fn opens_remark(next: &Piece<'_>, rest: &[Piece<'_>]) -> bool {
    if next.kind != Kind::Word || next.formula {
        // The mark that closes the formula or the quotation may follow the comma.
        return next.kind == Kind::Sign && rest.len() == 1 && matches!(next.text, ")" | "]" | "'");
    }
    let and = next.text == "and" && continues(rest.get(1), rest.get(2));
    let on = next.is_word(Roles::GOES_ON) || matches!(next.text, "not" | "none");
    let reason = matches!(next.text, "since" | "because") && !offers(rest);
    (and || on) && (reason || !taken_back(&rest[1..]))
        || form!("assures").is_match(&phrase(rest)) && !offers(rest)
}

/// Whether a remark in brackets after a value repeats or explains the value.
fn is_harmless(inside: &[Piece<'_>], formula: bool, value: &str) -> bool {
    let said: Vec<&str> = inside.iter().map(|piece| piece.text).collect();
    let said = said.join(" ");
    let remark = said.to_lowercase();
    const SURE: &str = r"^(?:(?:double|re) ?-? ?)?(?:verified|checked|confirmed|exact|exactly|final)$";
    let by_writer = || inside.first().is_some_and(|word| is_writer(word.text));
    regex!(SURE).is_match(&remark)
        || said == value
        || spells(&said, value)
        || !formula && (by_writer() || ends(inside, 1, value, true)) && !is_correction(&remark)
}

/// Whether the words after an "and" continue the statement about the value and don't offer another value.
fn continues(word: Option<&Piece<'_>>, next: Option<&Piece<'_>>) -> bool {
    let on = next.is_some_and(|next| next.text == "on");
    word.is_some_and(|word| {
        (word.is_word(Roles::GOES_ON) || matches!(word.text, "indeed" | "nothing")) && !on
    })
}

/// Whether a clause offers another value, which is a number after a comma or a connective, outside of a formula.
fn offers(clause: &[Piece<'_>]) -> bool {
    let joins = |piece: &Piece<'_>| {
        !piece.formula && matches!(piece.text, "," | ";" | "and" | "or" | "else" | "otherwise")
    };
    clause.windows(2).any(|pair| joins(&pair[0]) && pair[1].kind == Kind::Number && !pair[1].formula)
}

/// Whether a word after a value changes the value, or shows that it isn't an answer.
fn is_changing(word: &str) -> bool {
    let name = word.len() < 3 && !matches!(word, "a" | "an" | "of" | "sq" | "cu");
    let abbreviation = !word.contains(|c: char| !c.is_ascii() || "aeiouy".contains(c))
        && units::canonical(word).is_none()
        && !matches!(word, "sq" | "cu");
    const PARTICIPLES: [&str; 6] = ["needed", "required", "used", "expected", "colored", "red"];
    name && !units::is_unit(word)
        || abbreviation
        || units::changes(word)
        || units::denominator(word).is_some()
        || SCALES.iter().any(|(scale, _)| *scale == word.trim_end_matches('s'))
        || number_in_words(word).is_some()
        || word.ends_with("n't")
        || word.ends_with("n’t")
        || word.ends_with("ed") && !PARTICIPLES.contains(&word)
        || Roles::of(word).has(Roles::CHANGES)
}

/// Whether a clause after a value calls the value wrong or offers another value.
fn taken_back(clause: &[Piece<'_>]) -> bool {
    let wrong = |piece: &Piece<'_>| {
        let word = piece.text.to_lowercase();
        matches!(&*word, "not" | "never" | "wrong" | "incorrect" | "false" | "mistaken")
            || word.ends_with("n't")
            || word.ends_with("n’t")
    };
    offers(clause) || clause.iter().take(8).any(wrong)
}

/// Whether the words after a value relate it to another value, problem or person, as in `for Bob`.
pub(crate) fn is_redirected(after: &Pieces<'_>) -> bool {
    let after = &*phrase(&after.all);
    let number = |word: &str| {
        word.starts_with(|c: char| c.is_ascii_digit()) || number_in_words(&word.to_lowercase()).is_some()
    };
    let mut others = form!("another number")
        .captures_iter(after)
        .filter_map(|found| found.iter().skip(1).flatten().next());
    const REMARKS: &str = r"(?i)^(?:means|simplifies|satisfies|matches|corresponds|agrees|represents|occurs|happens|holds|arises|leads|works|fits|checks|follows|completes|reduces|rounds|confirms|shows|was)$";
    let which = regex!(r"(?i)\bwhich (\w+)").captures(after);
    // A role that isn't the answer's, as in `as a warm-up`, and a purpose or a person, as in `for practice` and `for Bob`.
    let role = regex!(r"(?i)^as an? (\w+)").captures(after);
    let role = role.is_some_and(|found| !form!("roles of an answer").is_match(&found[1]));
    let purpose = regex!(r"(?i)^for ([^\W\d]\w*)(?: only| purposes?)?\W*$").captures(after);
    let purpose = purpose.is_some_and(|found| !form!("for everyone").is_match(&found[1]));
    purpose
        || role
        || form!("redirected").is_match(after)
        || others.any(|word| number(word.as_str()))
        || cites(after)
        || which.is_some_and(|found| !is_neutral(&found[1]) && !regex!(REMARKS).is_match(&found[1]))
}

/// Whether a remark in lower case corrects the answer before it, doubts it or orders another step.
pub(crate) fn is_correction(words: &str) -> bool {
    const ONLY: &str =
        "just|only|merely|an?|my|the|at|by|for|as|picked|chosen|this (?:is|was)|that (?:is|was)";
    let trial = regex!(&format!(r"^(?:(?:{ONLY}) )*(?:{})(?: \w+)?$", source(SENTENCES, "trials")));
    is_ignorant(words) || form!("corrects").is_match(words) || trial.is_match(words) || is_deferral(words)
}

/// Whether a predicate says that its subject is the answer: `the answer to the problem`, `the smallest such number`.
pub(crate) fn praises(predicate: &str) -> bool {
    form!("praised").is_match(predicate)
        && !form!("unpraised").is_match(predicate)
        && predicate.chars().any(char::is_alphabetic)
}
