//! Python's syntax of patterns, read into a tree.

use super::PatternError;
use crate::ifeval::characters::{also_equal, is_digit, is_word, simple_lower, simple_upper};
use crate::python_text::is_space;

/// Deepest nesting of groups.
const DEEPEST: usize = 60;

/// A class of characters that has a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Named {
    Digit,
    Word,
    Space,
}

/// One item of a set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Item {
    One(char),
    Span(char, char),
    Named(Named, bool),
}

/// A set of characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Set {
    pub(super) items: Vec<Item>,
    pub(super) negated: bool,
    pub(super) ignore_case: bool,
}

impl Set {
    /// Whether the set contains a character; `lower` is its simple lower case.
    pub(super) fn holds(&self, c: char, lower: char) -> bool {
        let c = if self.ignore_case { lower } else { c };
        let found = self.items.iter().any(|item| match *item {
            Item::One(x) => x == c,
            Item::Span(a, b) => {
                let within = |x: char| (a..=b).contains(&x);
                within(c)
                    || (self.ignore_case
                        && (within(simple_upper(c))
                            || also_equal(c).any(|x| within(x) || within(simple_upper(x)))))
            }
            Item::Named(Named::Digit, want) => is_digit(c) == want,
            Item::Named(Named::Word, want) => is_word(c) == want,
            Item::Named(Named::Space, want) => is_space(c) == want,
        });
        found != self.negated
    }
}

/// A condition on a position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum At {
    TextStart,
    TextEnd,
    TextEndOrLastLine,
    LineStart,
    LineEnd,
    WordEdge,
    NotWordEdge,
}

/// The parsed pattern.
#[derive(Debug, Clone)]
pub(super) enum Node {
    Empty,
    One { c: char, ignore_case: bool },
    Set(Box<Set>),
    NotLineFeed,
    Any,
    At(At),
    Sequence(Vec<Node>),
    Either(Vec<Node>),
    Group(usize, Box<Node>),
    Repeat { node: Box<Node>, least: usize, most: Option<usize>, how: How },
    Again { group: usize, ignore_case: bool },
    Look { node: Box<Node>, behind: bool, wanted: bool },
    Atomic(Box<Node>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum How {
    Greedy,
    Lazy,
    Possessive,
}

#[derive(Debug, Clone, Copy)]
struct Flags {
    ignore_case: bool,
    lines: bool,
    dot_all: bool,
}

struct Parser {
    text: Vec<char>,
    at: usize,
    flags: Flags,
    groups: usize,
    open_groups: Vec<usize>,
    names: Vec<(String, usize)>,
    captures: bool,
    depth: usize,
}

pub(super) fn refuse<T>(why: &str) -> Result<T, PatternError> {
    Err(PatternError::Syntax(why.to_owned()))
}

/// A pattern as it was read.
pub(super) struct Parsed {
    pub(super) node: Node,
    /// The number of capturing groups.
    pub(super) groups: usize,
    /// Whether it has a back-reference.
    pub(super) captures: bool,
}

/// Reads a pattern.
pub(super) fn parse(pattern: &str, ignore_case: bool) -> Result<Parsed, PatternError> {
    let mut parser = Parser {
        text: pattern.chars().collect(),
        at: 0,
        flags: Flags { ignore_case, lines: false, dot_all: false },
        groups: 0,
        open_groups: Vec::new(),
        names: Vec::new(),
        captures: false,
        depth: 0,
    };
    let node = parser.either(true)?;
    if parser.at < parser.text.len() {
        return refuse("unbalanced parenthesis");
    }
    Ok(Parsed { node, groups: parser.groups, captures: parser.captures })
}

impl Parser {
    fn peek(&self) -> Option<char> {
        self.text.get(self.at).copied()
    }

    fn take(&mut self, word: &str) -> bool {
        let n = word.chars().count();
        let here = self.text.get(self.at..self.at + n);
        let found = here.is_some_and(|h| h.iter().copied().eq(word.chars()));
        if found {
            self.at += n;
        }
        found
    }

    fn either(&mut self, outermost: bool) -> Result<Node, PatternError> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return refuse("groups nested too deep");
        }
        let mut branches = Vec::new();
        loop {
            branches.push(self.sequence(outermost && branches.is_empty())?);
            if !self.take("|") {
                break;
            }
        }
        self.depth -= 1;
        Ok(if branches.len() == 1 { branches.remove(0) } else { Node::Either(branches) })
    }

