//! Numbers of `[algorithm]` that change over the steps.
//!
//! A value is a function of the step alone, so a resumed run has the values of the uninterrupted one.

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

/// A number, or a list of numbers, that goes linearly from its configured value to another one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ScheduledKey {
    /// The key without `algorithm.`; its own value is that of step 1.
    pub key: String,
    /// The value from step `over` on; a list for a key with a list.
    #[serde(deserialize_with = "goal")]
    #[schemars(schema_with = "goal_schema")]
    pub to: Goal,
    /// Number of steps, at least 2.
    pub over: u64,
}

/// The value at the end.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Goal {
    /// Of a number.
    Number(f64),
    /// Of a list of numbers.
    Numbers(Vec<f64>),
}

fn goal<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Goal, D::Error> {
    let given = Value::deserialize(deserializer)?;
    let numbers = |list: &Vec<Value>| list.iter().map(number).collect::<Option<Vec<f64>>>();
    let read = match &given {
        Value::Array(list) => numbers(list).map(Goal::Numbers),
        one => number(one).map(Goal::Number),
    };
    let found = given.type_str();
    read.ok_or_else(|| D::Error::custom(format_args!("found {found}, wanted a number or a list of numbers")))
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

/// Fields by their names.
macro_rules! fields {
    ($($field:ident),*) => { vec![$((stringify!($field), Number::from($field))),*] };
}

/// The numbers of a configuration by their keys. Numbers that have no value are left out.
fn numbers(algorithm: &mut AlgorithmConfig) -> BTreeMap<String, Number<'_>> {
    // Field by field and without `..`: a number added later doesn't compile until it is listed here.
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
    let own = fields![reward_correct, reward_wrong, entropy_coef, kl_coef, daro_lr, top_entropy_quantile];
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
    own.into_iter().chain(optional).map(|(key, number)| (key.to_owned(), number)).chain(tables).collect()
}

impl ScheduledKey {
    /// How much of the way is gone at a step.
    fn share(&self, step: u64) -> f64 {
        ((step.max(1) - 1) as f64 / (self.over - 1) as f64).min(1.0)
    }

    /// Steps at which a range that the value leaves shows: a valid value is in an interval, or is 0, which turns its
    /// setting off, so the ends and their neighbours decide.
    pub(super) fn deciding_steps(&self) -> [u64; 4] {
        [1, 2, self.over - 1, self.over]
    }

    /// Whether the value differs from 0 at some step, if it is 0 at the first.
    pub(super) fn leaves_zero(&self, key: &str) -> bool {
        self.key == key && self.to != Goal::Number(0.0)
    }
}

/// Fails if a key isn't a number of the configuration, is scheduled twice, or has a goal of another form.
pub(super) fn check(algorithm: &AlgorithmConfig) -> anyhow::Result<()> {
    let schedule = &algorithm.schedule;
    let mut algorithm = algorithm.clone();
    let known = numbers(&mut algorithm);
    for (i, scheduled) in schedule.iter().enumerate() {
        let (place, key) = (format!("algorithm.schedule[{i}]"), &scheduled.key);
        let Some(number) = known.get(key) else {
            let names: Vec<&str> = known.keys().map(String::as_str).collect();
            bad_input!(
                "{place}.key: expected a number of [algorithm], found {key:?}: one of {}",
                names.join(", ")
            )
        };
        match (number, &scheduled.to) {
            (Number::Pair(_), Goal::Numbers(to)) if to.len() == 2 => {}
            (Number::Pair(_), _) => bad_input!("{place}.to: expected 2 numbers, the form of {key}"),
            (_, Goal::Numbers(_)) => {
                bad_input!("{place}.to: expected a number, the form of {key}, found a list")
            }
            (Number::Whole(_), &Goal::Number(to)) if !(0.0..=STEPS as f64).contains(&to) => {
                bad_input!(
                    "{place}.to: expected a number from 0 to 2^40, found {to}: {key} is a whole number"
                )
            }
            _ => {}
        }
        within(&format!("{place}.over"), scheduled.over, 2..=STEPS)?;
        if schedule[..i].iter().any(|other| other.key == *key) {
            bad_input!("{place}.key: {key:?} is scheduled twice");
        }
    }
    Ok(())
}

/// The settings in force at a step, and the scheduled values among them by key; for a list, with the index in the key.
pub(super) fn at(algorithm: &AlgorithmConfig, step: u64) -> (AlgorithmConfig, BTreeMap<String, f64>) {
    let mut now = algorithm.clone();
    let mut known = numbers(&mut now);
    let mut values = BTreeMap::new();
    for scheduled in &algorithm.schedule {
        let ScheduledKey { key, to, .. } = scheduled;
        let share = scheduled.share(step);
        let between = |from: f64, to: f64| from * (1.0 - share) + to * share;
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
            // The check refuses it.
            _ => {}
        }
    }
    drop(known);
    (now, values)
}
