//! Matrices as transformers saves them with bitsandbytes in 4 bits: codes in place of the tensor, and beside it scales, maps of values, and a state in JSON.
//!
//! Read are NF4's, in blocks of 64 numbers, with scales in f32 or in 8 bits. Others are refused by name.

use serde::Deserialize;

use super::TensorFile;
use crate::error::Error;
use crate::quantized::{BLOCK, NESTED_BLOCK, NF4, Numbers, Quantized, Scales, dynamic_map};

/// What the names of a matrix's state end with, but for its type.
const STATE: &str = ".quant_state.bitsandbytes__";
/// The endings of the names of the tensors beside a matrix.
const BESIDE: [&str; 4] = [".absmax", ".quant_map", ".nested_absmax", ".nested_quant_map"];

/// The state of a matrix.
#[derive(Debug, Deserialize)]
struct State {
    quant_type: String,
    blocksize: usize,
    shape: Vec<usize>,
    nested_blocksize: Option<usize>,
    nested_offset: Option<f32>,
}

/// The tensor that a tensor stands beside, if it is part of a quantized matrix.
pub(super) fn matrix_of(name: &str) -> Option<&str> {
    let beside = BESIDE.iter().find_map(|ending| name.strip_suffix(ending));
    beside.or_else(|| name.split_once(STATE).map(|(matrix, _)| matrix))
}

/// The name of the state of NF4 numbers.
pub(super) fn state_name(matrix: &str) -> String {
    format!("{matrix}{STATE}nf4")
}

/// The scales of a matrix in its file.
enum FileScales<'a> {
    Full(Vec<f32>),
    Nested { codes: &'a [u8], absmax: Vec<f32>, offset: f32 },
}

/// A matrix of a shape from its tensors. `file` gives the file of a tensor.
pub(super) fn read<'a>(
    matrix: &str,
    shape: &[usize],
    file: &dyn Fn(&str) -> Result<&'a TensorFile, Error>,
) -> Result<Quantized, Error> {
    let (codes, scales) = find(matrix, shape, file)?;
    let scales = match scales {
        FileScales::Full(scales) => Scales::Full(scales),
        FileScales::Nested { codes, absmax, offset } => {
            Scales::Nested { codes: codes.to_vec(), absmax, offset }
        }
    };
    let numbers = Numbers::Nf4 { codes: codes.to_vec(), scales };
    Ok(Quantized { rows: shape[0], columns: shape[1], numbers })
}

/// Refuses a matrix that [`read`] could not read; its codes stay in the file.
pub(super) fn check<'a>(
    matrix: &str,
    shape: &[usize],
    file: &dyn Fn(&str) -> Result<&'a TensorFile, Error>,
) -> Result<(), Error> {
    find(matrix, shape, file).map(drop)
}

fn find<'a>(
    matrix: &str,
    shape: &[usize],
    file: &dyn Fn(&str) -> Result<&'a TensorFile, Error>,
) -> Result<(&'a [u8], FileScales<'a>), Error> {
    let refuse = |tensor: &str, found: String, wanted: String| -> Result<(), Error> {
        let path = file(tensor)?.path().to_path_buf();
        Err(Error::Tensor { path, tensor: tensor.into(), found, wanted })
    };
    let bytes = |tensor: &str, len: usize| -> Result<&'a [u8], Error> {
        let found = file(tensor)?.bytes(tensor)?;
        if found.len() != len {
            refuse(tensor, format!("{} bytes", found.len()), format!("{len} for shape {shape:?}"))?;
        }
        Ok(found)
    };
    let numbers = |ending: &str, len: usize| -> Result<Vec<f32>, Error> {
        let tensor = format!("{matrix}{ending}");
        let found = file(&tensor)?.tensor(&tensor)?;
        if found.len() != len {
            refuse(&tensor, format!("{} numbers", found.len()), format!("{len} for shape {shape:?}"))?;
        }
        Ok(found)
    };
    let same = |ending: &str, wanted: &[f32]| -> Result<(), Error> {
        let found = numbers(ending, wanted.len())?;
        match found.iter().zip(wanted).position(|(f, w)| f.to_bits() != w.to_bits()) {
            Some(at) => {
                let found = format!("{} at index {at}", found[at]);
                refuse(&format!("{matrix}{ending}"), found, format!("{}, bitsandbytes' own map", wanted[at]))
            }
            None => Ok(()),
        }
    };
    let name = state_name(matrix);
    let text = file(&name)?.bytes(&name)?;
    let state: State = match serde_json::from_slice(text) {
        Ok(state) => state,
        Err(error) => {
            refuse(&name, format!("broken JSON ({error})"), "bitsandbytes' state of a matrix".into())?;
            unreachable!("refused")
        }
    };
    let fields = [
        ("quant_type", state.quant_type.clone(), "nf4".to_string()),
        ("blocksize", state.blocksize.to_string(), BLOCK.to_string()),
        ("shape", format!("{:?}", state.shape), format!("{shape:?}")),
    ];
    let nested =
        state.nested_blocksize.map(|n| ("nested_blocksize", n.to_string(), NESTED_BLOCK.to_string()));
    for (field, found, wanted) in fields.into_iter().chain(nested) {
        if found != wanted {
            refuse(&name, format!("{field} {found}"), wanted)?;
        }
    }
    same(".quant_map", &NF4)?;
    let count: usize = shape.iter().product();
    let codes = bytes(matrix, count.div_ceil(2))?;
    let blocks = count.div_ceil(BLOCK);
    let scales = match state.nested_offset {
        None => FileScales::Full(numbers(".absmax", blocks)?),
        Some(offset) => {
            same(".nested_quant_map", dynamic_map())?;
            let codes = bytes(&format!("{matrix}.absmax"), blocks)?;
            let absmax = numbers(".nested_absmax", blocks.div_ceil(NESTED_BLOCK))?;
            FileScales::Nested { codes, absmax, offset }
        }
    };
    Ok((codes, scales))
}
