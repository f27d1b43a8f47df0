//! Advantages and focal weights.

use crate::call::{bad, without_gil};
use fgrpo_core::advantage::Advantage;
use fgrpo_core::credit::{Assigned, Credit, Shaping};
use fgrpo_core::error::Error;
use fgrpo_core::focal;
use fgrpo_core::group::{Group, Part, Rewards};
use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1};
use pyo3::prelude::*;
use pyo3::types::PyList;
use serde_json::{Map, Value};

/// Returns the message of a `fgrpo-core` error, with the Python name of the argument.
pub(crate) fn named(error: &Error) -> String {
    let Error::Setting { setting, value, expected } = error else { return error.to_string() };
    let name = match *setting {
        "advantage" => "estimator",
        "focal_gamma" => "gamma",
        "reward_correct" => "correct",
        "reward_threshold" => "threshold",
        "shaping.beta" | "shaping.correct" | "shaping.wrong" | "shaping.scale" | "shaping.anchor" => {
            "shaping"
        }
        "loss.clip, low" => "clip_low",
        "loss.clip, high" | "loss.cap" => "clip_high",
        "loss.dual_clip" => "dual_clip",
        "loss.tau" => "tau",
        "max_new_tokens" => "max_len",
        other => other.trim_start_matches("advantage."),
    };
    format!("{name}: expected {expected}, found {value}")
}

/// Reads an estimator from a table `{"kind": NAME, SETTING: NUMBER, ...}` and from the arguments in `beside`. Returns an
/// error for a setting that the estimator doesn't have.
fn estimator(table: &str, beside: [(&str, Option<Value>); 3]) -> PyResult<Advantage> {
    let wrong = |why: &dyn std::fmt::Display| bad(format!("estimator: {why}"));
    let mut fields: Map<String, Value> = serde_json::from_str(table).map_err(|e| wrong(&e))?;
    let name = fields.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
    let Some(preset) = Advantage::ALL.into_iter().find(|estimator| estimator.name() == name) else {
        let names: Vec<String> = Advantage::ALL.iter().map(|e| format!("{:?}", e.name())).collect();
        return Err(wrong(&format!("expected one of {}; found {name:?}", names.join(", "))));
    };
    let defaults = serde_json::to_value(preset).map_err(|e| wrong(&e))?;
    if let Some(key) = fields.keys().find(|key| defaults.get(key).is_none()) {
        let keys: Vec<&str> =
            defaults.as_object().into_iter().flat_map(|k| k.keys()).map(String::as_str).collect();
        return Err(wrong(&format!("{name:?} has no setting {key:?}; known settings: {}", keys.join(", "))));
    }
    for (key, value) in beside {
        match (value, defaults.get(key)) {
            (Some(value), None) => {
                return Err(bad(format!(
                    "{key}: the estimator {name:?} doesn't have this setting; found {value}"
                )));
            }
            (Some(value), Some(_)) => {
                if let Some(other) = fields.insert(key.to_owned(), value.clone()) {
                    return Err(bad(format!(
                        "{key} is set twice: to {value}, and to {other} in the estimator's table"
                    )));
                }
            }
            (None, _) => {}
        }
    }
    serde_json::from_value(Value::Object(fields)).map_err(|e| wrong(&e))
}

/// Creates the shaping with this name and these parameters, or with the paper's parameters if the list is empty.
fn shaping(shaping: Option<(String, Vec<f64>)>) -> PyResult<Shaping> {
    let Some((name, numbers)) = shaping else { return Ok(Shaping::None) };
    // The caller decides how the anchor moves.
    let ha_dw = |scale, anchor| Shaping::HaDw { scale, eta: 0.0, window: 1, anchor };
    let preset = serde_json::from_value(serde_json::json!({ "kind": name })).unwrap_or_default();
    match (preset, numbers.as_slice()) {
        (Shaping::Unlikely { .. } | Shaping::Smoothing { .. }, []) => Ok(preset),
        (Shaping::HaDw { scale, .. }, []) => Ok(ha_dw(scale, None)),
        (Shaping::Unlikely { .. }, &[beta]) => Ok(Shaping::Unlikely { beta }),
        (Shaping::Smoothing { .. }, &[correct, wrong]) => Ok(Shaping::Smoothing { correct, wrong }),
        (Shaping::HaDw { .. }, &[scale, anchor]) => Ok(ha_dw(scale, Some(anchor))),
        _ => Err(bad(format!(
            "shaping: expected \"unlikely\", (\"unlikely\", beta), \"smoothing\", \
             (\"smoothing\", correct, wrong), \"ha_dw\" or (\"ha_dw\", scale, anchor), found {name:?} with {} numbers",
            numbers.len()
        ))),
    }
}

