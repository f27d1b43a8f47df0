//! Matrix products with cuBLASLt, which is loaded at run time. It is part of the CUDA toolkit, not of the driver. Without it, a kernel of this crate
//! computes the products.
//!
//! cuBLASLt stores matrices by columns. The memory of a row-major matrix, read by columns, is its transpose, so `c = a b` is computed as `cᵀ = bᵀ aᵀ`:
//! the operands are swapped, and nothing is copied.
//!
//! The library chooses an algorithm from all sizes, so the bits of a row depend on the number of rows. For an exact product, one algorithm is chosen,
//! without workspace and without split-k, and used for any number of rows. This assumes that the algorithm computes a row in the same way at every
//! position, which NVIDIA doesn't document.

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

/// Environment variable with the path of the library.
const VARIABLE: &str = "FGRPO_CUBLASLT";
/// File names of the library, newest CUDA version first.
const FILES: [&str; 2] = ["libcublasLt.so.13", "libcublasLt.so.12"];
/// Maximum number of cached plans. When it is reached, the least recently used plan is dropped.
const MAX_PLANS: usize = 1024;

/// An NVIDIA library that was found at run time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Library {
    /// Path of the file. Empty if unknown.
    pub path: PathBuf,
    /// Version number as the library reports it.
    pub version: usize,
}

/// Loads cuBLASLt from the path in `FGRPO_CUBLASLT`, or else from the dynamic loader's paths, a CUDA toolkit, or NVIDIA's Python packages. The result of
/// the first call is cached.
pub fn library() -> Result<Library, Error> {
    static LIBRARY: OnceLock<Result<Library, Error>> = OnceLock::new();
    LIBRARY.get_or_init(find).clone()
}

fn find() -> Result<Library, Error> {
    // The loader returns an already loaded library for its name. cudarc opens cuBLASLt by name, so it gets the library loaded here.
    // SAFETY: loading runs the initializers of NVIDIA's library, which have no requirements.
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
    // SAFETY: opens the library by its names, and runs only its initializers.
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
        let (named, other) = (named.display(), path.display());
        return Err(unavailable(format!("{VARIABLE} names {named}, but the loader's paths have {other}")));
    }
    Ok(Library { path, version })
}

/// Returns the file that the code at `address` is mapped from.
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

/// Returns the library folders of CUDA toolkits, and of NVIDIA's packages in the active Python environment and the Pythons on `PATH`.
fn folders() -> Vec<PathBuf> {
    let mut roots: Vec<PathBuf> = ["/usr", "/usr/local"].map(PathBuf::from).into();
    roots.extend(["VIRTUAL_ENV", "CONDA_PREFIX"].iter().filter_map(std::env::var_os).map(PathBuf::from));
    roots.extend(std::env::var_os("HOME").map(|home| Path::new(&home).join(".local")));
    for folder in std::env::var_os("PATH").iter().flat_map(std::env::split_paths) {
        // The interpreter of a virtual environment is a chain of links to the system's Python. Both have packages.
        let mut python = folder.join("python3");
        for _ in 0..4 {
            roots.extend(python.parent().and_then(Path::parent).map(Path::to_owned));
            let Ok(to) = python.read_link() else { break };
            python = python.parent().unwrap_or(Path::new("/")).join(to);
        }
    }
    let children = |folder: &Path, prefix: &str| -> Vec<PathBuf> {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let mut paths: Vec<PathBuf> = entries
            .filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix))
            .map(|entry| entry.path())
            .collect();
        // Newest version first.
        paths.sort_by(|a, b| b.cmp(a));
        paths
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

/// Number of rows for which the algorithm of an exact product is chosen.
const EXACT_ROWS: usize = 256;
/// Largest alignment in bytes that the algorithm of an exact product may rely on: the width of a vector load.
const EXACT_ALIGNMENT: u32 = 16;

