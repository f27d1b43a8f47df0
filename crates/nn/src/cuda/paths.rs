//! The paths that recurrent mixers follow in a pass or in a decoding step.

use std::ops::Range;

use super::words::{List, Words};
use crate::families::LARGEST_CONVOLUTION as TAPS;
use crate::segments::{Chunk, STRETCH};

/// Absent row, slot or node.
const NONE: u32 = u32::MAX;

/// The paths of a prefix tree of rows, as lists in GPU memory. A run is a range of consecutive rows of a path, of which only the last row may have several
/// successors. It takes five words: first row, end row, slot of the recurrent state before the run, slot of the state after it, and the cache node that
/// stores the state after it. Absent values are [`NONE`].
#[derive(Debug, Clone, Default)]
pub(super) struct Paths {
    /// Row that precedes each row on its path.
    pub(super) previous: List,
    /// For each row, its index among the predicting rows.
    pub(super) predicting: List,
    /// For each row, the index of its first entry in `later`.
    pub(super) later_first: List,
    /// For each row, the later rows whose convolution reads it, each as `row * TAPS + distance`.
    pub(super) later: List,
    /// For each tree whose state is cached, the last row and the cache node.
    pub(super) ends: List,
    /// Two versions of the list of runs. In the first, only states that other runs continue have slots. In the second, every stretch has one.
    pub(super) runs: [List; 2],
    /// For each run, the range of the runs that continue it.
    pub(super) children: List,
    /// In a decoding step, the start of each group of runs that write the same node's state.
    pub(super) groups: List,
    /// Ranges of runs, in order. The runs of a range can be computed concurrently, after the earlier ranges.
    pub(super) waves: Vec<Range<usize>>,
    /// Number of slots for recurrent states, for each of the two lists of runs.
    pub(super) slots: [usize; 2],
}

struct Run {
    rows: Range<usize>,
    parent: Option<usize>,
    depth: usize,
    node: u32,
}

/// Returns the runs of a chunk, sorted by depth. Parents are indices into the result.
fn runs(chunk: &Chunk, previous: &[u32]) -> Vec<Run> {
    let mut continued = vec![0u32; previous.len()];
    previous.iter().filter(|&&row| row != NONE).for_each(|&row| continued[row as usize] += 1);
    let (mut runs, mut of_row): (Vec<Run>, Vec<usize>) = (Vec::new(), Vec::with_capacity(previous.len()));
    for (row, &before) in previous.iter().enumerate() {
        let parent = (before != NONE).then_some(before as usize);
        match runs.last_mut() {
            Some(run) if parent.is_some_and(|parent| parent + 1 == row && continued[parent] == 1) => {
                run.rows.end += 1
            }
            _ => {
                let parent = parent.map(|row| of_row[row]);
                let depth = parent.map_or(0, |parent| runs[parent].depth + 1);
                runs.push(Run { rows: row..row + 1, parent, depth, node: NONE });
            }
        }
        of_row.push(runs.len() - 1);
    }
    for (&(end, ..), &node) in chunk.ends.iter().zip(&chunk.nodes) {
        runs[of_row[end - 1]].node = node as u32;
    }
    let mut order: Vec<usize> = (0..runs.len()).collect();
    order.sort_by_key(|&run| runs[run].depth);
    let mut position = vec![0; runs.len()];
    order.iter().enumerate().for_each(|(to, &run)| position[run] = to);
    runs.iter_mut().for_each(|run| run.parent = run.parent.map(|parent| position[parent]));
    runs.sort_by_key(|run| run.depth);
    runs
}

impl Paths {
    /// Builds the paths of a pass for a convolution with kernel size `taps`.
    pub(super) fn put(words: &mut Words, chunk: &Chunk, taps: usize) -> Paths {
        let previous: Vec<u32> = chunk.previous().collect();
        let rows = previous.len();
        let seen = |row: usize| {
            let before = |&row: &u32| Some(previous[row as usize]).filter(|&row| row != NONE);
            std::iter::successors(Some(row as u32), before).enumerate().skip(1).take(taps - 1)
        };
        let mut later_first = vec![0u32; rows + 1];
        (0..rows).flat_map(seen).for_each(|(_, row)| later_first[row as usize + 1] += 1);
        (0..rows).for_each(|row| later_first[row + 1] += later_first[row]);
        let (mut next, mut later) = (later_first.clone(), vec![0; later_first[rows] as usize]);
        for row in 0..rows {
            for (distance, earlier) in seen(row) {
                let at = &mut next[earlier as usize];
                later[*at as usize] = (row * TAPS + distance) as u32;
                *at += 1;
            }
        }
        let mut predicting = vec![NONE; rows];
        chunk.predicting.rows.iter().enumerate().for_each(|(to, &row)| predicting[row as usize] = to as u32);

        let runs = runs(chunk, &previous);
        // In this order, the runs that continue a run are consecutive.
        let mut children = vec![[0u32; 2]; runs.len()];
        for (index, run) in runs.iter().enumerate() {
            let Some(parent) = run.parent else { continue };
            if children[parent] == [0; 2] {
                children[parent] = [index as u32; 2];
            }
            children[parent][1] = index as u32 + 1;
        }
        // For each run, the slot of the state after it if other runs continue it, and the slots of the states after its first and its last stretch.
        let mut slots = [0; 2];
        let after: Vec<[u32; 3]> = runs
            .iter()
            .zip(&children)
            .map(|(run, children)| {
                let first = [slots[0] as u32, slots[1] as u32];
                let stretches = run.rows.len().div_ceil(STRETCH);
                let continued = children[0] < children[1];
                slots = [slots[0] + usize::from(continued), slots[1] + stretches];
                [if continued { first[0] } else { NONE }, first[1], slots[1] as u32 - 1]
            })
            .collect();
        let mut put = |before: usize, after_run: usize| {
            words.put(runs.iter().zip(&after).flat_map(|(run, slots)| {
                let before = run.parent.map_or(NONE, |parent| after[parent][before]);
                [run.rows.start as u32, run.rows.end as u32, before, slots[after_run], run.node]
            }))
        };
        let lists = [put(0, 0), put(2, 1)];
        let mut waves: Vec<Range<usize>> = Vec::new();
        for (index, run) in runs.iter().enumerate() {
            match waves.get_mut(run.depth) {
                Some(wave) => wave.end = index + 1,
                None => waves.push(index..index + 1),
            }
        }
        let ends =
            chunk.ends.iter().zip(&chunk.nodes).flat_map(|(&(end, ..), &node)| [end as u32 - 1, node as u32]);
        Paths {
            previous: words.put(previous.iter().copied()),
            predicting: words.put(predicting),
            later_first: words.put(later_first),
            later: words.put(later),
            ends: words.put(ends),
            runs: lists,
            children: words.put(children.into_iter().flatten()),
            groups: List::default(),
            waves,
            slots,
        }
    }

