//! Number types in which checkpoints store weights.

use half::{bf16, f16};

/// Number type of a checkpoint. Computation doesn't use it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Dtype {
    /// IEEE single precision.
    F32,
    /// The upper half of `f32`.
    BF16,
    /// IEEE half precision, with a maximum of 65504.
    F16,
}

impl Dtype {
    /// Returns the number of bytes per value.
    pub fn size(self) -> usize {
        match self {
            Dtype::F32 => 4,
            Dtype::BF16 | Dtype::F16 => 2,
        }
    }

    /// Returns the name of this type in `config.json`.
    pub fn config_name(self) -> &'static str {
        match self {
            Dtype::F32 => "float32",
            Dtype::BF16 => "bfloat16",
            Dtype::F16 => "float16",
        }
    }

    /// Decodes little-endian bytes into `out`. If a value is not finite, returns its index as the error.
    pub(crate) fn decode(self, bytes: &[u8], out: &mut [f32]) -> Result<(), usize> {
        assert_eq!(bytes.len(), out.len() * self.size(), "bytes of {} values of {self:?}", out.len());
        match self {
            Dtype::F32 => decode_each(bytes, out, f32::from_le_bytes),
            Dtype::BF16 => decode_each(bytes, out, |b| bf16::from_le_bytes(b).to_f32()),
            Dtype::F16 => decode_each(bytes, out, |b| f16::from_le_bytes(b).to_f32()),
        }
        // A fold without an early exit is vectorised; the search for the index runs only after a failure.
        if out.iter().fold(false, |bad, x| bad | !x.is_finite()) {
            return Err(out.iter().position(|x| !x.is_finite()).expect("just seen"));
        }
        Ok(())
    }

    /// Encodes to little-endian bytes, rounding to nearest even. If a value is not finite or overflows this type, returns its index as the error.
    pub(crate) fn encode(self, values: &[f32], out: &mut Vec<u8>) -> Result<(), usize> {
        // Filling a buffer of the final size is vectorised, and the caller reuses the buffer.
        out.resize(values.len() * self.size(), 0);
        // Smallest magnitude that rounds to infinity.
        let limit = match self {
            Dtype::F32 => f32::INFINITY,
            Dtype::BF16 => f32::from_bits(0x7f7f_8000),
            Dtype::F16 => 65_520.0,
        };
        match self {
            Dtype::F32 => encode_each(values, out, f32::to_le_bytes),
            Dtype::BF16 => encode_each(values, out, |x| bf16::from_f32(x).to_le_bytes()),
            Dtype::F16 => encode_each(values, out, |x| f16::from_f32(x).to_le_bytes()),
        }
        let fits = |x: &f32| x.abs() < limit;
        if values.iter().fold(true, |all, x| all & fits(x)) {
            return Ok(());
        }
        Err(values.iter().position(|x| !fits(x)).expect("just seen"))
    }
}

pub(crate) fn decode_each<const N: usize>(bytes: &[u8], out: &mut [f32], decode: impl Fn([u8; N]) -> f32) {
    for (x, b) in out.iter_mut().zip(bytes.as_chunks::<N>().0) {
        *x = decode(*b);
    }
}

pub(crate) fn encode_each<const N: usize>(values: &[f32], out: &mut [u8], encode: impl Fn(f32) -> [u8; N]) {
    for (&x, bytes) in values.iter().zip(out.as_chunks_mut::<N>().0) {
        *bytes = encode(x);
    }
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
    fn the_index_of_a_value_that_overflows_is_returned() {
        let mut bytes = Vec::new();
        // The smallest magnitude that rounds to infinity, after the largest that doesn't.
        for (dtype, limit) in [(Dtype::F16, 65520.0f32), (Dtype::BF16, f32::from_bits(0x7f7f_8000))] {
            assert_eq!(dtype.encode(&[1.0, limit.next_down(), limit, 1.0], &mut bytes), Err(2));
            let mut back = [0.0; 4];
            assert_eq!(dtype.decode(&bytes, &mut back), Err(2), "{dtype:?}: {back:?}");
        }
        assert_eq!(Dtype::BF16.encode(&[1.0, 65520.0, f32::NAN], &mut bytes), Err(2));
    }
}
