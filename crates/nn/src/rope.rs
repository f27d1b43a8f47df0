//! Tables of rotary angles, computed in f32 as the reference implementations do.

use std::f64::consts::PI;

use crate::config::{Config, RopeScaling};
use crate::families::Theta;

/// Number of rotated pairs, then the table of cosines, then the table of sines.
type Table = (usize, Vec<f32>, Vec<f32>);

/// Cosines and sines by position, one table for each base of the frequencies.
#[derive(Debug)]
pub(crate) struct Rope {
    tables: Vec<Table>,
}

/// Returns the frequency of each rotated pair of a head, in radians per token.
pub(crate) fn frequencies(config: &Config) -> Vec<f32> {
    let size = config.gemma4.map_or(config.rotary_dim(), |gemma4| gemma4.global_head_dim);
    frequencies_of(size, config.rope_theta, &config.rope_scaling)
}

/// Returns the number of values per position that each table's angles rotate.
pub(crate) fn rotated(config: &Config) -> impl Iterator<Item = usize> {
    let global = 2 * frequencies(config).len();
    std::iter::once(global).chain(config.rope_local_base_freq.map(|_| config.rotary_dim()))
}

fn frequencies_of(rotated: usize, theta: f64, scaling: &RopeScaling) -> Vec<f32> {
    let size = rotated as f64;
    let frequency = |pair: usize| {
        let plain = 1.0 / theta.powf(2.0 * pair as f64 / size);
        match *scaling {
            RopeScaling::Default => plain,
            RopeScaling::Linear { factor } => plain / factor,
            RopeScaling::Llama3 {
                factor,
                low_freq_factor,
                high_freq_factor,
                original_max_position_embeddings,
            } => {
                let context = original_max_position_embeddings as f64;
                let wavelength = 2.0 * PI / plain;
                if wavelength > context / low_freq_factor {
                    plain / factor
                } else if wavelength < context / high_freq_factor {
                    plain
                } else {
                    let smooth =
                        (context / wavelength - low_freq_factor) / (high_freq_factor - low_freq_factor);
                    (1.0 - smooth) * plain / factor + smooth * plain
                }
            }
            RopeScaling::Yarn {
                factor,
                original_max_position_embeddings,
                beta_fast,
                beta_slow,
                truncate,
                ..
            } => {
                // Index of the pair that turns `turns` times within the original context length.
                let context = original_max_position_embeddings as f64;
                let at = |turns: f64| size * (context / (turns * 2.0 * PI)).ln() / (2.0 * theta.ln());
                let (first, last) = (at(beta_fast), at(beta_slow));
                let (first, last) = if truncate { (first.floor(), last.ceil()) } else { (first, last) };
                let (first, last) = (first.max(0.0), last.min(size - 1.0));
                let width = if first == last { 0.001 } else { last - first };
                let divided = ((pair as f64 - first) / width).clamp(0.0, 1.0);
                plain / factor * divided + plain * (1.0 - divided)
            }
            RopeScaling::LongRope { ref short_factor, .. } => plain / short_factor[pair],
            RopeScaling::Proportional { factor, partial_rotary_factor } => {
                let rotates = pair < (partial_rotary_factor * size / 2.0) as usize;
                if rotates { plain / factor } else { 0.0 }
            }
        }
    };
    (0..rotated / 2).map(|pair| frequency(pair) as f32).collect()
}

impl Rope {
    /// Computes the tables for positions less than `positions`.
    pub(crate) fn new(config: &Config, positions: usize) -> Rope {
        let mut all = vec![frequencies(config)];
        all.extend(
            config
                .rope_local_base_freq
                .map(|theta| frequencies_of(config.rotary_dim(), theta, &RopeScaling::Default)),
        );
        let factor = match config.rope_scaling {
            RopeScaling::Yarn { attention_factor, .. } | RopeScaling::LongRope { attention_factor, .. } => {
                attention_factor as f32
            }
            _ => 1.0,
        };
        let table = |(frequencies, factor): (&Vec<f32>, f32)| -> Table {
            let angles = (0..positions).flat_map(|position| {
                frequencies.iter().map(move |&frequency| f64::from(position as f32 * frequency))
            });
            let (cos, sin): (Vec<f32>, Vec<f32>) =
                angles.map(|angle| (angle.cos() as f32 * factor, angle.sin() as f32 * factor)).unzip();
            (frequencies.len(), cos, sin)
        };
        Rope { tables: all.iter().zip([factor, 1.0]).map(table).collect() }
    }

    pub(crate) fn positions(&self) -> usize {
        let (half, cos, _) = &self.tables[0];
        cos.len() / (*half).max(1)
    }

    pub(crate) fn at(&self, theta: Theta, position: usize) -> (&[f32], &[f32]) {
        let (half, cos, sin) = &self.tables[usize::from(theta == Theta::Local)];
        let range = position * half..(position + 1) * half;
        (&cos[range.clone()], &sin[range])
    }
}