    fn sequence(&mut self, first: bool) -> Result<Node, PatternError> {
        let mut nodes: Vec<Node> = Vec::new();
        while let Some(c) = self.peek() {
            if c == '|' || c == ')' {
                break;
            }
            let at_start = first && self.at == 0;
            self.at += 1;
            let node = match c {
                '.' => {
                    if self.flags.dot_all {
                        Node::Any
                    } else {
                        Node::NotLineFeed
                    }
                }
                '^' => Node::At(if self.flags.lines { At::LineStart } else { At::TextStart }),
                '$' => Node::At(if self.flags.lines { At::LineEnd } else { At::TextEndOrLastLine }),
                '[' => self.set()?,
                '(' => match self.group(at_start)? {
                    Some(node) => node,
                    None => continue,
                },
                '\\' => self.escape()?,
                '*' | '+' | '?' => {
                    let last = self.repeatable(nodes.pop())?;
                    let (least, most) = match c {
                        '*' => (0, None),
                        '+' => (1, None),
                        _ => (0, Some(1)),
                    };
                    self.repeat(last, least, most)
                }
                '{' => match self.counts()? {
                    Some((least, most)) => {
                        let last = self.repeatable(nodes.pop())?;
                        self.repeat(last, least, most)
                    }
                    None => self.one('{'),
                },
                other => self.one(other),
            };
            nodes.push(node);
        }
        Ok(match nodes.len() {
            0 => Node::Empty,
            1 => nodes.remove(0),
            _ => Node::Sequence(nodes),
        })
    }

    fn one(&self, c: char) -> Node {
        if !self.flags.ignore_case {
            return Node::One { c, ignore_case: false };
        }
        let lower = simple_lower(c);
        let items: Vec<Item> = std::iter::once(lower).chain(also_equal(lower)).map(Item::One).collect();
        match items.len() {
            1 => Node::One { c: lower, ignore_case: true },
            _ => Node::Set(Box::new(Set { items, negated: false, ignore_case: true })),
        }
    }

    fn repeatable(&self, node: Option<Node>) -> Result<Node, PatternError> {
        match node {
            None | Some(Node::At(_)) | Some(Node::Empty) => refuse("nothing to repeat"),
            Some(Node::Repeat { .. }) => refuse("multiple repeat"),
            Some(node) => Ok(node),
        }
    }

    fn repeat(&mut self, node: Node, least: usize, most: Option<usize>) -> Node {
        let how = if self.take("?") {
            How::Lazy
        } else if self.take("+") {
            How::Possessive
        } else {
            How::Greedy
        };
        Node::Repeat { node: Box::new(node), least, most, how }
    }

    /// `{m}`, `{m,}`, `{,n}`, `{m,n}`; `None` if the brace is a literal.
    fn counts(&mut self) -> Result<Option<(usize, Option<usize>)>, PatternError> {
        let start = self.at;
        if self.peek() == Some('}') {
            return Ok(None);
        }
        let low = self.digits();
        let high = if self.take(",") { self.digits() } else { low.clone() };
        if !self.take("}") {
            self.at = start;
            return Ok(None);
        }
        let number = |s: &str| s.parse::<u32>().map(|n| n as usize).or(refuse("repeat too large"));
        let least = if low.is_empty() { 0 } else { number(&low)? };
        let most = if high.is_empty() { None } else { Some(number(&high)?) };
        if most.is_some_and(|most| most < least) {
            return refuse("min repeat greater than max repeat");
        }
        Ok(Some((least, most)))
    }

    fn digits(&mut self) -> String {
        let mut found = String::new();
        while let Some(c) = self.peek().filter(char::is_ascii_digit) {
            found.push(c);
            self.at += 1;
        }
        found
    }

