//! Matrix products by cuBLASLt, which is loaded at run time. It comes with CUDA, not with the driver; without it, our own kernel computes products.
//!
//! cuBLASLt uses column-major matrices; a row-major matrix is the transpose of the column-major one in the same memory. So `c = a b` is computed as
//! `cᵀ = bᵀ aᵀ`: the operands are swapped and nothing is copied.

use crate::launch::Error;
use crate::product::{Matrix, Numbers, Product};
use cudarc::cublaslt::{result, sys};
use cudarc::driver::{result as driver, sys as driver_sys};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::c_void;
use std::sync::{Mutex, PoisonError};

/// The properties that decide which algorithm is the fastest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    sizes: [usize; 3],
    strides: [usize; 3],
    transposed: [bool; 2],
    /// Alignment of each operand's address in bytes, up to 256.
    alignment: [u32; 3],
    numbers: Numbers,
    add: bool,
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
        // SAFETY: they were made by `plan`.
        unsafe {
            let _ = result::destroy_matmul_desc(self.description);
            for layout in self.layouts {
                let _ = result::destroy_matrix_layout(layout);
            }
        }
    }
}

/// The library, its workspace, and the plans so far.
pub(crate) struct Blas {
    handle: sys::cublasLtHandle_t,
    workspace: u64,
    workspace_bytes: usize,
    plans: Mutex<HashMap<Key, Plan>>,
}

fn failed(call: &str, error: result::CublasError) -> Error {
    Error::Failed { call: format!("cuBLASLt: {call}"), why: error.to_string() }
}

impl Blas {
    /// Loads the library. `None` if it is not installed.
    ///
    /// # Errors
    /// If it doesn't start, or its workspace doesn't fit.
    pub(crate) fn open(capability: (i32, i32)) -> Result<Option<Blas>, Error> {
        // SAFETY: looks for the library by its names and opens it.
        if !unsafe { sys::is_culib_present() } {
            return Ok(None);
        }
        let handle = result::create_handle().map_err(|e| failed("start", e))?;
        // NVIDIA's recommendation by chip.
        let workspace_bytes = if capability.0 >= 9 { 32 << 20 } else { 4 << 20 };
        // SAFETY: the caller has made its context current.
        let workspace = unsafe { driver::malloc_sync(workspace_bytes) }.map_err(|e| Error::Failed {
            call: "allocating cuBLASLt's workspace".to_owned(),
            why: format!("{e:?}"),
        })?;
        Ok(Some(Blas { handle, workspace, workspace_bytes, plans: Mutex::default() }))
    }

    /// Submits a product that has been checked.
    pub(crate) fn product(&self, p: &Product, stream: driver_sys::CUstream) -> Result<(), Error> {
        let aligned = |at: u64| 1u32 << at.trailing_zeros().min(8);
        let key = Key {
            sizes: [p.m, p.n, p.k],
            strides: [p.a.stride, p.b.stride, p.c_stride],
            transposed: [p.a.transposed, p.b.transposed],
            alignment: [p.a.at.0, p.b.at.0, p.c.0].map(aligned),
            numbers: p.numbers,
            add: p.add,
        };
        let mut plans = self.plans.lock().unwrap_or_else(PoisonError::into_inner);
        let plan = match plans.entry(key) {
            Entry::Occupied(made) => made.into_mut(),
            Entry::Vacant(place) => place.insert(self.plan(p, &key)?),
        };
        let (alpha, beta) = (p.alpha, f32::from(u8::from(p.add)));
        let [b, a, c] = plan.layouts;
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
                p.c.0 as *const c_void,
                c,
                p.c.0 as *mut c_void,
                c,
                &raw const plan.algorithm,
                self.workspace as *mut c_void,
                self.workspace_bytes,
                stream.cast(),
            )
        }
        .map_err(|e| failed("product", e))
    }

    fn plan(&self, p: &Product, key: &Key) -> Result<Plan, Error> {
        use sys::cublasLtMatmulDescAttributes_t as Description;
        use sys::cublasLtMatmulPreferenceAttributes_t as Preference;
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
        let b = layout(operand, p.b, p.k, p.n)?;
        let a = layout(operand, p.a, p.m, p.k)?;
        let c = layout(result_type, Matrix::rows(p.c, p.c_stride), p.m, p.n)?;
        for (attribute, transposed) in [
            (Description::CUBLASLT_MATMUL_DESC_TRANSA, p.b.transposed),
            (Description::CUBLASLT_MATMUL_DESC_TRANSB, p.a.transposed),
        ] {
            let operation = i32::from(transposed);
            // SAFETY: the attribute is a 32-bit number, of which one is given.
            unsafe {
                result::set_matmul_desc_attribute(
                    description,
                    attribute,
                    (&raw const operation).cast::<c_void>(),
                    size_of::<i32>(),
                )
            }
            .map_err(|e| failed("description", e))?;
        }
        let preference = result::create_matmul_pref().map_err(|e| failed("preference", e))?;
        let set = |attribute, value: *const c_void, bytes| {
            // SAFETY: each attribute is given a number of its size.
            unsafe { result::set_matmul_pref_attribute(preference, attribute, value, bytes) }
                .map_err(|e| failed("preference", e))
        };
        let bytes = self.workspace_bytes;
        set(
            Preference::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
            (&raw const bytes).cast::<c_void>(),
            size_of::<usize>(),
        )?;
        // Unless told otherwise the library takes every address for a multiple of 256.
        let [a_bytes, b_bytes, c_bytes] = key.alignment;
        for (attribute, alignment) in [
            (Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, b_bytes),
            (Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, a_bytes),
            (Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, c_bytes),
            (Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, c_bytes),
        ] {
            set(attribute, (&raw const alignment).cast::<c_void>(), size_of::<u32>())?;
        }
        // SAFETY: all of them were just made.
        let found = unsafe {
            let found = result::get_matmul_algo_heuristic(self.handle, description, b, a, c, c, preference);
            let _ = result::destroy_matmul_pref(preference);
            found.map_err(|e| failed("choosing an algorithm", e))?
        };
        Ok(Plan { description, layouts: [b, a, c], algorithm: found.algo })
    }
}

impl Drop for Blas {
    fn drop(&mut self) {
        self.plans.lock().unwrap_or_else(PoisonError::into_inner).clear();
        // SAFETY: made by `open`; the GPU has made its context current and waited for its work.
        unsafe {
            let _ = driver::free_sync(self.workspace);
            let _ = result::destroy_handle(self.handle);
        }
    }
}
