//! Quantized matrices of a frozen base model: NF4 with nested scales, 8-bit integer rows, and bfloat16.
//!
//! NF4 (QLoRA, arXiv 2305.14314) has the codes and values of bitsandbytes 0.50 on a CPU. Blocks of 64 consecutive values, in row-major
//! order, are scaled by their largest magnitude (`absmax`). The mean of these scales is subtracted, and the differences are stored as 8-bit
//! codes of the dynamic map, in blocks of 256 with an f32 scale each. One value differs from bitsandbytes: the mean of the scales is rounded
//! from an exact sum, whereas PyTorch's sum depends on the number of threads and the width of vectors.
//!
//! `int8` is the weight part of LLM.int8 (arXiv 2208.07339) without outlier decomposition: rows of integers from -127 to 127 with an f32 scale.

use std::ops::Range;
use std::sync::OnceLock;

use half::bf16;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::config::Config;
use crate::families::is_layer_matrix;

/// Storage format of the matrices of a frozen base model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BaseFormat {
    /// 4-bit NormalFloat with nested scales; 4.13 bits per value.
    Nf4,
    /// 8-bit integers with a scale per row.
    Int8,
    /// bfloat16, rounded to nearest.
    Bf16,
}

impl BaseFormat {
    /// All formats.
    pub const ALL: [BaseFormat; 3] = [BaseFormat::Nf4, BaseFormat::Int8, BaseFormat::Bf16];

    /// Returns the name in configurations and files.
    pub fn name(self) -> &'static str {
        match self {
            BaseFormat::Nf4 => "nf4",
            BaseFormat::Int8 => "int8",
            BaseFormat::Bf16 => "bf16",
        }
    }

    /// Returns the format with this name, or `None` if the name is unknown.
    pub fn named(name: &str) -> Option<BaseFormat> {
        BaseFormat::ALL.into_iter().find(|format| format.name() == name)
    }

    /// Returns the number of a model's parameters that are stored in this format: those of its layers' matrices.
    pub fn parameters(self, config: &Config) -> u64 {
        let tensors = config.tensors();
        let matrices = tensors.iter().filter(|(name, shape)| is_layer_matrix(name, shape));
        matrices.map(|(_, shape)| shape.iter().product::<usize>() as u64).sum()
    }

    /// Returns the number of bytes of a matrix with its scales.
    pub(crate) fn bytes(self, rows: usize, columns: usize) -> u64 {
        let numbers = rows * columns;
        let blocks = numbers.div_ceil(BLOCK);
        let bytes = match self {
            BaseFormat::Nf4 => numbers.div_ceil(2) + blocks + 4 * blocks.div_ceil(NESTED_BLOCK) + 4,
            BaseFormat::Int8 => numbers + 4 * rows,
            BaseFormat::Bf16 => 2 * numbers,
        };
        bytes as u64
    }
}

/// Number of NF4 values that share a scale.
pub(crate) const BLOCK: usize = 64;
/// Number of scales that share a nested scale.
pub(crate) const NESTED_BLOCK: usize = 256;

/// Values of NF4's codes.
pub(crate) const NF4: [f32; 16] = [
    -1.0,
    -0.696_192_8,
    -0.525_073_05,
    -0.394_917_5,
    -0.284_441_38,
    -0.184_773_43,
    -0.091_050_036,
    0.0,
    0.079_580_3,
    0.160_930_2,
    0.246_112_3,
    0.337_915_24,
    0.440_709_83,
    0.562_617,
    0.722_956_84,
    1.0,
];

/// `1 / 127` with the rounding of LLM.int8.
pub(crate) const INT8_STEP: f32 = 7.874_016e-3;

/// Returns the values of the dynamic map's codes (arXiv 1511.04561), ascending. Each lower power of ten has half as many.
pub(crate) fn dynamic_map() -> &'static [f32; 256] {
    static MAP: OnceLock<[f32; 256]> = OnceLock::new();
    MAP.get_or_init(|| {
        let mut values = vec![0.0f32, 1.0];
        for power in 0..7 {
            let count = 1usize << power;
            let step = (1.0f32 - 0.1) / count as f32;
            let at = |from: f32, step: f32, steps: usize| step.mul_add(steps as f32, from);
            let rises = |i: usize| i < count.div_ceil(2);
            let boundary = |i| if rises(i) { at(0.1, step, i) } else { at(1.0, -step, count - i) };
            let factor = 10f64.powi(power - 6) as f32;
            for i in 0..count {
                let mean = (boundary(i) + boundary(i + 1)) / 2.0;
                values.extend([factor * mean, -factor * mean]);
            }
        }
        values.sort_unstable_by(f32::total_cmp);
        values.try_into().expect("256 values")
    })
}

