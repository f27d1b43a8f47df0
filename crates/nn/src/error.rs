//! The errors, one variant per kind. A message names the file, field or tensor, what was found and what was expected.

use std::path::{Path, PathBuf};

/// An error outside the caller's control. (A caller's bug is an assertion.)
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An operating-system error on a file or folder.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// The operation, as a verb: `open`, `write`, `rename`.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The operating system's error.
        source: std::io::Error,
    },
    /// An invalid or unsupported setting of the model.
    #[error("{place}: {field}: found {found}, wanted {wanted}")]
    Config {
        /// Its file, or "configuration" if it isn't from a file.
        place: String,
        /// The field, with dots if nested.
        field: String,
        /// Its value.
        found: String,
        /// The expected value.
        wanted: String,
    },
    /// An invalid checkpoint file.
    #[error("{}: found {found}, wanted {wanted}", path.display())]
    File {
        /// The file or folder.
        path: PathBuf,
        /// The value found.
        found: String,
        /// The expected value.
        wanted: String,
    },
    /// A tensor that is missing, unknown, or of the wrong shape, type or value.
    #[error("{}: tensor {tensor}: found {found}, wanted {wanted}", path.display())]
    Tensor {
        /// The file or folder that was searched.
        path: PathBuf,
        /// Its name.
        tensor: String,
        /// The value found.
        found: String,
        /// The expected value.
        wanted: String,
    },
    /// A value that is not finite.
    #[error("{what}: found {found}, wanted finite numbers; {remedy}")]
    NonFinite {
        /// The quantity, such as `lm_head: log-probabilities of predicting row 7`.
        what: String,
        /// The value.
        found: f32,
        /// Advice for the user.
        remedy: String,
    },
    /// A GPU that is missing, failed, or has too little memory.
    #[error("{source}; {remedy}")]
    Device {
        /// The driver's message.
        source: fgrpo_cuda::Error,
        /// Advice for the user.
        remedy: &'static str,
    },
    /// An invalid request to the engine.
    #[error("{field}: found {found}, wanted {wanted}")]
    Request {
        /// The setting or argument.
        field: &'static str,
        /// Its value.
        found: String,
        /// The expected value.
        wanted: String,
    },
}

impl Error {
    pub(crate) fn request(field: &'static str, found: impl Into<String>, wanted: impl Into<String>) -> Error {
        Error::Request { field, found: found.into(), wanted: wanted.into() }
    }

    pub(crate) fn file(at: impl Into<PathBuf>, found: impl Into<String>, wanted: impl Into<String>) -> Error {
        Error::File { path: at.into(), found: found.into(), wanted: wanted.into() }
    }

    pub(crate) fn tensor(
        path: impl Into<PathBuf>,
        tensor: impl Into<String>,
        found: impl Into<String>,
        wanted: impl Into<String>,
    ) -> Error {
        Error::Tensor { path: path.into(), tensor: tensor.into(), found: found.into(), wanted: wanted.into() }
    }

    /// For `map_err` on an operation on `path`: `fs::read(p).map_err(Error::io("read", p))`.
    pub fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Error {
        let path = path.to_path_buf();
        move |source| Error::Io { action, path, source }
    }
}
