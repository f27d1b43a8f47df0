//! The error type. Messages name the file, field or tensor.

use std::path::{Path, PathBuf};

/// Formats "expected X, found Y". Advice that follows a semicolon in `expected` is moved to the end.
fn mismatch(expected: &str, found: &str) -> String {
    match expected.split_once("; ") {
        Some((expected, advice)) => format!("expected {expected}, found {found}; {advice}"),
        None => format!("expected {expected}, found {found}"),
    }
}

/// An error outside the caller's control. (Incorrect use of this crate panics.)
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
    #[error("{place}: {field}: {}", mismatch(expected, found))]
    Config {
        /// Path of the file, or "configuration" if the value isn't from a file.
        place: String,
        /// The field, with dots if nested.
        field: String,
        /// The rejected value.
        found: String,
        /// The expected value.
        expected: String,
    },
    /// An invalid checkpoint file.
    #[error("{}: {}", path.display(), mismatch(expected, found))]
    File {
        /// The file or folder.
        path: PathBuf,
        /// Actual content.
        found: String,
        /// Expected content.
        expected: String,
    },
    /// A tensor that is missing, unknown, or of the wrong shape, type or value.
    #[error("{}: tensor {tensor}: {}", path.display(), mismatch(expected, found))]
    Tensor {
        /// The file or folder that was searched.
        path: PathBuf,
        /// Name of the tensor.
        tensor: String,
        /// Actual shape, type or value.
        found: String,
        /// Expected shape, type or value.
        expected: String,
    },
    /// A value that is not finite.
    #[error("{what}: the value is {found}, which is not finite; {remedy}")]
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
    /// No BLAS library can be loaded. Contains the loader's messages.
    #[error(
        "no BLAS library can be loaded: {0}; use products in f32, install OpenBLAS, or set FGRPO_BLAS to the path of a library that has cblas_sgemm"
    )]
    Blas(String),
    /// An invalid request to the engine.
    #[error("{field}: {}", mismatch(expected, found))]
    Request {
        /// The setting or argument.
        field: &'static str,
        /// The rejected value.
        found: String,
        /// The expected value.
        expected: String,
    },
}

impl Error {
    pub(crate) fn request(
        field: &'static str,
        found: impl Into<String>,
        expected: impl Into<String>,
    ) -> Error {
        Error::Request { field, found: found.into(), expected: expected.into() }
    }

    pub(crate) fn file(
        at: impl Into<PathBuf>,
        found: impl Into<String>,
        expected: impl Into<String>,
    ) -> Error {
        Error::File { path: at.into(), found: found.into(), expected: expected.into() }
    }

    pub(crate) fn tensor(
        path: impl Into<PathBuf>,
        tensor: impl Into<String>,
        found: impl Into<String>,
        expected: impl Into<String>,
    ) -> Error {
        Error::Tensor {
            path: path.into(),
            tensor: tensor.into(),
            found: found.into(),
            expected: expected.into(),
        }
    }

    /// Converts an I/O error on `path`, for `map_err`: `fs::read(p).map_err(Error::io("read", p))`.
    pub fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Error {
        let path = path.to_path_buf();
        move |source| Error::Io { action, path, source }
    }
}
