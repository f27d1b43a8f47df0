//! CUDA graphs: a fixed sequence of work that is submitted in one call.
//!
//! A graph is captured from a list of [`Node`]s, which can't express what a capture forbids: waits, reads, allocations, and copies from pageable host
//! memory. The graph stores the nodes' addresses, so their memory must not be freed while the graph is in use.

use crate::driver::Driver;
use crate::launch::{Error, Launch};
use crate::node::Node;
use std::sync::Arc;

impl Node {
    /// Submits this node without a graph.
    pub fn submit(&self, driver: &dyn Driver) -> Result<(), Error> {
        match self {
            Node::Launch(Launch { kernel, shape, arguments }) => driver.launch(kernel, *shape, arguments),
            Node::Product(product) => driver.product(product),
            Node::Copy { from, to, bytes } => driver.copy(*from, *to, *bytes),
            Node::Zero { at, bytes } => driver.zero(*at, *bytes),
        }
    }
}

/// A graph, which is freed on drop.
#[derive(Debug)]
pub struct Graph {
    driver: Arc<dyn Driver>,
    number: u64,
}

impl Graph {
    /// Captures the nodes as a graph that runs them in this order. Nothing runs yet.
    pub fn capture(driver: &Arc<dyn Driver>, nodes: &[Node]) -> Result<Graph, Error> {
        let number = driver.capture(nodes)?;
        Ok(Graph { driver: Arc::clone(driver), number })
    }

    /// Submits the graph's work.
    pub fn replay(&self) -> Result<(), Error> {
        self.driver.replay(self.number)
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        self.driver.free_graph(self.number);
    }
}
