//! CUDA graphs: a fixed sequence of work that is submitted in one call.
//!
//! A graph is made of a closed list of nodes, so a capture can't meet what is forbidden in one: a wait, a read, an allocation, or a copy from the host's
//! pageable memory. It keeps the addresses of its nodes, whose memory must not be freed as long as the graph is replayed.

use crate::driver::Driver;
use crate::launch::{Error, Launch};
use crate::node::Node;
use std::sync::Arc;

impl Node {
    /// Submits it by itself.
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
    /// Makes a graph of work in this order; none of it runs.
    pub fn capture(driver: &Arc<dyn Driver>, nodes: &[Node]) -> Result<Graph, Error> {
        let number = driver.capture(nodes)?;
        Ok(Graph { driver: Arc::clone(driver), number })
    }

    /// Submits its work.
    pub fn replay(&self) -> Result<(), Error> {
        self.driver.replay(self.number)
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        self.driver.free_graph(self.number);
    }
}
