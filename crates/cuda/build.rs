//! With the feature `emulator`, compiles the kernels for this machine's CPU. Without it, does nothing: the shipped PTX needs no compiler.

fn main() {
    println!("cargo::rerun-if-changed=kernels");
    println!("cargo::rerun-if-changed=emulator");
    #[cfg(feature = "emulator")]
    compile();
}

#[cfg(feature = "emulator")]
fn compile() {
    use std::fmt::Write as _;
    use std::path::Path;

    let out = std::env::var("OUT_DIR").expect("cargo sets it");
    let root = std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
    let mut source = String::from("#include \"emulator.h\"\n");
    let mut table = String::new();
    let mut files: Vec<_> = std::fs::read_dir(Path::new(&root).join("kernels"))
        .expect("kernels/")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|e| e == "cu"))
        .collect();
    // base.cu first, because the others use it.
    files.sort_by_key(|file| (file.file_stem().is_some_and(|stem| stem != "base"), file.clone()));
    // Kernels with planted mistakes, which the emulator has to find.
    files.push(Path::new(&root).join("emulator/faults.cu"));
    for file in &files {
        let text = std::fs::read_to_string(file).expect("a kernel file");
        writeln!(source, "#include \"{}\"", file.display()).expect("a string");
        for line in text.lines() {
            let Some(rest) = line.strip_prefix("extern \"C\" __global__ ") else { continue };
            let (_, rest) = rest.split_once("void ").expect("a kernel returns nothing");
            let name = rest.split('(').next().expect("a name");
            writeln!(table, "    ENTRY({name}),").expect("a string");
        }
    }
    source.push_str("#include \"table.h\"\n");
    writeln!(source, "extern \"C\" const Entry fgrpo_emulator_kernels[] = {{\n{table}    {{nullptr, nullptr, nullptr, 0}}}};")
        .expect("a string");
    let unit = Path::new(&out).join("kernels.cpp");
    std::fs::write(&unit, source).expect("the generated file");
    let emulator = Path::new(&root).join("emulator");
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
    let folder = Path::new(&out).join("fake");
    std::fs::create_dir_all(folder.join("cublaslt")).expect("a folder");
    let link = |name: &str, objects: &[std::path::PathBuf], more: &[&str]| {
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
