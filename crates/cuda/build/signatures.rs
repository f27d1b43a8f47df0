//! Reads the signatures of kernels from their sources.

/// A kernel's name and parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Signature {
    pub(crate) name: String,
    pub(crate) parameters: Vec<Parameter>,
}

/// A parameter of a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Parameter {
    /// Name of the parameter, or an empty string if the source doesn't name it.
    pub(crate) name: String,
    pub(crate) kind: Kind,
}

/// Type of a parameter. Pointers to constants have the same type as other pointers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `unsigned` or `uint32_t`.
    U32,
    /// `uint64_t`.
    U64,
    /// `float`.
    F32,
    /// A pointer, with the Rust type of its elements.
    Pointer(&'static str),
}

const TYPES: [(&str, Kind); 13] = [
    ("unsigned", Kind::U32),
    ("uint32_t", Kind::U32),
    ("uint64_t", Kind::U64),
    ("float", Kind::F32),
    ("float*", Kind::Pointer("f32")),
    ("double*", Kind::Pointer("f64")),
    ("bf16*", Kind::Pointer("Bf16")),
    ("unsigned*", Kind::Pointer("u32")),
    ("uint64_t*", Kind::Pointer("u64")),
    ("uint4*", Kind::Pointer("[u32; 4]")),
    ("unsigned short*", Kind::Pointer("u16")),
    ("unsigned char*", Kind::Pointer("u8")),
    ("signed char*", Kind::Pointer("i8")),
];

/// Returns the signatures of all kernels in a source, in order.
///
/// Returns an error if a definition isn't `extern "C" __global__ [__launch_bounds__(..)] void name(..) {`, or a parameter's type is unknown.
pub(crate) fn signatures(source: &str) -> Result<Vec<Signature>, String> {
    source
        .split("__global__")
        .enumerate()
        .skip(1)
        .map(|(index, text)| {
            let before = source.split("__global__").nth(index - 1).expect("a part");
            if !before.ends_with("extern \"C\" ") {
                return Err("a kernel is not extern \"C\"".to_owned());
            }
            signature(text)
        })
        .collect()
}

fn signature(text: &str) -> Result<Signature, String> {
    let head = text.get(..text.find('{').unwrap_or(text.len())).expect("a prefix").trim();
    let malformed = || format!("expected `void name(type name, ..) {{` after __global__, found `{head}`");
    let head = match head.strip_prefix("__launch_bounds__(") {
        Some(rest) => rest.split_once(')').ok_or_else(malformed)?.1.trim(),
        None => head,
    };
    let parts = head.strip_prefix("void ").and_then(|rest| rest.strip_suffix(')'));
    let (name, parameters) = parts.and_then(|rest| rest.split_once('(')).ok_or_else(malformed)?;
    if !is_identifier(name) {
        return Err(malformed());
    }
    let parameters = parameters.split(',').map(parameter).collect::<Result<_, _>>();
    Ok(Signature { name: name.to_owned(), parameters: parameters.map_err(|why| format!("{name}: {why}"))? })
}

fn parameter(text: &str) -> Result<Parameter, String> {
    let words: Vec<&str> = text.split_whitespace().filter(|&word| word != "const").collect();
    let kind =
        |words: &[&str]| TYPES.iter().find(|(name, _)| *name == words.join(" ")).map(|(_, kind)| *kind);
    if let (Some(kind), Some((name, true))) =
        (kind(&words[..words.len().saturating_sub(1)]), words.last().map(|name| (*name, is_identifier(name))))
    {
        return Ok(Parameter { name: name.to_owned(), kind });
    }
    match kind(&words) {
        Some(kind) => Ok(Parameter { name: String::new(), kind }),
        None => {
            Err(format!("`{}` has an unknown type; crates/cuda/build/signatures.rs lists them", text.trim()))
        }
    }
}

fn is_identifier(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}
