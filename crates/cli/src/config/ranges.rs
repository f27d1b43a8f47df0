//! Ranges of numbers, refused in the same words everywhere: key, found, wanted.

use crate::bad_input;

pub(super) fn at_least(name: &str, found: u64, least: u64) -> anyhow::Result<()> {
    if found < least {
        bad_input!("{name}: found {found}, wanted at least {least}");
    }
    Ok(())
}

pub(super) fn positive(name: &str, found: f64) -> anyhow::Result<()> {
    if !(found.is_finite() && found > 0.0) {
        bad_input!("{name}: found {found}, wanted a number above 0");
    }
    Ok(())
}

pub(super) fn not_negative(name: &str, found: f64) -> anyhow::Result<()> {
    if !(found.is_finite() && found >= 0.0) {
        bad_input!("{name}: found {found}, wanted a number of at least 0");
    }
    Ok(())
}

pub(super) fn learning_rate(name: &str, found: f64) -> anyhow::Result<()> {
    if !(found > 0.0 && found < 1.0) {
        bad_input!("{name}: found {found}, wanted a number between 0 and 1");
    }
    Ok(())
}

pub(super) fn betas(name: &str, found: [f64; 2]) -> anyhow::Result<()> {
    if found.iter().any(|b| !(0.0..1.0).contains(b)) {
        bad_input!("{name}: found {found:?}, wanted two numbers in [0, 1)");
    }
    Ok(())
}

pub(super) fn sampling(table: &str, temperature: f32, top_p: f32, min_p: f32) -> anyhow::Result<()> {
    positive(&format!("{table}.temperature"), f64::from(temperature))?;
    if !(top_p > 0.0 && top_p <= 1.0) {
        bad_input!("{table}.top_p: found {top_p}, wanted a number above 0 and at most 1");
    }
    if !(0.0..1.0).contains(&min_p) {
        bad_input!("{table}.min_p: found {min_p}, wanted a number in [0, 1)");
    }
    Ok(())
}
