//! Matrices in 4 bits as transformers saves them with bitsandbytes: the codes under the tensor's name, and beside them the scales, the maps of
//! values, and a quantization state in JSON.
//!
//! Only NF4 in blocks of 64 values can be read, with scales in f32 or 8 bits. For another format, the error names that format.

use std::borrow::Cow;
use std::path::Path;

use serde::Deserialize;
use serde_json::{Value, json};

use super::write::{Content, TensorWriter, make_folder, write_generation, write_json};
use super::{Dtype, SINGLE, TensorFile};
use crate::config::Config;
use crate::error::Error;
use crate::quantized::{BLOCK, NESTED_BLOCK, NF4, Numbers, Quantized, Scales, dynamic_map};

/// Part of a quantization state's name, between the matrix's name and the quantization type.
const STATE: &str = ".quant_state.bitsandbytes__";
/// Suffixes in the names of a matrix's other tensors.
const BESIDE: [&str; 4] = [".absmax", ".quant_map", ".nested_absmax", ".nested_quant_map"];

/// Quantization state of a matrix.
#[derive(Debug, Deserialize)]
struct State {
    quant_type: String,
    blocksize: usize,
    shape: Vec<usize>,
    nested_blocksize: Option<usize>,
    nested_offset: Option<f32>,
}

/// Returns the name of the quantized matrix that the tensor `name` belongs to, or `None` if it isn't part of one.
pub(super) fn matrix_of(name: &str) -> Option<&str> {
    let beside = BESIDE.iter().find_map(|suffix| name.strip_suffix(suffix));
    beside.or_else(|| name.split_once(STATE).map(|(matrix, _)| matrix))
}

/// Returns the name of a matrix's quantization state in NF4.
pub(super) fn state_name(matrix: &str) -> String {
    format!("{matrix}{STATE}nf4")
}

/// Returns the file of a tensor.
type Files<'f, 'a> = &'f dyn Fn(&str) -> Result<&'a TensorFile, Error>;

/// Reads a matrix with the given shape.
pub(super) fn read(matrix: &str, shape: &[usize], file: Files<'_, '_>) -> Result<Quantized, Error> {
    let (codes, scales) = find(matrix, shape, file)?;
    let numbers = Numbers::Nf4 { codes: codes.to_vec(), scales };
    Ok(Quantized { rows: shape[0], columns: shape[1], numbers })
}

/// Checks that [`read`] can read a matrix, without copying its codes.
pub(super) fn check(matrix: &str, shape: &[usize], file: Files<'_, '_>) -> Result<(), Error> {
    find(matrix, shape, file).map(drop)
}

fn find<'a>(matrix: &str, shape: &[usize], file: Files<'_, 'a>) -> Result<(&'a [u8], Scales), Error> {
    let refuse = |tensor: &str, found: String, expected: String| -> Result<(), Error> {
        let path = file(tensor)?.path().to_path_buf();
        Err(Error::tensor(path, tensor, found, expected))
    };
    let bytes = |tensor: &str, len: usize| -> Result<&'a [u8], Error> {
        let data = file(tensor)?.bytes(tensor)?;
        if data.len() != len {
            refuse(tensor, format!("{} bytes", data.len()), format!("{len} for shape {shape:?}"))?;
        }
        Ok(data)
    };
    let numbers = |suffix: &str, len: usize| -> Result<Vec<f32>, Error> {
        let tensor = format!("{matrix}{suffix}");
        let values = file(&tensor)?.tensor(&tensor)?;
        if values.len() != len {
            refuse(&tensor, format!("{} values", values.len()), format!("{len} for shape {shape:?}"))?;
        }
        Ok(values)
    };
    let same = |suffix: &str, expected: &[f32]| -> Result<(), Error> {
        let values = numbers(suffix, expected.len())?;
        match values.iter().zip(expected).position(|(f, w)| f.to_bits() != w.to_bits()) {
            Some(at) => {
                let difference = format!("{} at index {at}", values[at]);
                refuse(
                    &format!("{matrix}{suffix}"),
                    difference,
                    format!("{} as in bitsandbytes' map", expected[at]),
                )
            }
            None => Ok(()),
        }
    };
    let name = state_name(matrix);
    let text = file(&name)?.bytes(&name)?;
    let state: State = match serde_json::from_slice(text) {
        Ok(state) => state,
        Err(error) => {
            refuse(&name, format!("invalid JSON ({error})"), "the quantization state of a matrix".into())?;
            unreachable!("an error was returned")
        }
    };
    let fields = [
        ("quant_type", state.quant_type.clone(), "nf4".to_string()),
        ("blocksize", state.blocksize.to_string(), BLOCK.to_string()),
        ("shape", format!("{:?}", state.shape), format!("{shape:?}")),
    ];
    let nested =
        state.nested_blocksize.map(|n| ("nested_blocksize", n.to_string(), NESTED_BLOCK.to_string()));
    for (field, found, expected) in fields.into_iter().chain(nested) {
        if found != expected {
            refuse(&name, format!("{field} {found}"), expected)?;
        }
    }
    same(".quant_map", &NF4)?;
    let count: usize = shape.iter().product();
    let codes = bytes(matrix, count.div_ceil(2))?;
    let blocks = count.div_ceil(BLOCK);
    let scales = match state.nested_offset {
        None => Scales::Full(numbers(".absmax", blocks)?),
        Some(offset) => {
            same(".nested_quant_map", dynamic_map())?;
            let codes = bytes(&format!("{matrix}.absmax"), blocks)?;
            let absmax = numbers(".nested_absmax", blocks.div_ceil(NESTED_BLOCK))?;
            Scales::Nested { codes: codes.to_vec(), absmax, offset }
        }
    };
    Ok((codes, scales))
}