/// Advantages of `B` completions, `(B,)`, and success rates and focal weights of `G` groups, `(G,)`.
type Arrays<'py> = (Bound<'py, PyArray1<f64>>, Bound<'py, PyArray1<f64>>, Bound<'py, PyArray1<f64>>);

/// Computes advantages, success rates and focal weights. `rewards`: `(B,)`, NaN for unscorable completions. `group`:
/// `(B,)`, in `0..groups`. `labels`: the caller's names of the groups.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "the Python half names them")]
pub(crate) fn credit<'py>(
    py: Python<'py>,
    rewards: PyReadonlyArray1<'py, f64>,
    group: PyReadonlyArray1<'py, i64>,
    groups: usize,
    labels: Option<Bound<'py, PyList>>,
    estimator: &str,
    gamma: f64,
    eps: Option<f64>,
    ddof: Option<usize>,
    k: Option<usize>,
    correct: f64,
    wrong: f64,
    threshold: Option<f64>,
    shaping: Option<(String, Vec<f64>)>,
    mean_logp: Option<PyReadonlyArray1<'py, f64>>,
    lengths: Option<PyReadonlyArray1<'py, i64>>,
    parts: Vec<(PyReadonlyArray1<'py, f64>, f64)>,
    clusters: Option<PyReadonlyArray1<'py, i64>>,
) -> PyResult<Arrays<'py>> {
    let beside = [("eps", eps.map(Value::from)), ("ddof", ddof.map(Value::from)), ("k", k.map(Value::from))];
    let credit = Credit {
        advantage: self::estimator(estimator, beside)?,
        rewards: Rewards { correct, wrong, threshold },
        focal_gamma: gamma,
        shaping: self::shaping(shaping)?,
        overlong: None,
    };
    let (rewards, group) = (rewards.as_slice()?, group.as_slice()?);
    let logp = mean_logp.as_ref().map(|l| l.as_slice()).transpose()?;
    let lengths = lengths.as_ref().map(|l| l.as_slice()).transpose()?;
    let parts: Vec<(&[f64], f64)> =
        parts.iter().map(|(part, weight)| Ok((part.as_slice()?, *weight))).collect::<PyResult<_>>()?;
    if !parts.is_empty() && !credit.advantage.reads().parts {
        let name = credit.advantage.name();
        return Err(bad(format!("parts: {name} uses a single reward, found {} parts", parts.len())));
    }
    if let Some((_, weight)) = parts.iter().find(|(_, weight)| !weight.is_finite()) {
        return Err(bad(format!("weights: expected finite values, found {weight}")));
    }
    let clusters = clusters.as_ref().map(|c| c.as_slice()).transpose()?;
    let sizes =
        [logp.map(<[f64]>::len), lengths.map(<[i64]>::len), clusters.map(<[i64]>::len), Some(group.len())];
    let sizes = sizes.into_iter().flatten().chain(parts.iter().map(|(part, _)| part.len()));
    if sizes.into_iter().any(|n| n != rewards.len()) {
        return Err(bad("rewards, groups, mean_logp, lengths, parts and clusters differ in length"));
    }
    let reads = credit.advantage.reads();
    for (name, what, missing) in [
        ("lengths", "tokens", lengths.is_none() && reads.lengths),
        ("mean_logp", "mean log-probability", logp.is_none() && reads.logp),
        ("clusters", "cluster", clusters.is_none() && reads.clusters),
    ] {
        if missing {
            let estimator = credit.advantage.name();
            return Err(bad(format!("{name} is required: {estimator} uses each completion's {what}")));
        }
    }
    let mut members = vec![Vec::new(); groups];
    for (row, &g) in group.iter().enumerate() {
        let members = usize::try_from(g).ok().and_then(|g| members.get_mut(g));
        members
            .ok_or_else(|| bad(format!("group of row {row}: expected an index below {groups}, found {g}")))?
            .push(row);
    }
    // Settings are checked even where no group is large enough to use them.
    let largest = members.iter().map(Vec::len).max().unwrap_or(0).max(2);
    credit.check(largest).map_err(|e| bad(named(&e)))?;
    let assigned = without_gil(py, || assign(&credit, rewards, logp, lengths, &parts, clusters, &members))?;
    let (advantages, rate, weight) = assigned.map_err(|(g, error)| {
        let label = labels.and_then(|l| l.get_item(g).ok()?.repr().ok()).map(|r| r.to_string());
        bad(format!("group {}: {}", label.unwrap_or_else(|| g.to_string()), named(&error)))
    })?;
    Ok((advantages.into_pyarray(py), rate.into_pyarray(py), weight.into_pyarray(py)))
}

