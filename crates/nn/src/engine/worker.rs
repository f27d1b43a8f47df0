//! The buffers of an executor, which passes and generation share.

use crate::decoder::Workspace;
use crate::executor::Executor;
use crate::segments::Chunk;
use crate::tree::Tree;

pub(super) struct Worker<X: Executor> {
    pub(super) workspace: Workspace<X>,
    pub(super) chunk: Chunk,
    pub(super) lists: X::Lists,
    /// Keys and values of the sequences in `tree`. Between requests, they are only valid if `tree` is kept.
    pub(super) cache: X::Cache,
    pub(super) decoding: X::Decoding,
    /// Sequences in the cache, if the cache is kept for later requests.
    pub(super) tree: Tree,
}

impl<X: Executor> Default for Worker<X> {
    fn default() -> Self {
        Worker {
            workspace: Workspace::<X>::default(),
            chunk: Chunk::default(),
            lists: Default::default(),
            cache: Default::default(),
            decoding: Default::default(),
            tree: Tree::default(),
        }
    }
}
