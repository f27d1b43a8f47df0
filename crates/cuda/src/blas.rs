//! Matrix products by cuBLASLt, which is loaded at run time. It comes with CUDA, not with the driver; without it, our own kernel computes products.
//!
//! cuBLASLt uses column-major matrices; a row-major matrix is the transpose of the column-major one in the same memory. So `c = a b` is computed as
//! `cᵀ = bᵀ aᵀ`: the operands are swapped and nothing is copied.
//!
//! The library chooses an algorithm by all sizes, so the bits of a row depend on the number of rows. For an exact product we choose an algorithm once, without
//! workspace and without split sums, and use it for any number of rows. We assume that it computes a row in the same way wherever it stands; NVIDIA doesn't document this.

use crate::launch::Error;
use crate::product::{Matrix, Numbers, Product};
use cudarc::cublaslt::result;
use cudarc::cublaslt::sys::{self, cublasLtMatmulDescAttributes_t as Description};
use cudarc::driver::{result as driver, sys as driver_sys};
use std::collections::HashMap;
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, Once, OnceLock, PoisonError};

/// The environment variable that names the library's file.
const VARIABLE: &str = "FGRPO_CUBLASLT";
/// Its file names, by CUDA version.
const FILES: [&str; 2] = ["libcublasLt.so.13", "libcublasLt.so.12"];
/// Maximum number of plans; then the least recently used one is dropped.
const KEPT: usize = 1024;

/// An NVIDIA library that was found at run time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Library {
    /// Its file.
    pub path: PathBuf,
    /// Its version, as the library numbers it.
    pub version: usize,
}

/// Loads cuBLASLt: the file that `FGRPO_CUBLASLT` names, or that of the loader's paths, of a CUDA toolkit, or of an installed Python.
pub fn library() -> Result<Library, Error> {
    static FOUND: OnceLock<Result<Library, Error>> = OnceLock::new();
    FOUND.get_or_init(find).clone()
}

fn find() -> Result<Library, Error> {
    // A library that is loaded is found by its name from then on, also by cudarc, which asks for it by name.
    // SAFETY: opens libraries, whose initialization is their own.
    let load = |path: &Path| match unsafe { libloading::Library::new(path) } {
        Ok(library) => {
            std::mem::forget(library);
            Ok(())
        }
        Err(why) => Err(format!("{why:?}")),
    };
    let unavailable = |why: String| Error::Unavailable(format!("cuBLASLt: {why}"));
    let named = std::env::var_os(VARIABLE).filter(|path| !path.is_empty());
    if let Some(path) = &named {
        load(Path::new(path)).map_err(|why| unavailable(format!("{VARIABLE}: {why}")))?;
    }
    // SAFETY: looks for the library by its names and opens it.
    let present = || unsafe { sys::is_culib_present() };
    let folders = folders();
    let mut files = folders.iter().flat_map(|folder| FILES.map(|file| folder.join(file)));
    if !present() && !files.any(|file| load(&file).is_ok() && present()) {
        return Err(unavailable(format!(
            "not found by the loader or in {} folders of CUDA toolkits and Python packages; {VARIABLE} can name its file",
            folders.len()
        )));
    }
    // SAFETY: the library is present.
    let (version, at) = unsafe {
        let function = sys::culib().get::<unsafe extern "C" fn() -> usize>(b"cublasLtGetVersion\0");
        let function = *function.map_err(|e| unavailable(e.to_string()))?;
        (function(), function as usize)
    };
    let path = file_at(at).unwrap_or_default();
    let canonical = |path: &Path| path.canonicalize().ok();
    if let Some(named) = named.map(PathBuf::from).filter(|named| canonical(named) != canonical(&path)) {
        let (named, found) = (named.display(), path.display());
        return Err(unavailable(format!("{VARIABLE} names {named}, but the loader's paths have {found}")));
    }
    Ok(Library { path, version })
}

/// The file from which the code at an address comes.
pub(crate) fn file_at(address: usize) -> Option<PathBuf> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let holds = |line: &&str| {
        let range = line.split(' ').next().and_then(|range| range.split_once('-'));
        let parse = |end: &str| usize::from_str_radix(end, 16).unwrap_or(0);
        range.is_some_and(|(first, last)| (parse(first)..parse(last)).contains(&address))
    };
    let line = maps.lines().find(holds)?;
    Some(PathBuf::from(&line[line.find('/')?..]))
}

