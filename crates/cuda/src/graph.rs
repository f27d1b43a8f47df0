//! CUDA graphs: a fixed sequence of work that is submitted in one call.
//!
//! A graph is captured from a list of [`Command`]s, which can't express what a capture forbids: waits, reads, allocations, and copies from pageable host
//! memory. The graph stores the commands' addresses, so their memory must not be freed while the graph is in use.

use crate::driver::{Command, Driver};
use crate::launch::Error;
use std::sync::Arc;

/// A graph, which is freed on drop.
#[derive(Debug)]
pub struct Graph {
    driver: Arc<dyn Driver>,
    number: u64,
}

impl Graph {
    /// Captures the commands as a graph that runs them in this order. Nothing runs yet.
    pub fn capture(driver: &Arc<dyn Driver>, commands: &[Command]) -> Result<Graph, Error> {
        let number = driver.capture(commands)?;
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
