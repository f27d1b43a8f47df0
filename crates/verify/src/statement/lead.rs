//! Reads the words and signs directly before a value.

use super::denial::{denies, is_disowned};
use super::pieces::{Kind, Piece, Pieces, Roles, is_foreign, is_writer, uncontracted};
use crate::forms::form;
use crate::math::units;
use crate::math::words::number_in_words;
use crate::python_text::regex;

/// Reads the pieces before a value in its sentence. Returns the sign or currency attached to the value (`"-"`, a currency
/// or `""`), or `None` if the value isn't stated as an answer.
pub(crate) fn lead(before: &Pieces<'_>, value: &str) -> Option<&'static str> {
    let depth = before.all.iter().filter(|piece| piece.formula).fold(0, |depth: i32, piece| {
        depth + i32::from(matches!(piece.text, "(" | "[" | "\\{"))
            - i32::from(matches!(piece.text, ")" | "]" | "\\}"))
    });
    if depth > 0 || is_disowned(&before.all) { None } else { sign(&before.all, before.gap, value) }
}

/// Implements [`lead`] for the pieces before a value. `gap` is whether white space precedes the value.
fn sign(before: &[Piece<'_>], gap: bool, value: &str) -> Option<&'static str> {
    let Some((last, head)) = before.split_last() else { return Some("") };
    let stated = || sign(head, last.spaced, value).filter(|sign| sign.is_empty());
    let bare_head = head.is_empty() && !last.formula;
    match (last.kind, last.text) {
        (Kind::Word, word) => match &*word.to_lowercase() {
            "minus" | "negative" => stated().and(Some("-")),
            "us" | "him" | "her" | "them" | "me" | "you" => stated(),
            _ => match units::currency(word) {
                Some(currency) => {
                    let signs =
                        [("dollar", "\\$"), ("euro", "€"), ("sterling", "£"), ("yen", "¥"), ("rupee", "₹")];
                    let sign = signs.into_iter().find(|(name, _)| *name == currency);
                    stated().and(sign.map(|(_, sign)| sign))
                }
                None => Some("").filter(|_| word_states(last, head, before)),
            },
        },
        (Kind::Number, _) => None,
        (Kind::Command, "\\$") => stated().and(Some("\\$")),
        (Kind::Sign, "€" | "£" | "¥" | "₹") => {
            stated().and(["€", "£", "¥", "₹"].into_iter().find(|sign| *sign == last.text))
        }
        (
            Kind::Command,
            "\\Rightarrow" | "\\implies" | "\\Longrightarrow" | "\\iff" | "\\approx" | "\\therefore"
            | "\\equiv",
        ) => unless_denied(head),
        (Kind::Command, "\\in") if value.starts_with(['(', '[', '\\']) => unless_denied(head),
        (_, "=" | "≡") if head.last().is_some_and(|negation| negation.text == "\\not") => None,
        (_, "=" | "≈" | "→" | "⇒" | "⟹" | "∴" | "≡") => unless_denied(head),
        (Kind::Sign, arrow) if arrow.len() > 1 && arrow.bytes().all(|byte| b"=->".contains(&byte)) => {
            unless_denied(head)
        }
        (_, "：") if is_foreign(head) || is_label(head) => unless_denied(head),
        (_, ":") => {
            let ratio = head.last().is_some_and(|piece| piece.kind == Kind::Number) && (last.formula || !gap);
            if ratio || !is_label(head) && !is_foreign(head) { None } else { unless_denied(head) }
        }
        (_, "," | ";") if last.formula => None,
        (_, "," | ";") => {
            let clause =
                head.rsplit(|piece| matches!(piece.text, "," | ";" | "." | ":")).next().unwrap_or_default();
            let idiom = |piece: &Piece<'_>| {
                piece.is_word(Roles::FILLS.with(Roles::LEADS).with(Roles::LABELS))
                    && !piece.is_word(Roles::DENIES)
            };
            (head.last().is_none_or(|word| word.is_word(Roles::LEADS) || word.is("."))
                || clause.iter().all(idiom))
            .then_some("")
        }
        // The value repeats the number in words before it: `nine (9)`.
        (_, "(" | "[") => {
            let words = head.iter().rev().take_while(|piece| piece.kind == Kind::Word).count();
            for from in head.len() - words..head.len() {
                let said: Vec<&str> = head[from..].iter().map(|piece| piece.text).collect();
                if let Some(number) = number_in_words(&said.join(" ")) {
                    let same = number.to_string() == value;
                    return sign(&head[..from], true, value).filter(|_| same);
                }
            }
            stated()
        }
        // The label of an item or option: `(b)`, `2)`.
        (_, ")") => match head {
            [_] => Some(""),
            [head @ .., Piece { text: "(", .. }, mark] if mark.text.len() == 1 => {
                sign(head, true, value).filter(|sign| sign.is_empty())
            }
            _ => None,
        },
        (_, "-" | "−" | "–" | "—" | "+") => {
            let sign = if last.text == "+" { "" } else { "-" };
            match head.last() {
                None => Some(if gap && !last.formula { "" } else { sign }),
                Some(piece) if piece.kind == Kind::Word && !piece.formula => {
                    let dash = !last.formula && gap;
                    stated().filter(|_| last.spaced).map(|_| if dash { "" } else { sign })
                }
                Some(piece) if piece.kind == Kind::Number || matches!(piece.text, ")" | "]" | "}") => None,
                Some(_) => stated().and(Some(sign)),
            }
        }
        (_, "'" | "‘" | "«") if !bare_head => stated(),
        (
            _,
            ">" | "|" | "•" | "·" | "◦" | "‣" | "▪" | "'" | "‘" | "«" | "✅" | "✓" | "✔" | "👉" | "➡" | "➜"
            | "📌" | "🎉",
        ) if bare_head => Some(""),
        _ => None,
    }
}

/// Returns an empty sign, or `None` if the words deny the value.
fn unless_denied(words: &[Piece<'_>]) -> Option<&'static str> {
    if denies(words) { None } else { Some("") }
}

/// Whether the last word before a value states it. `head` has the pieces before this word, and `before` all pieces.
fn word_states(last: &Piece<'_>, head: &[Piece<'_>], before: &[Piece<'_>]) -> bool {
    let before_last = |at: usize| head.len().checked_sub(at).map_or("", |at| head[at].text);
    let join = head.last().filter(|word| word.is_word(Roles::JOINS));
    let words = match &*last.text.to_lowercase() {
        // `is at`, `is therefore at`, `intersect at`
        "at" if head
            .last()
            .is_some_and(|word| word.is_word(Roles::STATES) || form!("places").is_match(word.text)) =>
        {
            head
        }
        "on" | "in" if before_last(2) != "to" && matches!(before_last(1), "is" | "was" | "be" | "falls") => {
            head
        }
        "it" if matches!(before_last(1), "make" | "makes" | "making") => head,
        "with" if matches!(before_last(1), "left" | "up" | "us") => head,
        "with" | "for" | "on" | "in" | "at" | "as" | "to" if chooses(head) => head,
        _ if chooses(before) || acts(before) => before,
        "on" | "with" | "for" | "at" if acts(head) => head,
        "like" if matches!(before_last(1), "looks" | "Looks" | "seems" | "Seems") => &head[..head.len() - 1],
        "to" | "as" | "at" if matches!(before_last(1), "out" | "us" | "down" | "points" | "lead" | "it") => {
            head
        }
        "to" if before_last(1) == "up" && before_last(2).starts_with("add") => return true,
        // A verb after an auxiliary verb: `must score 8`.
        _ if matches!(before_last(1), "will" | "can" | "must" | "should" | "to")
            && !matches!(last.text, "exceed" | "avoid") =>
        {
            head
        }
        "of" if join.is_some_and(|word| !word.text.starts_with("sum")) => before,
        "to" | "by" | "at" | "as" | "in" if join.is_some() => before,
        // The sentence denies another value, but states this one.
        "but" if head.iter().any(|word| word.is_word(Roles::DENIES)) => return true,
        _ if last.is_word(Roles::STATES) || is_foreign(before) => before,
        _ => return false,
    };
    !denies(words)
}

/// Whether the words end with a verb of the writer's that chooses a value: `I'd answer`, `let's go`.
fn chooses(words: &[Piece<'_>]) -> bool {
    let Some((verb, head)) = words.split_last() else { return false };
    let neutral = |piece: &&Piece<'_>| piece.is_word(Roles::FILLS.with(Roles::LEADS).with(Roles::CHOOSES));
    verb.is_word(Roles::CHOOSES) && head.iter().rev().take_while(neutral).any(|piece| is_writer(piece.text))
}

/// Whether the words end with any verb of the writer's that doesn't report, doubt or compute, as in `I hereby submit`.
fn acts(words: &[Piece<'_>]) -> bool {
    let Some((verb, head)) = words.split_last() else { return false };
    let adverb = |piece: &&Piece<'_>| {
        piece.is_word(Roles::FILLS.with(Roles::LEADS))
            || piece.kind == Kind::Word && piece.text.ends_with("by")
    };
    let writer =
        |piece: &Piece<'_>| matches!(uncontracted(&piece.text.to_lowercase().replace('’', "'")), "i" | "we");
    verb.kind == Kind::Word
        && !verb.formula
        && !form!("acts of no answer").is_match(verb.text)
        && !verb.is_word(Roles::DENIES)
        && head.iter().rev().take_while(adverb).take(4).any(writer)
}

/// Whether the words before a colon can introduce the answer: only known words, a clause of the writer's (`now we add
/// them`), a quantity (`number of coins`) or a symbol. Other labels, such as `a common error`, can't.
fn is_label(head: &[Piece<'_>]) -> bool {
    let label = head.rsplit(|piece| matches!(piece.text, ":" | ";" | ".")).next().unwrap_or_default();
    let words = || label.iter().filter(|piece| piece.kind == Kind::Word && !piece.formula);
    const KNOWN: Roles = Roles::STATES
        .with(Roles::FILLS)
        .with(Roles::OWNS)
        .with(Roles::LEADS)
        .with(Roles::PRAISES)
        .with(Roles::JOINS)
        .with(Roles::LABELS);
    const VERBS: &str = "^(?:is|are|was|be|gets?|have|has|gives?|find|obtain|becomes|equals)$";
    let is_verb = |piece: &Piece<'_>| regex!(VERBS).is_match(piece.text);
    words().all(|piece| piece.is_word(KNOWN) || units::is_unit(piece.text))
        || words().any(|piece| {
            let quantity = regex!(r"(?i)^(?:left|remaining|needed|required|sold|spent|earned|many|matrix|grid|set|interval|vector|points?|roots?|function|polynomial)$").is_match(piece.text);
            quantity
                || piece.is_word(Roles::JOINS) && !piece.text.eq_ignore_ascii_case("given")
                || is_writer(piece.text)
        })
        || words().next_back().is_some_and(is_verb)
}