/// The folders of CUDA toolkits, and of NVIDIA's packages in Pythons on `PATH` or in use.
fn folders() -> Vec<PathBuf> {
    let mut roots: Vec<PathBuf> = ["/usr", "/usr/local"].map(PathBuf::from).into();
    roots.extend(["VIRTUAL_ENV", "CONDA_PREFIX"].iter().filter_map(std::env::var_os).map(PathBuf::from));
    roots.extend(std::env::var_os("HOME").map(|home| Path::new(&home).join(".local")));
    for folder in std::env::var_os("PATH").iter().flat_map(std::env::split_paths) {
        // A link to the interpreter of a virtual environment leads to its folder, and further to the system's Python.
        let mut python = folder.join("python3");
        for _ in 0..4 {
            roots.extend(python.parent().and_then(Path::parent).map(Path::to_owned));
            let Ok(to) = python.read_link() else { break };
            python = python.parent().unwrap_or(Path::new("/")).join(to);
        }
    }
    let children = |folder: &Path, prefix: &str| -> Vec<PathBuf> {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let mut found: Vec<PathBuf> = entries
            .filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix))
            .map(|entry| entry.path())
            .collect();
        // The newest version first.
        found.sort_by(|a, b| b.cmp(a));
        found
    };
    let mut folders: Vec<PathBuf> =
        children(Path::new("/usr/local"), "cuda").into_iter().map(|cuda| cuda.join("lib64")).collect();
    for python in roots.iter().flat_map(|root| children(&root.join("lib"), "python3")) {
        for packages in ["site-packages", "dist-packages"] {
            let nvidia = python.join(packages).join("nvidia");
            folders.extend(["cu13/lib", "cu12/lib", "cublas/lib"].map(|folder| nvidia.join(folder)));
        }
    }
    let mut seen = std::collections::HashSet::new();
    folders.retain(|folder| folder.is_dir() && seen.insert(folder.clone()));
    folders
}

/// Rows for which an exact product's algorithm is chosen.
const EXACT_ROWS: usize = 256;
/// The greatest alignment in bytes that such an algorithm relies on: what one load takes.
const EXACT_ALIGNMENT: u32 = 16;

/// The properties that decide which algorithm is the fastest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    sizes: [usize; 3],
    strides: [usize; 3],
    transposed: [bool; 2],
    /// Alignment of each operand's address in bytes, up to 256: of a, b, what is added, c.
    alignment: [u32; 4],
    numbers: Numbers,
    biased: bool,
    exact: bool,
}

/// A power of two that divides a number of bytes, up to `most`.
fn aligned(bytes: u64, most: u32) -> u32 {
    (1 << bytes.trailing_zeros().min(31)).min(most)
}

impl Key {
    fn of(p: &Product) -> Key {
        Key {
            sizes: [p.m, p.n, p.k],
            strides: [p.a.stride, p.b.stride, p.c_stride],
            transposed: [p.a.transposed, p.b.transposed],
            alignment: [p.a.at.0, p.b.at.0, p.onto.unwrap_or(p.c).0, p.c.0].map(|at| aligned(at, 256)),
            numbers: p.numbers,
            biased: p.bias.is_some(),
            exact: p.exact,
        }
    }
}

/// The product for which an exact product's algorithm is chosen: the same for any number of rows, wherever they stand.
fn typical(p: &Product) -> Product {
    Product { m: EXACT_ROWS, c_stride: p.n, onto: p.onto.map(|_| p.c), ..*p }
}

/// Alignments that follow from the sizes of a typical product.
fn exact_key(typical: &Product) -> Key {
    let (operand, result) = typical.numbers.bytes();
    let of = |numbers: usize, bytes: usize| aligned((numbers * bytes) as u64, EXACT_ALIGNMENT);
    let (a, c) = (of(typical.a.stride, operand), of(typical.n, result));
    let b = of(typical.b.stride, operand).min(aligned(typical.b.at.0, EXACT_ALIGNMENT));
    Key { alignment: [a, b, c, c], ..Key::of(typical) }
}

/// Descriptions of a product's operands, and its algorithm.
struct Plan {
    description: sys::cublasLtMatmulDesc_t,
    /// In cuBLASLt's order: our b, our a, c.
    layouts: [sys::cublasLtMatrixLayout_t; 3],
    algorithm: sys::cublasLtMatmulAlgo_t,
}

