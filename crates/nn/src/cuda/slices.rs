//! How the trained parameters are divided among replicas: sizes alone, for the engine and for `--dry-run`.

/// Slices begin at multiples of this many numbers.
const ALIGNED: usize = 64;

/// Numbers that each of so many replicas updates; the last ones may have fewer.
pub(crate) fn slice_len(trained: usize, replicas: usize) -> usize {
    if replicas == 1 { trained } else { trained.div_ceil(replicas).next_multiple_of(ALIGNED) }
}

/// Numbers of a slice whose gradients are summed at a time: a sixteenth, at most 16 MiB.
pub(crate) fn part_len(trained: usize, replicas: usize) -> usize {
    slice_len(trained, replicas).div_ceil(16).min(1 << 22)
}

/// Numbers of other replicas' gradients that a replica holds at a time: a part of each.
pub(crate) fn inbox_len(trained: usize, replicas: usize) -> usize {
    (replicas - 1) * part_len(trained, replicas)
}