type Values = (Vec<f64>, Vec<f64>, Vec<f64>);

/// Computes the credit of all groups, or returns the first group that failed and the reason.
fn assign(
    credit: &Credit,
    rewards: &[f64],
    logp: Option<&[f64]>,
    lengths: Option<&[i64]>,
    parts: &[(&[f64], f64)],
    clusters: Option<&[i64]>,
    members: &[Vec<usize>],
) -> Result<Values, (usize, Error)> {
    fn of<T, U>(rows: &[usize], values: Option<&[T]>, absent: U, read: impl Fn(&T) -> U) -> Vec<U>
    where
        U: Copy,
    {
        values.map_or_else(|| vec![absent; rows.len()], |all| rows.iter().map(|&i| read(&all[i])).collect())
    }
    let mut columns = Vec::with_capacity(members.len());
    for (g, rows) in members.iter().enumerate() {
        // A lone completion can't be compared: its advantage is 0.
        if rows.len() > 1 {
            credit.check(rows.len()).map_err(|e| (g, e))?;
        }
        let rewards: Vec<f64> = rows.iter().map(|&i| rewards[i]).collect();
        let scored: Vec<bool> = rewards.iter().map(|r| !r.is_nan()).collect();
        let lengths = of(rows, lengths, 1, |&n| usize::try_from(n).unwrap_or(0));
        let clusters = of(rows, clusters, 0, |&c| usize::try_from(c).unwrap_or(0));
        columns.push((rewards, of(rows, logp, 0.0, |&l| l), lengths, scored, clusters));
    }
    let part_values = |rows: &Vec<usize>| -> Vec<Vec<f64>> {
        parts.iter().map(|(part, _)| rows.iter().map(|&i| part[i]).collect()).collect()
    };
    let values: Vec<Vec<Vec<f64>>> = members.iter().map(part_values).collect();
    let weighted: Vec<Vec<Part<'_>>> = values
        .iter()
        .map(|values| {
            values.iter().zip(parts).map(|(rewards, &(_, weight))| Part { rewards, weight }).collect()
        })
        .collect();
    let groups: Vec<Group<'_>> = columns
        .iter()
        .zip(&weighted)
        .map(|((rewards, mean_old_logp, lengths, scored, clusters), parts)| Group {
            rewards,
            lengths,
            mean_old_logp,
            scored,
            parts,
            clusters,
        })
        .collect();
    let mut advantages = vec![0.0; rewards.len()];
    let (mut rate, mut weight) = (vec![f64::NAN; members.len()], vec![1.0; members.len()]);
    for (g, result) in credit.assign_batch(&groups)?.into_iter().enumerate() {
        let Assigned { advantages: values, success_rate, focal_weight } = result;
        for (&row, a) in members[g].iter().zip(values) {
            advantages[row] = a;
        }
        rate[g] = success_rate.unwrap_or(f64::NAN);
        weight[g] = focal_weight;
    }
    Ok((advantages, rate, weight))
}

/// Returns the lowest reward of a correct completion if rewards are graded.
#[pyfunction]
pub(crate) fn lowest_correct(threshold: f64) -> f64 {
    fgrpo_core::group::lowest_correct(threshold)
}

/// Computes the focal weight `(1 - success_rate)^gamma` of each element. NaN stays NaN.
#[pyfunction]
pub(crate) fn focal_weight<'py>(
    py: Python<'py>,
    success_rate: PyReadonlyArray1<'py, f64>,
    gamma: f64,
) -> PyResult<Bound<'py, PyArray1<f64>>> {
    let rates = success_rate.as_slice()?;
    if !(gamma.is_finite() && gamma >= 0.0) {
        return Err(bad(format!("gamma: expected a finite number of at least 0, found {gamma}")));
    }
    if let Some(rate) = rates.iter().find(|r| !r.is_nan() && !(0.0..=1.0).contains(*r)) {
        return Err(bad(format!("success_rate: expected values from 0 to 1, or NaN, found {rate}")));
    }
    let weight = |&rate: &f64| if rate.is_nan() { rate } else { focal::focal_weight(rate, gamma) };
    Ok(rates.iter().map(weight).collect::<Vec<f64>>().into_pyarray(py))
}