/// A tensor of the model that is being written.
pub(crate) enum Tensor<'a> {
    Numbers(Cow<'a, [f32]>),
    /// A matrix of a layer, in NF4.
    Matrix(Quantized),
}

/// Returns the quantization state of a matrix that dequantizes to `dtype`.
fn state_of(shape: &[usize], scales: &Scales, dtype: Dtype) -> String {
    let mut state = json!({
        "quant_type": "nf4", "blocksize": BLOCK, "dtype": dtype.config_name(), "shape": shape,
    });
    if let Scales::Nested { offset, .. } = scales {
        state["nested_blocksize"] = json!(NESTED_BLOCK);
        state["nested_dtype"] = json!("float32");
        state["nested_offset"] = json!(f64::from(*offset));
    }
    state.to_string()
}

/// Values of a tensor in the file.
enum Values<'a> {
    Numbers(Cow<'a, [f32]>),
    Bytes(Vec<u8>),
}

/// Splits a tensor of the model into the tensors that represent it in the file: name, shape, values.
fn parts<'a>(
    name: &str,
    shape: Vec<usize>,
    tensor: Tensor<'a>,
    dtype: Dtype,
) -> Vec<(String, Vec<usize>, Values<'a>)> {
    let (codes, scales) = match tensor {
        Tensor::Numbers(values) => return vec![(name.into(), shape, Values::Numbers(values))],
        Tensor::Matrix(Quantized { numbers: Numbers::Nf4 { codes, scales }, .. }) => (codes, scales),
        Tensor::Matrix(_) => unreachable!("a matrix in NF4"),
    };
    let numbers = |suffix: &str, values: Cow<'a, [f32]>| {
        (format!("{name}{suffix}"), vec![values.len()], Values::Numbers(values))
    };
    let state = state_of(&shape, &scales, dtype).into_bytes();
    let mut all = vec![
        (name.to_string(), vec![codes.len(), 1], Values::Bytes(codes)),
        numbers(".quant_map", Cow::Borrowed(&NF4)),
        (state_name(name), vec![state.len()], Values::Bytes(state)),
    ];
    match scales {
        Scales::Full(scales) => all.push(numbers(".absmax", scales.into())),
        Scales::Nested { codes, absmax, .. } => {
            all.push((format!("{name}.absmax"), vec![codes.len()], Values::Bytes(codes)));
            all.push(numbers(".nested_absmax", absmax.into()));
            all.push(numbers(".nested_quant_map", Cow::Borrowed(dynamic_map())));
        }
    }
    all
}

/// Writes a checkpoint folder in one file, as transformers does with bitsandbytes: the layers' matrices in NF4, other tensors in `dtype`.
/// `tensor` returns the tensors of [`Config::tensors`] by name. The folder is created if necessary and must not contain weights.
/// `config.json` is written last, so a folder that has it is complete.
pub(crate) fn write<'a>(
    dir: &Path,
    config: &Config,
    dtype: Dtype,
    tensor: &dyn Fn(&str) -> Tensor<'a>,
) -> Result<(), Error> {
    config.validate()?;
    make_folder(dir)?;
    // Two passes, so that memory holds one tensor at a time: the header depends on each matrix's scales.
    let all =
        || config.tensors().into_iter().flat_map(|(name, shape)| parts(&name, shape, tensor(&name), dtype));
    let beside = |name: &str| matrix_of(name).is_some();
    let declared = all().map(|(name, shape, values)| {
        let content = match values {
            Values::Bytes(_) => Content::Bytes,
            Values::Numbers(_) => Content::Numbers(if beside(&name) { Dtype::F32 } else { dtype }),
        };
        (name, shape, content)
    });
    let declared: Vec<_> = declared.collect();
    let nested = declared.iter().any(|(name, ..)| name.ends_with(".nested_absmax"));
    let mut writer = TensorWriter::create_mixed(&dir.join(SINGLE), declared, &[("format", "pt")])?;
    for (name, shape, values) in all() {
        match values {
            Values::Numbers(values) => writer.put(&name, &shape, &values)?,
            Values::Bytes(bytes) => writer.put_bytes(&name, &shape, &bytes)?,
        }
    }
    writer.finish()?;
    write_generation(dir, config)?;
    let mut fields = config.to_json(dtype);
    let settings = json!({
        "_load_in_4bit": true, "_load_in_8bit": false, "bnb_4bit_compute_dtype": dtype.config_name(),
        "bnb_4bit_quant_storage": "uint8", "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": nested,
        "llm_int8_enable_fp32_cpu_offload": false, "llm_int8_has_fp16_weight": false,
        "llm_int8_skip_modules": ["lm_head"], "llm_int8_threshold": 6.0, "load_in_4bit": true,
        "load_in_8bit": false, "quant_method": "bitsandbytes",
    });
    fields.insert("quantization_config".into(), settings);
    write_json(&dir.join("config.json"), &Value::Object(fields))
}