    /// Builds the paths of a decoding step in a bucket of `rows` rows. Slots are cache nodes. A group consists of the rows that write the same node's state,
    /// in order; other groups don't read that state.
    pub(super) fn put_step(words: &mut Words, states: &[[usize; 2]], rows: usize) -> Paths {
        let new = |&row: &usize| row == 0 || row >= states.len() || states[row][1] != states[row - 1][1];
        let mut groups: Vec<u32> = (0..rows).filter(new).map(|row| row as u32).collect();
        groups.resize(rows + 1, rows as u32);
        let run = |row: usize| {
            let [from, to] = states.get(row).map_or([NONE; 2], |states| states.map(|node| node as u32));
            [row as u32, row as u32 + 1, from, to, NONE]
        };
        let runs = words.put((0..rows).flat_map(run));
        Paths { groups: words.put(groups), runs: [runs; 2], ..Paths::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segments::Batch;

    #[test]
    fn runs_end_where_paths_diverge_and_are_sorted_by_depth() {
        let mut batch = Batch::default();
        let root = batch.push_segment(&[1; 40], None);
        // An only child: it continues the same run.
        let next = batch.push_segment(&[2; 3], Some(root));
        let branch = batch.push_segment(&[3; 2], Some(next));
        batch.push_segment(&[4; 5], Some(next));
        batch.push_segment(&[5; 1], Some(branch));
        batch.push_segment(&[6; 1], Some(branch));
        batch.push_segment(&[7; 2], None);
        let mut chunk = Chunk::default();
        chunk.lay_out(&batch, batch.prompt_trees().iter());
        chunk.nodes = vec![8, 9];
        let mut words = Words::default();
        let paths = Paths::put(&mut words, &chunk, 3);
        // Rows: 0..43, 43..45, 45, 46, 47..52; 52..54.
        let five = |list| words.host(list).as_chunks::<5>().0.to_vec();
        let expected = [
            [0, 43, NONE, 0, NONE],
            [52, 54, NONE, NONE, 9],
            [43, 45, 0, 1, NONE],
            [47, 52, 0, NONE, 8],
            [45, 46, 1, NONE, NONE],
            [46, 47, 1, NONE, NONE],
        ];
        assert_eq!(five(paths.runs[0]), expected);
        let stretches: Vec<_> = five(paths.runs[1]).iter().map(|run| [run[2], run[3]]).collect();
        assert_eq!(stretches, [[NONE, 0], [NONE, 2], [1, 3], [1, 4], [3, 5], [3, 6]]);
        assert_eq!((paths.waves, paths.slots), (vec![0..2, 2..4, 4..6], [2, 7]));
        assert_eq!(words.host(paths.children), [2, 4, 0, 0, 4, 6, 0, 0, 0, 0, 0, 0]);
        assert_eq!(words.host(paths.ends), [51, 8, 53, 9]);
        // Row 42 is seen by the next rows on each path.
        let first = words.host(paths.later_first);
        let later = &words.host(paths.later)[first[42] as usize..first[43] as usize];
        let seen: Vec<_> = later.iter().map(|word| (word / TAPS as u32, word % TAPS as u32)).collect();
        assert_eq!(seen, [(43, 1), (44, 2), (47, 1), (48, 2)]);
    }

    #[test]
    fn rows_of_a_step_that_write_the_same_state_form_one_group() {
        let mut words = Words::default();
        let paths = Paths::put_step(&mut words, &[[0, 1], [0, 2], [3, 4], [4, 4], [4, 4]], 8);
        assert_eq!(words.host(paths.groups), [0, 1, 2, 5, 6, 7, 8, 8, 8]);
        assert_eq!(words.host(paths.runs[0])[10..25], [2, 3, 3, 4, NONE, 3, 4, 4, 4, NONE, 4, 5, 4, 4, NONE]);
        assert_eq!(words.host(paths.runs[0])[25..30], [5, 6, NONE, NONE, NONE]);
    }
}
