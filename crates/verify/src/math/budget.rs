//! Limits on the work one answer may cause. Beyond a limit the answer is unscorable, never wrong.

/// Tokens in one answer.
pub(super) const MAX_TOKENS: usize = 4096;
/// Nesting of groups in one answer.
pub(super) const MAX_DEPTH: usize = 48;
/// Exponents, factorials and the like behind one value.
pub(super) const MAX_POSTFIXES: usize = 5;
/// Digits of a number literal, and of a decimal exponent.
pub(super) const MAX_DIGITS: usize = 4300;
/// Bits of an exact integer met while evaluating.
pub(super) const MAX_BITS: usize = 120_000;
/// Steps of one comparison: nodes visited, numbers multiplied.
pub(super) const MAX_STEPS: u32 = 6_000;
/// Bytes of an answer that is parsed. Longer ones are no answers.
pub(super) const MAX_ANSWER: usize = 16_384;
/// Answers tried from one completion.
pub(super) const MAX_CANDIDATES: usize = 24;

/// Boxes inside boxes that are opened.
pub(super) const MAX_BOXES: usize = 16;

/// Why an answer has no parsed form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ParseError {
    /// It is not in the language.
    Syntax,
    /// It is larger or deeper than what is parsed.
    Budget,
}

/// Steps left in one comparison.
#[derive(Debug)]
pub(super) struct Fuel {
    left: u32,
}

/// The comparison ran out of steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Exhausted;

impl Fuel {
    pub(super) fn new() -> Self {
        Self { left: MAX_STEPS }
    }

    pub(super) fn spend(&mut self, steps: u32) -> Result<(), Exhausted> {
        self.left = self.left.checked_sub(steps).ok_or_else(|| {
            self.left = 0;
            Exhausted
        })?;
        Ok(())
    }
}
