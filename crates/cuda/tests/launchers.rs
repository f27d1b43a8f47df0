//! Launchers, which the build script generates from the signatures of the kernels.

use std::path::Path;

use fgrpo_cuda::kernels::{Add, Attention, Kernel, LAUNCHERS, Variant};
use fgrpo_cuda::{Address, Argument, Bf16, Pointer, Values};

#[allow(dead_code, reason = "the build script uses the parameters")]
#[path = "../build/signatures.rs"]
mod signatures;

use signatures::signatures;

fn read(path: &Path, to: &mut String) {
    if path.is_dir() {
        std::fs::read_dir(path).unwrap().for_each(|entry| read(&entry.unwrap().path(), to));
    } else {
        to.push_str(&std::fs::read_to_string(path).unwrap());
    }
}

#[test]
fn every_launcher_is_used() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut sources = String::new();
    read(&root.join("src/product.rs"), &mut sources);
    read(&root.join("../nn/src/cuda"), &mut sources);
    let is_used = |name: &str| {
        [format!("kernels::{name} {{"), format!("launch!({name},")].iter().any(|text| sources.contains(text))
    };
    let unused: Vec<&&str> = LAUNCHERS.iter().filter(|name| !is_used(name)).collect();
    assert!(unused.is_empty(), "{unused:?}");
    assert!(!is_used("Convolution"), "no launcher has this name");
}

#[test]
fn number_types_and_the_variant_select_the_kernel() {
    let f32 = |at| Values::F32(Pointer::new(Address(at)));
    let bf16 = |at| Values::Bf16(Pointer::<Bf16>::new(Address(at)));
    let add = |x, y| Add { x, y, count: 3 }.call();
    let arguments = [Argument::Address(Address(8)), Argument::Address(Address(16)), Argument::U32(3)];
    assert_eq!(add(f32(8), f32(16)), ("add_f32", arguments.to_vec()));
    assert_eq!(add(bf16(8), bf16(16)), ("add_bf16", arguments.to_vec()));
    assert_eq!(add(f32(0), bf16(16)).0, "add_bf16", "null has any type");
    let mixed = std::panic::catch_unwind(|| add(f32(8), bf16(16)));
    assert!(mixed.is_err());
    let attention = |variant, q| {
        let [rows, tile_first, positions] = [Pointer::NULL; 3];
        let (pieces, lse, [kv, out]) = (Pointer::NULL, Pointer::NULL, [q; 2]);
        let (window, heads, key_heads, size, queries, scale) = (1, 2, 3, 64, 5, 0.5);
        let kernel = Attention {
            variant,
            rows,
            tile_first,
            pieces,
            positions,
            window,
            q,
            kv,
            out,
            lse,
            heads,
            key_heads,
            size,
            queries,
            scale,
        };
        kernel.call()
    };
    let last = |arguments: &[Argument]| arguments[9..].to_vec();
    let sizes = [2, 3, 64, 5].map(Argument::U32);
    let (name, arguments) = attention(Variant::General, bf16(8));
    assert_eq!((name, last(&arguments)), ("attention_bf16", [&sizes[..], &[Argument::F32(0.5)]].concat()));
    let (name, arguments) = attention(Variant::Size64, bf16(8));
    let without_size = [&sizes[..2], &sizes[3..], &[Argument::F32(0.5)]].concat();
    assert_eq!((name, last(&arguments)), ("attention_bf16_64", without_size));
}

#[test]
fn the_parser_reads_every_kernel_and_refuses_what_it_does_not_know() {
    let mut sources = String::new();
    read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels"), &mut sources);
    let entries =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("ptx/kernels.ptx")).unwrap();
    let mut shipped: Vec<(&str, usize)> = entries
        .split(".entry ")
        .skip(1)
        .map(|entry| {
            let (name, rest) = entry.split_once('(').unwrap();
            (name, rest.split(')').next().unwrap().matches(".param").count())
        })
        .collect();
    let all = signatures(&sources).unwrap();
    let mut read: Vec<(&str, usize)> =
        all.iter().map(|kernel| (kernel.name.as_str(), kernel.parameters.len())).collect();
    shipped.sort_unstable();
    read.sort_unstable();
    assert_eq!(read, shipped);

    let refused = |text: &str| signatures(text).unwrap_err();
    let kernel = "extern \"C\" __global__ void ";
    assert!(signatures(&format!("{kernel}add(const float* x, unsigned) {{ }}")).is_ok());
    assert_eq!(
        refused(&format!("{kernel}add(const int* x) {{")),
        "add: `const int* x` has an unknown type; crates/cuda/build/signatures.rs lists them"
    );
    assert_eq!(refused("__global__ void add(float x) {"), "a kernel is not extern \"C\"");
    let malformed = "expected `void name(type name, ..) {` after __global__, found `int add(float x)`";
    assert_eq!(refused("extern \"C\" __global__ int add(float x) {"), malformed);
}
