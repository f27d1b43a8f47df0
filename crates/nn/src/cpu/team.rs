//! A team of threads that works together on one operation at a time.

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

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
    /// A new team of `size` threads.
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

    /// Number of threads.
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

    /// Divides `0..count` into one range per thread, at multiples of `grain`, and calls `body(part, range)` for each. `work` is the approximate
    /// number of numbers touched; little work stays on one thread.
    pub(crate) fn split(
        &self,
        count: usize,
        grain: usize,
        work: usize,
        body: impl Fn(usize, Range<usize>) + Sync,
    ) {
        let grains = count.div_ceil(grain);
        let parts = self.size.min(grains).min(work.div_ceil(WORTHWHILE)).max(1);
        let at = |part: usize| (grains * part / parts * grain).min(count);
        self.run(parts, &|part| body(part, at(part)..at(part + 1)));
    }
}

/// Numbers whose parts are written by different threads at the same time.
#[derive(Clone, Copy)]
pub(crate) struct Shared<'a> {
    first: *mut f32,
    len: usize,
    owner: PhantomData<&'a mut [f32]>,
}

// SAFETY: parts are only handed out by an unsafe function whose callers keep them apart.
unsafe impl Send for Shared<'_> {}
// SAFETY: as above.
unsafe impl Sync for Shared<'_> {}

impl<'a> Shared<'a> {
    pub(crate) fn new(numbers: &'a mut [f32]) -> Shared<'a> {
        Shared { first: numbers.as_mut_ptr(), len: numbers.len(), owner: PhantomData }
    }

    /// The first number's address.
    pub(crate) fn first(&self) -> *mut f32 {
        self.first
    }

    /// The numbers in `range`.
    ///
    /// # Panics
    /// If the range is out of bounds.
    ///
    /// # Safety
    /// Parts that are alive at the same time must not overlap.
    #[expect(clippy::mut_from_ref, reason = "that is its purpose; callers keep parts apart")]
    pub(crate) unsafe fn part(&self, range: Range<usize>) -> &mut [f32] {
        assert!(range.start <= range.end && range.end <= self.len, "{range:?} of {}", self.len);
        // SAFETY: inside the borrowed slice, and the caller keeps parts apart.
        unsafe { std::slice::from_raw_parts_mut(self.first.add(range.start), range.len()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
}