impl Drop for Plan {
    fn drop(&mut self) {
        // SAFETY: they were made by `plan`, those that aren't null.
        unsafe {
            let _ = result::destroy_matmul_desc(self.description);
            for layout in self.layouts.into_iter().filter(|layout| !layout.is_null()) {
                let _ = result::destroy_matrix_layout(layout);
            }
        }
    }
}

/// The library, its workspace, and its plans.
pub(crate) struct Blas {
    handle: sys::cublasLtHandle_t,
    workspace: u64,
    workspace_bytes: usize,
    plans: Mutex<Plans>,
}

#[derive(Default)]
struct Plans {
    products: u64,
    /// Each with the number of the last product that used it.
    by_key: HashMap<Key, (u64, Plan)>,
    /// Plans of exact products, by the key of the typical one. They are chosen only once.
    exact: HashMap<Key, sys::cublasLtMatmulAlgo_t>,
}

fn failed(call: &str, error: result::CublasError) -> Error {
    Error::Failed { call: format!("cuBLASLt: {call}"), why: error.to_string() }
}

/// Sets an attribute of a product, which is a number of this size.
fn describe<T>(
    description: sys::cublasLtMatmulDesc_t,
    attribute: Description,
    value: &T,
) -> Result<(), Error> {
    // SAFETY: the attribute's bytes are those of the value.
    unsafe {
        result::set_matmul_desc_attribute(
            description,
            attribute,
            std::ptr::from_ref(value).cast(),
            size_of::<T>(),
        )
    }
    .map_err(|e| failed("description", e))
}

impl Blas {
    /// Starts the library, with a workspace from `allocate`. `None` if it is not installed.
    /// Fails if the named one isn't found, it doesn't start, or its workspace doesn't fit.
    pub(crate) fn open(
        capability: (i32, i32),
        allocate: impl Fn(usize) -> Result<u64, Error>,
    ) -> Result<Option<Blas>, Error> {
        match library() {
            Ok(_) => {}
            Err(why) if std::env::var_os(VARIABLE).is_some_and(|path| !path.is_empty()) => return Err(why),
            Err(why) => {
                static TOLD: Once = Once::new();
                TOLD.call_once(|| {
                    tracing::warn!("{why}. Our plain kernel computes matrix products: on a large GPU at about 1 % of the speed");
                });
                return Ok(None);
            }
        }
        // NVIDIA's recommendation by chip.
        let workspace_bytes = if capability.0 >= 9 { 32 << 20 } else { 4 << 20 };
        let handle = result::create_handle().map_err(|e| failed("start", e))?;
        let mut blas = Blas { handle, workspace: 0, workspace_bytes, plans: Mutex::default() };
        blas.workspace = allocate(workspace_bytes)?;
        Ok(Some(blas))
    }

    /// Submits a product that has been checked.
    pub(crate) fn product(&self, p: &Product, stream: driver_sys::CUstream) -> Result<(), Error> {
        let key = Key::of(p);
        let mut plans = self.plans.lock().unwrap_or_else(PoisonError::into_inner);
        plans.products += 1;
        let Plans { products, by_key, exact } = &mut *plans;
        if !by_key.contains_key(&key) {
            let plan = if p.exact { self.exact_plan(p, &key, exact)? } else { self.plan(p, &key)? };
            if by_key.len() == KEPT {
                let oldest = by_key.iter().min_by_key(|(_, (used, _))| *used).map(|(key, _)| *key);
                oldest.map(|key| by_key.remove(&key));
            }
            by_key.insert(key, (0, plan));
        }
        let (used, plan) = by_key.get_mut(&key).expect("it was just made");
        *used = *products;
        let (alpha, beta) = (p.alpha, f32::from(u8::from(p.onto.is_some())));
        let [b, a, c] = plan.layouts;
        if let Some(bias) = p.bias {
            describe(plan.description, Description::CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias.0)?;
        }
        // SAFETY: the operands' extents were checked by the caller's memory; the layouts and the algorithm belong to these sizes.
        unsafe {
            result::matmul(
                self.handle,
                plan.description,
                (&raw const alpha).cast::<c_void>(),
                (&raw const beta).cast::<c_void>(),
                p.b.at.0 as *const c_void,
                b,
                p.a.at.0 as *const c_void,
                a,
                p.onto.unwrap_or(p.c).0 as *const c_void,
                c,
                p.c.0 as *mut c_void,
                c,
                &raw const plan.algorithm,
                self.workspace as *mut c_void,
                self.workspace_of(p.exact),
                stream.cast(),
            )
        }
        .map_err(|e| failed("product", e))
    }

