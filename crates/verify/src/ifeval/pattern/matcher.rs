//! Runs a program on a text by backtracking that stores failed states, within a step budget.

use super::parser::At;
use super::program::{Program, Step};
use super::{PatternError, Text};
use crate::ifeval::characters::is_word;
use std::ops::Range;

/// Step budget of one pattern on one text, in addition to a linear part.
const STEPS: usize = 400_000;
/// Additional steps per character of the text.
const STEPS_PER_CHARACTER: usize = 16;
/// Largest memory for failed states, in bits: 4 MiB.
const MOST_BITS: usize = 1 << 25;
/// Deepest nesting of look-arounds and atomic groups while matching.
const DEEPEST: usize = 64;

/// A state to backtrack to.
enum Way {
    /// Another branch.
    Branch(usize, usize),
    /// The value of a capture before it was overwritten.
    Capture(usize, usize),
}

pub(super) struct Matcher<'a> {
    program: &'a Program,
    text: &'a Text,
    steps_left: usize,
    /// One bit for each (instruction, position) that was tried; empty if states are not stored.
    tried: Vec<u64>,
    /// The bits set since the last success, to be cleared.
    trail: Vec<usize>,
    captures: Vec<usize>,
    depth: usize,
}

impl<'a> Matcher<'a> {
    pub(super) fn new(program: &'a Program, text: &'a Text) -> Self {
        let n = text.chars.len();
        let bits = program.steps.len().saturating_mul(n + 1);
        let remember = !program.captures && bits <= MOST_BITS && !is_plain(program);
        Self {
            program,
            text,
            steps_left: STEPS + STEPS_PER_CHARACTER.saturating_mul(n),
            tried: if remember { vec![0; bits.div_ceil(64)] } else { Vec::new() },
            trail: Vec::new(),
            captures: vec![usize::MAX; program.slots],
            depth: 0,
        }
    }

    /// The first match at or after `from`.
    pub(super) fn search(&mut self, from: usize) -> Result<Option<Range<usize>>, PatternError> {
        self.search_except(from, None)
    }

    /// The first match at or after `from` that is not empty at `empty_at`.
    pub(super) fn search_except(
        &mut self,
        from: usize,
        empty_at: Option<usize>,
    ) -> Result<Option<Range<usize>>, PatternError> {
        let mut next = from;
        while let Some(start) = self.next_start(next) {
            next = start + 1;
            self.captures.fill(usize::MAX);
            let not_empty = empty_at == Some(start);
            if let Some(end) = self.run(0, start, not_empty)? {
                return Ok(Some(start..end));
            }
            if not_empty {
                // Failing because an empty match was not wanted says nothing about other starts.
                self.forget(0);
            }
        }
        Ok(None)
    }

    /// The first position from `from` on at which a match can begin.
    fn next_start(&self, from: usize) -> Option<usize> {
        let rest = self.text.chars.get(from..)?;
        let lower = &self.text.lower[from..];
        let Some(first) = &self.program.first else { return Some(from) };
        let found = rest.iter().zip(lower).position(|(&c, &lower)| match first.ascii.get(c as usize) {
            Some(reads) => *reads,
            None => first.reads(&self.program.steps, c, lower),
        });
        found.map(|step| from + step)
    }

    /// Clears the tried states of the trail from `mark` on.
    fn forget(&mut self, mark: usize) {
        for bit in self.trail.drain(mark..) {
            self.tried[bit / 64] &= !(1 << (bit % 64));
        }
    }

    /// Runs the program from one instruction at one position and returns the end of the match.
    fn run(&mut self, start: usize, from: usize, not_empty: bool) -> Result<Option<usize>, PatternError> {
        if self.depth > DEEPEST {
            return Err(PatternError::Budget);
        }
        let mark = self.trail.len();
        let mut ways: Vec<Way> = Vec::new();
        let (mut at, mut position) = (start, from);
        loop {
            match self.step(at, position, &mut ways, (start, from, not_empty))? {
                Next::Go(next, there) => (at, position) = (next, there),
                Next::Matched => {
                    self.forget(mark);
                    return Ok(Some(position));
                }
                Next::Failed => loop {
                    match ways.pop() {
                        Some(Way::Branch(next, there)) => {
                            (at, position) = (next, there);
                            break;
                        }
                        Some(Way::Capture(slot, old)) => self.captures[slot] = old,
                        None => return Ok(None),
                    }
                },
            }
        }
    }

