//! Page allocation for the key/value cache.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::config::Config;
use crate::families::Layer;
use crate::numbers::Precision;

pub(crate) const PAGE: usize = 16;
/// Maximum bytes of a cache that an executor retains between requests, to avoid page faults and keep CUDA graphs valid.
pub(crate) const KEPT_BYTES: usize = 64 << 20;

/// Returns the number of values in one token's keys and values, over all layers that compute them; at least 1.
pub fn numbers_per_token(config: &Config) -> usize {
    let layers = (0..config.num_hidden_layers).map(|layer| config.layer(layer));
    let numbers = layers.filter(Layer::computes_keys).map(|layer| 2 * layer.key_heads * layer.head_dim);
    // Models without attention still need a unit for the limit on cached tokens.
    numbers.sum::<usize>().max(1)
}

/// Returns the number of pages that take as much memory as a sequence's f32 states in all layers. 0 in models without states.
/// `precision` is the number type of keys and values.
pub(crate) fn state_pages(config: &Config, precision: Precision) -> usize {
    let state = |layer: usize| config.layer(layer).mixer.map_or(0, |mixer| mixer.state());
    let bytes = 4 * (0..config.num_hidden_layers).map(state).sum::<usize>();
    bytes.div_ceil(PAGE * numbers_per_token(config) * precision.bytes())
}

/// Returns how many of the cache's `pages` are available for keys and values, if each sequence of up to `longest`
/// tokens also needs `state` pages for its recurrent state.
pub(crate) fn pages_of_keys(pages: usize, state: usize, longest: usize) -> usize {
    // A sequence's last page may be partly filled.
    let per_sequence = longest.div_ceil(PAGE) + 1;
    if state == 0 { pages } else { (pages * per_sequence).div_ceil(per_sequence + state) }
}

/// Allocates pages of the key/value cache. The lowest free page comes first, so a sequence's pages tend to be adjacent.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    free: BinaryHeap<Reverse<u32>>,
    count: u32,
}

impl Pages {
    pub(crate) fn take(&mut self) -> u32 {
        self.free.pop().map_or_else(
            || {
                self.count += 1;
                self.count - 1
            },
            |page| page.0,
        )
    }

    pub(crate) fn give_back(&mut self, pages: &mut Vec<u32>) {
        self.free.extend(pages.drain(..).map(Reverse));
    }

    /// Returns the number of slots up to the highest page allocated so far.
    pub(crate) fn slots(&self) -> usize {
        self.count as usize * PAGE
    }
}

/// A growing sequence of tokens and its pages.
#[derive(Debug, Default)]
pub(crate) struct Run {
    pub(crate) pages: Vec<u32>,
    pub(crate) len: usize,
}

impl Run {
    /// Returns whether one more token needs another page.
    pub(crate) fn is_full(&self) -> bool {
        self.len == self.pages.len() * PAGE
    }

    /// Returns the slot for another token.
    ///
    /// # Panics
    /// If [`Run::is_full`].
    pub(crate) fn push(&mut self) -> u32 {
        let slot = self.pages[self.len / PAGE] * PAGE as u32 + (self.len % PAGE) as u32;
        self.len += 1;
        slot
    }

    /// Returns the slots of all tokens as ranges, with adjacent pages joined.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = std::ops::Range<usize>> + '_ {
        self.ranges_from(0)
    }

    /// Like [`Run::ranges`], for the tokens from index `token` on.
    pub(crate) fn ranges_from(&self, token: usize) -> impl Iterator<Item = std::ops::Range<usize>> + '_ {
        let (mut index, mut skipped) = (token / PAGE, token % PAGE);
        std::iter::from_fn(move || {
            if index * PAGE >= self.len {
                return None;
            }
            let first = index;
            while self.pages.get(index + 1).is_some_and(|&next| next == self.pages[index] + 1) {
                index += 1;
            }
            index += 1;
            let start = self.pages[first] as usize * PAGE;
            let end = start + (self.len - first * PAGE).min((index - first) * PAGE);
            Some(start + std::mem::take(&mut skipped)..end)
        })
    }
}
