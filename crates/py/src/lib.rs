//! The extension module `fgrpo._native`, which the Python package `fgrpo` calls.
//!
//! Every function takes one-dimensional arrays of a fixed type and checks what `fgrpo-core` would assert. It releases the GIL
//! for the work and starts threads only within the call, so the process can be forked afterwards. A panic becomes
//! a `RuntimeError`, or the verdict `unscorable` inside a verifier. The Python code (`python/fgrpo`) handles
//! shapes, dtypes and defaults.
//!
//! Arrays pass through the `numpy` crate. Python's buffer protocol would work without a crate, but the stable ABI has it
//! only since Python 3.11, and this wheel supports 3.10. Loading the module doesn't import NumPy, but the first array does.

mod call;
mod command;
mod credit;
mod engine;
mod episode;
mod grader;
mod loss;
mod statistics;
mod theory;
mod train;
mod verifiers;

use fgrpo_eval::names::Named;
use fgrpo_eval::verifier::Mode;
use pyo3::prelude::*;

/// Fills the module `fgrpo._native`.
#[pymodule(gil_used = false)]
fn _native(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add("__version__", env!("CARGO_PKG_VERSION"))?;
    m.add("TRAINING_MODE", Mode::TRAINING.name())?;
    m.add("REFERENCE_MODE", Mode::REFERENCE.name())?;
    m.add("FOCAL_GAMMA", fgrpo_core::focal::DEFAULT_GAMMA)?;
    m.add_function(wrap_pyfunction!(command::run_command, m)?)?;
    m.add_function(wrap_pyfunction!(credit::credit, m)?)?;
    m.add_function(wrap_pyfunction!(credit::focal_weight, m)?)?;
    m.add_function(wrap_pyfunction!(credit::lowest_correct, m)?)?;
    m.add_function(wrap_pyfunction!(loss::policy_loss, m)?)?;
    m.add_function(wrap_pyfunction!(verifiers::verify_math, m)?)?;
    m.add_function(wrap_pyfunction!(verifiers::verify_choice, m)?)?;
    m.add_function(wrap_pyfunction!(verifiers::verify_ifeval, m)?)?;
    m.add_function(wrap_pyfunction!(verifiers::verify_synlogic, m)?)?;
    m.add_class::<grader::Grader>()?;
    m.add_class::<verifiers::MathProblem>()?;
    m.add_class::<verifiers::MathExtraction>()?;
    m.add_class::<verifiers::MathValue>()?;
    m.add_function(wrap_pyfunction!(statistics::pass_at_k, m)?)?;
    m.add_function(wrap_pyfunction!(statistics::compare, m)?)?;
    m.add_function(wrap_pyfunction!(statistics::plan, m)?)?;
    m.add_function(wrap_pyfunction!(statistics::read_dump, m)?)?;
    m.add_function(wrap_pyfunction!(statistics::read_samples, m)?)?;
    m.add_class::<engine::Engine>()?;
    m.add_class::<episode::Episode>()?;
    m.add_function(wrap_pyfunction!(train::train, m)?)?;
    m.add_function(wrap_pyfunction!(train::read_run, m)?)?;
    m.add_function(wrap_pyfunction!(train::stop_training, m)?)?;
    m.add_function(wrap_pyfunction!(theory::tail_miss, m)?)?;
    m.add_function(wrap_pyfunction!(theory::active, m)?)?;
    m.add_function(wrap_pyfunction!(theory::peak, m)?)?;
    m.add_function(wrap_pyfunction!(theory::low_lr, m)?)?;
    m.add_function(wrap_pyfunction!(theory::simulate, m)?)?;
    Ok(())
}
