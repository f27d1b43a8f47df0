//! Generates a typed launcher for each kernel from the signatures in the sources. With the feature `emulator`, also compiles the kernels for this
//! machine's CPU. No CUDA is needed: the crate ships PTX.

mod launchers;
mod signatures;

use std::path::{Path, PathBuf};

use signatures::{Signature, signatures};

fn main() {
    for folder in ["kernels", "emulator", "build"] {
        println!("cargo::rerun-if-changed={folder}");
    }
    let root = PathBuf::from(std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let out = PathBuf::from(std::env::var("OUT_DIR").expect("cargo sets it"));
    let mut files: Vec<_> = std::fs::read_dir(root.join("kernels"))
        .expect("kernels/")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|e| e == "cu"))
        .collect();
    // base.cu first, because the others use it.
    files.sort_by_key(|file| (file.file_stem().is_some_and(|stem| stem != "base"), file.clone()));
    let kernels: Vec<Signature> = files.iter().flat_map(|file| kernels_of(file)).collect();
    std::fs::write(out.join("launchers.rs"), launchers::launchers(&kernels)).expect("the generated file");
    #[cfg(feature = "emulator")]
    compile(&root, &out, files, kernels);
}

fn kernels_of(file: &Path) -> Vec<Signature> {
    let text = std::fs::read_to_string(file).expect("a kernel file");
    signatures(&text).unwrap_or_else(|why| panic!("{}: {why}", file.display()))
}

#[cfg(feature = "emulator")]
fn compile(root: &Path, out: &Path, mut files: Vec<PathBuf>, mut kernels: Vec<Signature>) {
    use std::fmt::Write as _;

    // Kernels with planted mistakes, which the emulator has to find.
    files.push(root.join("emulator/faults.cu"));
    kernels.extend(kernels_of(&files[files.len() - 1]));
    let mut source = String::from("#include \"emulator.h\"\n");
    for file in &files {
        writeln!(source, "#include \"{}\"", file.display()).expect("a string");
    }
    let table: String = kernels.iter().map(|kernel| format!("    ENTRY({}),\n", kernel.name)).collect();
    source.push_str("#include \"table.h\"\n");
    writeln!(source, "extern \"C\" const Entry fgrpo_emulator_kernels[] = {{\n{table}    {{nullptr, nullptr, nullptr, 0}}}};")
        .expect("a string");
    let unit = out.join("kernels.cpp");
    std::fs::write(&unit, source).expect("the generated file");
    let emulator = root.join("emulator");
    let build = |file: &Path| {
        let mut build = cc::Build::new();
        build.cpp(true).std("c++17").opt_level(2).warnings(false).pic(true).include(&emulator).file(file);
        build.flag_if_supported("-fno-strict-aliasing").flag_if_supported("-fvisibility=hidden");
        build
    };
    let scheduler = build(&emulator.join("emulator.cpp")).compile_intermediates();
    build(&unit).flag_if_supported("-ffp-contract=off").objects(&scheduler).compile("fgrpo_emulator");

    // The fake driver. Its kernels fuse multiplications and additions, as ptxas does.
    let mut fused = build(&unit);
    if std::env::var("CARGO_CFG_TARGET_ARCH").is_ok_and(|arch| arch == "x86_64") {
        fused.flag("-mfma");
    }
    fused.flag_if_supported("-ffp-contract=fast");
    let folder = out.join("fake");
    std::fs::create_dir_all(folder.join("cublaslt")).expect("a folder");
    let link = |name: &str, objects: &[PathBuf], more: &[&str]| {
        let mut link = fused.get_compiler().to_command();
        let soname = format!("-Wl,-soname,{}", name.rsplit('/').next().expect("a name"));
        link.args(["-shared", "-pthread", &soname, "-o"]).arg(folder.join(name)).args(objects).args(more);
        assert!(link.status().expect("the C++ compiler").success(), "linking {name}");
    };
    let driver =
        [fused.clone().file(emulator.join("fake_driver.cpp")).compile_intermediates(), scheduler].concat();
    link("libcuda.so.1", &driver, &[]);
    let library = build(&emulator.join("fake_cublaslt.cpp")).compile_intermediates();
    link("cublaslt/libcublasLt.so.13", &library, &[&format!("-L{}", folder.display()), "-l:libcuda.so.1"]);
    println!("cargo::rustc-env=FGRPO_FAKE_DRIVER={}", folder.display());
}
