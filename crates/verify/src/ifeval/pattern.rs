//! Regular expressions with the meaning of Python's `re`.
//!
//! IFEval passes its keywords to `re` unescaped. Here patterns are translated into the syntax of `fancy_regex`: it hands
//! patterns without look-around, back-references and atomic groups to `regex`, whose work is linear, and matches the
//! others by backtracking with a bounded number of steps. The test `differences_to_python` lists where a keyword means
//! something else than in Python.
//!
//! Not supported, and reported as an error: conditional groups `(?(1)...)`, named characters `\N{...}`, and the flags
//! a, L and x.

use super::characters::{is_unicode_word, is_word};
use fancy_regex::{Regex, RegexBuilder};
use std::sync::OnceLock;
use thiserror::Error;

/// Maximum number of backtracking steps of one search.
const MOST_STEPS: usize = 400_000;
/// Maximum number of matches that are counted by backtracking.
const MOST_MATCHES: usize = 1_000;
/// Maximum length in bytes of a response that is matched against a keyword with look-around or back-references, which
/// may read the whole response at each character.
const LONGEST: usize = 1 << 15;
/// Maximum nesting of groups.
const DEEPEST: usize = 60;

/// Word characters of `re`, as part of a set. Unlike Unicode's, they don't include combining marks.
const WORD: &str = r"\p{L}\p{N}_";
const NO_WORD: &str = r"[^\p{L}\p{N}_]";
/// White space of `re`, as part of a set. It has four control characters more than Unicode's.
const SPACE: &str = r"\s\x{1c}-\x{1f}";
const NO_SPACE: &str = r"[^\s\x{1c}-\x{1f}]";

/// Reason why a pattern can't be compiled or matched.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PatternError {
    /// Python's `re` would refuse the pattern, or the pattern uses a feature that isn't supported here.
    #[error("the regular expression can't be used: {0}")]
    Syntax(String),
    /// Matching would take more than the step budget.
    #[error("the regular expression took more steps than its budget")]
    Budget,
}

fn refuse<T>(why: &str) -> Result<T, PatternError> {
    Err(PatternError::Syntax(why.to_owned()))
}

/// A compiled pattern.
#[derive(Debug, Clone)]
pub struct Pattern {
    regex: Regex,
    /// The pattern with `re`'s definition of word boundaries, for strings in which Unicode's definition differs.
    /// `None` if the pattern doesn't contain word boundaries.
    at_marks: Option<(String, OnceLock<Option<Regex>>)>,
    /// Whether the pattern itself has look-around, a back-reference or an atomic group.
    backtracks: bool,
}

impl Pattern {
    /// Compiles a pattern like `re.compile(pattern, re.IGNORECASE)`, or without the flag.
    /// Fails on what `re` refuses and on what isn't supported here.
    pub fn new(pattern: &str, ignore_case: bool) -> Result<Self, PatternError> {
        Self::with_end(pattern, ignore_case, r"(?=\n?\z)")
    }

    /// Compiles a pattern like `re.compile(pattern)`, for [`Pattern::is_found`]. `$` consumes a line break at the end of the
    /// text, so a pattern such as `$\n` isn't found.
    /// Fails as [`Pattern::new`], and on look-around, back-references, atomic groups and possessive repeats, whose search
    /// takes more than linear time.
    pub fn linear(pattern: &str) -> Result<Self, PatternError> {
        let compiled = Self::with_end(pattern, false, r"(?:\n?\z)")?;
        match compiled.backtracks {
            true => {
                refuse("look-around, back-references, atomic groups and possessive repeats aren't supported")
            }
            false => Ok(compiled),
        }
    }

