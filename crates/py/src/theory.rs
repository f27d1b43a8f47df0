//! The paper's theory and its categorical simulation.

use crate::call::{bad, without_gil};
use fgrpo_core::sim::{Setup, Simulation};
use fgrpo_core::theory::{advantage, tail_miss as theory};
use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1};
use pyo3::prelude::*;

/// Converts a group size to an unsigned number. A negative size becomes 0, which the theory rejects.
fn group_size(n: i64) -> u64 {
    u64::try_from(n).unwrap_or(0)
}

/// Computes [`theory::tail_miss_probability`] for each element of `mu`, `tau` and `n`, all of shape `(B,)`.
#[pyfunction]
pub(crate) fn tail_miss<'py>(
    py: Python<'py>,
    mu: PyReadonlyArray1<'py, f64>,
    tau: PyReadonlyArray1<'py, f64>,
    n: PyReadonlyArray1<'py, i64>,
) -> PyResult<Bound<'py, PyArray1<f64>>> {
    let rows = mu.as_slice()?.iter().zip(tau.as_slice()?).zip(n.as_slice()?);
    let values: Result<Vec<f64>, _> =
        rows.map(|((&mu, &tau), &n)| theory::tail_miss_probability(mu, tau, group_size(n))).collect();
    Ok(values.map_err(bad)?.into_pyarray(py))
}

/// Computes the probability that a group of `n` has both correct and wrong completions. `mu`, `n`: `(B,)`.
#[pyfunction]
pub(crate) fn active<'py>(
    py: Python<'py>,
    mu: PyReadonlyArray1<'py, f64>,
    n: PyReadonlyArray1<'py, i64>,
) -> PyResult<Bound<'py, PyArray1<f64>>> {
    let rows = mu.as_slice()?.iter().zip(n.as_slice()?);
    let values: Result<Vec<f64>, _> =
        rows.map(|(&mu, &n)| theory::active_probability(mu, group_size(n))).collect();
    Ok(values.map_err(bad)?.into_pyarray(py))
}

/// Returns the group size at which a tail miss is most likely, and the probability of a tail miss at this size.
#[pyfunction]
pub(crate) fn peak(mu: f64, tau: f64) -> PyResult<(u64, f64)> {
    theory::peak(mu, tau).map(|p| (p.n, p.tail_miss)).map_err(bad)
}

/// Returns the multiplier of the learning rate in the low-LR control.
#[pyfunction]
pub(crate) fn low_lr(gamma: f64) -> PyResult<f64> {
    advantage::low_lr_multiplier(gamma).map_err(bad)
}

/// Correct mass, retained correct mass and entropy of a simulated policy, at each recorded step.
#[derive(IntoPyObject)]
pub(crate) struct Trajectory<'py> {
    step: Bound<'py, PyArray1<i64>>,
    correct_mass: Bound<'py, PyArray1<f64>>,
    retained: Bound<'py, PyArray1<f64>>,
    entropy: Bound<'py, PyArray1<f64>>,
}

/// Trains a simulated policy for `steps` steps. Records it before the first step, every `record_every` steps, and after the
/// last step.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "the Python half names them")]
pub(crate) fn simulate<'py>(
    py: Python<'py>,
    group_size: u64,
    gamma: f64,
    steps: u64,
    seed: u64,
    record_every: u64,
    actions: usize,
    correct: usize,
    anchors: usize,
    lr: f64,
) -> PyResult<Trajectory<'py>> {
    let setup = Setup { actions, correct, anchors, lr, ..Setup::default() };
    let run = || {
        let mut simulation = Simulation::new(&setup, group_size, gamma, seed)?;
        let mut records = vec![(0, simulation.metrics())];
        for step in 1..=steps {
            simulation.step()?;
            if step.is_multiple_of(record_every) || step == steps {
                records.push((step as i64, simulation.metrics()));
            }
        }
        Ok::<_, fgrpo_core::sim::Error>(records)
    };
    let records = without_gil(py, run)?.map_err(bad)?;
    let column = |metric: fn(&fgrpo_core::sim::Metrics) -> f64| {
        records.iter().map(|(_, m)| metric(m)).collect::<Vec<f64>>().into_pyarray(py)
    };
    Ok(Trajectory {
        step: records.iter().map(|(step, _)| *step).collect::<Vec<i64>>().into_pyarray(py),
        correct_mass: column(|m| m.q_pos),
        retained: column(|m| m.retained),
        entropy: column(|m| m.entropy),
    })
}
