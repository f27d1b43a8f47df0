//! The storage types of weights.

use half::{bf16, f16};

/// The number type of a checkpoint. Everything is computed in `f32`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Dtype {
    /// IEEE single precision.
    F32,
    /// The upper half of `f32`.
    BF16,
    /// IEEE half precision; at most 65504.
    F16,
}

impl Dtype {
    /// Bytes of one number.
    pub fn size(self) -> usize {
        match self {
            Dtype::F32 => 4,
            Dtype::BF16 | Dtype::F16 => 2,
        }
    }

    /// Its name in a safetensors header.
    pub fn header_name(self) -> &'static str {
        match self {
            Dtype::F32 => "F32",
            Dtype::BF16 => "BF16",
            Dtype::F16 => "F16",
        }
    }

    /// Its name in `config.json`.
    pub fn config_name(self) -> &'static str {
        match self {
            Dtype::F32 => "float32",
            Dtype::BF16 => "bfloat16",
            Dtype::F16 => "float16",
        }
    }

    /// Decodes little-endian bytes. Returns the index of the first value that is not finite.
    pub(crate) fn decode(self, bytes: &[u8], out: &mut [f32]) -> Result<(), usize> {
        assert_eq!(bytes.len(), out.len() * self.size(), "bytes of {} values of {self:?}", out.len());
        match self {
            Dtype::F32 => each(bytes, out, f32::from_le_bytes),
            Dtype::BF16 => each(bytes, out, |b| bf16::from_le_bytes(b).to_f32()),
            Dtype::F16 => each(bytes, out, |b| f16::from_le_bytes(b).to_f32()),
        }
        // Summing exponents instead of testing each value keeps this loop vectorised; the search runs only on failure.
        if out.iter().fold(false, |bad, x| bad | !x.is_finite()) {
            return Err(out.iter().position(|x| !x.is_finite()).expect("just seen"));
        }
        Ok(())
    }

    /// Encodes to little-endian bytes, rounding to nearest even. Returns the index of the first value that is not finite or that this type cannot
    /// represent.
    pub(crate) fn encode(self, values: &[f32], out: &mut Vec<u8>) -> Result<(), usize> {
        // Sized once and filled in place: the loops vectorise, and the buffer is the caller's from call to call.
        out.resize(values.len() * self.size(), 0);
        let bad = match self {
            Dtype::F32 => fill(values, out, |x| (x.to_le_bytes(), x.is_finite())),
            Dtype::BF16 => fill(values, out, |x| {
                let y = bf16::from_f32(x);
                (y.to_le_bytes(), y.is_finite())
            }),
            Dtype::F16 => fill(values, out, |x| {
                let y = f16::from_f32(x);
                (y.to_le_bytes(), y.is_finite())
            }),
        };
        if bad {
            let holds = |x: f32| match self {
                Dtype::F32 => x.is_finite(),
                Dtype::BF16 => bf16::from_f32(x).is_finite(),
                Dtype::F16 => f16::from_f32(x).is_finite(),
            };
            return Err(values.iter().position(|&x| !holds(x)).expect("just seen"));
        }
        Ok(())
    }
}

fn each<const N: usize>(bytes: &[u8], out: &mut [f32], decode: impl Fn([u8; N]) -> f32) {
    for (x, b) in out.iter_mut().zip(bytes.as_chunks::<N>().0) {
        *x = decode(*b);
    }
}

/// Whether some value can't be represented.
fn fill<const N: usize>(values: &[f32], out: &mut [u8], encode: impl Fn(f32) -> ([u8; N], bool)) -> bool {
    let mut bad = false;
    for (&x, place) in values.iter().zip(out.as_chunks_mut::<N>().0) {
        let (bytes, holds) = encode(x);
        *place = bytes;
        bad |= !holds;
    }
    bad
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_types_round_to_nearest_even_and_decode_exactly() {
        // 1 + 2^-8 lies halfway between two bf16 values, 1 + 2^-11 between two f16 values: both go to the even one, 1.
        for (dtype, half_step) in [(Dtype::BF16, 2f32.powi(-8)), (Dtype::F16, 2f32.powi(-11))] {
            let mut bytes = Vec::new();
            let values = [1.0 + half_step, 1.0 + 3.0 * half_step, 1.0 + 1.01 * half_step, -0.0];
            dtype.encode(&values, &mut bytes).unwrap();
            let mut back = [0f32; 4];
            dtype.decode(&bytes, &mut back).unwrap();
            assert_eq!(back, [1.0, 1.0 + 4.0 * half_step, 1.0 + 2.0 * half_step, -0.0], "{dtype:?}");
        }
    }

    #[test]
    fn value_too_large_for_float16_is_found_where_it_stands() {
        let mut bytes = Vec::new();
        assert_eq!(Dtype::F16.encode(&[1.0, 65504.0, 65520.0], &mut bytes), Err(2));
        assert_eq!(Dtype::BF16.encode(&[1.0, 65520.0, f32::NAN], &mut bytes), Err(2));
    }
}