    /// Compiles a pattern as [`Pattern::new`] does. `end` is the translation of `$` outside of multi-line mode.
    fn with_end(pattern: &str, ignore_case: bool, end: &'static str) -> Result<Self, PatternError> {
        let translated = |exact_edges| {
            let mut translation = Translation { end, ..Translation::new(pattern, ignore_case, exact_edges) };
            translation.either(true)?;
            if translation.peek().is_some() { refuse("unbalanced parenthesis") } else { Ok(translation) }
        };
        let Translation { out, has_edges, backtracks, .. } = translated(false)?;
        let regex = compile(&out).map_err(|e| PatternError::Syntax(e.to_string()))?;
        let at_marks = if has_edges { Some((translated(true)?.out, OnceLock::new())) } else { None };
        Ok(Self { regex, at_marks, backtracks })
    }

    /// Returns the number of capturing groups.
    pub(crate) fn groups(&self) -> usize {
        self.regex.captures_len() - 1
    }

    /// Returns whether the pattern matches somewhere, like `re.search(...) is not None`.
    /// Fails if the search takes more steps than its budget.
    pub fn is_found(&self, text: &str) -> Result<bool, PatternError> {
        Ok(self.count(text, 1)? == 1)
    }

    /// Counts the matches like `len(re.findall(...))`, up to `most`.
    pub(crate) fn count(&self, text: &str, most: usize) -> Result<usize, PatternError> {
        let marks = || !text.is_ascii() && text.chars().any(|c| is_word(c) != is_unicode_word(c));
        let (regex, backtracks) = match &self.at_marks {
            Some((pattern, compiled)) if marks() => {
                let compiled = compiled.get_or_init(|| compile(pattern).ok());
                (compiled.as_ref().ok_or(PatternError::Budget)?, true)
            }
            _ => (&self.regex, self.backtracks),
        };
        if self.backtracks && text.len() > LONGEST {
            return Err(PatternError::Budget);
        }
        let (mut count, mut from) = (0, 0);
        while count < most {
            let found = regex.find_from_pos(text, from).map_err(|_| PatternError::Budget)?;
            let Some(found) = found else { break };
            count += 1;
            if backtracks && count > MOST_MATCHES {
                return Err(PatternError::Budget);
            }
            from = found.end();
            if found.start() == from {
                let Some(next) = text[from..].chars().next() else { break };
                from += next.len_utf8();
            }
        }
        Ok(count)
    }
}

fn compile(pattern: &str) -> Result<Regex, fancy_regex::Error> {
    RegexBuilder::new(pattern).backtrack_limit(MOST_STEPS).build()
}

/// The part of the pattern directly before the current position, which a quantifier would repeat.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Last {
    Nothing,
    Item,
    Repeated,
}

/// The flags in force.
#[derive(Clone, Copy)]
struct Flags {
    ignore_case: bool,
    lines: bool,
}

/// Translation of a pattern from Python's syntax to the syntax of `fancy_regex`. Syntax that is the same in both is
/// copied, and `fancy_regex` refuses the same mistakes in it as Python.
struct Translation {
    text: Vec<char>,
    at: usize,
    out: String,
    flags: Flags,
    /// Names of the groups so far. A group without a name has an empty one.
    groups: Vec<String>,
    depth: usize,
    /// Whether word boundaries are written with `re`'s definition.
    exact_edges: bool,
    has_edges: bool,
    backtracks: bool,
    /// Translation of `$` outside of multi-line mode.
    end: &'static str,
}

impl Translation {
    fn new(pattern: &str, ignore_case: bool, exact_edges: bool) -> Self {
        Self {
            text: pattern.chars().collect(),
            at: 0,
            out: if ignore_case { "(?i)" } else { "" }.to_owned(),
            flags: Flags { ignore_case, lines: false },
            groups: Vec::new(),
            depth: 0,
            exact_edges,
            has_edges: false,
            backtracks: false,
            end: "",
        }
    }

    fn peek(&self) -> Option<char> {
        self.text.get(self.at).copied()
    }

    fn read(&mut self, missing: &str) -> Result<char, PatternError> {
        let Some(c) = self.peek() else { return refuse(missing) };
        self.at += 1;
        Ok(c)
    }

