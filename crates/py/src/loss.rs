//! Policy losses in closed form.

use crate::call::{bad, without_gil};
use crate::credit::named;
use fgrpo_core::loss::{Counts, Objective, PolicyLoss, covariance};
use fgrpo_eval::io::json;
use fgrpo_train::config::AlgorithmConfig;
use numpy::ndarray::ArrayView2;
use numpy::{IntoPyArray, PyArray2, PyReadonlyArray1, PyReadonlyArray2};
use pyo3::prelude::*;
use serde_json::{Value, json};

/// Creates a policy loss from its defaults and the given settings. A `dual_clip` of 0 turns the dual clip off. Returns an
/// error for a setting that the loss lacks.
fn policy(
    loss: &str,
    clip: [Option<f64>; 2],
    dual_clip: Option<f64>,
    cap: bool,
    tau: Option<(f64, f64)>,
) -> PyResult<PolicyLoss> {
    let unread = |name: &str| bad(format!("{name}: the loss {loss:?} doesn't use this argument"));
    if cap && loss != "cispo" {
        return Err(unread("absolute_cap"));
    }
    let kind = if cap { "cispo_cap" } else { loss };
    let read = |keys: Value| serde_json::from_value::<PolicyLoss>(keys);
    let preset =
        read(json!({ "kind": kind })).map_err(|why| bad(format!("loss: unknown loss {loss:?}: {why}")))?;
    let mut keys = serde_json::to_value(preset).expect("a loss is a table");
    let dual_clip = dual_clip.filter(|ratio| *ratio != 0.0 || keys.get("dual_clip").is_some());
    let high = if cap { ("cap", None) } else { ("clip", Some(1)) };
    let arguments = [
        ("clip_low", ("clip", Some(0)), clip[0]),
        ("clip_high", high, clip[1]),
        ("tau", ("tau", Some(0)), tau.map(|tau| tau.0)),
        ("tau", ("tau", Some(1)), tau.map(|tau| tau.1)),
        ("dual_clip", ("dual_clip", None), dual_clip),
    ];
    for (name, (key, place), value) in arguments {
        let Some(value) = value else { continue };
        let target = keys.get_mut(key).ok_or_else(|| unread(name))?;
        let target = match place {
            Some(at) => target.get_mut(at).ok_or_else(|| unread(name))?,
            None => target,
        };
        *target = json!(value);
    }
    let loss = read(keys).map_err(bad)?;
    loss.check().map_err(|e| bad(named(&e)))?;
    Ok(loss)
}

/// Creates an objective with this aggregation, from which the factors of tokens are computed.
fn aggregation(name: &str, max_len: Option<usize>) -> PyResult<Objective> {
    let algorithm: AlgorithmConfig = json::of_value(json!({ "aggregation": name })).map_err(bad)?;
    match (name == "seq-mean-token-sum-norm", max_len) {
        (true, None) => return Err(bad(format!("max_len is required: {name:?} divides by it"))),
        (false, Some(_)) => {
            return Err(bad(format!("max_len: the aggregation {name:?} doesn't use this argument")));
        }
        _ => {}
    }
    let objective = algorithm.objective(max_len.unwrap_or(1));
    objective.check().map_err(|e| bad(named(&e)))?;
    Ok(objective)
}

/// Returns the loss, and its derivative with respect to `logp`. Shapes: `(B, T)`, but `advantages` is `(B,)`.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "the Python half names them")]
pub(crate) fn policy_loss<'py>(
    py: Python<'py>,
    logp: PyReadonlyArray2<'py, f64>,
    old_logp: PyReadonlyArray2<'py, f64>,
    advantages: PyReadonlyArray1<'py, f64>,
    mask: PyReadonlyArray2<'py, bool>,
    loss: &str,
    aggregation: &str,
    clip_low: Option<f64>,
    clip_high: Option<f64>,
    dual_clip: Option<f64>,
    absolute_cap: bool,
    tau: Option<(f64, f64)>,
    max_len: Option<usize>,
) -> PyResult<(f64, Bound<'py, PyArray2<f64>>)> {
    let policy = policy(loss, [clip_low, clip_high], dual_clip, absolute_cap, tau)?;
    let aggregation = self::aggregation(aggregation, max_len)?;
    let (logp, old_logp, mask) = (logp.as_array(), old_logp.as_array(), mask.as_array());
    let advantages = advantages.as_slice()?;
    if old_logp.dim() != logp.dim() || mask.dim() != logp.dim() || advantages.len() != logp.nrows() {
        return Err(bad("logp, old_logp, mask and advantages differ in shape"));
    }
    let (total, dlogp) = without_gil(py, || sum(policy, aggregation, logp, old_logp, advantages, mask))?;
    Ok((total, dlogp.into_pyarray(py)))
}

fn sum(
    policy: PolicyLoss,
    aggregation: Objective,
    logp: ArrayView2<'_, f64>,
    old_logp: ArrayView2<'_, f64>,
    advantages: &[f64],
    mask: ArrayView2<'_, bool>,
) -> (f64, numpy::ndarray::Array2<f64>) {
    let rows: Vec<Vec<usize>> =
        mask.rows().into_iter().map(|row| (0..row.len()).filter(|&t| row[t]).collect()).collect();
    let counts = Counts::of(rows.iter().map(Vec::len));
    let mut dlogp = numpy::ndarray::Array2::zeros(logp.dim());
    let mut total = 0.0;
    let by_row = |values: ArrayView2<'_, f64>| -> Vec<Vec<f64>> {
        rows.iter().enumerate().map(|(b, tokens)| tokens.iter().map(|&t| values[(b, t)]).collect()).collect()
    };
    let (logp, old_logp) = (by_row(logp), by_row(old_logp));
    let all: Vec<(f64, &[f64], &[f64])> =
        (0..rows.len()).map(|b| (advantages[b], logp[b].as_slice(), old_logp[b].as_slice())).collect();
    let selected = covariance::selected(&policy, &all);
    for (b, tokens) in rows.iter().enumerate() {
        let scale = aggregation.scale(tokens.len(), &counts);
        let terms = policy.completion(&logp[b], &old_logp[b], advantages[b]);
        for (i, (&t, mut term)) in tokens.iter().zip(terms).enumerate() {
            if selected.as_ref().is_some_and(|selected| selected[b][i]) {
                term = policy.of_selected(term, logp[b][i], old_logp[b][i]);
            }
            total += scale * term.loss;
            dlogp[(b, t)] = scale * term.dlogp;
        }
    }
    (total, dlogp)
}
