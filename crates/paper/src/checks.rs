//! Checks the paper's statements about figures.

use super::data::{Item, Statement};
use super::made::signed;
use super::simulate::{Point, Spread, Sweep};
use fgrpo_core::theory::{advantage, tail_miss};
use fgrpo_eval::table::Table;
use std::collections::BTreeMap;

/// Success rates `mu`, ratios `rho = tau / mu` and focal exponents of the figures of the theory.
pub(super) const MU: [f64; 3] = [0.8, 0.5, 0.2];
pub(super) const RHO: [f64; 4] = [0.1, 0.03, 0.01, 0.001];
pub(super) const GAMMAS: [f64; 4] = [0.0, 0.5, 1.0, 2.0];
/// Initial success rate of the simulation, and the initial probability of a correct action other than the anchor.
pub(super) const SIMULATED: (f64, f64) = (0.64, 6.3e-5);

/// The finding about a statement in words, and whether the statement holds, or `None` if that is undecided.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Finding(pub(super) String, pub(super) Option<bool>);

/// Findings, by the name of the check.
pub(super) type Findings = BTreeMap<String, Finding>;

fn findings<const N: usize>(all: [(&str, String, bool); N]) -> Findings {
    all.into_iter().map(|(check, words, holds)| (check.to_owned(), Finding(words, Some(holds)))).collect()
}

/// Returns a table of the paper's statements and the findings.
pub(super) fn table(item: &Item, finding: impl Fn(&Statement) -> Option<Finding>) -> Table {
    let mut table = Table::new(["the paper states", "line", "its number", "here", "holds"]).of_words();
    for s in &item.states {
        let Finding(words, holds) = finding(s).unwrap_or_else(|| Finding("not measured".to_owned(), None));
        let number = s.value.map_or_else(String::new, |v| v.to_string());
        let holds = holds.map_or("open", |holds| if holds { "yes" } else { "no" });
        table.push([s.says.as_str(), &s.line.to_string(), &number, &words, holds]);
    }
    table
}

pub(super) fn peaks() -> anyhow::Result<Findings> {
    let (mut between, mut rarer, mut words) = (true, true, Vec::new());
    for mu in MU {
        let peaks: Vec<_> = RHO.iter().map(|r| tail_miss::peak(mu, mu * r)).collect::<Result<_, _>>()?;
        // A group of 1 is never active, and 2 is the smallest size that can be active.
        between &= peaks.iter().all(|p| p.n > 2);
        rarer &= peaks.windows(2).all(|w| w[0].n < w[1].n && w[0].tail_miss < w[1].tail_miss);
        let sizes: Vec<String> = peaks.iter().map(|p| p.n.to_string()).collect();
        words.push(format!("\u{3bc} = {mu}: N = {}", sizes.join(", ")));
    }
    let words = format!("peaks for \u{3c1} = 0.1, 0.03, 0.01, 0.001; {}", words.join("; "));
    Ok(findings([("peaks-between", words.clone(), between), ("rarer-later-higher", words, rarer)]))
}

pub(super) fn attenuation() -> anyhow::Result<Findings> {
    let ratio = |rate: f64, gamma: f64| -> anyhow::Result<f64> {
        let correct = |gamma| advantage::population_advantage(rate, gamma).map(|a| a.correct);
        Ok(correct(gamma)? / correct(0.0)?)
    };
    let (mut shrinks, mut quarters) = (true, Vec::new());
    for &gamma in &GAMMAS[1..] {
        let all = (1..100).map(|i| ratio(f64::from(i) / 100.0, gamma)).collect::<Result<Vec<_>, _>>()?;
        shrinks &= all.windows(2).all(|w| w[1] < w[0]);
        quarters.push(format!("{:.2}", ratio(0.75, gamma)?));
    }
    let words = format!("a group with 3 of 4 correct keeps {} at \u{3b3} = 0.5, 1, 2", quarters.join(", "));
    let multiplier = advantage::low_lr_multiplier(0.5)?;
    let agrees = (multiplier - 0.68).abs() < 0.005;
    Ok(findings([("gamma-attenuates", words, shrinks), ("low-lr", format!("{multiplier:.4}"), agrees)]))
}

pub(super) fn one_action(mu: f64, tau: f64) -> anyhow::Result<Findings> {
    let miss = |n: u64| tail_miss::tail_miss_probability(mu, tau, n);
    let (largest, peak) = (miss(131_072)?, tail_miss::peak(mu, tau)?);
    let (at, later) = (miss(1 << 12)?, miss(1 << 16)?);
    let below = |&n: &u64| n > peak.n && miss(n).is_ok_and(|p| p < 0.5);
    let half = (0..=20).map(|i| 1u64 << i).find(below).unwrap_or(0);
    let late = format!("{at:.2} at N = 2^12, {later:.3} at N = 2^16; below 1/2 from N = {half} on");
    Ok(findings([
        ("below-at-131072", format!("{largest:.2e}"), largest < 1e-3),
        ("plateau", format!("peak {:.4} at N = {}", peak.tail_miss, peak.n), peak.tail_miss > 0.99),
        ("declines-late", late, (1 << 13..=1 << 15).contains(&half)),
    ]))
}

pub(super) fn simulation(sweep: &Sweep) -> Findings {
    let config = &sweep.config;
    let sizes = &config.group_sizes;
    let at = |gamma: f64, step: u64, measure: fn(&Point) -> Spread| -> Vec<f64> {
        sweep.at(step).iter().filter(|p| p.gamma == gamma).map(|p| measure(p).mean).collect()
    };
    let (grpo, focal) = (at(0.0, config.steps, |l| l.retained), at(1.0, config.steps, |l| l.retained));
    let zone: Vec<usize> = (0..sizes.len()).filter(|&i| grpo[i] < 0.5).collect();
    let better = zone.iter().filter(|&&i| focal[i] > grpo[i]).count();
    let q_pos = at(0.0, 0, |l| l.q_pos).into_iter().zip(at(0.0, config.steps, |l| l.q_pos));
    let rises = q_pos.filter(|(first, last)| last > first).count();
    let start = config.setup.start();
    let (q_pos, anchor, leaf) = (start.q_pos, start.anchor, start.correct);
    let lowest = grpo.iter().copied().fold(1.0, f64::min);
    let ((first, end), (small, large)) =
        ((grpo[0], grpo[grpo.len() - 1]), (sizes[0], sizes[sizes.len() - 1]));
    let regimes = format!("{first:.3} at N = {small}, {lowest:.3} at the lowest, {end:.3} at N = {large}");
    let agrees = |here: f64, paper: f64, digits: usize| signed(here, digits) == signed(paper, digits);
    let zone_text = format!("at {better} of the {} group sizes that keep less than half", zone.len());
    findings([
        ("start-q-pos", format!("{q_pos:.4}"), agrees(q_pos, 0.63, 2)),
        ("start-anchor", format!("{anchor:.2e}"), agrees(1e4 * anchor, 4.7, 1)),
        ("start-leaf", format!("{leaf:.2e}"), agrees(1e5 * leaf, 6.3, 1)),
        ("q-pos-rises", format!("at {rises} of {} group sizes", sizes.len()), rises == sizes.len()),
        ("three-regimes", regimes, first > 0.9 && lowest < 0.1 && end > 0.9),
        ("largest-keeps", format!("{end:.3}"), end > 0.99),
        ("gamma-keeps-more", zone_text, better == zone.len() && !zone.is_empty()),
    ])
}