    fn take(&mut self, word: &str) -> bool {
        let found = word.chars().enumerate().all(|(i, c)| self.text.get(self.at + i) == Some(&c));
        self.at += if found { word.chars().count() } else { 0 };
        found
    }

    /// Translates branches up to the end or a closing parenthesis.
    fn either(&mut self, outermost: bool) -> Result<(), PatternError> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return refuse("groups nested too deep");
        }
        let mut last = Last::Nothing;
        while let Some(c) = self.peek().filter(|c| *c != ')') {
            let at_start = outermost && self.at == 0;
            self.at += 1;
            last = match c {
                '|' => self.write("|", Last::Nothing),
                '.' => self.write(".", Last::Item),
                '^' => self.write("^", Last::Nothing),
                '$' if self.flags.lines => self.write("$", Last::Nothing),
                '$' => self.write(self.end, Last::Nothing),
                '[' => self.set()?,
                '(' => self.group(at_start, last)?,
                '\\' => self.escape()?,
                '*' | '+' | '?' => self.repeat(last, &c.to_string())?,
                '{' => match self.counts() {
                    Some(counts) => self.repeat(last, &counts)?,
                    None => self.literal('{'),
                },
                other => self.literal(other),
            };
        }
        self.depth -= 1;
        Ok(())
    }

    fn write(&mut self, part: &str, last: Last) -> Last {
        self.out.push_str(part);
        last
    }

    /// Writes a literal character. When ignoring case, `re` treats i with and without its dot as equal.
    fn literal(&mut self, c: char) -> Last {
        match c {
            'i' | 'I' | 'ı' | 'İ' if self.flags.ignore_case => self.out.push_str("[iıİ]"),
            _ => self.plain(c),
        }
        Last::Item
    }

    fn plain(&mut self, c: char) {
        match c.is_ascii_punctuation() || c.is_control() {
            true => self.out.push_str(&format!("\\x{{{:x}}}", u32::from(c))),
            false => self.out.push(c),
        }
    }

    fn repeat(&mut self, last: Last, how_often: &str) -> Result<Last, PatternError> {
        match last {
            Last::Nothing => return refuse("nothing to repeat"),
            Last::Repeated => return refuse("multiple repeat"),
            Last::Item => self.out.push_str(how_often),
        }
        if self.take("?") {
            self.out.push('?');
        } else if self.take("+") {
            self.out.push('+');
            self.backtracks = true;
        }
        Ok(Last::Repeated)
    }

    /// Reads `{m}`, `{m,}`, `{,n}` or `{m,n}`. `None` if the brace is a literal character.
    fn counts(&mut self) -> Option<String> {
        let rest: String = self.text[self.at..].iter().collect();
        let (inner, _) = rest.split_once('}')?;
        let (low, high) = inner.split_once(',').unwrap_or((inner, inner));
        let digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
        if inner.is_empty() || !digits(low) || !digits(high) {
            return None;
        }
        self.at += inner.len() + 1;
        let low = if low.is_empty() { "0" } else { low };
        Some(if inner.contains(',') { format!("{{{low},{high}}}") } else { format!("{{{low}}}") })
    }

    /// Translates a group, after its opening parenthesis. A quantifier after a comment repeats `before`.
    fn group(&mut self, at_start: bool, before: Last) -> Result<Last, PatternError> {
        let outer = self.flags;
        if self.take("?P=") {
            let name = self.name(')')?;
            return match self.groups.iter().position(|known| *known == name) {
                Some(group) => self.back_reference(group + 1),
                None => refuse("unknown group name"),
            };
        }
        if self.take("?#") {
            while self.read("missing ), unterminated comment")? != ')' {}
            return Ok(before);
        }
        if self.take("?P<") {
            let name = self.name('>')?;
            if self.groups.contains(&name) {
                return refuse("redefinition of group name");
            }
            self.groups.push(name);
            self.out.push('(');
        } else if let Some(mark) = ["?:", "?=", "?!", "?<=", "?<!", "?>"].into_iter().find(|m| self.take(m)) {
            self.backtracks |= mark != "?:";
            self.out.push('(');
            self.out.push_str(mark);
        } else if self.take("?") {
            if self.inline_flags(at_start)? == ')' {
                return Ok(Last::Nothing);
            }
        } else {
            self.groups.push(String::new());
            self.out.push('(');
        }
        self.either(false)?;
        self.flags = outer;
        match self.take(")") {
            true => Ok(self.write(")", Last::Item)),
            false => refuse("missing ), unterminated subpattern"),
        }
    }

    fn name(&mut self, end: char) -> Result<String, PatternError> {
        let mut name = String::new();
        loop {
            match self.read("unterminated group name")? {
                c if c == end => break,
                c => name.push(c),
            }
        }
        let good = name.chars().all(is_word) && name.chars().next().is_some_and(|c| !c.is_numeric());
        if good { Ok(name) } else { refuse("bad group name") }
    }

    fn back_reference(&mut self, group: usize) -> Result<Last, PatternError> {
        if group > self.groups.len() {
            return refuse("invalid group reference");
        }
        self.backtracks = true;
        self.out.push_str(&format!("(?:\\{group})"));
        Ok(Last::Item)
    }

    /// Reads flags: `(?ims)` at the start, or `(?i-s:...)` anywhere. Returns the character after the flags.
    fn inline_flags(&mut self, at_start: bool) -> Result<char, PatternError> {
        let mut on = true;
        self.out.push_str("(?");
        loop {
            let c = self.read("missing flag")?;
            match c {
                'i' => self.flags.ignore_case = on,
                'm' => self.flags.lines = on,
                's' => {}
                'u' if on => continue,
                '-' if on => on = false,
                ':' => {}
                ')' if on && !at_start => return refuse("global flags not at the start of the expression"),
                ')' if on => {}
                _ => return refuse(&format!("the extension (?{c} is unknown or not supported")),
            }
            self.out.push(c);
            if matches!(c, ':' | ')') {
                return Ok(c);
            }
        }
    }

    /// Translates an escape outside of a set.
    fn escape(&mut self) -> Result<Last, PatternError> {
        let c = self.read("bad escape (end of pattern)")?;
        let exact = |both: &str| format!("(?:(?<=[{WORD}])(?{both}[{WORD}])|(?<![{WORD}])");
        let open = self.end.trim_end_matches(')');
        if matches!(c, 'b' | 'B' | 'Z')
            && !open.contains("?=")
            && self.out.trim_end_matches(')').ends_with(open)
        {
            return refuse("an assertion directly after $ isn't supported");
        }
        Ok(match c {
            'b' | 'B' => {
                self.has_edges = true;
                let edge = match (self.exact_edges, c) {
                    (false, _) => format!("\\{c}"),
                    (true, 'b') => exact("!") + &format!("(?=[{WORD}]))"),
                    (true, _) => exact("=") + &format!("(?![{WORD}]))"),
                };
                self.write(&edge, Last::Nothing)
            }
            'A' => self.write(r"\A", Last::Nothing),
            'Z' => self.write(r"\z", Last::Nothing),
            'd' | 'D' | 'w' | 'W' | 's' | 'S' => {
                let class = format!("[{}]", class(c));
                self.write(&class, Last::Item)
            }
            '1'..='9' => {
                let at = |i: usize| self.text.get(self.at + i).copied().unwrap_or(' ');
                let octal = |c: char| ('0'..='7').contains(&c);
                if octal(c) && octal(at(0)) && octal(at(1)) {
                    let c = self.character(c)?;
                    return Ok(self.literal(c));
                }
                let mut group = c as usize - '0' as usize;
                if let Some(digit) = at(0).to_digit(10) {
                    group = 10 * group + digit as usize;
                    self.at += 1;
                }
                self.back_reference(group)?
            }
            c => {
                let c = self.character(c)?;
                self.literal(c)
            }
        })
    }

    /// Returns the character that an escape represents, inside or outside of a set.
    fn character(&mut self, c: char) -> Result<char, PatternError> {
        let hexadecimal = |this: &mut Self, n: usize| {
            let digits: String = this.text.iter().skip(this.at).take(n).collect();
            this.at += n;
            let good = digits.len() == n && digits.bytes().all(|b| b.is_ascii_hexdigit());
            let value = u32::from_str_radix(&digits, 16).ok().filter(|_| good).and_then(char::from_u32);
            value.map_or_else(|| refuse("incomplete escape"), Ok)
        };
        match c {
            'n' => Ok('\n'),
            't' => Ok('\t'),
            'r' => Ok('\r'),
            'f' => Ok('\u{c}'),
            'v' => Ok('\u{b}'),
            'a' => Ok('\u{7}'),
            'x' => hexadecimal(self, 2),
            'u' => hexadecimal(self, 4),
            'U' => hexadecimal(self, 8),
            '0'..='7' => {
                let mut value = c as u32 - '0' as u32;
                for _ in 0..2 {
                    let Some(digit) = self.peek().and_then(|d| d.to_digit(8)) else { break };
                    value = value * 8 + digit;
                    self.at += 1;
                }
                match char::from_u32(value).filter(|_| value <= 0o377) {
                    Some(c) => Ok(c),
                    None => refuse("octal escape value outside of range 0-0o377"),
                }
            }
            c if c.is_ascii_alphanumeric() => {
                refuse(&format!("Python has no escape \\{c}, or it isn't supported"))
            }
            c => Ok(c),
        }
    }

    /// Translates a set, after its opening bracket.
    fn set(&mut self) -> Result<Last, PatternError> {
        self.out.push('[');
        if self.take("^") {
            self.out.push('^');
        }
        let mut first = true;
        loop {
            let c = self.read("unterminated character set")?;
            if c == ']' && !first {
                return Ok(self.write("]", Last::Item));
            }
            first = false;
            let Some(low) = self.set_item(c)? else { continue };
            let mut high = low;
            if self.peek() == Some('-') && self.text.get(self.at + 1).is_some_and(|&c| c != ']') {
                self.at += 1;
                let c = self.read("unterminated character set")?;
                match self.set_item(c)? {
                    Some(end) if low <= end => high = end,
                    _ => return refuse("bad character range"),
                }
            }
            self.plain(low);
            self.out.push('-');
            self.plain(high);
            if self.flags.ignore_case && ['i', 'I', 'ı', 'İ'].iter().any(|i| (low..=high).contains(i)) {
                self.out.push_str("iıİ");
            }
        }
    }

    /// Returns the character of a set that begins with `c`, or `None` after writing a class.
    fn set_item(&mut self, c: char) -> Result<Option<char>, PatternError> {
        if c != '\\' {
            return Ok(Some(c));
        }
        match self.read("unterminated character set")? {
            c @ ('d' | 'D' | 'w' | 'W' | 's' | 'S') => {
                self.out.push_str(class(c));
                let ranged =
                    self.peek() == Some('-') && self.text.get(self.at + 1).is_some_and(|&c| c != ']');
                if ranged { refuse("bad character range") } else { Ok(None) }
            }
            'b' => Ok(Some('\u{8}')),
            c => self.character(c).map(Some),
        }
    }
}