    /// The group after an opening parenthesis; `None` for a comment or global flags.
    fn group(&mut self, at_start: bool) -> Result<Option<Node>, PatternError> {
        let outer = self.flags;
        let node = if !self.take("?") {
            self.capture(None)?
        } else if self.take("P<") {
            let name = self.name('>')?;
            self.capture(Some(name))?
        } else if self.take("P=") {
            let name = self.name(')')?;
            let Some(&(_, group)) = self.names.iter().find(|(n, _)| *n == name) else {
                return refuse("unknown group name");
            };
            return self.back_reference(group).map(Some);
        } else if self.take("#") {
            while let Some(c) = self.peek() {
                self.at += 1;
                if c == ')' {
                    return Ok(None);
                }
            }
            return refuse("missing ), unterminated comment");
        } else if self.take(":") {
            Node::Sequence(vec![self.either(false)?])
        } else if self.take(">") {
            Node::Atomic(Box::new(self.either(false)?))
        } else {
            let looks = [("=", false, true), ("!", false, false), ("<=", true, true), ("<!", true, false)];
            match looks.into_iter().find(|(mark, ..)| self.take(mark)) {
                Some((_, behind, wanted)) => {
                    Node::Look { node: Box::new(self.either(false)?), behind, wanted }
                }
                None => match self.inline_flags(at_start)? {
                    Some(node) => node,
                    None => return Ok(None),
                },
            }
        };
        self.flags = outer;
        if !self.take(")") {
            return refuse("missing ), unterminated subpattern");
        }
        Ok(Some(node))
    }

    fn name(&mut self, end: char) -> Result<String, PatternError> {
        let mut name = String::new();
        while let Some(c) = self.peek() {
            self.at += 1;
            if c == end {
                let letter = |c: char| is_word(c) && !is_digit(c);
                let good = name.chars().next().is_some_and(letter) && name.chars().all(is_word);
                return if good { Ok(name) } else { refuse("bad group name") };
            }
            name.push(c);
        }
        refuse("unterminated group name")
    }

    fn capture(&mut self, name: Option<String>) -> Result<Node, PatternError> {
        let group = self.groups;
        self.groups += 1;
        if let Some(name) = name {
            if self.names.iter().any(|(n, _)| *n == name) {
                return refuse("redefinition of group name");
            }
            self.names.push((name, group));
        }
        self.open_groups.push(group);
        let node = self.either(false)?;
        self.open_groups.pop();
        Ok(Node::Group(group, Box::new(node)))
    }

    fn back_reference(&mut self, group: usize) -> Result<Node, PatternError> {
        if group >= self.groups {
            return refuse("invalid group reference");
        }
        if self.open_groups.contains(&group) {
            return refuse("cannot refer to an open group");
        }
        self.captures = true;
        Ok(Node::Again { group, ignore_case: self.flags.ignore_case })
    }

    /// `(?ims)` at the start, `(?i-s:...)` anywhere.
    fn inline_flags(&mut self, at_start: bool) -> Result<Option<Node>, PatternError> {
        let mut on = true;
        let mut flags = self.flags;
        loop {
            let Some(c) = self.peek() else { return refuse("missing flag") };
            self.at += 1;
            match c {
                'i' => flags.ignore_case = on,
                'm' => flags.lines = on,
                's' => flags.dot_all = on,
                'u' if on => {}
                '-' if on => on = false,
                ':' => {
                    self.flags = flags;
                    return Ok(Some(Node::Sequence(vec![self.either(false)?])));
                }
                ')' if on => {
                    if !at_start {
                        return refuse("global flags not at the start of the expression");
                    }
                    self.flags = flags;
                    return Ok(None);
                }
                _ => return refuse("unknown or unsupported extension"),
            }
        }
    }