/// Properties of a product on which the choice of an algorithm depends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    /// Sizes `m`, `n` and `k` of the product.
    sizes: [usize; 3],
    /// Row strides of `a`, `b`, `c` in elements.
    strides: [usize; 3],
    /// Whether `a` and `b` are transposed.
    transposed: [bool; 2],
    /// Alignment of the addresses of `a`, `b`, the addend, and `c` in bytes, at most 256.
    alignment: [u32; 4],
    numbers: Numbers,
    biased: bool,
    exact: bool,
}

/// Returns the largest power of two that divides `bytes`, at most `max`.
fn alignment(bytes: u64, max: u32) -> u32 {
    (1 << bytes.trailing_zeros().min(31)).min(max)
}

impl Key {
    fn new(p: &Product) -> Key {
        Key {
            sizes: [p.m, p.n, p.k],
            strides: [p.a.stride, p.b.stride, p.c_stride],
            transposed: [p.a.transposed, p.b.transposed],
            alignment: [p.a.at.0, p.b.at.0, p.onto.unwrap_or(p.c).0, p.c.0].map(|at| alignment(at, 256)),
            numbers: p.numbers,
            biased: p.bias.is_some(),
            exact: p.exact,
        }
    }
}

/// Returns the product for which cuBLASLt is asked for an algorithm if `p.exact` is set: `p` with [`EXACT_ROWS`] rows and a contiguous result. Products that
/// differ only in these properties therefore use the same algorithm.
fn typical(p: &Product) -> Product {
    Product { m: EXACT_ROWS, c_stride: p.n, onto: p.onto.map(|_| p.c), ..*p }
}

/// Returns the key of a result of [`typical`]. It doesn't depend on the addresses of `a` and `c`: their alignments are the ones that the strides guarantee
/// for every row.
fn exact_key(typical: &Product) -> Key {
    let (operand, result) = typical.numbers.bytes();
    let row_alignment = |stride: usize, bytes: usize| alignment((stride * bytes) as u64, EXACT_ALIGNMENT);
    let (a, c) = (row_alignment(typical.a.stride, operand), row_alignment(typical.n, result));
    let b = row_alignment(typical.b.stride, operand).min(alignment(typical.b.at.0, EXACT_ALIGNMENT));
    Key { alignment: [a, b, c, c], ..Key::new(typical) }
}

/// cuBLASLt's descriptors of a product, and the algorithm that computes it.
struct Plan {
    description: sys::cublasLtMatmulDesc_t,
    /// Layouts of `b`, `a` and `c`. In column-major cuBLASLt, the left operand is `b`.
    layouts: [sys::cublasLtMatrixLayout_t; 3],
    algorithm: sys::cublasLtMatmulAlgo_t,
}

impl Drop for Plan {
    fn drop(&mut self) {
        // SAFETY: the descriptors that aren't null were created by `Blas::layouts`.
        unsafe {
            let _ = result::destroy_matmul_desc(self.description);
            for layout in self.layouts.into_iter().filter(|layout| !layout.is_null()) {
                let _ = result::destroy_matrix_layout(layout);
            }
        }
    }
}

/// A cuBLASLt handle with its workspace and cached plans.
pub(crate) struct Blas {
    handle: sys::cublasLtHandle_t,
    workspace: u64,
    workspace_bytes: usize,
    plans: Mutex<Plans>,
}

#[derive(Default)]
struct Plans {
    products: u64,
    /// Plans, each with the index of the last product that used it.
    by_key: HashMap<Key, (u64, Plan)>,
    /// Algorithms of exact products, by the key of the typical product. An entry is never replaced.
    exact: HashMap<Key, sys::cublasLtMatmulAlgo_t>,
}

fn failed(call: &str, error: result::CublasError) -> Error {
    Error::Failed { call: format!("cuBLASLt: {call}"), why: error.to_string() }
}