    /// Bytes of workspace that a product may use for split sums.
    fn workspace_of(&self, exact: bool) -> usize {
        if exact { 0 } else { self.workspace_bytes }
    }

    /// A plan with the fastest algorithm.
    fn plan(&self, p: &Product, key: &Key) -> Result<Plan, Error> {
        let mut plan = self.layouts(p)?;
        plan.algorithm = self.choose(&plan, key)?;
        Ok(plan)
    }

    /// A plan with the algorithm for any number of rows.
    fn exact_plan(
        &self,
        p: &Product,
        key: &Key,
        chosen: &mut HashMap<Key, sys::cublasLtMatmulAlgo_t>,
    ) -> Result<Plan, Error> {
        use sys::cublasLtMatmulAlgoConfigAttributes_t as Config;
        let refused = |why: String| {
            let call = format!("cuBLASLt: exact product of {} x {} x {} ({:?})", p.m, p.n, p.k, p.numbers);
            Error::Failed { call, why: format!("{why}; without compute.exact another algorithm is chosen") }
        };
        let typical = typical(p);
        let wanted = exact_key(&typical);
        if let Some((of, found)) =
            wanted.alignment.into_iter().zip(key.alignment).find(|(of, found)| found < of)
        {
            return Err(refused(format!("an operand at a multiple of {found} bytes, wanted of {of}")));
        }
        let algorithm = match chosen.get(&wanted) {
            Some(&algorithm) => algorithm,
            None => {
                let algorithm = self.plan(&typical, &wanted)?.algorithm;
                for attribute in
                    [Config::CUBLASLT_ALGO_CONFIG_SPLITK_NUM, Config::CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME]
                {
                    let (mut found, mut written) = (0u32, 0);
                    let at = (&raw mut found).cast();
                    // SAFETY: both attributes are numbers of 32 bits.
                    unsafe {
                        sys::cublasLtMatmulAlgoConfigGetAttribute(
                            &raw const algorithm,
                            attribute,
                            at,
                            4,
                            &raw mut written,
                        )
                    }
                    .result()
                    .map_err(|e| failed("asking for an algorithm's settings", e))?;
                    // One part is 0 or 1.
                    if found > u32::from(attribute == Config::CUBLASLT_ALGO_CONFIG_SPLITK_NUM) {
                        return Err(refused(
                            "the library has only algorithms that sum in several parts".to_owned(),
                        ));
                    }
                }
                *chosen.entry(wanted).or_insert(algorithm)
            }
        };
        let mut plan = self.layouts(p)?;
        plan.algorithm = algorithm;
        let [b, a, c] = plan.layouts;
        let mut found = MaybeUninit::<sys::cublasLtMatmulHeuristicResult_t>::zeroed();
        // SAFETY: all of them live, and the result has room for what is written.
        let found = unsafe {
            let algorithm = &raw const plan.algorithm;
            sys::cublasLtMatmulAlgoCheck(
                self.handle,
                plan.description,
                b,
                a,
                c,
                c,
                algorithm,
                found.as_mut_ptr(),
            )
            .result()
            .map_err(|e| refused(format!("the algorithm of {EXACT_ROWS} rows doesn't compute these: {e}")))?;
            found.assume_init()
        };
        match found.workspaceSize {
            0 => Ok(plan),
            bytes => Err(refused(format!(
                "the algorithm of {EXACT_ROWS} rows wants a workspace of {bytes} bytes here"
            ))),
        }
    }

