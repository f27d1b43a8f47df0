//! The sequences in a key/value cache, as a tree. Some sequences are being extended by generation, and others are retained because a later prompt may
//! continue them.
//!
//! A prompt is a node, and so is each part of its completions that several samples share. With `keep`, unused nodes stay until their pages are needed; the
//! least recently used are evicted first. If a prompt begins like a cached sequence, only the tokens after the common prefix are computed.

use std::collections::BTreeSet;

use crate::cache::{PAGE, Pages, Run};
use crate::executor::NodeChange;

/// A sequence of tokens that continues its parent's sequence.
#[derive(Default)]
pub(crate) struct Node {
    pub(crate) parent: Option<usize>,
    /// Number of references: rows of the batch, children in use, and waiting samples of the prompt.
    holders: usize,
    /// Number of unused children in the cache.
    unused: usize,
    /// Children that a prompt may continue, sorted by tokens, then by index.
    children: Vec<usize>,
    pub(crate) run: Run,
    /// Tokens in the cache, and possibly one token that isn't cached yet.
    tokens: Vec<u32>,
    /// Log-probability of each sampled token. Empty in nodes of prompts.
    pub(crate) logp: Vec<f32>,
    pub(crate) entropy: Vec<f32>,
    /// Time of last use, if the node is unused.
    idle: Option<u64>,
}

#[derive(Default)]
pub(crate) struct Tree {
    pub(crate) nodes: Vec<Node>,
    vacant: Vec<usize>,
    /// Roots that a prompt may continue, sorted like [`Node::children`].
    roots: Vec<usize>,
    /// Unused nodes without unused children, by the time of last use, then by index.
    evictable: BTreeSet<(u64, usize)>,
    pages: Pages,
    /// Number of pages of nodes in use. A node's recurrent state counts as `state_pages` pages.
    pub(crate) used: usize,
    /// Number of pages of unused nodes, including their states.
    unused: usize,
    /// Number of pages that take as much memory as a node's recurrent state. 0 without recurrent layers.
    pub(crate) state_pages: usize,
    /// Whether unused nodes stay in the cache.
    pub(crate) keep: bool,
    /// Page limit for which the cache was allocated, if unused nodes may be in it.
    pub(crate) limit: usize,
    clock: u64,
}

