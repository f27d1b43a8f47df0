//! The matcher's program, and its compilation from a parsed pattern.

use super::PatternError;
use super::parser::{At, How, Node, Parsed, Set, refuse};
use crate::ifeval::characters::simple_lower;

/// Largest number of instructions of a compiled pattern; counted repeats multiply.
const MOST_INSTRUCTIONS: usize = 20_000;
/// Largest number of nodes visited during compilation, including those that emit nothing.
const MOST_VISITS: usize = 10 * MOST_INSTRUCTIONS;

/// One instruction. Jump targets are indices into the program.
#[derive(Debug, Clone)]
pub(super) enum Step {
    /// A character; compared with the lower case when case is ignored.
    One { c: char, ignore_case: bool },
    /// A character of the set.
    Set(Box<Set>),
    /// Any character but a line feed.
    NotLineFeed,
    /// Any character.
    Any,
    /// A condition on the position.
    At(At),
    /// Tries the first target, then the second.
    Fork(usize, usize),
    /// Jumps.
    Jump(usize),
    /// Stores the position: slot 2g is the start of group g + 1, slot 2g + 1 its end; the slots after them are the
    /// starts of loop iterations.
    Note(usize),
    /// Jumps to the start of the loop, or past it if the iteration matched nothing.
    Round { slot: usize, start: usize },
    /// A back-reference to a group (from 0).
    Again { group: usize, ignore_case: bool },
    /// A look-around: the program from the next instruction to its `Done` must match here, or `back` characters before,
    /// or must not match. Continues at `next`.
    Look { back: Option<usize>, wanted: bool, next: usize },
    /// An atomic group: like a look-ahead that consumes its match, without backtracking into it.
    Atomic { next: usize },
    /// The end of the program or of a part of it.
    Done,
}

/// A compiled pattern.
#[derive(Debug, Clone)]
pub(super) struct Program {
    pub(super) steps: Vec<Step>,
    pub(super) groups: usize,
    /// Whether any step uses a back-reference; failed states are then not stored.
    pub(super) captures: bool,
    /// Number of positions that steps store.
    pub(super) slots: usize,
    /// The possible first characters of a match; `None` if a match may be empty or they are not known.
    pub(super) first: Option<First>,
}

/// The steps that can consume the first character of a match.
#[derive(Debug, Clone)]
pub(super) struct First {
    at: Vec<usize>,
    /// Whether one of them consumes the character, for the first 128.
    pub(super) ascii: [bool; 128],
}

impl First {
    /// Largest number of steps examined.
    const MOST: usize = 64;

    fn of(steps: &[Step]) -> Option<Self> {
        let mut found = Vec::new();
        let mut open = vec![0];
        let mut seen = Vec::new();
        while let Some(at) = open.pop() {
            if seen.contains(&at) {
                continue;
            }
            seen.push(at);
            if seen.len() > Self::MOST {
                return None;
            }
            match &steps[at] {
                Step::One { .. } | Step::Set(_) | Step::NotLineFeed | Step::Any => found.push(at),
                Step::At(_) | Step::Note(_) => open.push(at + 1),
                Step::Fork(first, second) => open.extend([*first, *second]),
                Step::Jump(there) => open.push(*there),
                Step::Round { start, .. } => open.extend([at + 1, *start]),
                Step::Again { .. } | Step::Look { .. } | Step::Atomic { .. } | Step::Done => return None,
            }
        }
        let mut first = Self { at: found, ascii: [false; 128] };
        first.ascii = std::array::from_fn(|byte| {
            let c = char::from(byte as u8);
            first.reads(steps, c, simple_lower(c))
        });
        Some(first)
    }

    /// Whether one of the steps consumes the character; `lower` is its simple lower case.
    pub(super) fn reads(&self, steps: &[Step], c: char, lower: char) -> bool {
        self.at.iter().any(|&at| match &steps[at] {
            Step::One { c: wanted, ignore_case } => *wanted == if *ignore_case { lower } else { c },
            Step::Set(set) => set.holds(c, lower),
            Step::NotLineFeed => c != '\n',
            _ => true,
        })
    }
}

impl Program {
    /// The program of a parsed pattern.
    pub(super) fn of(pattern: &Parsed) -> Result<Self, PatternError> {
        let Parsed { ref node, groups, captures } = *pattern;
        let slots = if captures { 2 * groups } else { 0 };
        let mut emitter = Emitter { steps: Vec::new(), captures, slots, visits: 0 };
        emitter.emit(node)?;
        emitter.steps.push(Step::Done);
        let Emitter { steps, slots, .. } = emitter;
        let first = First::of(&steps);
        Ok(Self { steps, groups, captures, slots, first })
    }
}

/// The fixed width of a look-behind, which Python requires.
fn width(node: &Node) -> Result<usize, PatternError> {
    match node {
        Node::Empty | Node::At(_) | Node::Look { .. } => Ok(0),
        Node::One { .. } | Node::Set(_) | Node::NotLineFeed | Node::Any => Ok(1),
        Node::Sequence(nodes) => {
            nodes.iter().try_fold(0usize, |sum, node| Ok(sum.saturating_add(width(node)?)))
        }
        Node::Either(nodes) => {
            let widths = nodes.iter().map(width).collect::<Result<Vec<_>, _>>()?;
            if widths.windows(2).any(|w| w[0] != w[1]) {
                return refuse("look-behind requires fixed-width pattern");
            }
            Ok(widths.first().copied().unwrap_or(0))
        }
        Node::Group(_, node) | Node::Atomic(node) => width(node),
        Node::Repeat { node, least, most, .. } if *most == Some(*least) => {
            Ok(width(node)?.saturating_mul(*least))
        }
        // Nothing, however often.
        Node::Repeat { node, .. } if width(node)? == 0 => Ok(0),
        Node::Repeat { .. } | Node::Again { .. } => refuse("look-behind requires fixed-width pattern"),
    }
}