/// Returns a class of characters, in the form for the inside of a set.
fn class(letter: char) -> &'static str {
    match letter {
        'w' => WORD,
        'W' => NO_WORD,
        's' => SPACE,
        'S' => NO_SPACE,
        'd' => r"\d",
        _ => r"\D",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(pattern: &str, text: &str) -> usize {
        let pattern = Pattern::new(pattern, true).unwrap_or_else(|e| panic!("{pattern}: {e}"));
        pattern.count(text, usize::MAX).unwrap()
    }

    #[test]
    fn patterns_count_as_in_python() {
        // Expected values: len(re.findall(pattern, text, re.IGNORECASE)) of CPython 3.11.
        for (pattern, text, expected) in [
            ("knock", "Knock, KNOCK! unknocked", 3),
            (r"\bcat\b", "cat Cat concat cat's", 3),
            ("a.c", "abc a\nc aXc", 2),
            ("a*", "baac", 4),
            ("", "abc", 4),
            ("(a|b)+c", "ababc bc c", 2),
            ("[a-c]{2}", "abcabc", 3),
            ("[^a-c]", "abcD\n", 2),
            ("x|", "axb", 4),
            (r"\d+", "12 ٣٤ x5", 3),
            (r"\w+", "नमस्ते a_b", 3),
            (r"[\w.]+", "नमस्ते a_b", 3),
            (r"\W", "नमस्ते", 2),
            (r"[^\W_]", "a_b", 2),
            (r"\bनमस\b", "नमस्ते", 1),
            (r"\Bत\B", "नमस्ते तत", 0),
            (r"\s", "a\u{1c}b c\u{85}", 3),
            (r"[\S]", "a\u{1c}b c\u{85}", 3),
            ("^a", "a\na", 1),
            ("(?m)^a", "a\na", 2),
            ("a$", "a\n", 1),
            ("a$", "a\n\n", 0),
            ("$", "ab\n", 2),
            (r"a\Z", "a\n", 0),
            ("i", "İıI", 3),
            ("[i]", "İıI", 3),
            ("[^a-z]", "İıI", 0),
            ("s", "ſ", 1),
            (r"(\w)\1", "aab BB abc", 2),
            ("(a)(b)?", "ab a", 2),
            ("(?:ab){2,}", "ababab ab", 1),
            ("a{,2}b", "aaab", 1),
            ("a{2", "a{2", 1),
            ("a{x}", "a{x}", 1),
            ("C++", "cc C c", 3),
            ("a(?=b)", "ab ac", 1),
            ("a(?!b)", "ab ac", 1),
            ("(?<=a)b", "ab cb", 1),
            ("(?<!a)b", "ab cb", 1),
            ("(?>a+)b", "aab", 1),
            ("(?>a|ab)c", "abc", 0),
            ("(?P<x>a)(?P=x)", "aa", 1),
            ("a(?#no)*b", "aab", 1),
            (r"\.", "a.b.", 2),
            (r"\x41\u0062\103", "abc", 1),
            ("[]a]", "]a", 2),
            ("[a&&b]", "a&b", 3),
            ("[[a]", "[a", 2),
            (r"[\w.-]+@x", "me.too-2@x", 1),
            ("(a*)*b", "aaab", 1),
            ("(?i:A)b", "aB", 1),
            ("(?-i:A)b", "aB AB", 1),
            ("mother-in-law", "Mother-in-Law", 1),
            ("stra\u{df}e", "STRA\u{1e9e}E", 1),
            (r"\bS", "s \u{17f} as", 2),
            (r"\b", "ab c", 4),
            (r"\bx*", "ab", 2),
            (r"\s*n:.*$", "a \u{2003}N:b\nc", 0),
            ("(?:é|[^a-z])+x", "aÉ1x", 1),
            ("<b> #\"'%", "<b> #\"'%", 1),
        ] {
            assert_eq!(count(pattern, text), expected, "{pattern:?} in {text:?}");
        }
    }

    #[test]
    fn what_python_refuses_is_refused() {
        for pattern in [
            "(", ")", "a)", "[a", "*a", "+", "?", "a**", "a{3,2}", r"\q", r"a\", "(?P<1>a)", r"(a)\2",
            "[z-a]", r"[\w-a]", "(?z)a", "a(?i)b", "(?P=n)", "(?(1)a)", r"\N{DASH}", "a|*", "^*",
        ] {
            assert!(matches!(Pattern::new(pattern, true), Err(PatternError::Syntax(_))), "{pattern:?}");
        }
    }

    #[test]
    fn differences_to_python() {
        // Pattern, text, count here (None: refused), and what Python does.
        for (pattern, text, here, python) in [
            ("a*?", "baac", Some(5), "7: after an empty match, a longer one at the same place"),
            ("|a", "aa", Some(3), "5: the same"),
            (r"\B", "", Some(1), "0: never in an empty text, before 3.14"),
            ("(?<=a+)b", "aab", Some(1), "refuses look-behind of several widths"),
            (r"(a\1)", "aa", Some(0), "refuses a reference to an open group"),
            ("(?=a)*b", "b", None, "1: repeats look-around"),
            (r"\w{5000}", "a", None, "0: has no limit of size"),
        ] {
            let found = Pattern::new(pattern, true).ok().map(|p| p.count(text, usize::MAX).unwrap());
            assert_eq!(found, here, "{pattern:?} in {text:?}; Python: {python}");
        }
    }

    #[test]
    fn cases_are_folded_as_in_python_for_every_character() {
        // Characters that `re` takes as equal if it ignores case, beyond their lower case: CPython 3.11, the table of
        // extra cases of its `re` module.
        let equal = [
            "iı", "sſ", "µμ", "\u{345}ιι", "ΐΐ", "ΰΰ", "βϐ", "εϵ", "θϑ", "κϰ", "πϖ", "ρϱ", "ςσ", "φϕ", "вᲀ",
            "дᲁ", "оᲂ", "сᲃ", "тᲄᲅ", "ъᲆ", "ѣᲇ", "ꙋᲈ", "ṡẛ", "ﬅﬆ",
        ];
        for class in equal {
            let pattern = |c: char| Pattern::new(&c.to_string(), true).unwrap();
            for c in class.chars() {
                assert_eq!(pattern(c).count(class, 9).unwrap(), class.chars().count(), "{c:?} in {class:?}");
            }
        }
        let mut different = Vec::new();
        // Without the letters that are younger than the tables of `regex`; Python 3.11 doesn't know them either.
        for c in ('\u{80}'..=char::MAX).filter(|c| c.is_uppercase() && is_word(*c)) {
            let lower = c.to_lowercase().next().unwrap_or(c);
            let lower_in = Pattern::new(&lower.to_string(), true).unwrap();
            if lower != c && !lower_in.is_found(&c.to_string()).unwrap() {
                different.push(c);
            }
        }
        assert_eq!(different, []);
    }

    #[test]
    fn explosive_patterns_end_in_bounded_work() {
        let text = "a".repeat(5000);
        for pattern in ["(a+)+b", "(a|a)*b", "(a*)*b", "((a+)*)*c", "(?:a|aa)+b", "(.*)*x"] {
            assert_eq!(Pattern::new(pattern, true).unwrap().is_found(&text), Ok(false), "{pattern}");
        }
        for pattern in [r"(a+)+\1b", r"(a*)(a*)(a*)\1\2\3b"] {
            let found = Pattern::new(pattern, true).unwrap().is_found(&text);
            assert_eq!(found, Err(PatternError::Budget), "{pattern}");
        }
        let far = Pattern::new("(?=a*b)a", true).unwrap();
        assert_eq!(far.is_found(&"a".repeat(1 << 20)), Err(PatternError::Budget));
    }

    #[test]
    fn nested_repeats_cannot_make_a_huge_program() {
        for pattern in
            ["((((a{1000}){1000}){1000}){1000}){1000}", &"(".repeat(100_000), "(?=(?:a{1000}){1000})b"]
        {
            assert!(matches!(Pattern::new(pattern, true), Err(PatternError::Syntax(_))));
        }
    }
}
