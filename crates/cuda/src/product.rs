//! Matrix products: the layout of the operands in memory, and the launch of this crate's kernel, which is used without cuBLASLt.

use crate::kernels::{self, Kernel as _};
use crate::launch::{Address, Error, Launch, Shape};
use crate::pointer::{Pointer, Values};

/// A row-major matrix. Consecutive rows start `stride` elements after each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Matrix {
    /// Address of the first element.
    pub at: Address,
    /// Distance between rows in memory, in elements.
    pub stride: usize,
    /// Whether the operand is the transpose of this matrix.
    pub transposed: bool,
}

impl Matrix {
    /// Returns a matrix that is not transposed.
    pub fn rows(at: Address, stride: usize) -> Self {
        Self { at, stride, transposed: false }
    }

    /// Returns the transpose, which has the same memory.
    #[must_use]
    pub fn transposed(self) -> Self {
        Self { transposed: !self.transposed, ..self }
    }
}

/// The operands' number types. Products are summed in f32.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Numbers {
    /// All f32.
    F32,
    /// All bf16.
    Bf16,
    /// `a` and `b` in bf16, `c` in f32: logits and gradients.
    Bf16ToF32,
}

impl Numbers {
    /// Returns the bytes of an element of `a` or `b`, and of an element of `c`.
    pub fn bytes(self) -> (usize, usize) {
        match self {
            Numbers::F32 => (4, 4),
            Numbers::Bf16 => (2, 2),
            Numbers::Bf16ToF32 => (2, 4),
        }
    }
}

/// `c = alpha a b + onto + bias`: `a` is `[m, k]`, `b` is `[k, n]`, `c` and `onto` are `[m, n]`, `bias` is `[n]`. The result is rounded to `c`'s type once.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Product {
    /// Rows of `c`.
    pub m: usize,
    /// Columns of `c`.
    pub n: usize,
    /// Columns of `a` and rows of `b`.
    pub k: usize,
    /// The left operand.
    pub a: Matrix,
    /// The right operand.
    pub b: Matrix,
    /// The result.
    pub c: Address,
    /// Distance between rows of `c`, in elements.
    pub c_stride: usize,
    /// Factor of `a b`.
    pub alpha: f32,
    /// The addend, with the number type and row stride of `c`: `c` itself, or a matrix that doesn't overlap it.
    pub onto: Option<Address>,
    /// A vector added to every row, with the number type of `c`.
    pub bias: Option<Address>,
    /// Number types.
    pub numbers: Numbers,
    /// Whether the bits of a row of `c` must not depend on the number of rows. If so, cuBLASLt's algorithm is chosen once for all numbers of rows.
    pub exact: bool,
}

impl Product {
    /// Returns the product `c = a b`, without a bias or an addend and with an `alpha` of 1.
    pub fn new([m, n, k]: [usize; 3], a: Matrix, b: Matrix, c: Matrix, numbers: Numbers) -> Self {
        let (c, c_stride) = (c.at, c.stride);
        Self { m, n, k, a, b, c, c_stride, alpha: 1.0, onto: None, bias: None, numbers, exact: false }
    }

    /// Returns the rows and columns in memory of an operand of this shape.
    fn stored(matrix: Matrix, rows: usize, columns: usize) -> (usize, usize) {
        if matrix.transposed { (columns, rows) } else { (rows, columns) }
    }

    /// Returns an error for operands that cuBLASLt's documentation excludes, so that tests without a GPU find them.
    pub fn check(&self) -> Result<(), Error> {
        let wrong = |why: String| Err(Error::Launch { kernel: "matrix product".to_owned(), why });
        let Product { m, n, k, .. } = *self;
        if m == 0 || n == 0 || k == 0 || [m, n, k].iter().any(|&size| size > i32::MAX as usize) {
            return wrong(format!("sizes {m} x {n} x {k}: each must be 1 to {}", i32::MAX));
        }
        let (operand, result) = self.numbers.bytes();
        let c = Matrix::rows(self.c, self.c_stride);
        let onto = self.onto.map(|onto| Matrix::rows(onto, self.c_stride));
        let bias = self.bias.map(|bias| Matrix::rows(bias, n));
        for (name, matrix, (rows, columns), bytes) in [
            ("a", Some(self.a), Self::stored(self.a, m, k), operand),
            ("b", Some(self.b), Self::stored(self.b, k, n), operand),
            ("c", Some(c), (m, n), result),
            ("onto", onto, (m, n), result),
            ("bias", bias, (1, n), result),
        ] {
            let Some(matrix) = matrix else { continue };
            if matrix.stride < columns {
                return wrong(format!(
                    "{name} has rows of {columns} elements, but a stride of {}",
                    matrix.stride
                ));
            }
            if !matrix.at.0.is_multiple_of(bytes as u64) {
                return wrong(format!("{name} at {:#x} is not aligned to {bytes} bytes", matrix.at.0));
            }
            let extent = |matrix: Matrix, rows: usize, columns: usize, bytes: usize| {
                matrix.at.0..matrix.at.0 + (((rows - 1) * matrix.stride + columns) * bytes) as u64
            };
            let same = name == "c" || name == "onto" && matrix == c;
            if !same {
                let (range, result) = (extent(matrix, rows, columns, bytes), extent(c, m, n, result));
                if range.start < result.end && result.start < range.end {
                    return wrong(format!("{name} overlaps the result"));
                }
            }
        }
        Ok(())
    }

    /// Returns the launch that computes the product with this crate's kernel.
    pub fn launch(&self) -> Launch {
        let values = |at: Address, bytes: usize| {
            if bytes == 4 { Values::F32(Pointer::new(at)) } else { Values::Bf16(Pointer::new(at)) }
        };
        let (operand, result) = self.numbers.bytes();
        let strides = |matrix: Matrix| {
            let (outer, inner) = (matrix.stride as u64, 1);
            if matrix.transposed { [inner, outer] } else { [outer, inner] }
        };
        let ([am, ak], [bk, bn]) = (strides(self.a), strides(self.b));
        let (rows, columns) = (self.m.div_ceil(64) as u32, self.n.div_ceil(64) as u32);
        let shape = Shape { grid: [columns, rows, 1], threads: 256, shared: 2 * 16 * 65 * 4 };
        let kernel = kernels::Product {
            a: values(self.a.at, operand),
            am,
            ak,
            b: values(self.b.at, operand),
            bk,
            bn,
            c: values(self.c, result),
            cm: self.c_stride as u64,
            m: self.m,
            n: self.n,
            k: self.k,
            alpha: self.alpha,
            onto: values(self.onto.unwrap_or(self.c), result),
            add: usize::from(self.onto.is_some()),
            bias: values(self.bias.unwrap_or(self.c), result),
            biased: usize::from(self.bias.is_some()),
        };
        kernel.launch(shape)
    }
}
