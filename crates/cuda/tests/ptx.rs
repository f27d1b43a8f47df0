//! The PTX in the binary was made from the current kernel sources.

use sha2::{Digest, Sha256};
use std::path::Path;

#[test]
fn the_shipped_ptx_is_made_from_these_sources() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files: Vec<_> =
        std::fs::read_dir(root.join("kernels")).unwrap().map(|e| e.unwrap().path()).collect();
    files.retain(|f| f.extension().is_some_and(|e| e == "cu"));
    files.sort_by_key(|f| (f.file_stem().is_some_and(|s| s != "base"), f.clone()));
    let mut hash = Sha256::new();
    for file in files {
        hash.update(std::fs::read(file).unwrap());
    }
    let sum: String = hash.finalize().iter().map(|b| format!("{b:02x}")).collect();
    let ptx = std::fs::read_to_string(root.join("ptx/kernels.ptx")).unwrap();
    let stamp = ptx.lines().next().unwrap();
    assert!(stamp.ends_with(&sum), "the PTX is stale ({stamp}); run scripts/gpu/kernels --write");
}
