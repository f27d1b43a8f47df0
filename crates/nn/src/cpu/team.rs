//! A team of threads that works together on one operation at a time.

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

/// Amount of work, in numbers, below which a second thread costs more than it gains.
const WORTHWHILE: usize = 1 << 15;

/// Threads in one or two pools, which share no threads.
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

    /// The threads of both teams as one.
    pub(crate) fn and(&self, other: &Team) -> Team {
        let pools: Vec<_> = self.pools.iter().chain(&other.pools).cloned().collect();
        assert!(pools.len() <= 2, "a team of {} pools", pools.len());
        Team { pools, size: self.size + other.size }
    }

    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// The pool of the team's first threads, including the main one.
    pub(crate) fn leader(&self) -> &ThreadPool {
        &self.pools[0]
    }

    /// Calls `body(part)` for each part below `parts`, which is at most the team's size, each on its own thread, and waits. The same part always runs
    /// on the same thread.
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

    /// Divides `0..count` into one range per thread, at multiples of `grain`. `work` is the approximate number of values touched; little work stays on
    /// one thread.
    fn ranges(&self, count: usize, grain: usize, work: usize) -> Vec<Range<usize>> {
        let grains = count.div_ceil(grain);
        let parts = self.size.min(grains).min(work.div_ceil(WORTHWHILE)).max(1);
        let at = |part: usize| (grains * part / parts * grain).min(count);
        (0..parts).map(|part| at(part)..at(part + 1)).collect()
    }

    /// Calls `body(part, range)` for ranges of `0..count`, each on its own thread. Ranges begin at multiples of `grain`; `work` is the approximate
    /// number of values touched.
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

    /// Calls `body(part, rows, outputs)` for ranges of `rows` rows, each on its own thread, with these rows of each output. An output is values and the
    /// number of values in a row; its last row may be shorter.
    pub(crate) fn split_rows<const N: usize>(
        &self,
        rows: usize,
        work: usize,
        outputs: [Rows<'_>; N],
        body: impl Fn(usize, Range<usize>, [&mut [f32]; N]) + Sync,
    ) {
        self.run_rows(&self.ranges(rows, 1, work), outputs, body);
    }

    /// [`Team::split_rows`] with these ranges of rows.
    ///
    /// # Panics
    /// If the ranges aren't ascending, or an output has too few rows.
    pub(crate) fn run_rows<const N: usize>(
        &self,
        ranges: &[Range<usize>],
        outputs: [Rows<'_>; N],
        body: impl Fn(usize, Range<usize>, [&mut [f32]; N]) + Sync,
    ) {
        let ascending = ranges.windows(2).all(|pair| pair[0].end <= pair[1].start);
        assert!(ascending && ranges.iter().all(|own| own.start <= own.end), "{ranges:?}");
        let outputs = outputs.map(|(values, width)| (Shared::new(values), width));
        self.run(ranges.len(), &|part| {
            let own = ranges[part].clone();
            let of_part = |(values, width): &(Shared<'_>, usize)| {
                let (start, end) = (own.start * width, (own.end * width).min(values.len));
                assert!(start <= end, "rows {own:?} of {width} in {} values", values.len);
                // SAFETY: in bounds, and the ranges are disjoint.
                unsafe { std::slice::from_raw_parts_mut(values.first.add(start), end - start) }
            };
            body(part, own.clone(), outputs.each_ref().map(of_part));
        });
    }

    /// Calls `body(part, columns, outputs)` for ranges of columns, each on its own thread, with these columns of each output. An output is values and the
    /// number of values in a row.
    ///
    /// # Panics
    /// If the rows of an output are shorter than `columns`.
    pub(crate) fn split_columns<const N: usize>(
        &self,
        columns: usize,
        grain: usize,
        work: usize,
        outputs: [Rows<'_>; N],
        body: impl Fn(usize, Range<usize>, [Columns<'_>; N]) + Sync,
    ) {
        assert!(outputs.iter().all(|(_, stride)| columns <= *stride), "{columns} columns of shorter rows");
        let outputs = outputs.map(|(values, stride)| (Shared::new(values), stride));
        self.split(columns, grain, work, |part, own| {
            let of_part =
                |i: usize| Columns { values: &outputs[i].0, stride: outputs[i].1, own: own.clone() };
            body(part, own.clone(), std::array::from_fn(of_part));
        });
    }
}

/// Values, and the number of values in a row.
pub(crate) type Rows<'a> = (&'a mut [f32], usize);

/// Some columns of rows of values, which no other thread has.
pub(crate) struct Columns<'a> {
    values: &'a Shared<'a>,
    stride: usize,
    own: Range<usize>,
}

impl Columns<'_> {
    /// All columns of a row that this thread has.
    pub(crate) fn row(&mut self, row: usize) -> &mut [f32] {
        self.part(row, self.own.clone())
    }

    /// Some columns of a row.
    ///
    /// # Panics
    /// If there is no such row, or this thread doesn't have the columns.
    pub(crate) fn part(&mut self, row: usize, columns: Range<usize>) -> &mut [f32] {
        let Range { start, end } = columns;
        assert!(
            self.own.start <= start && start <= end && end <= self.own.end,
            "{columns:?} of {:?}",
            self.own
        );
        assert!(row * self.stride + end <= self.values.len, "row {row} of {} values", self.values.len);
        // SAFETY: in bounds. Columns of two threads are disjoint, because no column lies beyond its row, and this borrows the thread's own.
        unsafe {
            std::slice::from_raw_parts_mut(self.values.first.add(row * self.stride + start), end - start)
        }
    }
}

/// Values whose parts are written by different threads at the same time, in an order that rows and columns don't describe. Debug builds check that no
/// two threads take the same value.
pub(crate) struct Shared<'a> {
    first: *mut f32,
    len: usize,
    #[cfg(debug_assertions)]
    taken: Mutex<Taken>,
    owner: PhantomData<&'a mut [f32]>,
}

