//! Values of `[algorithm]` that change over the steps.
//!
//! A value is a function of the step alone, so a resumed run has the same values as an uninterrupted one.

use super::ranges::{STEPS, within};
use super::{AlgorithmConfig, Truncated};
use fgrpo_core::advantage::Advantage;
use fgrpo_core::credit::{Overlong, Shaping};
use fgrpo_core::loss::{Correction, PolicyLoss};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;
use toml::Value;

/// A number, or a list of numbers, that changes linearly from its configured value to another one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ScheduledKey {
    /// The key without `algorithm.`; its configured value applies at step 1.
    pub key: String,
    /// The value from step `over` on; a list if the key has a list.
    #[serde(deserialize_with = "goal")]
    #[schemars(schema_with = "goal_schema")]
    pub to: Goal,
    /// Number of steps, at least 2.
    pub over: u64,
}

/// The final value.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Goal {
    /// A number.
    Number(f64),
    /// A list of numbers.
    Numbers(Vec<f64>),
}

fn goal<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Goal, D::Error> {
    let given = Value::deserialize(deserializer)?;
    let numbers = |list: &Vec<Value>| list.iter().map(number).collect::<Option<Vec<f64>>>();
    let read = match &given {
        Value::Array(list) => numbers(list).map(Goal::Numbers),
        value => number(value).map(Goal::Number),
    };
    let form = given.type_str();
    read.ok_or_else(|| D::Error::custom(format_args!("expected a number or a list of numbers, found {form}")))
}

fn goal_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "anyOf": [{ "type": "number" }, { "type": "array", "items": { "type": "number" } }] })
}

fn number(value: &Value) -> Option<f64> {
    value.as_float().or_else(|| value.as_integer().map(|i| i as f64))
}

/// A number of `[algorithm]`, or a list of numbers.
enum Number<'a> {
    Real(&'a mut f64),
    /// Scheduled values are rounded.
    Whole(&'a mut usize),
    Pair(&'a mut [f64; 2]),
}

macro_rules! from {
    ($($type:ty => $variant:ident),*) => {$(
        impl<'a> From<&'a mut $type> for Number<'a> {
            fn from(number: &'a mut $type) -> Self {
                Self::$variant(number)
            }
        }
    )*};
}
from!(f64 => Real, usize => Whole, [f64; 2] => Pair);

/// Fields, each with its name.
macro_rules! fields {
    ($($field:ident),*) => { vec![$((stringify!($field), Number::from($field))),*] };
}

/// Returns the numbers of a configuration, by key. Numbers without a value are left out.
fn numbers(algorithm: &mut AlgorithmConfig) -> BTreeMap<String, Number<'_>> {
    // Without `..`, so that a new field doesn't compile until it is listed here.
    let AlgorithmConfig {
        advantage,
        focal_gamma,
        reward_correct,
        reward_wrong,
        correct_threshold,
        reward_weights,
        loss,
        aggregation: _,
        entropy_coef,
        kl_coef,
        kl: _,
        teacher_coef,
        drop_inactive_groups: _,
        shaping,
        truncated,
        overlong,
        daro: _,
        daro_lr,
        correction,
        top_entropy_quantile,
        schedule: _,
    } = algorithm;
    let advantage = match advantage {
        Advantage::Grpo { eps, ddof } => fields![eps, ddof],
        Advantage::Pkpo { k } | Advantage::PasskTraining { k } => fields![k],
        Advantage::Power { a, b, delta } => fields![a, b, delta],
        Advantage::WReinforce { positive, negative } => fields![positive, negative],
        Advantage::RsGrpo { beta } => fields![beta],
        Advantage::Dgpo { temperature } => fields![temperature],
        Advantage::Bbg { k, tau, positive } => fields![k, tau, positive],
        Advantage::GrpoLead { alpha } | Advantage::CueGrpo { alpha } => fields![alpha],
        Advantage::Ucpo { tau } => fields![tau],
        Advantage::GrpoPassk { eps } | Advantage::Gdpo { eps } | Advantage::Avspo { eps } => fields![eps],
        Advantage::DrGrpo
        | Advantage::Rloo
        | Advantage::MaxRl
        | Advantage::Opo
        | Advantage::LitePpo
        | Advantage::ReinforcePlusPlusBaseline
        | Advantage::Gpg
        | Advantage::CurveRl
        | Advantage::Python { function: _ } => fields![],
    };
    let loss = match loss {
        PolicyLoss::Grpo { clip, dual_clip } | PolicyLoss::Dapo { clip, dual_clip } => {
            fields![clip, dual_clip]
        }
        PolicyLoss::Cispo { clip } | PolicyLoss::Gspo { clip } | PolicyLoss::Gmpo { clip } => fields![clip],
        PolicyLoss::CispoCap { cap } => fields![cap],
        PolicyLoss::Sapo { tau } => fields![tau],
        PolicyLoss::DppoTv { clip, cap } | PolicyLoss::DppoKl { clip, cap } => fields![clip, cap],
        PolicyLoss::KlCov { share, coef } => fields![share, coef],
        PolicyLoss::ClipCov { clip, share, covariance } => fields![clip, share, covariance],
    };
    let shaping = match shaping {
        Shaping::None => fields![],
        Shaping::Unlikely { beta } => fields![beta],
        Shaping::Smoothing { correct, wrong } => fields![correct, wrong],
        Shaping::HaDw { scale, eta, window, anchor } => {
            let mut numbers = fields![scale, eta, window];
            numbers.extend(anchor.as_mut().map(|anchor| ("anchor", anchor.into())));
            numbers
        }
    };
    let correction = match correction {
        Correction::Off => fields![],
        Correction::Tis { cap, level: _ } => fields![cap],
        Correction::Mask { low, high, level: _ } => fields![low, high],
    };
    let truncated = match truncated {
        Truncated::Reward { reward } => fields![reward],
        Truncated::Grade | Truncated::Mask => fields![],
    };
    let overlong = overlong.as_mut().map(|Overlong { length, cache }| fields![length, cache]);
    let weights = reward_weights.iter_mut().map(|(name, weight)| (name.as_str(), Number::from(weight)));
    let coefficients = fields![entropy_coef, kl_coef, teacher_coef];
    let required = fields![reward_correct, reward_wrong, daro_lr, top_entropy_quantile];
    let optional = [("focal_gamma", focal_gamma), ("correct_threshold", correct_threshold)];
    let optional = optional.into_iter().filter_map(|(key, number)| Some((key, number.as_mut()?.into())));
    let tables = [
        ("advantage", advantage),
        ("loss", loss),
        ("shaping", shaping),
        ("correction", correction),
        ("truncated", truncated),
        ("overlong", overlong.unwrap_or_default()),
        ("reward_weights", weights.collect()),
    ];
    let tables = tables.into_iter().flat_map(|(table, numbers)| {
        numbers.into_iter().map(move |(key, number)| (format!("{table}.{key}"), number))
    });
    let single = required.into_iter().chain(coefficients).chain(optional);
    single.map(|(key, number)| (key.to_owned(), number)).chain(tables).collect()
}