/// Scales of NF4's blocks.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Scales {
    Full(Vec<f32>),
    /// 8-bit codes, the scale of each block of codes, and the offset that is added.
    Nested {
        codes: Vec<u8>,
        absmax: Vec<f32>,
        offset: f32,
    },
}

impl Scales {
    fn at(&self, block: usize) -> f32 {
        match self {
            Scales::Full(scales) => scales[block],
            Scales::Nested { codes, absmax, offset } => {
                dynamic_map()[usize::from(codes[block])] * absmax[block / NESTED_BLOCK] + offset
            }
        }
    }

    /// Encodes scales, with their mean as the offset.
    fn nested(scales: &[f32]) -> Scales {
        let sum: f64 = scales.iter().map(|&x| f64::from(x)).sum();
        Scales::nested_around((sum / scales.len() as f64) as f32, scales)
    }

    fn nested_around(offset: f32, scales: &[f32]) -> Scales {
        let (map, cells) = (dynamic_map(), 65_535.0);
        let middles: Vec<f32> = map.windows(2).map(|pair| 0.5 * (pair[0] + pair[1])).collect();
        // bitsandbytes looks up the code of the nearest of 65,536 equidistant points in [-1, 1].
        let code = |x: f32| {
            let cell = ((x.clamp(-1.0, 1.0) + 1.0) * 0.5 * cells + 0.5).floor();
            let middle = -1.0 + (2.0 * cell) / cells;
            middles.partition_point(|&m| m < middle) as u8
        };
        let (mut codes, mut absmax) = (Vec::with_capacity(scales.len()), Vec::new());
        for block in scales.chunks(NESTED_BLOCK) {
            let largest = block.iter().fold(0.0f32, |largest, x| largest.max((x - offset).abs()));
            absmax.push(largest);
            let inverse = 1.0 / largest;
            // With a scale of 0, every code decodes to 0.
            codes.extend(block.iter().map(|x| if largest == 0.0 { 0 } else { code((x - offset) * inverse) }));
        }
        Scales::Nested { codes, absmax, offset }
    }
}

/// Values of a matrix in one of the formats.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Numbers {
    /// Two codes per byte, the first in the high half.
    Nf4 {
        codes: Vec<u8>,
        scales: Scales,
    },
    Int8 {
        codes: Vec<i8>,
        absmax: Vec<f32>,
    },
    Bf16(Vec<u16>),
}

/// A quantized matrix in row-major order.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Quantized {
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) numbers: Numbers,
}

/// Returns the code of the value nearest to `x`, which is in [-1, 1]; the lower one if tied.
fn nf4_code(x: f32) -> u8 {
    static MIDDLES: OnceLock<[f32; 15]> = OnceLock::new();
    let middles = MIDDLES.get_or_init(|| std::array::from_fn(|i| (NF4[i] + NF4[i + 1]) / 2.0));
    middles.iter().map(|&middle| u8::from(middle < x)).sum()
}

/// Encodes a block and returns its scale.
fn nf4_block(w: &[f32], codes: &mut [u8]) -> f32 {
    let largest = w.iter().fold(0.0f32, |largest, x| largest.max(x.abs()));
    let whole = w.len() == BLOCK;
    let inverse = 1.0 / largest.max(1e-38);
    // bitsandbytes divides an incomplete block by its scale, and never uses a scale of 0.
    let scale = |x: f32| if whole { x * inverse } else { x / largest.max(1e-38) };
    let code = |x: Option<&f32>| nf4_code(x.map_or(0.0, |&x| scale(x).clamp(-1.0, 1.0)));
    for (pair, byte) in w.chunks(2).zip(codes) {
        *byte = code(pair.first()) << 4 | code(pair.get(1));
    }
    if whole { largest } else { largest.max(1e-38) }
}