/// Disjoint ranges, each with the thread that took it, by their starts.
#[cfg(debug_assertions)]
#[derive(Default)]
struct Taken(BTreeMap<usize, (usize, ThreadId)>);

#[cfg(debug_assertions)]
impl Taken {
    /// Records that this thread takes a range.
    ///
    /// # Panics
    /// If another thread has taken a number of it.
    fn take(&mut self, range: &Range<usize>) {
        let (mut start, mut end, this) = (range.start, range.end, std::thread::current().id());
        if range.is_empty() {
            return;
        }
        for (&from, &(to, thread)) in self.0.range(..end).rev().take_while(|(_, (to, _))| *to > range.start) {
            assert!(thread == this, "{range:?} overlaps {from}..{to}, which another thread has taken");
        }
        // Ranges of the same thread that overlap or touch become one, so that there are few.
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

// SAFETY: parts are only handed out by an unsafe function whose callers keep them apart.
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

    /// The numbers in `range`.
    ///
    /// # Panics
    /// If the range is out of bounds. In debug builds, if another thread has taken a part that overlaps, alive or not.
    ///
    /// # Safety
    /// Parts that are alive at the same time must not overlap.
    #[expect(clippy::mut_from_ref, reason = "that is its purpose; callers keep parts apart")]
    pub(crate) unsafe fn part(&self, range: Range<usize>) -> &mut [f32] {
        assert!(range.start <= range.end && range.end <= self.len, "{range:?} of {}", self.len);
        #[cfg(debug_assertions)]
        self.taken.lock().expect("another thread's part overlapped").take(&range);
        // SAFETY: inside the borrowed slice, and the caller keeps parts apart.
        unsafe { std::slice::from_raw_parts_mut(self.first.add(range.start), range.len()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Mutex;

    #[test]
    fn parts_cover_everything_once_at_multiples_of_the_grain_on_one_or_two_pools() {
        let one = Team::new(3).unwrap();
        for team in [one.clone(), one.and(&Team::new(2).unwrap()), Team::new(1).unwrap()] {
            for (count, grain) in [(1, 1), (7, 2), (100, 16), (3, 64)] {
                let seen = Mutex::new(Vec::new());
                team.split(count, grain, usize::MAX / 2, |_, range| {
                    assert!(range.start % grain == 0 && (range.end == count || range.end % grain == 0));
                    seen.lock().unwrap().extend(range);
                });
                let mut seen = seen.into_inner().unwrap();
                seen.sort_unstable();
                assert_eq!(seen, (0..count).collect::<Vec<_>>(), "{count} by {grain} of {}", team.size());
            }
        }
    }

    #[cfg(debug_assertions)]
    #[test]
    fn parts_of_two_threads_that_overlap_by_one_number_panic_and_others_do_not() {
        let team = Team::new(2).unwrap();
        let mut numbers = [0.0; 20];
        // Numbers that the second thread takes, after 4..8 and then 8..10 were the first one's.
        for (range, apart) in
            [(0..4, true), (10..20, true), (5..5, true), (9..11, false), (0..5, false), (2..12, false)]
        {
            let shared = Shared::new(&mut numbers);
            let barrier = std::sync::Barrier::new(2);
            let run = || {
                team.run(2, &|part| {
                    // SAFETY: no number is read or written.
                    let take = |own| assert!(unsafe { shared.part(own) }.len() <= 10);
                    if part == 0 {
                        [4..8, 8..10, 5..9].into_iter().for_each(take);
                    }
                    barrier.wait();
                    if part == 1 {
                        [range.clone(), range.clone()].into_iter().for_each(take);
                    }
                });
            };
            assert_eq!(catch_unwind(AssertUnwindSafe(run)).is_ok(), apart, "{range:?}");
        }
    }
}