/// Whether a node can match nothing.
fn may_be_empty(node: &Node) -> bool {
    match node {
        Node::Empty | Node::At(_) | Node::Look { .. } | Node::Again { .. } => true,
        Node::One { .. } | Node::Set(_) | Node::NotLineFeed | Node::Any => false,
        Node::Sequence(nodes) => nodes.iter().all(may_be_empty),
        Node::Either(nodes) => nodes.iter().any(may_be_empty),
        Node::Group(_, node) | Node::Atomic(node) => may_be_empty(node),
        Node::Repeat { node, least, .. } => *least == 0 || may_be_empty(node),
    }
}

/// Writes the program.
struct Emitter {
    steps: Vec<Step>,
    captures: bool,
    slots: usize,
    visits: usize,
}

impl Emitter {
    /// Appends the instructions of a node.
    fn emit(&mut self, node: &Node) -> Result<(), PatternError> {
        self.visits += 1;
        if self.steps.len() > MOST_INSTRUCTIONS || self.visits > MOST_VISITS {
            return refuse("the pattern is too large");
        }
        let step = match node {
            Node::Empty => return Ok(()),
            Node::One { c, ignore_case } => Step::One { c: *c, ignore_case: *ignore_case },
            Node::Set(set) => Step::Set(set.clone()),
            Node::NotLineFeed => Step::NotLineFeed,
            Node::Any => Step::Any,
            Node::At(at) => Step::At(*at),
            Node::Again { group, ignore_case } => Step::Again { group: *group, ignore_case: *ignore_case },
            Node::Sequence(nodes) => return nodes.iter().try_for_each(|node| self.emit(node)),
            Node::Either(nodes) => return self.either(nodes),
            Node::Group(group, node) => {
                if self.captures {
                    self.steps.push(Step::Note(2 * group));
                }
                self.emit(node)?;
                if !self.captures {
                    return Ok(());
                }
                Step::Note(2 * group + 1)
            }
            Node::Look { node, behind, wanted } => {
                let back = if *behind { Some(width(node)?) } else { None };
                let look = self.reserve();
                self.emit(node)?;
                self.steps.push(Step::Done);
                self.steps[look] = Step::Look { back, wanted: *wanted, next: self.steps.len() };
                return Ok(());
            }
            Node::Atomic(node) => return self.atomic(|emitter| emitter.emit(node)),
            Node::Repeat { node, least, most, how } => {
                let greedy = *how != How::Lazy;
                return if *how == How::Possessive {
                    self.atomic(|emitter| emitter.repeat(node, *least, *most, greedy))
                } else {
                    self.repeat(node, *least, *most, greedy)
                };
            }
        };
        self.steps.push(step);
        Ok(())
    }

    /// A placeholder for a step that is not known yet.
    fn reserve(&mut self) -> usize {
        self.steps.push(Step::Done);
        self.steps.len() - 1
    }

    fn either(&mut self, nodes: &[Node]) -> Result<(), PatternError> {
        let mut ends = Vec::new();
        for (i, node) in nodes.iter().enumerate() {
            if i + 1 == nodes.len() {
                self.emit(node)?;
                break;
            }
            let fork = self.reserve();
            self.emit(node)?;
            ends.push(self.reserve());
            self.steps[fork] = Step::Fork(fork + 1, self.steps.len());
        }
        let end = self.steps.len();
        for at in ends {
            self.steps[at] = Step::Jump(end);
        }
        Ok(())
    }

    fn atomic(
        &mut self,
        body: impl FnOnce(&mut Self) -> Result<(), PatternError>,
    ) -> Result<(), PatternError> {
        let start = self.reserve();
        body(self)?;
        self.steps.push(Step::Done);
        self.steps[start] = Step::Atomic { next: self.steps.len() };
        Ok(())
    }

    fn repeat(
        &mut self,
        node: &Node,
        least: usize,
        most: Option<usize>,
        greedy: bool,
    ) -> Result<(), PatternError> {
        let fork = |into: usize, past: usize| {
            if greedy { Step::Fork(into, past) } else { Step::Fork(past, into) }
        };
        // A body that emits nothing would otherwise be counted without growing the program.
        let before = self.steps.len();
        for _ in 0..least {
            self.emit(node)?;
            if self.steps.len() == before {
                break;
            }
        }
        match most {
            None => {
                let start = self.reserve();
                let back = if may_be_empty(node) {
                    let slot = self.slots;
                    self.slots += 1;
                    self.steps.push(Step::Note(slot));
                    Step::Round { slot, start }
                } else {
                    Step::Jump(start)
                };
                self.emit(node)?;
                self.steps.push(back);
                self.steps[start] = fork(start + 1, self.steps.len());
            }
            Some(most) => {
                let mut forks = Vec::new();
                for _ in least..most {
                    forks.push(self.reserve());
                    self.emit(node)?;
                }
                let end = self.steps.len();
                for at in forks {
                    self.steps[at] = fork(at + 1, end);
                }
            }
        }
        Ok(())
    }
}
