//! A piece of a graph's work.

use crate::launch::{Address, Launch};
use crate::product::Product;

/// Work of [`Queue::Compute`](crate::Queue::Compute) that needs nothing from the host.
#[derive(Debug, Clone, PartialEq)]
pub enum Node {
    /// As [`Driver::launch`](crate::Driver::launch).
    Launch(Launch),
    /// As [`Driver::product`](crate::Driver::product).
    Product(Product),
    /// As [`Driver::copy`](crate::Driver::copy).
    Copy {
        /// The first byte that is read.
        from: Address,
        /// The first byte that is written.
        to: Address,
        /// How many.
        bytes: usize,
    },
    /// As [`Driver::zero`](crate::Driver::zero).
    Zero {
        /// The first byte.
        at: Address,
        /// How many.
        bytes: usize,
    },
}
