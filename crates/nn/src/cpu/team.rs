//! A team of threads that work together on one operation at a time.

#[cfg(debug_assertions)]
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;
#[cfg(debug_assertions)]
use std::sync::Mutex;
#[cfg(debug_assertions)]
use std::thread::ThreadId;

use rayon::ThreadPool;

use crate::error::Error;

/// Minimum number of accessed values for which a second thread pays off.
const WORTHWHILE: usize = 1 << 15;

/// A team: the threads of one or two thread pools.
#[derive(Clone)]
pub(crate) struct Team {
    pools: Vec<Arc<ThreadPool>>,
    size: usize,
}

impl Team {
    pub(crate) fn new(size: usize) -> Result<Team, Error> {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(size).build();
        let pool = pool.map_err(|error| {
            Error::request(
                "threads",
                format!("{size}: {error}"),
                "a number of threads that the system can start",
            )
        })?;
        Ok(Team { pools: vec![Arc::new(pool)], size })
    }

    /// Joins the threads of two teams.
    pub(crate) fn and(&self, other: &Team) -> Team {
        let pools: Vec<_> = self.pools.iter().chain(&other.pools).cloned().collect();
        assert!(pools.len() <= 2, "a team of {} pools", pools.len());
        Team { pools, size: self.size + other.size }
    }

    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Returns the first thread pool of the team.
    pub(crate) fn leader(&self) -> &ThreadPool {
        &self.pools[0]
    }

    /// Calls `body(part)` for each part in `0..parts`, each on a different thread, and waits. A part always runs on the
    /// same thread. `parts` must be at most the team's size.
    pub(crate) fn run(&self, parts: usize, body: &(dyn Fn(usize) + Sync)) {
        assert!(parts <= self.size, "{parts} parts for {} threads", self.size);
        if parts <= 1 {
            return (0..parts).for_each(body);
        }
        let call = |part: usize| {
            if part < parts {
                body(part);
            }
        };
        let first = &self.pools[0];
        let before = first.current_num_threads();
        match self.pools.get(1) {
            Some(second) if parts > before => second.in_place_scope(|scope| {
                scope.spawn_broadcast(|_, context| call(before + context.index()));
                first.broadcast(|context| call(context.index()));
            }),
            _ => drop(first.broadcast(|context| call(context.index()))),
        }
    }

    /// Divides `0..count` into at most one range per thread, at multiples of `grain`. `work` is the approximate number
    /// of values that are accessed; little work stays on one thread.
    fn ranges(&self, count: usize, grain: usize, work: usize) -> Vec<Range<usize>> {
        let grains = count.div_ceil(grain);
        let parts = self.size.min(grains).min(work.div_ceil(WORTHWHILE)).max(1);
        let at = |part: usize| (grains * part / parts * grain).min(count);
        (0..parts).map(|part| at(part)..at(part + 1)).collect()
    }

    /// Divides `0..count` into ranges and calls `body(part, range)` for each on a different thread. `part` is the index
    /// of the range. Ranges begin at multiples of `grain`; `work` is the approximate number of accessed values.
    pub(crate) fn split(
        &self,
        count: usize,
        grain: usize,
        work: usize,
        body: impl Fn(usize, Range<usize>) + Sync,
    ) {
        let ranges = self.ranges(count, grain, work);
        self.run(ranges.len(), &|part| body(part, ranges[part].clone()));
    }