    /// Descriptions of the operands, without an algorithm.
    fn layouts(&self, p: &Product) -> Result<Plan, Error> {
        let (operand, result_type) = match p.numbers {
            Numbers::F32 => (sys::cudaDataType_t::CUDA_R_32F, sys::cudaDataType_t::CUDA_R_32F),
            Numbers::Bf16 => (sys::cudaDataType_t::CUDA_R_16BF, sys::cudaDataType_t::CUDA_R_16BF),
            Numbers::Bf16ToF32 => (sys::cudaDataType_t::CUDA_R_16BF, sys::cudaDataType_t::CUDA_R_32F),
        };
        // By columns: the rows in memory are its columns.
        let layout = |kind, matrix: Matrix, rows: usize, columns: usize| {
            let (rows, columns) = if matrix.transposed { (columns, rows) } else { (rows, columns) };
            result::create_matrix_layout(kind, columns as u64, rows as u64, matrix.stride as i64)
                .map_err(|e| failed("layout", e))
        };
        let description = result::create_matmul_desc(
            sys::cublasComputeType_t::CUBLAS_COMPUTE_32F,
            sys::cudaDataType_t::CUDA_R_32F,
        )
        .map_err(|e| failed("description", e))?;
        // From here on, what has been made so far is freed on an error.
        let mut plan = Plan {
            description,
            layouts: [std::ptr::null_mut(); 3],
            algorithm: sys::cublasLtMatmulAlgo_t { data: [0; 8] },
        };
        plan.layouts[0] = layout(operand, p.b, p.k, p.n)?;
        plan.layouts[1] = layout(operand, p.a, p.m, p.k)?;
        plan.layouts[2] = layout(result_type, Matrix::rows(p.c, p.c_stride), p.m, p.n)?;
        for (attribute, transposed) in [
            (Description::CUBLASLT_MATMUL_DESC_TRANSA, p.b.transposed),
            (Description::CUBLASLT_MATMUL_DESC_TRANSB, p.a.transposed),
        ] {
            describe(description, attribute, &i32::from(transposed))?;
        }
        if let Some(bias) = p.bias {
            // By columns, a row of ours is a column, so every column gets the bias.
            let epilogue = sys::cublasLtEpilogue_t::CUBLASLT_EPILOGUE_BIAS as i32;
            describe(description, Description::CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue)?;
            describe(description, Description::CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias.0)?;
        }
        Ok(plan)
    }

    /// The fastest algorithm.
    fn choose(&self, plan: &Plan, key: &Key) -> Result<sys::cublasLtMatmulAlgo_t, Error> {
        let preference = result::create_matmul_pref().map_err(|e| failed("preference", e))?;
        let chosen = self.preferred(plan, key, preference);
        // SAFETY: it was just made.
        let _ = unsafe { result::destroy_matmul_pref(preference) };
        chosen
    }

    fn preferred(
        &self,
        plan: &Plan,
        key: &Key,
        preference: sys::cublasLtMatmulPreference_t,
    ) -> Result<sys::cublasLtMatmulAlgo_t, Error> {
        use sys::cublasLtMatmulPreferenceAttributes_t as Preference;
        let set = |attribute, value: *const c_void, bytes| {
            // SAFETY: each attribute is given a number of its size.
            unsafe { result::set_matmul_pref_attribute(preference, attribute, value, bytes) }
                .map_err(|e| failed("preference", e))
        };
        let bytes = self.workspace_of(key.exact);
        let workspace = (&raw const bytes).cast::<c_void>();
        set(Preference::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace, size_of::<usize>())?;
        if key.exact {
            let none = sys::cublasLtReductionScheme_t::CUBLASLT_REDUCTION_SCHEME_NONE as u32;
            let schemes = (&raw const none).cast::<c_void>();
            set(Preference::CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, schemes, size_of::<u32>())?;
        }
        // Unless told otherwise the library takes every address for a multiple of 256.
        let [a_bytes, b_bytes, onto_bytes, c_bytes] = key.alignment;
        for (attribute, alignment) in [
            (Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, b_bytes),
            (Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, a_bytes),
            (Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, onto_bytes),
            (Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, c_bytes),
        ] {
            set(attribute, (&raw const alignment).cast::<c_void>(), size_of::<u32>())?;
        }
        let [b, a, c] = plan.layouts;
        // SAFETY: all of them live.
        unsafe { result::get_matmul_algo_heuristic(self.handle, plan.description, b, a, c, c, preference) }
            .map(|found| found.algo)
            .map_err(|e| failed("choosing an algorithm", e))
    }
}

impl Drop for Blas {
    fn drop(&mut self) {
        self.plans.lock().unwrap_or_else(PoisonError::into_inner).by_key.clear();
        // SAFETY: made by `open`; the GPU has made its context current and waited for its work.
        unsafe {
            if self.workspace != 0 {
                let _ = driver::free_sync(self.workspace);
            }
            let _ = result::destroy_handle(self.handle);
        }
    }
}
