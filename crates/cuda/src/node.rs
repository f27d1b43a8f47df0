//! The work that a graph consists of.

use crate::launch::{Address, Launch};
use crate::product::Product;

/// One piece of work of [`Queue::Compute`](crate::Queue::Compute) that needs no data from the host.
#[derive(Debug, Clone, PartialEq)]
pub enum Node {
    /// See [`Driver::launch`](crate::Driver::launch).
    Launch(Launch),
    /// See [`Driver::product`](crate::Driver::product).
    Product(Product),
    /// See [`Driver::copy`](crate::Driver::copy).
    Copy {
        /// Address of the source.
        from: Address,
        /// Address of the destination.
        to: Address,
        /// Number of bytes.
        bytes: usize,
    },
    /// See [`Driver::zero`](crate::Driver::zero).
    Zero {
        /// Address of the first byte.
        at: Address,
        /// Number of bytes.
        bytes: usize,
    },
}