    fn step(
        &mut self,
        at: usize,
        position: usize,
        ways: &mut Vec<Way>,
        (start, from, not_empty): (usize, usize, bool),
    ) -> Result<Next, PatternError> {
        self.steps_left = self.steps_left.checked_sub(1).ok_or(PatternError::Budget)?;
        let program = self.program;
        let step = &program.steps[at];
        if matches!(step, Step::Fork(..) | Step::Look { .. } | Step::Atomic { .. })
            && !self.first_time(at, position)
        {
            return Ok(Next::Failed);
        }
        let c = self.text.chars.get(position).copied();
        let lower = self.text.lower.get(position).copied().unwrap_or('\0');
        let consume = |good: bool| if good { Next::Go(at + 1, position + 1) } else { Next::Failed };
        Ok(match step {
            Step::One { c: wanted, ignore_case } => {
                consume(c.is_some_and(|c| if *ignore_case { lower } else { c } == *wanted))
            }
            Step::Set(set) => consume(c.is_some_and(|c| set.holds(c, lower))),
            Step::NotLineFeed => consume(c.is_some_and(|c| c != '\n')),
            Step::Any => consume(c.is_some()),
            Step::At(condition) => {
                if self.holds(*condition, position) {
                    Next::Go(at + 1, position)
                } else {
                    Next::Failed
                }
            }
            Step::Fork(first, second) => {
                ways.push(Way::Branch(*second, position));
                Next::Go(*first, position)
            }
            Step::Jump(there) => Next::Go(*there, position),
            Step::Note(slot) => {
                ways.push(Way::Capture(*slot, self.captures[*slot]));
                self.captures[*slot] = position;
                Next::Go(at + 1, position)
            }
            Step::Round { slot, start } => {
                if self.captures[*slot] == position {
                    Next::Go(at + 1, position)
                } else {
                    Next::Go(*start, position)
                }
            }
            Step::Again { group, ignore_case } => {
                let (a, b) = (self.captures[2 * group], self.captures[2 * group + 1]);
                if a == usize::MAX || b == usize::MAX || b < a {
                    return Ok(Next::Failed);
                }
                let text = if *ignore_case { &self.text.lower } else { &self.text.chars };
                let end = position + (b - a);
                self.steps_left = self.steps_left.saturating_sub(b - a);
                if text.get(position..end) == Some(&text[a..b]) {
                    Next::Go(at + 1, end)
                } else {
                    Next::Failed
                }
            }
            Step::Look { back, wanted, next } => {
                let found = match back {
                    None => self.inner(at + 1, position)?.is_some(),
                    Some(width) => match position.checked_sub(*width) {
                        Some(there) => self.inner(at + 1, there)?.is_some(),
                        None => false,
                    },
                };
                if found == *wanted { Next::Go(*next, position) } else { Next::Failed }
            }
            Step::Atomic { next } => match self.inner(at + 1, position)? {
                Some(end) => Next::Go(*next, end),
                None => Next::Failed,
            },
            Step::Done if not_empty && start == 0 && position == from => Next::Failed,
            Step::Done => Next::Matched,
        })
    }

    /// Runs a part of the program on its own.
    fn inner(&mut self, start: usize, from: usize) -> Result<Option<usize>, PatternError> {
        self.depth += 1;
        let found = self.run(start, from, false);
        self.depth -= 1;
        found
    }

    /// Whether this state was not tried before. If states are not stored, every state counts as new.
    fn first_time(&mut self, at: usize, position: usize) -> bool {
        if self.tried.is_empty() {
            return true;
        }
        let bit = at * (self.text.chars.len() + 1) + position;
        let word = &mut self.tried[bit / 64];
        if *word & (1 << (bit % 64)) != 0 {
            return false;
        }
        *word |= 1 << (bit % 64);
        self.trail.push(bit);
        true
    }

    fn holds(&self, condition: At, position: usize) -> bool {
        let text = &self.text.chars;
        let n = text.len();
        let word = |i: Option<usize>| i.and_then(|i| text.get(i)).is_some_and(|&c| is_word(c));
        let edge = || word(position.checked_sub(1)) != word(Some(position));
        match condition {
            At::TextStart => position == 0,
            At::TextEnd => position == n,
            At::TextEndOrLastLine => position == n || (position + 1 == n && text[position] == '\n'),
            At::LineStart => position == 0 || text[position - 1] == '\n',
            At::LineEnd => position == n || text[position] == '\n',
            At::WordEdge => edge(),
            // Until Python 3.14, \B never matches an empty text.
            At::NotWordEdge => n > 0 && !edge(),
        }
    }
}

enum Next {
    Go(usize, usize),
    Matched,
    Failed,
}

/// Whether the program has no branches, so that no state needs to be stored.
fn is_plain(program: &Program) -> bool {
    !program.steps.iter().any(|s| matches!(s, Step::Fork(..) | Step::Look { .. } | Step::Atomic { .. }))
}