impl ScheduledKey {
    /// Returns the fraction of the change that is complete at a step.
    fn progress(&self, step: u64) -> f64 {
        ((step.max(1) - 1) as f64 / (self.over - 1) as f64).min(1.0)
    }

    /// Returns the steps that suffice to check the range of the value. Valid values form an interval, plus 0, which
    /// turns a setting off, so the first and last two steps decide.
    pub(super) fn deciding_steps(&self) -> [u64; 4] {
        [1, 2, self.over - 1, self.over]
    }

    /// Returns whether `key` is scheduled to a value other than 0.
    pub(super) fn leaves_zero(&self, key: &str) -> bool {
        self.key == key && self.to != Goal::Number(0.0)
    }
}

/// Fails if a key isn't a number of the configuration, is scheduled twice, or has a final value of another form.
pub(super) fn check(algorithm: &AlgorithmConfig) -> anyhow::Result<()> {
    let schedule = &algorithm.schedule;
    let mut algorithm = algorithm.clone();
    let known = numbers(&mut algorithm);
    for (i, scheduled) in schedule.iter().enumerate() {
        let (entry, key) = (format!("algorithm.schedule[{i}]"), &scheduled.key);
        let Some(number) = known.get(key) else {
            let names: Vec<&str> = known.keys().map(String::as_str).collect();
            bad_input!(
                "{entry}.key: expected one of the numbers of [algorithm], found {key:?}: {}",
                names.join(", ")
            )
        };
        match (number, &scheduled.to) {
            (Number::Pair(_), Goal::Numbers(to)) if to.len() == 2 => {}
            (Number::Pair(_), _) => bad_input!("{entry}.to: expected 2 numbers, the form of {key}"),
            (_, Goal::Numbers(_)) => {
                bad_input!("{entry}.to: expected a number, the form of {key}, found a list")
            }
            (Number::Whole(_), &Goal::Number(to)) if !(0.0..=STEPS as f64).contains(&to) => {
                bad_input!(
                    "{entry}.to: expected a number from 0 to 2^40, found {to}: {key} is a whole number"
                )
            }
            _ => {}
        }
        within(&format!("{entry}.over"), scheduled.over, 2..=STEPS)?;
        if schedule[..i].iter().any(|other| other.key == *key) {
            bad_input!("{entry}.key: {key:?} is scheduled twice");
        }
    }
    Ok(())
}

/// Returns the settings at a step, and the scheduled values, by key; a list has a key for each index.
pub(super) fn at(algorithm: &AlgorithmConfig, step: u64) -> (AlgorithmConfig, BTreeMap<String, f64>) {
    let mut now = algorithm.clone();
    let mut known = numbers(&mut now);
    let mut values = BTreeMap::new();
    for scheduled in &algorithm.schedule {
        let ScheduledKey { key, to, .. } = scheduled;
        let progress = scheduled.progress(step);
        let between = |from: f64, to: f64| from * (1.0 - progress) + to * progress;
        match (known.get_mut(key), to) {
            (Some(Number::Real(number)), &Goal::Number(to)) => {
                **number = between(**number, to);
                values.insert(key.clone(), **number);
            }
            (Some(Number::Whole(number)), &Goal::Number(to)) => {
                **number = between(**number as f64, to).round() as usize;
                values.insert(key.clone(), **number as f64);
            }
            (Some(Number::Pair(numbers)), Goal::Numbers(to)) => {
                for (i, (number, &to)) in numbers.iter_mut().zip(to).enumerate() {
                    *number = between(*number, to);
                    values.insert(format!("{key}.{i}"), *number);
                }
            }
            // `check` rejects other combinations.
            _ => {}
        }
    }
    drop(known);
    (now, values)
}
