//! The number types of GGUF: blocks of 32 or 256 values that share scales, in ggml's layout.
//!
//! `d` and `m` are a block's scale and offset in half precision. The types whose names end in K also have scales for parts of a block.

use half::{bf16, f16};

/// A number type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(non_camel_case_types)]
pub(super) enum Kind {
    F32 = 0,
    F16 = 1,
    Q4_0 = 2,
    Q4_1 = 3,
    Q5_0 = 6,
    Q5_1 = 7,
    Q8_0 = 8,
    Q4_K = 12,
    Q5_K = 13,
    Q6_K = 14,
    BF16 = 30,
}

const ALL: [Kind; 11] = [
    Kind::F32,
    Kind::F16,
    Kind::BF16,
    Kind::Q8_0,
    Kind::Q4_0,
    Kind::Q4_1,
    Kind::Q5_0,
    Kind::Q5_1,
    Kind::Q4_K,
    Kind::Q5_K,
    Kind::Q6_K,
];

/// ggml's types that aren't supported, for messages.
const OTHERS: [(u32, &str); 23] = [
    (9, "Q8_1"),
    (10, "Q2_K"),
    (11, "Q3_K"),
    (15, "Q8_K"),
    (16, "IQ2_XXS"),
    (17, "IQ2_XS"),
    (18, "IQ3_XXS"),
    (19, "IQ1_S"),
    (20, "IQ4_NL"),
    (21, "IQ3_S"),
    (22, "IQ2_S"),
    (23, "IQ4_XS"),
    (24, "I8"),
    (25, "I16"),
    (26, "I32"),
    (27, "I64"),
    (28, "F64"),
    (29, "IQ1_M"),
    (34, "TQ1_0"),
    (35, "TQ2_0"),
    (39, "MXFP4"),
    (40, "NVFP4"),
    (41, "Q1_0"),
];

/// Number of values and of bytes in a block of Q8_0.
pub(in crate::weights) const Q8: (usize, usize) = (32, 34);

impl Kind {
    /// Returns the type with this id in a header. The error is the type's name.
    pub(super) fn new(id: u32) -> Result<Kind, String> {
        let kind = ALL.into_iter().find(|&kind| kind as u32 == id);
        kind.ok_or_else(|| match OTHERS.iter().find(|(n, _)| *n == id) {
            Some((_, name)) => (*name).into(),
            None => format!("type {id}"),
        })
    }

    /// Returns the supported types, for messages.
    pub(super) fn names() -> String {
        let names: Vec<String> = ALL.iter().map(|kind| format!("{kind:?}")).collect();
        format!("one of {}", names.join(", "))
    }

    /// Returns the number of values and of bytes in a block.
    pub(super) fn block(self) -> (usize, usize) {
        match self {
            Kind::F32 => (1, 4),
            Kind::F16 | Kind::BF16 => (1, 2),
            Kind::Q4_0 => (32, 18),
            Kind::Q4_1 => (32, 20),
            Kind::Q5_0 => (32, 22),
            Kind::Q5_1 => (32, 24),
            Kind::Q8_0 => Q8,
            Kind::Q4_K => (256, 144),
            Kind::Q5_K => (256, 176),
            Kind::Q6_K => (256, 210),
        }
    }

    /// Decodes whole blocks.
    ///
    /// # Panics
    /// If `bytes` doesn't hold exactly `out.len()` values.
    pub(super) fn decode(self, bytes: &[u8], out: &mut [f32]) {
        let (block, size) = self.block();
        assert_eq!(bytes.len() * block, out.len() * size, "bytes of {} numbers of {self:?}", out.len());
        let blocks = bytes.chunks_exact(size).zip(out.chunks_exact_mut(block));
        match self {
            Kind::F32 => blocks.for_each(|(b, x)| x[0] = f32::from_le_bytes([b[0], b[1], b[2], b[3]])),
            Kind::F16 => blocks.for_each(|(b, x)| x[0] = half(b, 0)),
            Kind::BF16 => blocks.for_each(|(b, x)| x[0] = bf16::from_le_bytes([b[0], b[1]]).to_f32()),
            Kind::Q4_0 => blocks.for_each(|(b, x)| {
                let d = half(b, 0);
                nibbles(&b[2..], x, |q, _| (f32::from(q) - 8.0) * d);
            }),
            Kind::Q4_1 => blocks.for_each(|(b, x)| {
                let (d, m) = (half(b, 0), half(b, 2));
                nibbles(&b[4..], x, |q, _| f32::from(q) * d + m);
            }),
            Kind::Q5_0 => blocks.for_each(|(b, x)| {
                let (d, high) = (half(b, 0), u32::from_le_bytes([b[2], b[3], b[4], b[5]]));
                nibbles(&b[6..], x, |q, at| (f32::from(q | fifth(high, at)) - 16.0) * d);
            }),
            Kind::Q5_1 => blocks.for_each(|(b, x)| {
                let (d, m) = (half(b, 0), half(b, 2));
                let high = u32::from_le_bytes([b[4], b[5], b[6], b[7]]);
                nibbles(&b[8..], x, |q, at| f32::from(q | fifth(high, at)) * d + m);
            }),
            Kind::Q8_0 => blocks.for_each(|(b, x)| {
                let d = half(b, 0);
                x.iter_mut().zip(&b[2..]).for_each(|(x, &q)| *x = f32::from(q as i8) * d);
            }),
            // Q5_K has a fifth bit of each value before the nibbles.
            Kind::Q4_K | Kind::Q5_K => blocks.for_each(|(b, x)| {
                let fifths: &[u8] = if self == Kind::Q5_K { &b[16..48] } else { &[0; 32] };
                let fourths = &b[size - 128..];
                for part in 0..8 {
                    let (scale, offset) = scale_and_offset(b, part);
                    let low = part % 2 == 0;
                    let q = &fourths[part / 2 * 32..][..32];
                    for ((x, &q), &high) in x[part * 32..][..32].iter_mut().zip(q).zip(fifths) {
                        let q = if low { q & 15 } else { q >> 4 } | (high >> part & 1) << 4;
                        *x = scale * f32::from(q) - offset;
                    }
                }
            }),
            // The low four bits of all values, the high two bits, sixteen scales, and d. Each half of a block has separate bit fields.
            Kind::Q6_K => blocks.for_each(|(b, x)| {
                let d = half(b, 208);
                for (at, x) in x.iter_mut().enumerate() {
                    let (part, quarter, i) = (at / 128, at % 128 / 32, at % 32);
                    let low = b[part * 64 + quarter % 2 * 32 + i] >> (quarter / 2 * 4) & 15;
                    let high = b[128 + part * 32 + i] >> (quarter * 2) & 3;
                    let scale = b[192 + at / 16] as i8;
                    *x = d * f32::from(scale) * (f32::from(low | high << 4) - 32.0);
                }
            }),
        }
    }
}

