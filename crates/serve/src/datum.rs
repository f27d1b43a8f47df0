//! The data of a pass, read from the wire and checked: every later step can rely on lengths, ranges and finite numbers.

use crate::wire::{self, ChunkKind, DType, Encoding, Tensor};
use fgrpo_train::policy::Bounds;

/// A matrix of numbers, `[rows, columns]`; a vector has one column.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Matrix<T> {
    pub(crate) columns: usize,
    pub(crate) numbers: Vec<T>,
    /// Which numbers were given; empty if all were.
    pub(crate) given: Vec<bool>,
    /// Whether it came as a matrix, so that results are matrices too.
    pub(crate) two_dimensional: bool,
}

impl<T> Matrix<T> {
    pub(crate) fn rows(&self) -> usize {
        self.numbers.len() / self.columns.max(1)
    }

    pub(crate) fn is_given(&self, index: usize) -> bool {
        self.given.is_empty() || self.given[index]
    }
}

/// The tokens of a datum's `model_input`.
pub(crate) fn model_input(bounds: Bounds, chunks: &[wire::Chunk]) -> Result<Vec<u32>, String> {
    let mut tokens = Vec::new();
    for chunk in chunks {
        let bytes = match &chunk.chunk {
            Some(ChunkKind::EncodedText(text)) => &text.tokens,
            Some(ChunkKind::Image(_)) => {
                return Err("found an image, wanted text: models here read no images".into());
            }
            Some(ChunkKind::Dmel(_)) => {
                return Err("found audio, wanted text: models here take no audio".into());
            }
            None => return Err("found a chunk of an unknown kind, wanted encoded text".into()),
        };
        for id in split(bytes)? {
            tokens.push(bounds.token(i64::from(i32::from_le_bytes(id)))?);
        }
    }
    bounds.length(tokens.len())?;
    Ok(tokens)
}

/// Bytes as numbers of `N` bytes.
fn split<const N: usize>(bytes: &[u8]) -> Result<impl Iterator<Item = [u8; N]>, String> {
    if !bytes.len().is_multiple_of(N) {
        return Err(format!("found {} bytes, wanted numbers of {N}", bytes.len()));
    }
    Ok(bytes.chunks_exact(N).map(|chunk| chunk.try_into().expect("N bytes")))
}

/// Finite `f32` numbers.
pub(crate) fn floats(tensor: &Tensor) -> Result<Matrix<f32>, String> {
    let read = |bytes: &[u8]| -> Result<Vec<f32>, String> {
        Ok(match DType::try_from(tensor.dtype) {
            Ok(DType::Float32) => split(bytes)?.map(f32::from_le_bytes).collect(),
            Ok(DType::Bfloat16) => {
                split(bytes)?.map(|bits| f32::from_bits(u32::from(u16::from_le_bytes(bits)) << 16)).collect()
            }
            other => return Err(format!("found {}, wanted float32", name(other))),
        })
    };
    let matrix = matrix(tensor, read)?;
    match matrix.numbers.iter().position(|number| !number.is_finite()) {
        Some(at) => Err(format!("found {} at index {at}, wanted finite numbers", matrix.numbers[at])),
        None => Ok(matrix),
    }
}

/// Integers.
pub(crate) fn integers(tensor: &Tensor) -> Result<Matrix<i64>, String> {
    let read = |bytes: &[u8]| -> Result<Vec<i64>, String> {
        Ok(match DType::try_from(tensor.dtype) {
            Ok(DType::Int64) => split(bytes)?.map(i64::from_le_bytes).collect(),
            Ok(DType::Int32) => split(bytes)?.map(|bytes| i64::from(i32::from_le_bytes(bytes))).collect(),
            other => return Err(format!("found {}, wanted int64", name(other))),
        })
    };
    matrix(tensor, read)
}

fn name(dtype: Result<DType, prost::UnknownEnumValue>) -> String {
    dtype.map_or_else(|unknown| format!("dtype {unknown}"), |dtype| format!("{dtype:?}").to_lowercase())
}

fn matrix<T: Copy + Default>(
    tensor: &Tensor,
    read: impl Fn(&[u8]) -> Result<Vec<T>, String>,
) -> Result<Matrix<T>, String> {
    let shape: Vec<usize> = tensor
        .shape
        .iter()
        .map(|&n| usize::try_from(n).map_err(|_| format!("found shape {:?}", tensor.shape)))
        .collect::<Result<_, _>>()?;
    if shape.len() > 2 {
        return Err(format!("found shape {shape:?}, wanted one or two dimensions"));
    }
    match &tensor.encoding {
        Some(Encoding::Dense(bytes)) => {
            let numbers = read(bytes)?;
            let rows = shape.first().copied().unwrap_or(numbers.len());
            let columns = shape.get(1).copied().unwrap_or(1);
            if rows.checked_mul(columns) != Some(numbers.len()) || columns == 0 {
                return Err(format!("found {} numbers for shape {shape:?}", numbers.len()));
            }
            Ok(Matrix { columns, numbers, given: Vec::new(), two_dimensional: shape.len() == 2 })
        }
        Some(Encoding::SparseCsr(csr)) => {
            let &[rows, columns] = &shape[..] else {
                return Err(format!("found a sparse tensor of shape {shape:?}, wanted two dimensions"));
            };
            let values = read(&csr.values)?;
            let index = |bytes: &[u8]| -> Result<Vec<usize>, String> {
                split(bytes)?
                    .map(|bytes| {
                        usize::try_from(i64::from_le_bytes(bytes))
                            .map_err(|_| "found a negative index".into())
                    })
                    .collect()
            };
            let (starts, places) = (index(&csr.crow_indices)?, index(&csr.col_indices)?);
            let ordered = starts.windows(2).all(|pair| pair[0] <= pair[1]);
            let whole =
                starts.len() == rows.saturating_add(1) && starts[0] == 0 && starts[rows] == values.len();
            if !ordered || !whole || places.len() != values.len() {
                return Err("found row pointers that don't fit the values of a sparse tensor".into());
            }
            if places.iter().any(|&place| place >= columns) {
                return Err(format!("found a column beyond shape {shape:?}"));
            }
            let Some(cells) = rows.checked_mul(columns).filter(|&cells| cells <= LARGEST) else {
                return Err(format!("found shape {shape:?}, wanted at most {LARGEST} cells"));
            };
            let mut numbers = vec![T::default(); cells];
            let mut given = vec![false; cells];
            for row in 0..rows {
                for at in starts[row]..starts[row + 1] {
                    let cell = row * columns + places[at];
                    if std::mem::replace(&mut given[cell], true) {
                        return Err(format!("found row {row}, column {} twice", places[at]));
                    }
                    numbers[cell] = values[at];
                }
            }
            Ok(Matrix { columns, numbers, given, two_dimensional: true })
        }
        None => Err("found no numbers, wanted dense or sparse ones".into()),
    }
}

/// Cells of a sparse tensor, which is stored densely.
const LARGEST: usize = 1 << 26;
