//! The system's BLAS, for the large products of an update: Accelerate on macOS, elsewhere OpenBLAS or BLIS. It is loaded when it is first needed.

use std::error::Error as _;
use std::ffi::OsString;
use std::sync::OnceLock;

use super::microkernel::{Operand, Output};
use crate::error::Error;

/// Environment variable with the path of a library that has `cblas_sgemm` with 32-bit sizes.
const VARIABLE: &str = "FGRPO_BLAS";
const NAMES: &[&str] = if cfg!(target_os = "macos") {
    &["/System/Library/Frameworks/Accelerate.framework/Accelerate"]
} else {
    &["libopenblas.so.0", "libblis.so.4"]
};

const ROW_MAJOR: i32 = 101;
const NO_TRANSPOSE: i32 = 111;
const TRANSPOSE: i32 = 112;

type Sgemm = unsafe extern "C" fn(
    i32,
    i32,
    i32,
    i32,
    i32,
    i32,
    f32,
    *const f32,
    i32,
    *const f32,
    i32,
    f32,
    *mut f32,
    i32,
);

pub(crate) struct Blas {
    pub(crate) name: String,
    sgemm: Sgemm,
}

/// Returns the library, which the first call loads, or an error that names the libraries that couldn't be loaded.
pub(crate) fn library() -> Result<&'static Blas, Error> {
    static BLAS: OnceLock<Result<Blas, String>> = OnceLock::new();
    BLAS.get_or_init(load).as_ref().map_err(|why| Error::Blas(why.clone()))
}

fn load() -> Result<Blas, String> {
    let names: Vec<OsString> = match std::env::var_os(VARIABLE).filter(|path| !path.is_empty()) {
        Some(path) => vec![path],
        None => NAMES.iter().map(OsString::from).collect(),
    };
    let mut failed = Vec::new();
    for name in names {
        // SAFETY: the initializers of a BLAS have no requirements, and `cblas_sgemm` has this type in all of them.
        let found = unsafe {
            libloading::Library::new(&name).and_then(|library| {
                let sgemm = *library.get::<Sgemm>(b"cblas_sgemm\0")?;
                std::mem::forget(library);
                Ok(sgemm)
            })
        };
        match found {
            Ok(sgemm) => return Ok(Blas { name: name.to_string_lossy().into_owned(), sgemm }),
            Err(why) => failed.push(why.source().map_or_else(|| why.to_string(), ToString::to_string)),
        }
    }
    Err(failed.join("; "))
}

impl Blas {
    /// Computes `c = a b` or `c += a b`, where `a` is `[m, k]` and `b` is `[k, n]`.
    ///
    /// # Safety
    /// See [`product`](super::panels::product).
    pub(crate) unsafe fn product(&self, [m, n, k]: [usize; 3], a: Operand, b: Operand, c: Output) {
        let int = |size: usize| i32::try_from(size).expect("sizes below 2^31");
        // Order and distance of the lines of an operand with these strides and this number of columns. A row of one value may have any stride.
        let order = |row: usize, column: usize, columns: usize| {
            if column == 1 && row >= columns { (NO_TRANSPOSE, int(row)) } else { (TRANSPOSE, int(column)) }
        };
        let ((a_order, a_stride), (b_order, b_stride)) = (order(a.line, a.term, k), order(b.term, b.line, n));
        let (m, n, k, beta) = (int(m), int(n), int(k), if c.add { 1.0 } else { 0.0 });
        // SAFETY: the caller guarantees it.
        unsafe {
            (self.sgemm)(
                ROW_MAJOR,
                a_order,
                b_order,
                m,
                n,
                k,
                1.0,
                a.first,
                a_stride,
                b.first,
                b_stride,
                beta,
                c.first,
                int(c.stride),
            );
        }
    }
}