    /// Like [`Team::split`] over `0..rows`, but calls `body(part, range, outputs)` with the range's rows of each
    /// output. The last row of an output may be shorter.
    pub(crate) fn split_rows<const N: usize>(
        &self,
        rows: usize,
        work: usize,
        outputs: [RowsMut<'_>; N],
        body: impl Fn(usize, Range<usize>, [&mut [f32]; N]) + Sync,
    ) {
        self.run_rows(&self.ranges(rows, 1, work), outputs, body);
    }

    /// Like [`Team::split_rows`], with the given ranges of rows.
    ///
    /// # Panics
    /// If the ranges aren't ascending, or an output has too few rows.
    pub(crate) fn run_rows<const N: usize>(
        &self,
        ranges: &[Range<usize>],
        outputs: [RowsMut<'_>; N],
        body: impl Fn(usize, Range<usize>, [&mut [f32]; N]) + Sync,
    ) {
        let ascending = ranges.windows(2).all(|pair| pair[0].end <= pair[1].start);
        assert!(ascending && ranges.iter().all(|range| range.start <= range.end), "{ranges:?}");
        let outputs = outputs.map(|(values, width)| (Shared::new(values), width));
        self.run(ranges.len(), &|part| {
            let range = ranges[part].clone();
            let rows_of = |(values, width): &(Shared<'_>, usize)| {
                let (start, end) = (range.start * width, (range.end * width).min(values.len));
                assert!(start <= end, "rows {range:?} of {width} in {} values", values.len);
                // SAFETY: in bounds, and the ranges are disjoint.
                unsafe { std::slice::from_raw_parts_mut(values.first.add(start), end - start) }
            };
            body(part, range.clone(), outputs.each_ref().map(rows_of));
        });
    }

    /// Like [`Team::split`] over `0..columns`, but calls `body(part, range, outputs)` with the range's columns of each
    /// output.
    ///
    /// # Panics
    /// If the rows of an output are shorter than `columns`.
    pub(crate) fn split_columns<const N: usize>(
        &self,
        columns: usize,
        grain: usize,
        work: usize,
        outputs: [RowsMut<'_>; N],
        body: impl Fn(usize, Range<usize>, [ColumnsMut<'_>; N]) + Sync,
    ) {
        assert!(outputs.iter().all(|(_, stride)| columns <= *stride), "{columns} columns in shorter rows");
        let outputs = outputs.map(|(values, stride)| (Shared::new(values), stride));
        self.split(columns, grain, work, |part, range| {
            let columns_of =
                |i: usize| ColumnsMut { values: &outputs[i].0, stride: outputs[i].1, range: range.clone() };
            body(part, range.clone(), std::array::from_fn(columns_of));
        });
    }
}

/// Values of a matrix, and the number of values per row.
pub(crate) type RowsMut<'a> = (&'a mut [f32], usize);

/// A range of columns of a matrix, which only one thread accesses.
pub(crate) struct ColumnsMut<'a> {
    values: &'a Shared<'a>,
    stride: usize,
    range: Range<usize>,
}

impl ColumnsMut<'_> {
    /// Returns this thread's columns of a row.
    pub(crate) fn row(&mut self, row: usize) -> &mut [f32] {
        self.part(row, self.range.clone())
    }

    /// Returns the columns `columns` of a row.
    ///
    /// # Panics
    /// If the row doesn't exist, or a column belongs to another thread.
    pub(crate) fn part(&mut self, row: usize, columns: Range<usize>) -> &mut [f32] {
        let Range { start, end } = columns;
        assert!(
            self.range.start <= start && start <= end && end <= self.range.end,
            "{columns:?} of {:?}",
            self.range
        );
        assert!(row * self.stride + end <= self.values.len, "row {row} of {} values", self.values.len);
        // SAFETY: in bounds. The columns of two threads are disjoint, because no column exceeds its row, and `self` is borrowed mutably.
        unsafe {
            std::slice::from_raw_parts_mut(self.values.first.add(row * self.stride + start), end - start)
        }
    }
}

/// Values that different threads write concurrently, in parts that aren't ranges of rows or columns. Debug builds check that no two threads take
/// the same value.
pub(crate) struct Shared<'a> {
    first: *mut f32,
    len: usize,
    #[cfg(debug_assertions)]
    taken: Mutex<Taken>,
    owner: PhantomData<&'a mut [f32]>,
}

/// Disjoint ranges by their starts, each with its end and the thread that took it.
#[cfg(debug_assertions)]
#[derive(Default)]
struct Taken(BTreeMap<usize, (usize, ThreadId)>);

#[cfg(debug_assertions)]
impl Taken {
    /// Records that this thread takes a range.
    ///
    /// # Panics
    /// If another thread has taken a value in the range.
    fn take(&mut self, range: &Range<usize>) {
        let (mut start, mut end, this) = (range.start, range.end, std::thread::current().id());
        if range.is_empty() {
            return;
        }
        for (&from, &(to, thread)) in self.0.range(..end).rev().take_while(|(_, (to, _))| *to > range.start) {
            assert!(thread == this, "{range:?} overlaps {from}..{to}, which another thread has taken");
        }
        // Overlapping and adjacent ranges of the same thread are merged, so the map stays small.
        while let Some((&from, &(to, thread))) = self.0.range(..end).next_back()
            && to >= start
            && thread == this
        {
            self.0.remove(&from);
            (start, end) = (start.min(from), end.max(to));
        }
        self.0.insert(start, (end, this));
    }
}

// SAFETY: parts are only handed out by an unsafe function, whose callers guarantee that they are disjoint.
unsafe impl Send for Shared<'_> {}
// SAFETY: as above.
unsafe impl Sync for Shared<'_> {}

impl<'a> Shared<'a> {
    pub(crate) fn new(numbers: &'a mut [f32]) -> Shared<'a> {
        Shared {
            first: numbers.as_mut_ptr(),
            len: numbers.len(),
            #[cfg(debug_assertions)]
            taken: Mutex::default(),
            owner: PhantomData,
        }
    }

    pub(crate) fn first(&self) -> *mut f32 {
        self.first
    }

    /// Returns the values in `range`.
    ///
    /// # Panics
    /// If the range is out of bounds. In debug builds, also if another thread has ever taken an overlapping part.
    ///
    /// # Safety
    /// Parts that are alive at the same time must not overlap.
    #[expect(clippy::mut_from_ref, reason = "callers guarantee that parts are disjoint")]
    pub(crate) unsafe fn part(&self, range: Range<usize>) -> &mut [f32] {
        assert!(range.start <= range.end && range.end <= self.len, "{range:?} of {}", self.len);
        #[cfg(debug_assertions)]
        self.taken.lock().expect("another thread's part overlapped").take(&range);
        // SAFETY: inside the borrowed slice, and the caller guarantees that parts are disjoint.
        unsafe { std::slice::from_raw_parts_mut(self.first.add(range.start), range.len()) }
    }
}

#[cfg(all(test, debug_assertions))]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn parts_of_two_threads_that_overlap_by_one_value_panic_and_others_do_not() {
        let team = Team::new(2).unwrap();
        let mut numbers = [0.0; 20];
        // Ranges of the second thread, after the first thread has taken 4..8 and 8..10.
        for (range, disjoint) in
            [(0..4, true), (10..20, true), (5..5, true), (9..11, false), (0..5, false), (2..12, false)]
        {
            let shared = Shared::new(&mut numbers);
            let barrier = std::sync::Barrier::new(2);
            let run = || {
                team.run(2, &|part| {
                    // SAFETY: no value is read or written.
                    let take = |range| assert!(unsafe { shared.part(range) }.len() <= 10);
                    if part == 0 {
                        [4..8, 8..10, 5..9].into_iter().for_each(take);
                    }
                    barrier.wait();
                    if part == 1 {
                        [range.clone(), range.clone()].into_iter().for_each(take);
                    }
                });
            };
            assert_eq!(catch_unwind(AssertUnwindSafe(run)).is_ok(), disjoint, "{range:?}");
        }
    }
}