    /// An escape outside a set.
    fn escape(&mut self) -> Result<Node, PatternError> {
        let Some(c) = self.peek() else { return refuse("bad escape (end of pattern)") };
        let named = |named, want| {
            let items = vec![Item::Named(named, want)];
            Node::Set(Box::new(Set { items, negated: false, ignore_case: false }))
        };
        let node = match c {
            'd' => named(Named::Digit, true),
            'D' => named(Named::Digit, false),
            'w' => named(Named::Word, true),
            'W' => named(Named::Word, false),
            's' => named(Named::Space, true),
            'S' => named(Named::Space, false),
            'b' => Node::At(At::WordEdge),
            'B' => Node::At(At::NotWordEdge),
            'A' => Node::At(At::TextStart),
            'Z' => Node::At(At::TextEnd),
            '1'..='9' => {
                let at = |i: usize| self.text.get(self.at + i).copied().unwrap_or(' ');
                let octal = |c: char| ('0'..='7').contains(&c);
                if octal(at(0)) && octal(at(1)) && octal(at(2)) {
                    return self.character_escape().map(|c| self.one(c));
                }
                let mut number = String::from(c);
                if at(1).is_ascii_digit() {
                    number.push(at(1));
                }
                self.at += number.len();
                let group: usize = number.parse().unwrap_or(usize::MAX);
                return self.back_reference(group - 1);
            }
            _ => return self.character_escape().map(|c| self.one(c)),
        };
        self.at += 1;
        Ok(node)
    }

    /// An escape that stands for one character, the same inside and outside a set.
    fn character_escape(&mut self) -> Result<char, PatternError> {
        let Some(c) = self.peek() else { return refuse("bad escape (end of pattern)") };
        self.at += 1;
        let hexadecimal = |parser: &mut Self, n: usize| {
            let digits: String = parser.text.iter().skip(parser.at).take(n).collect();
            parser.at += n;
            let good = digits.len() == n && digits.chars().all(|c| c.is_ascii_hexdigit());
            let value = if good { u32::from_str_radix(&digits, 16).ok() } else { None };
            value.and_then(char::from_u32).map_or_else(|| refuse("incomplete escape"), Ok)
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
                    let Some(d) = self.peek().filter(|d| ('0'..='7').contains(d)) else { break };
                    value = value * 8 + (d as u32 - '0' as u32);
                    self.at += 1;
                }
                if value > 0o377 {
                    return refuse("octal escape value outside of range 0-0o377");
                }
                Ok(char::from_u32(value).unwrap_or('\0'))
            }
            c if c.is_ascii_alphanumeric() => refuse("bad escape"),
            c => Ok(c),
        }
    }

    /// A set, after its opening bracket.
    fn set(&mut self) -> Result<Node, PatternError> {
        let ignore_case = self.flags.ignore_case;
        let negated = self.take("^");
        let mut items = Vec::new();
        let mut first = true;
        loop {
            let Some(c) = self.peek() else { return refuse("unterminated character set") };
            if c == ']' && !first {
                self.at += 1;
                break;
            }
            first = false;
            let low = self.set_item()?;
            let ranged = self.peek() == Some('-') && self.text.get(self.at + 1).is_some_and(|&c| c != ']');
            if !ranged {
                items.push(low);
                continue;
            }
            self.at += 1;
            match (low, self.set_item()?) {
                (Item::One(a), Item::One(b)) if a <= b => items.push(Item::Span(a, b)),
                _ => return refuse("bad character range"),
            }
        }
        if ignore_case {
            let ones: Vec<char> =
                items.iter().filter_map(|i| if let Item::One(c) = i { Some(*c) } else { None }).collect();
            for c in ones {
                let lower = simple_lower(c);
                items.push(Item::One(lower));
                items.extend(also_equal(lower).map(Item::One));
            }
        }
        Ok(Node::Set(Box::new(Set { items, negated, ignore_case })))
    }

    fn set_item(&mut self) -> Result<Item, PatternError> {
        let Some(c) = self.peek() else { return refuse("unterminated character set") };
        self.at += 1;
        if c != '\\' {
            return Ok(Item::One(c));
        }
        let item = match self.peek() {
            Some('d') => Item::Named(Named::Digit, true),
            Some('D') => Item::Named(Named::Digit, false),
            Some('w') => Item::Named(Named::Word, true),
            Some('W') => Item::Named(Named::Word, false),
            Some('s') => Item::Named(Named::Space, true),
            Some('S') => Item::Named(Named::Space, false),
            Some('b') => Item::One('\u{8}'),
            _ => return self.character_escape().map(Item::One),
        };
        self.at += 1;
        Ok(item)
    }
}
