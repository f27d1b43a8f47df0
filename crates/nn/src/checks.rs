//! Layer checks, a mode for debugging: the result of every operation is searched for numbers that are not finite, and the first one ends the pass with
//! its layer, operation and row.
//!
//! Turned off, a check is one branch. Turned on, the host waits for every operation, and decoding steps are not recorded as CUDA graphs; results are the
//! same bits.

use crate::error::Error;
use crate::executor::{Executor, Rows};

/// The environment variable that turns layer checks on.
pub const CHECK_LAYERS: &str = "FGRPO_CHECK_LAYERS";

/// What is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    Forward,
    /// A forward pass whose keys and values are cached.
    Prompts,
    Decoding,
    Backward,
}

/// The checks of a pass, or of one of its layers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Checks {
    on: bool,
    stage: Stage,
    layer: Option<usize>,
}

impl Checks {
    pub(crate) fn new(on: bool, stage: Stage) -> Checks {
        Checks { on, stage, layer: None }
    }

    pub(crate) fn of_layer(self, layer: usize) -> Checks {
        Checks { layer: Some(layer), ..self }
    }

    /// Checks rows of activations. `operations` are the names of what computed them, with the number of columns of each: names as in a checkpoint,
    /// within the layer if there is one.
    /// The error names the first number that is not finite.
    pub(crate) fn finite<X: Executor>(
        &self,
        e: &mut X,
        (which, count): (Rows, usize),
        operations: &[(&str, usize)],
        x: &X::Buffer,
    ) -> Result<(), Error> {
        if !self.on {
            return Ok(());
        }
        let width: usize = operations.iter().map(|operation| operation.1).sum();
        let Some((index, found)) = e.first_non_finite(count * width, x) else { return Ok(()) };
        let (row, mut column) = (index / width, index % width);
        let mut names = operations.iter();
        let name = loop {
            let (name, own) = names.next().expect("the column of one of them");
            match column.checked_sub(*own) {
                Some(rest) => column = rest,
                None => break name,
            }
        };
        let side = if self.stage == Stage::Backward { "derivative by the input" } else { "output" };
        let module = self.layer.map_or_else(String::new, |layer| format!("model.layers.{layer}."));
        let kind = if which == Rows::Predicting { "predicting row" } else { "row" };
        let what = format!("{side} of {module}{name}, {kind} {row} of {count}, column {column}");
        Err(self.error(what, found))
    }

    /// Checks the derivatives of the loss.
    /// The error names the first one that is not finite.
    pub(crate) fn finite_loss(&self, picks: &[usize], dlogp: &[f32], dentropy: &[f32]) -> Result<(), Error> {
        if !self.on {
            return Ok(());
        }
        for (name, values) in [("log-probability", dlogp), ("entropy", dentropy)] {
            if let Some(at) = values.iter().position(|value| !value.is_finite()) {
                let what = format!("derivative of the loss by the {name} of prediction {}", picks[at]);
                return Err(self.error(what, values[at]));
            }
        }
        Ok(())
    }

    /// The error of the vocabulary head, whose input was checked, with its stage.
    pub(crate) fn at_head(&self, error: Error) -> Error {
        match error {
            Error::NonFinite { what, found, .. } if self.on => self.error(what, found),
            error => error,
        }
    }

    /// The engine replaces the advice.
    fn error(&self, what: String, found: f32) -> Error {
        let stage = match self.stage {
            Stage::Forward => "forward pass",
            Stage::Prompts => "forward pass over prompts",
            Stage::Decoding => "decoding step",
            Stage::Backward => "backward pass",
        };
        let layer = self.layer.map_or_else(String::new, |layer| format!(", layer {layer}"));
        Error::NonFinite { what: format!("{stage}{layer}: {what}"), found, remedy: String::new() }
    }
}

/// Refuses scores that aren't finite; `rows` has each one's predicting row.
pub(crate) fn check_scores(
    logp: &[f32],
    entropy: &[f32],
    rows: impl IntoIterator<Item = u32>,
) -> Result<(), Error> {
    for ((&logp, &entropy), row) in logp.iter().zip(entropy).zip(rows) {
        if let Some(found) = [logp, entropy].into_iter().find(|score| !score.is_finite()) {
            return Err(non_finite(found, row as usize));
        }
    }
    Ok(())
}

/// The error for a row whose softmax is invalid.
pub(crate) fn non_finite(found: f32, row: usize) -> Error {
    Error::NonFinite {
        what: format!("lm_head: log-probabilities of predicting row {row}"),
        found,
        remedy: format!(
            "the weights have diverged or are damaged: go back to an earlier checkpoint, and lower the learning rate. To find the layer, run again with {CHECK_LAYERS}=on"
        ),
    }
}