/// Encodes values as blocks of Q8_0, rounding halves away from zero as ggml does. If a value is not finite or too large, returns its index as the error.
///
/// # Panics
/// If the values don't fill whole blocks.
pub(in crate::weights) fn encode_q8(values: &[f32], out: &mut Vec<u8>) -> Result<(), usize> {
    assert!(values.len().is_multiple_of(Q8.0), "{} numbers in blocks of {}", values.len(), Q8.0);
    out.resize(values.len() / Q8.0 * Q8.1, 0);
    for (at, (x, b)) in values.chunks_exact(Q8.0).zip(out.chunks_exact_mut(Q8.1)).enumerate() {
        let largest = x.iter().fold(0f32, |largest, x| largest.max(x.abs()));
        let scale = largest / 127.0;
        let stored = f16::from_f32(scale);
        if !stored.is_finite() || x.iter().any(|x| x.is_nan()) {
            let find = |bad: &dyn Fn(&f32) -> bool| x.iter().position(bad);
            let bad = find(&|x| !x.is_finite()).or(find(&|x| x.abs() == largest));
            return Err(at * Q8.0 + bad.expect("just seen"));
        }
        b[..2].copy_from_slice(&stored.to_le_bytes());
        let inverse = if scale > 0.0 { 1.0 / scale } else { 0.0 };
        b[2..].iter_mut().zip(x).for_each(|(b, x)| *b = (x * inverse).round() as i8 as u8);
    }
    Ok(())
}

fn half(bytes: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f32()
}

/// Decodes sixteen bytes to 32 values; the low nibbles are the first sixteen. `value` computes a value from a nibble and its index.
fn nibbles(bytes: &[u8], out: &mut [f32], value: impl Fn(u8, usize) -> f32) {
    for (i, &q) in bytes.iter().enumerate() {
        out[i] = value(q & 15, i);
        out[i + 16] = value(q >> 4, i + 16);
    }
}

/// Returns the fifth bit of the value with index `at`.
fn fifth(high: u32, at: usize) -> u8 {
    ((high >> at & 1) << 4) as u8
}

/// Returns the scale and offset of one of the eight parts of a block of Q4_K or Q5_K. The block begins with d, the offsets' scale, and
/// twelve bytes that hold eight 6-bit scales and eight 6-bit offsets.
fn scale_and_offset(block: &[u8], part: usize) -> (f32, f32) {
    let packed = &block[4..16];
    let (scale, offset) = match part {
        0..4 => (packed[part] & 63, packed[part + 4] & 63),
        _ => (
            packed[part + 4] & 15 | packed[part - 4] >> 6 << 4,
            packed[part + 4] >> 4 | packed[part] >> 6 << 4,
        ),
    };
    (half(block, 0) * f32::from(scale), half(block, 2) * f32::from(offset))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::weights::TensorFile;
    use std::path::Path;

    fn golden() -> TensorFile {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/gguf");
        TensorFile::open(&folder.join("expected.safetensors")).unwrap()
    }

    fn bytes(name: &str) -> Vec<u8> {
        golden().integers(name).unwrap().iter().map(|&b| b as u8).collect()
    }

    #[test]
    fn blocks_of_every_type_decode_as_in_the_package_gguf() {
        for kind in ALL {
            let expected = golden().tensor(&format!("values.{kind:?}")).unwrap();
            let mut decoded = vec![0.0; expected.len()];
            kind.decode(&bytes(&format!("blocks.{kind:?}")), &mut decoded);
            let wrong = decoded.iter().zip(&expected).position(|(f, w)| f != w);
            assert_eq!(wrong, None, "{kind:?}: decoded {decoded:?}, expected {expected:?}");
        }
    }

    #[test]
    fn q8_0_is_encoded_as_in_the_package_gguf() {
        let mut encoded = Vec::new();
        encode_q8(&golden().tensor("source").unwrap(), &mut encoded).unwrap();
        assert_eq!(encoded, bytes("blocks.Q8_0"));
    }

    #[test]
    fn the_index_of_a_value_that_q8_0_cannot_hold_is_returned() {
        for (at, bad) in [(3, f32::NAN), (40, f32::INFINITY), (63, 1e8)] {
            let mut values = [1.0; 64];
            values[at] = bad;
            assert_eq!(encode_q8(&values, &mut Vec::new()), Err(at), "{bad}");
        }
    }
}
