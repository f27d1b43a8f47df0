//! Reads and checks the data of a pass, so that all later code can rely on lengths, ranges and finite values.

use crate::wire::{self, ChunkKind, DType, Encoding, Tensor};
use fgrpo_train::policy::{Bounds, Target};

/// A matrix of shape `[rows, columns]`. A vector has one column.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Matrix<T> {
    pub(crate) columns: usize,
    pub(crate) numbers: Vec<T>,
    /// Whether each cell has a value. The list is empty if all cells have a value.
    pub(crate) present: Vec<bool>,
    /// Whether the client sent a matrix, so that results are matrices too.
    pub(crate) two_dimensional: bool,
}

impl<T> Matrix<T> {
    pub(crate) fn rows(&self) -> usize {
        self.numbers.len() / self.columns.max(1)
    }

    pub(crate) fn is_present(&self, index: usize) -> bool {
        self.present.is_empty() || self.present[index]
    }

    /// Returns the indices of the present numbers.
    pub(crate) fn indices(&self) -> impl Iterator<Item = usize> {
        (0..self.numbers.len()).filter(|&index| self.is_present(index))
    }

    /// Returns a matrix of the same shape with one of `values` for each present number, and 0 in the other cells.
    pub(crate) fn filled(&self, values: &[f32]) -> Vec<f32> {
        let mut filled = vec![0.0; self.numbers.len()];
        self.indices().zip(values).for_each(|(index, &value)| filled[index] = value);
        filled
    }
}

impl Matrix<i64> {
    /// Returns the token ids as targets, which follow the sequence's token in their row.
    pub(crate) fn targets(&self) -> Vec<Target> {
        let target = |at| Target { after: at / self.columns, token: self.numbers[at] as u32 };
        self.indices().map(target).collect()
    }
}

/// Reads the tokens of a datum's `model_input`.
pub(crate) fn model_input(bounds: Bounds, chunks: &[wire::Chunk]) -> Result<Vec<u32>, String> {
    let mut tokens = Vec::new();
    for chunk in chunks {
        let bytes = match &chunk.chunk {
            Some(ChunkKind::EncodedText(text)) => &text.tokens,
            Some(ChunkKind::Image(_)) => {
                return Err("images aren't supported".into());
            }
            Some(ChunkKind::Dmel(_)) => {
                return Err("audio isn't supported".into());
            }
            None => return Err("a chunk has an unknown kind; only encoded text is supported".into()),
        };
        for id in split(bytes)? {
            tokens.push(bounds.token(i64::from(i32::from_le_bytes(id)))?);
        }
    }
    bounds.length(tokens.len())?;
    Ok(tokens)
}

/// Splits bytes into numbers of `N` bytes each.
fn split<const N: usize>(bytes: &[u8]) -> Result<impl Iterator<Item = [u8; N]>, String> {
    if !bytes.len().is_multiple_of(N) {
        return Err(format!("{} bytes aren't a multiple of {N}", bytes.len()));
    }
    Ok(bytes.chunks_exact(N).map(|chunk| chunk.try_into().expect("N bytes")))
}

/// Reads a tensor of finite `f32` values.
pub(crate) fn floats(tensor: &Tensor) -> Result<Matrix<f32>, String> {
    let read = |bytes: &[u8]| -> Result<Vec<f32>, String> {
        Ok(match DType::try_from(tensor.dtype) {
            Ok(DType::Float32) => split(bytes)?.map(f32::from_le_bytes).collect(),
            Ok(DType::Bfloat16) => {
                split(bytes)?.map(|bits| f32::from_bits(u32::from(u16::from_le_bytes(bits)) << 16)).collect()
            }
            other => return Err(format!("expected float32, found {}", name(other))),
        })
    };
    let matrix = matrix(tensor, read)?;
    match matrix.numbers.iter().position(|number| !number.is_finite()) {
        Some(at) => Err(format!("expected finite numbers, found {} at index {at}", matrix.numbers[at])),
        None => Ok(matrix),
    }
}

/// Reads a tensor of integers.
pub(crate) fn integers(tensor: &Tensor) -> Result<Matrix<i64>, String> {
    let read = |bytes: &[u8]| -> Result<Vec<i64>, String> {
        Ok(match DType::try_from(tensor.dtype) {
            Ok(DType::Int64) => split(bytes)?.map(i64::from_le_bytes).collect(),
            Ok(DType::Int32) => split(bytes)?.map(|bytes| i64::from(i32::from_le_bytes(bytes))).collect(),
            other => return Err(format!("expected int64, found {}", name(other))),
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
        .map(|&n| usize::try_from(n).map_err(|_| format!("negative size in shape {:?}", tensor.shape)))
        .collect::<Result<_, _>>()?;
    if shape.len() > 2 {
        return Err(format!("expected one or two dimensions, found shape {shape:?}"));
    }
    match &tensor.encoding {
        Some(Encoding::Dense(bytes)) => {
            let numbers = read(bytes)?;
            let rows = shape.first().copied().unwrap_or(numbers.len());
            let columns = shape.get(1).copied().unwrap_or(1);
            if rows.checked_mul(columns) != Some(numbers.len()) || columns == 0 {
                return Err(format!("{} numbers don't fit shape {shape:?}", numbers.len()));
            }
            Ok(Matrix { columns, numbers, present: Vec::new(), two_dimensional: shape.len() == 2 })
        }
        Some(Encoding::SparseCsr(csr)) => {
            let &[rows, columns] = &shape[..] else {
                return Err(format!("expected two dimensions of a sparse tensor, found shape {shape:?}"));
            };
            let values = read(&csr.values)?;
            let index = |bytes: &[u8]| -> Result<Vec<usize>, String> {
                split(bytes)?
                    .map(|bytes| {
                        usize::try_from(i64::from_le_bytes(bytes)).map_err(|_| "an index is negative".into())
                    })
                    .collect()
            };
            let (starts, places) = (index(&csr.crow_indices)?, index(&csr.col_indices)?);
            let ordered = starts.windows(2).all(|pair| pair[0] <= pair[1]);
            let whole =
                starts.len() == rows.saturating_add(1) && starts[0] == 0 && starts[rows] == values.len();
            if !ordered || !whole || places.len() != values.len() {
                return Err("the row pointers don't fit the values of the sparse tensor".into());
            }
            if places.iter().any(|&place| place >= columns) {
                return Err(format!("a column index exceeds shape {shape:?}"));
            }
            let Some(cells) = rows.checked_mul(columns).filter(|&cells| cells <= LARGEST) else {
                return Err(format!("expected at most {LARGEST} cells, found shape {shape:?}"));
            };
            let mut numbers = vec![T::default(); cells];
            let mut present = vec![false; cells];
            for row in 0..rows {
                for at in starts[row]..starts[row + 1] {
                    let cell = row * columns + places[at];
                    if std::mem::replace(&mut present[cell], true) {
                        return Err(format!("row {row}, column {} is given twice", places[at]));
                    }
                    numbers[cell] = values[at];
                }
            }
            Ok(Matrix { columns, numbers, present, two_dimensional: true })
        }
        None => Err("the tensor has neither dense nor sparse values".into()),
    }
}

/// Maximum number of cells of a sparse tensor, which is stored densely.
const LARGEST: usize = 1 << 26;