fn common(a: &[u32], b: &[u32]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

impl Tree {
    pub(crate) fn is_empty(&self) -> bool {
        self.nodes.len() == self.vacant.len()
    }

    /// Returns the number of slots up to the highest page allocated so far.
    pub(crate) fn slots(&self) -> usize {
        self.pages.slots()
    }

    /// Returns the number of pages of a node, including its state.
    fn pages_of(&self, node: usize) -> usize {
        match self.nodes[node].run.pages.len() {
            0 => 0,
            pages => pages + self.state_pages,
        }
    }

    /// Returns the number of pages that one more token of a node needs.
    pub(crate) fn new_pages(&self, node: usize) -> usize {
        let run = &self.nodes[node].run;
        match run.pages.len() {
            0 => 1 + self.state_pages,
            _ => usize::from(run.is_full()),
        }
    }

    fn add(&mut self, node: Node) -> usize {
        match self.vacant.pop() {
            Some(index) => {
                self.nodes[index] = node;
                index
            }
            None => {
                self.nodes.push(node);
                self.nodes.len() - 1
            }
        }
    }

    /// Adds a node for the tokens of a prompt that follow the tokens of `parent`, and a reference to `parent`.
    pub(crate) fn prompt(&mut self, parent: Option<usize>, tokens: &[u32]) -> usize {
        if let Some(parent) = parent {
            self.hold(parent);
        }
        let node = self.add(Node { parent, holders: 1, tokens: tokens.to_vec(), ..Node::default() });
        self.list(node);
        node
    }

    /// Returns the children of a node that a prompt may continue, or the roots.
    fn children(&self, parent: Option<usize>) -> &[usize] {
        parent.map_or(&self.roots, |parent| &self.nodes[parent].children)
    }

    /// Returns the position of a node among the children of its parent.
    fn position(&self, index: usize) -> usize {
        let key = |index: usize| (&self.nodes[index].tokens, index);
        self.children(self.nodes[index].parent).partition_point(|&child| key(child) < key(index))
    }

    fn children_mut(&mut self, parent: Option<usize>) -> &mut Vec<usize> {
        match parent {
            Some(parent) => &mut self.nodes[parent].children,
            None => &mut self.roots,
        }
    }

    /// Adds a node to the children of its parent.
    fn list(&mut self, index: usize) {
        let position = self.position(index);
        self.children_mut(self.nodes[index].parent).insert(position, index);
    }

    /// Removes a node from the children of its parent. Call it before the node's tokens change.
    fn unlist(&mut self, index: usize) {
        let position = self.position(index);
        let removed = self.children_mut(self.nodes[index].parent).remove(position);
        debug_assert_eq!(removed, index, "not sorted");
    }

    pub(crate) fn sampled(&mut self, parent: usize, token: u32, logp: f32, entropy: f32) -> usize {
        self.hold(parent);
        let (logp, entropy) = (vec![logp], vec![entropy]);
        let parent = Some(parent);
        self.add(Node { parent, holders: 1, tokens: vec![token], logp, entropy, ..Node::default() })
    }

    pub(crate) fn extend(&mut self, node: usize, token: u32, logp: f32, entropy: f32) {
        let node = &mut self.nodes[node];
        node.tokens.push(token);
        node.logp.push(logp);
        node.entropy.push(entropy);
    }

    /// Returns whether a node belongs to a prompt. Samples extend only the other nodes.
    pub(crate) fn is_prompt(&self, node: usize) -> bool {
        self.nodes[node].logp.is_empty()
    }

    pub(crate) fn hold(&mut self, mut index: usize) {
        loop {
            let node = &mut self.nodes[index];
            node.holders += 1;
            let Some(idle) = node.idle.take() else { return };
            let parent = node.parent;
            self.evictable.remove(&(idle, index));
            self.unused -= self.pages_of(index);
            self.used += self.pages_of(index);
            let Some(parent) = parent else { return };
            self.nodes[parent].unused -= 1;
            index = parent;
        }
    }

    /// Removes a reference. A node without references is kept as unused, or freed.
    pub(crate) fn release(&mut self, mut index: usize) {
        self.clock += 1;
        loop {
            let pages = self.pages_of(index);
            let node = &mut self.nodes[index];
            node.holders -= 1;
            if node.holders > 0 {
                return;
            }
            let parent = node.parent;
            self.used -= pages;
            if self.keep && node.run.len > 0 {
                // Tokens and cache may differ by one: the last token isn't cached yet, or the cache has one more because a step ran ahead.
                node.tokens.truncate(node.run.len);
                node.run.len = node.tokens.len();
                let mut excess = node.run.pages.split_off(node.run.len.div_ceil(PAGE));
                self.pages.give_back(&mut excess);
                let sampled = !node.logp.is_empty();
                (node.logp, node.entropy) = (Vec::new(), Vec::new());
                node.idle = Some(self.clock);
                if node.unused == 0 {
                    self.evictable.insert((self.clock, index));
                }
                if sampled {
                    self.list(index);
                }
                self.unused += self.pages_of(index);
                if let Some(parent) = parent {
                    self.nodes[parent].unused += 1;
                }
            } else {
                self.free(index);
            }
            match parent {
                Some(parent) => index = parent,
                None => return,
            }
        }
    }

    fn free(&mut self, index: usize) {
        if self.is_prompt(index) {
            self.unlist(index);
        }
        let mut node = std::mem::take(&mut self.nodes[index]);
        self.pages.give_back(&mut node.run.pages);
        self.vacant.push(index);
    }

    /// Frees the least recently used node. Returns whether there was one.
    fn evict(&mut self) -> bool {
        let Some((_, index)) = self.evictable.pop_first() else { return false };
        self.unused -= self.pages_of(index);
        if let Some(parent) = self.nodes[index].parent {
            let node = &mut self.nodes[parent];
            node.unused -= 1;
            if let Some(idle) = node.idle.filter(|_| node.unused == 0) {
                self.evictable.insert((idle, parent));
            }
        }
        self.free(index);
        true
    }

    /// Frees all unused nodes.
    pub(crate) fn evict_all(&mut self) {
        while self.evict() {}
    }

    /// Adds a token to a node's sequence in the cache and returns its slot. If more than `limit` pages are in use, unused nodes are evicted.
    pub(crate) fn push_slot(&mut self, node: usize, limit: usize, changes: &mut Vec<NodeChange>) -> u32 {
        if self.nodes[node].run.is_full() {
            let more = self.new_pages(node);
            while self.used + self.unused + more > limit && self.evict() {}
            let page = self.pages.take();
            self.nodes[node].run.pages.push(page);
            changes.push(NodeChange::Page { node, page });
            self.used += more;
        }
        self.nodes[node].run.push()
    }

    /// Appends to `changes` the creation of a node with its pages, so that executors learn about it.
    pub(crate) fn begin(&self, node: usize, changes: &mut Vec<NodeChange>) {
        let Node { parent, ref run, .. } = self.nodes[node];
        changes.push(NodeChange::Begin { node, parent, stored: run.len });
        changes.extend(run.pages.iter().map(|&page| NodeChange::Page { node, page }));
    }

    /// Finds the child of `parent` with the longest common prefix with `rest`, as (length, child). Among equal children, takes the largest index. Returns
    /// `None` if `rest` doesn't continue that child and shares less than a page with it.
    fn best_child(&self, parent: Option<usize>, rest: &[u32]) -> Option<(usize, usize)> {
        let children = self.children(parent);
        let tokens = |position: usize| &self.nodes[children[position]].tokens[..];
        if self.state_pages > 0 {
            // A node only has its last state, so all of its tokens must match. In sorted order, all children between a prefix of `rest` and `rest`
            // begin with that prefix.
            let mut rest = rest;
            loop {
                let last = children
                    .partition_point(|&child| self.nodes[child].tokens[..] <= *rest)
                    .checked_sub(1)?;
                let shared = common(tokens(last), rest);
                match shared {
                    0 => return None,
                    _ if shared == tokens(last).len() => return Some((shared, children[last])),
                    _ => rest = &rest[..shared],
                }
            }
        }
        // The longest common prefixes are next to the position of `rest`.
        let position = children.partition_point(|&child| self.nodes[child].tokens[..] < *rest);
        let neighbours = position.saturating_sub(1)..children.len().min(position + 1);
        let shared = neighbours.map(|at| common(tokens(at), rest)).max().filter(|&shared| shared > 0)?;
        let matches = |&child: &usize| self.nodes[child].tokens.starts_with(&rest[..shared]);
        let first = children[..position].partition_point(|child| !matches(child));
        let end = position + children[position..].partition_point(matches);
        let usable = |child: usize| self.nodes[child].tokens.len() == shared || shared >= PAGE;
        // The first child is the shortest. If it isn't usable, the others aren't either. Checking all could take long, because there may be thousands.
        if !usable(children[first]) {
            return None;
        }
        let index = *children[first..end].iter().max().expect("the first");
        usable(index).then_some((shared, index))
    }

    /// Finds the longest cached prefix of `prompt` without its last token, as (node, length). If the prefix ends inside
    /// a node, splits the node at a whole page; with recurrent layers, the prefix ends before the node instead.
    pub(crate) fn find_prefix(
        &mut self,
        prompt: &[u32],
        changes: &mut Vec<NodeChange>,
    ) -> Option<(usize, usize)> {
        let (mut node, mut depth) = (None, 0);
        if !self.keep {
            return None;
        }
        while let Some((shared, index)) = self.best_child(node, &prompt[depth..]) {
            debug_assert_eq!(
                self.nodes[index].run.len,
                self.nodes[index].tokens.len(),
                "a partly stored prompt"
            );
            if shared == self.nodes[index].run.len && depth + shared < prompt.len() {
                if self.nodes[index].idle.is_some() {
                    // The executor may have counted a token of a step that ran ahead.
                    self.begin(index, changes);
                }
                (node, depth) = (Some(index), depth + shared);
                continue;
            }
            let whole = shared.min(prompt.len() - 1 - depth) / PAGE * PAGE;
            if whole > 0 && self.state_pages == 0 {
                node = Some(self.split(index, whole, changes));
                depth += whole;
            }
            break;
        }
        node.map(|node| (node, depth))
    }

    /// Returns the nodes on the path from the root to `node`, inclusive.
    pub(crate) fn path(&self, node: usize) -> Vec<usize> {
        let mut path: Vec<usize> =
            std::iter::successors(Some(node), |&node| self.nodes[node].parent).collect();
        path.reverse();
        path
    }

    /// Splits off the first `len` tokens of a node, which are whole pages, as its new parent. Returns the parent.
    fn split(&mut self, index: usize, len: usize, changes: &mut Vec<NodeChange>) -> usize {
        self.unlist(index);
        let node = &mut self.nodes[index];
        let rest = node.run.pages.split_off(len / PAGE);
        let run = Run { pages: std::mem::replace(&mut node.run.pages, rest), len };
        node.run.len -= len;
        let rest = node.tokens.split_off(len);
        let tokens = std::mem::replace(&mut node.tokens, rest);
        let (parent, idle) = (node.parent, node.idle);
        let (holders, unused) = if idle.is_some() { (0, 1) } else { (1, 0) };
        let first = self.add(Node { parent, holders, unused, run, tokens, idle, ..Node::default() });
        self.list(first);
        self.nodes[index].parent = Some(first);
        self.list(index);
        self.begin(first, changes);
        self.begin(index, changes);
        first
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    impl Tree {
        /// Checks that pages are counted correctly and belong to one node each, that parents exist, and that the next node to evict is the one that a
        /// search of all nodes finds.
        fn check(&self) {
            let mut owned: Vec<u32> = Vec::new();
            let (mut used, mut unused) = (0, 0);
            let last =
                |(index, node): (usize, &Node)| node.idle.filter(|_| node.unused == 0).map(|at| (at, index));
            assert_eq!(self.nodes.iter().enumerate().filter_map(last).min(), self.evictable.first().copied());
            for (index, node) in self.nodes.iter().enumerate() {
                if node.holders == 0 && node.idle.is_none() {
                    continue;
                }
                assert_eq!(node.run.pages.len(), node.run.len.div_ceil(PAGE));
                owned.extend(&node.run.pages);
                let sum = if node.holders > 0 { &mut used } else { &mut unused };
                *sum += self.pages_of(index);
                assert!(node.parent.is_none_or(|parent| {
                    let parent = &self.nodes[parent];
                    if node.holders > 0 { parent.holders > 0 } else { parent.unused > 0 }
                }));
            }
            assert_eq!((self.used, self.unused), (used, unused));
            let all = owned.len();
            owned.sort_unstable();
            owned.dedup();
            assert_eq!(owned.len(), all, "a page of two nodes");
        }

        /// Returns the result of [`Tree::best_child`], computed by a search of all nodes.
        fn best_of_all(&self, parent: Option<usize>, rest: &[u32]) -> Option<(usize, usize)> {
            let stored = |node: &Node| {
                let shared = common(&node.tokens[..node.run.len], rest);
                if self.state_pages > 0 && shared < node.run.len { 0 } else { shared }
            };
            let children = self.nodes.iter().enumerate().filter(|(_, node)| {
                (node.holders > 0 || node.idle.is_some()) && node.parent == parent && node.logp.is_empty()
            });
            let best = children.map(|(index, node)| (stored(node), index)).max()?;
            let usable = best.0 == self.nodes[best.1].run.len || best.0 >= PAGE;
            (best.0 > 0 && usable).then_some(best)
        }

        /// Returns the tokens and slots on the path from the root to a node.
        fn content(&self, node: usize) -> (Vec<u32>, Vec<usize>) {
            let path = self.path(node);
            let tokens = path.iter().flat_map(|&node| self.nodes[node].tokens.clone()).collect();
            (tokens, path.iter().flat_map(|&node| self.nodes[node].run.ranges().flatten()).collect())
        }
    }

    proptest! {
        /// With random prompts and completions, with and without recurrent states, a prefix that is found has the tokens that were stored in its slots,
        /// within the page limit. Every choice of a child, and of a node to evict (in `check`), is the choice of a search of all nodes.
        #[test]
        fn prefixes_have_the_tokens_that_were_stored_and_are_the_ones_that_a_search_of_all_nodes_finds(
            state_pages in 0usize..2,
            prompts in proptest::collection::vec(
                (proptest::collection::vec(0u32..2, 1..5), 1usize..60, 0usize..5, any::<bool>()), 1..40),
        ) {
            const LIMIT: usize = 40;
            let mut tree = Tree { keep: true, state_pages, ..Tree::default() };
            let mut running = Vec::new();
            // Token in each slot, as the executor would store it.
            let mut stored = std::collections::HashMap::new();
            for (pattern, len, sampled, waits) in prompts {
                let prompt: Vec<u32> = pattern.iter().copied().cycle().take(len).collect();
                for parent in std::iter::once(None).chain((0..tree.nodes.len()).map(Some)) {
                    for skipped in 0..len.min(20) {
                        let rest = &prompt[skipped..];
                        prop_assert_eq!(tree.best_child(parent, rest), tree.best_of_all(parent, rest));
                    }
                }
                let mut changes = Vec::new();
                let (parent, depth) = tree.find_prefix(&prompt, &mut changes).unzip();
                let depth = depth.unwrap_or(0);
                prop_assert!(depth < len);
                let mut node = tree.prompt(parent, &prompt[depth..]);
                for &token in &prompt[depth..] {
                    stored.insert(tree.push_slot(node, LIMIT, &mut changes) as usize, token);
                }
                let (tokens, slots) = tree.content(node);
                prop_assert_eq!(&tokens, &prompt);
                prop_assert!(slots.iter().zip(&prompt).all(|(slot, token)| stored[slot] == *token));
                prop_assert!(slots.iter().all(|&slot| slot < LIMIT * PAGE));
                // The last sampled token isn't stored yet, unless the step ran ahead.
                for position in 0..sampled {
                    let token = pattern[position % pattern.len()];
                    if position == 0 {
                        let first = tree.sampled(node, token, 0.0, 0.0);
                        tree.release(node);
                        node = first;
                    } else {
                        let stores = pattern[(position - 1) % pattern.len()];
                        stored.insert(tree.push_slot(node, LIMIT, &mut changes) as usize, stores);
                        tree.extend(node, token, 0.0, 0.0);
                    }
                }
                tree.check();
                running.push(node);
                if !waits || running.len() > 3 {
                    running.drain(..).for_each(|node| tree.release(node));
                }
                tree.check();
            }
            running.into_iter().for_each(|node| tree.release(node));
            prop_assert_eq!(tree.used, 0);
            tree.evict_all();
            prop_assert!(tree.is_empty() && tree.unused == 0 && tree.roots.is_empty() && tree.evictable.is_empty());
        }
    }
}