/// Sets an attribute of a product. `T` must be the attribute's type.
fn describe<T>(
    description: sys::cublasLtMatmulDesc_t,
    attribute: Description,
    value: &T,
) -> Result<(), Error> {
    // SAFETY: the call reads `size_of::<T>()` bytes of `value`.
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
    /// Creates a handle, with a workspace from `allocate`. Returns `None` if the library is not installed.
    ///
    /// Returns an error if the library that `FGRPO_CUBLASLT` names can't be loaded, the handle can't be created, or the workspace doesn't fit.
    pub(crate) fn open(
        capability: (i32, i32),
        allocate: impl Fn(usize) -> Result<u64, Error>,
    ) -> Result<Option<Blas>, Error> {
        match library() {
            Ok(_) => {}
            Err(why) if std::env::var_os(VARIABLE).is_some_and(|path| !path.is_empty()) => return Err(why),
            Err(why) => {
                static WARNED: Once = Once::new();
                WARNED.call_once(|| {
                    tracing::warn!("{why}. Matrix products use a plain kernel, which reaches about 1 % of the speed on a large GPU");
                });
                return Ok(None);
            }
        }
        // Sizes that NVIDIA recommends.
        let workspace_bytes = if capability.0 >= 9 { 32 << 20 } else { 4 << 20 };
        let handle = result::create_handle().map_err(|e| failed("start", e))?;
        let mut blas = Blas { handle, workspace: 0, workspace_bytes, plans: Mutex::default() };
        blas.workspace = allocate(workspace_bytes)?;
        Ok(Some(blas))
    }

    /// Submits a product that [`Product::check`] has accepted.
    pub(crate) fn product(&self, p: &Product, stream: driver_sys::CUstream) -> Result<(), Error> {
        let key = Key::new(p);
        let mut plans = self.plans.lock().unwrap_or_else(PoisonError::into_inner);
        plans.products += 1;
        let Plans { products, by_key, exact } = &mut *plans;
        if !by_key.contains_key(&key) {
            let plan = if p.exact { self.exact_plan(p, &key, exact)? } else { self.plan(p, &key)? };
            if by_key.len() == MAX_PLANS {
                let oldest = by_key.iter().min_by_key(|(_, (used, _))| *used).map(|(key, _)| *key);
                oldest.map(|key| by_key.remove(&key));
            }
            by_key.insert(key, (0, plan));
        }
        let (used, plan) = by_key.get_mut(&key).expect("the plan was just inserted");
        *used = *products;
        let (alpha, beta) = (p.alpha, f32::from(u8::from(p.onto.is_some())));
        let [b, a, c] = plan.layouts;
        if let Some(bias) = p.bias {
            describe(plan.description, Description::CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias.0)?;
        }
        // SAFETY: the caller passes addresses of operands with these sizes and strides, and the plan's key has the same ones.
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

    /// Returns the bytes of workspace that a product may use. An exact product uses none, which rules out split-k.
    fn workspace_of(&self, exact: bool) -> usize {
        if exact { 0 } else { self.workspace_bytes }
    }

    /// Creates a plan with the fastest algorithm for these sizes.
    fn plan(&self, p: &Product, key: &Key) -> Result<Plan, Error> {
        let mut plan = self.layouts(p)?;
        plan.algorithm = self.choose(&plan, key)?;
        Ok(plan)
    }

    /// Creates a plan for an exact product, with the algorithm that is used for any number of rows.
    fn exact_plan(
        &self,
        p: &Product,
        key: &Key,
        chosen: &mut HashMap<Key, sys::cublasLtMatmulAlgo_t>,
    ) -> Result<Plan, Error> {
        use sys::cublasLtMatmulAlgoConfigAttributes_t as Config;
        let refusal = |why: String| {
            let call = format!("cuBLASLt: exact product of {} x {} x {} ({:?})", p.m, p.n, p.k, p.numbers);
            Error::Failed { call, why: format!("{why}; without compute.exact another algorithm is chosen") }
        };
        let typical = typical(p);
        let exact_key = exact_key(&typical);
        let mut alignments = exact_key.alignment.into_iter().zip(key.alignment);
        if let Some((required, actual)) = alignments.find(|(required, actual)| actual < required) {
            return Err(refusal(format!(
                "an operand is aligned to {actual} bytes, but the algorithm needs {required}"
            )));
        }
        let algorithm = match chosen.get(&exact_key) {
            Some(&algorithm) => algorithm,
            None => {
                let algorithm = self.plan(&typical, &exact_key)?.algorithm;
                for attribute in
                    [Config::CUBLASLT_ALGO_CONFIG_SPLITK_NUM, Config::CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME]
                {
                    let (mut value, mut written) = (0u32, 0);
                    let at = (&raw mut value).cast();
                    // SAFETY: both attributes are 32-bit integers.
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
                    .map_err(|e| failed("reading an algorithm's attributes", e))?;
                    // 0 and 1 both mean that k is not split.
                    if value > u32::from(attribute == Config::CUBLASLT_ALGO_CONFIG_SPLITK_NUM) {
                        return Err(refusal("the library only has algorithms with split-k".to_owned()));
                    }
                }
                *chosen.entry(exact_key).or_insert(algorithm)
            }
        };
        let mut plan = self.layouts(p)?;
        plan.algorithm = algorithm;
        let [b, a, c] = plan.layouts;
        let mut checked = MaybeUninit::<sys::cublasLtMatmulHeuristicResult_t>::zeroed();
        // SAFETY: the descriptors are alive, and the call writes one result.
        let checked = unsafe {
            let algorithm = &raw const plan.algorithm;
            sys::cublasLtMatmulAlgoCheck(
                self.handle,
                plan.description,
                b,
                a,
                c,
                c,
                algorithm,
                checked.as_mut_ptr(),
            )
            .result()
            .map_err(|e| {
                refusal(format!("the algorithm for {EXACT_ROWS} rows doesn't support these sizes: {e}"))
            })?;
            checked.assume_init()
        };
        match checked.workspaceSize {
            0 => Ok(plan),
            bytes => Err(refusal(format!(
                "the algorithm for {EXACT_ROWS} rows needs a workspace of {bytes} bytes here"
            ))),
        }
    }

    /// Creates the descriptors of a plan. The algorithm is left unset.
    fn layouts(&self, p: &Product) -> Result<Plan, Error> {
        let (operand, result_type) = match p.numbers {
            Numbers::F32 => (sys::cudaDataType_t::CUDA_R_32F, sys::cudaDataType_t::CUDA_R_32F),
            Numbers::Bf16 => (sys::cudaDataType_t::CUDA_R_16BF, sys::cudaDataType_t::CUDA_R_16BF),
            Numbers::Bf16ToF32 => (sys::cudaDataType_t::CUDA_R_16BF, sys::cudaDataType_t::CUDA_R_32F),
        };
        // cuBLASLt reads memory by columns, so it sees the rows of a row-major matrix as columns.
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
        // On an error below, dropping the plan frees the descriptors.
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
            // cuBLASLt adds the bias to every column of `cᵀ`, which is a row of `c`.
            let epilogue = sys::cublasLtEpilogue_t::CUBLASLT_EPILOGUE_BIAS as i32;
            describe(description, Description::CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue)?;
            describe(description, Description::CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias.0)?;
        }
        Ok(plan)
    }

    /// Returns the algorithm that the library's heuristic ranks first.
    fn choose(&self, plan: &Plan, key: &Key) -> Result<sys::cublasLtMatmulAlgo_t, Error> {
        let preference = result::create_matmul_pref().map_err(|e| failed("preference", e))?;
        let chosen = self.preferred(plan, key, preference);
        // SAFETY: the preference was created above.
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
            // SAFETY: `value` points to `bytes` bytes, the attribute's size.
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
        // The library assumes addresses aligned to 256 bytes by default.
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
        // SAFETY: the descriptors and the preference are alive.
        unsafe { result::get_matmul_algo_heuristic(self.handle, plan.description, b, a, c, c, preference) }
            .map(|best| best.algo)
            .map_err(|e| failed("choosing an algorithm", e))
    }
}

impl Drop for Blas {
    fn drop(&mut self) {
        self.plans.lock().unwrap_or_else(PoisonError::into_inner).by_key.clear();
        // SAFETY: both were created by `open`; `Gpu::drop` has made the context current and waited for all work.
        unsafe {
            if self.workspace != 0 {
                let _ = driver::free_sync(self.workspace);
            }
            let _ = result::destroy_handle(self.handle);
        }
    }
}