impl Quantized {
    pub(crate) fn new(format: BaseFormat, columns: usize, w: &[f32]) -> Quantized {
        let numbers = match format {
            BaseFormat::Nf4 => {
                let mut codes = vec![0; w.len().div_ceil(2)];
                let scales: Vec<f32> = codes
                    .par_chunks_mut(BLOCK / 2)
                    .zip(w.par_chunks(BLOCK))
                    .map(|(codes, w)| nf4_block(w, codes))
                    .collect();
                Numbers::Nf4 { codes, scales: Scales::nested(&scales) }
            }
            BaseFormat::Int8 => {
                let absmax: Vec<f32> = w
                    .par_chunks(columns)
                    .map(|row| row.iter().fold(0.0f32, |largest, x| largest.max(x.abs())))
                    .collect();
                let code = |(i, &x): (usize, &f32)| {
                    let largest = absmax[i / columns];
                    if largest == 0.0 { 0 } else { (x * (1.0 / largest * 127.0)).round_ties_even() as i8 }
                };
                Numbers::Int8 { codes: w.par_iter().enumerate().map(code).collect(), absmax }
            }
            BaseFormat::Bf16 => Numbers::Bf16(w.par_iter().map(|&x| bf16::from_f32(x).to_bits()).collect()),
        };
        Quantized { rows: w.len() / columns, columns, numbers }
    }

    pub(crate) fn len(&self) -> usize {
        self.rows * self.columns
    }

    /// Dequantizes a range of rows.
    ///
    /// # Panics
    /// If the range exceeds the matrix, or `out` has another length.
    pub(crate) fn write_rows(&self, rows: Range<usize>, out: &mut [f32]) {
        let (first, end) = (rows.start * self.columns, rows.end * self.columns);
        assert_eq!(out.len(), end - first, "rows {rows:?} of {}", self.columns);
        match &self.numbers {
            Numbers::Nf4 { codes, scales } => {
                let mut at = first;
                while at < end {
                    let block = at / BLOCK;
                    let part = &mut out[at - first..end.min((block + 1) * BLOCK) - first];
                    nf4_values(codes, scales.at(block), at, part);
                    at += part.len();
                }
            }
            Numbers::Int8 { codes, absmax } => {
                let codes = codes[first..end].chunks_exact(self.columns);
                for ((out, codes), largest) in
                    out.chunks_exact_mut(self.columns).zip(codes).zip(&absmax[rows])
                {
                    out.iter_mut()
                        .zip(codes)
                        .for_each(|(out, &code)| *out = f32::from(code) * largest * INT8_STEP);
                }
            }
            Numbers::Bf16(bits) => {
                let widen = |bits: u16| f32::from_bits(u32::from(bits) << 16);
                out.iter_mut().zip(&bits[first..end]).for_each(|(out, &bits)| *out = widen(bits));
            }
        }
    }
}

