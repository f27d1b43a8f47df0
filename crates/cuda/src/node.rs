//! The work that a graph consists of.

use crate::launch::{Address, Launch};
use crate::product::Product;

/// One piece of work of [`Queue::Compute`](crate::Queue::Compute) that needs no data from the host.
#[derive(Debug, Clone, PartialEq)]
pub enum Node {
    /// Launch of a kernel.
    Launch(Launch),
    /// A matrix product, with cuBLASLt, or with a kernel of this crate if the library is not available.
    Product(Product),
    /// A copy within the device. The ranges must not overlap.
    Copy {
        /// Address of the source.
        from: Address,
        /// Address of the destination.
        to: Address,
        /// Number of bytes.
        bytes: usize,
    },
    /// Sets bytes to 0.
    Zero {
        /// Address of the first byte.
        at: Address,
        /// Number of bytes.
        bytes: usize,
    },
}
