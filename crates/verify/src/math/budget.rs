//! Limits on the work for one answer. An answer beyond a limit is wrong; only a gold beyond a limit is unscorable.

/// Maximum number of tokens in one answer.
pub(super) const MAX_TOKENS: usize = 4096;
/// Maximum nesting of groups in one answer.
pub(super) const MAX_DEPTH: usize = 48;
/// Maximum number of exponents, factorials and similar operators after one value.
pub(super) const MAX_POSTFIXES: usize = 5;
/// Maximum number of digits of a number literal, and of a decimal exponent.
pub(super) const MAX_DIGITS: usize = 4300;
/// Maximum number of bits of an exact integer during evaluation.
pub(super) const MAX_BITS: usize = 120_000;
/// Maximum number of steps of one comparison: nodes visited, numbers multiplied.
pub(super) const MAX_STEPS: u32 = 8_000;
/// Maximum length in bytes of an answer that is parsed.
pub(super) const MAX_ANSWER: usize = 16_384;
/// Maximum number of candidates tried in one completion.
pub(super) const MAX_CANDIDATES: usize = 24;

/// Reason why an answer can't be parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ParseError {
    /// The input has a syntax error.
    Syntax,
    /// The input is larger or more deeply nested than the limits.
    Budget,
}

/// The steps that are left in one comparison.
#[derive(Debug)]
pub(super) struct Fuel {
    left: u32,
}

/// The comparison ran out of steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Exhausted;

/// Reason why a value isn't computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoValue {
    /// The value is undefined, or of a kind that is not computed.
    Undefined,
    /// The comparison ran out of steps.
    Exhausted,
}

impl From<Exhausted> for NoValue {
    fn from(_: Exhausted) -> Self {
        Self::Exhausted
    }
}

/// Returns the value, or `None` if it is undefined.
pub(super) fn known<T>(value: Result<T, NoValue>) -> Result<Option<T>, Exhausted> {
    match value {
        Ok(value) => Ok(Some(value)),
        Err(NoValue::Undefined) => Ok(None),
        Err(NoValue::Exhausted) => Err(Exhausted),
    }
}

impl Fuel {
    pub(super) fn new() -> Self {
        Self { left: MAX_STEPS }
    }

    /// Returns the steps for one side of a comparison: half of [`MAX_STEPS`].
    pub(super) fn half() -> Self {
        Self { left: MAX_STEPS / 2 }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.left == 0
    }

    /// Whether at least `steps` steps are left.
    pub(super) fn holds(&self, steps: u32) -> bool {
        self.left >= steps
    }

    /// Whether more than half is spent.
    pub(super) fn is_low(&self) -> bool {
        !self.holds(MAX_STEPS / 2)
    }

    pub(super) fn spend(&mut self, steps: u32) -> Result<(), Exhausted> {
        self.left = self.left.checked_sub(steps).ok_or_else(|| {
            self.left = 0;
            Exhausted
        })?;
        Ok(())
    }
}