/// Decodes values from index `first` on, which share a scale.
fn nf4_values(codes: &[u8], scale: f32, first: usize, out: &mut [f32]) {
    let values = NF4.map(|value| value * scale);
    let (odd, out) = out.split_at_mut((first % 2).min(out.len()));
    if let [value] = odd {
        *value = values[usize::from(codes[first / 2] & 15)];
    }
    for (pair, byte) in out.chunks_mut(2).zip(&codes[first.div_ceil(2)..]) {
        pair[0] = values[usize::from(byte >> 4)];
        if let Some(second) = pair.get_mut(1) {
            *second = values[usize::from(byte & 15)];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::weights::TensorFile;

    fn golden() -> TensorFile {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
        TensorFile::open(&folder.join("quantized.safetensors")).unwrap()
    }

    fn bits(values: &[f32]) -> Vec<u32> {
        values.iter().map(|x| x.to_bits()).collect()
    }

    fn bytes(file: &TensorFile, name: &str) -> Vec<u8> {
        file.integers(name).unwrap().into_iter().map(|x| x as u8).collect()
    }

    /// Asserts equality; the message names the first difference.
    #[track_caller]
    fn equal<T: PartialEq + std::fmt::Debug>(actual: &[T], expected: &[T], what: &str) {
        assert_eq!(actual.len(), expected.len(), "{what}");
        let first = actual.iter().zip(expected).position(|(a, e)| a != e);
        assert!(first.is_none(), "{what}: {first:?} is the first that differs");
    }

    fn values(matrix: &Quantized) -> Vec<f32> {
        let mut out = vec![f32::NAN; matrix.len()];
        matrix.write_rows(0..matrix.rows, &mut out);
        out
    }

    #[test]
    fn the_maps_match_bitsandbytes() {
        let file = golden();
        equal(&bits(&NF4), &bits(&file.tensor("nf4_map").unwrap()), "NF4");
        equal(&bits(dynamic_map()), &bits(&file.tensor("dynamic_map").unwrap()), "the dynamic map");
    }

    #[test]
    fn nf4_has_the_codes_and_values_of_bitsandbytes_bit_for_bit() {
        let file = golden();
        let cases: Vec<String> = file
            .names()
            .filter_map(|name| name.strip_suffix(".nf4.codes"))
            .filter_map(|name| name.strip_prefix("case."))
            .map(str::to_string)
            .collect();
        assert!(cases.len() >= 6, "{cases:?}");
        for case in cases {
            let get = |name: &str| file.tensor(&format!("case.{case}.{name}")).unwrap();
            let codes_of = |name: &str| bytes(&file, &format!("case.{case}.{name}"));
            let (w, expected) = (get("weight"), get("nf4.values"));
            let columns = file.shape(&format!("case.{case}.weight")).unwrap()[1];
            let mut matrix = Quantized::new(BaseFormat::Nf4, columns, &w);
            let offset = get("nf4.nested_offset")[0];
            let Numbers::Nf4 { codes, scales } = &mut matrix.numbers else { panic!("nf4") };
            equal(codes, &codes_of("nf4.codes"), &case);
            let Scales::Nested { offset: mean, .. } = scales else { panic!("nested scales") };
            // PyTorch's f32 mean has rounding errors, except in cases where every partial sum is exact.
            let exact = case.starts_with("grid");
            let error = (f64::from(*mean) - f64::from(offset)).abs();
            assert!(
                if exact { error == 0.0 } else { error <= 2e-7 * f64::from(offset) },
                "{case}: {mean} {offset}"
            );
            if !exact {
                let full = get("absmax");
                *scales = Scales::nested_around(offset, &full);
            }
            let Scales::Nested { codes, absmax, .. } = scales else { panic!("nested scales") };
            equal(codes, &codes_of("nf4.absmax"), &format!("{case}: codes of scales"));
            equal(&bits(absmax), &bits(&get("nf4.nested_absmax")), &format!("{case}: scales of scales"));
            equal(&bits(&values(&matrix)), &bits(&expected), &format!("{case}: values"));
        }
    }

    #[test]
    fn int8_has_the_codes_and_values_of_llm_int8_bit_for_bit() {
        let file = golden();
        let mut seen = 0;
        for name in file.names().filter(|name| name.ends_with(".int8.codes")) {
            let case = name.strip_suffix(".int8.codes").unwrap();
            let w = file.tensor(&format!("{case}.weight")).unwrap();
            let columns = file.shape(&format!("{case}.weight")).unwrap()[1];
            let matrix = Quantized::new(BaseFormat::Int8, columns, &w);
            let Numbers::Int8 { codes, absmax } = &matrix.numbers else { panic!("int8") };
            let codes: Vec<u8> = codes.iter().map(|&code| code as u8).collect();
            equal(&codes, &bytes(&file, name), case);
            for (actual, name) in [(&absmax[..], "absmax"), (&values(&matrix), "values")] {
                let expected = file.tensor(&format!("{case}.int8.{name}")).unwrap();
                equal(&bits(actual), &bits(&expected), &format!("{case}: {name}"));
            }
            seen += 1;
        }
        assert!(seen >= 4);
    }

    #[test]
    fn a_range_of_rows_decodes_as_in_the_whole_matrix() {
        let file = golden();
        for name in file.names().filter(|name| name.ends_with(".weight")) {
            let (w, columns) = (file.tensor(name).unwrap(), file.shape(name).unwrap()[1]);
            for format in BaseFormat::ALL {
                let matrix = Quantized::new(format, columns, &w);
                let (whole, rows) = (values(&matrix), matrix.rows);
                assert_eq!(whole.len(), w.len(), "{name}");
                for part in [0..1, rows / 2..rows, rows / 3..rows / 3 + 1, rows - 1..rows] {
                    let mut out = vec![f32::NAN; part.len() * columns];
                    matrix.write_rows(part.clone(), &mut out);
                    let expected = &whole[part.start * columns..part.end * columns];
                    equal(&bits(&out), &bits(expected), name);
                }
            }
        }
    }
}
