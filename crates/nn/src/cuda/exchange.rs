//! What replicas exchange at an update, by copies between GPUs: each sums its slice of all gradients, and later sends its slice of the new parameters.
//!
//! This is the reduce-scatter and the all-gather of ZeRO's first stage. Every replica pulls, in its own order of work, and sums in a fixed order. All
//! replicas meet before and after: nothing is read before it is ready, and nothing is overwritten before it is copied. The last meeting is the host's,
//! so an update is complete on all GPUs or has failed.

use fgrpo_cuda::{Queue, Shape};

use super::launches::{THREADS, args};
use super::replica::Replica;
use super::slices::{part_len, slice_len};

/// The mark of a meeting. [`Moments`](super::moments) uses smaller numbers.
const MET: usize = 100;

/// The other replicas, from the one after `place` on, in the order in which `place` takes from them. At any time each is taken from by one.
pub(super) fn others(place: usize, replicas: usize) -> impl Iterator<Item = usize> {
    (1..replicas).map(move |step| (place + step) % replicas)
}

/// Whether there is something to exchange, and nothing has failed: memory may be missing then.
fn able(replicas: &[Replica]) -> bool {
    replicas.len() > 1 && replicas.iter().all(|replica| replica.stream.check().is_ok())
}

/// No replica goes on before all have come here.
fn meet(replicas: &[Replica]) {
    for replica in replicas {
        replica.stream.record(Queue::Compute, MET);
    }
    for (place, replica) in replicas.iter().enumerate() {
        for other in others(place, replicas.len()) {
            replica.stream.wait_for(other, MET);
        }
    }
}

/// Sums each slice of the gradient at its owner: the owner's numbers, plus the sum of the others' in the order of [`others`]. The rest of each
/// gradient becomes 0, so the sum over all replicas stays what it is, and doing it again changes nothing.
pub(super) fn sum_gradients(replicas: &[Replica]) {
    if !able(replicas) {
        return;
    }
    let (trained, count) = (replicas[0].trained(), replicas.len());
    let len = part_len(trained, count);
    meet(replicas);
    for start in (0..slice_len(trained, count)).step_by(len) {
        for (place, owner) in replicas.iter().enumerate() {
            let slice = owner.slice();
            let first = (slice.start + start).min(slice.end);
            let numbers = (slice.end - first).min(len);
            for (index, other) in others(place, count).enumerate() {
                let from = replicas[other].gradient.at(first);
                owner.stream.copy_from(other, from, owner.inbox.at(index * numbers), 4 * numbers);
            }
            owner.stream.launch(
                "add_partials",
                Shape::covering(numbers, THREADS),
                args![&owner.inbox, owner.gradient.at(first), (count - 1) as u32, numbers as u32],
            );
        }
    }
    meet(replicas);
    for replica in replicas {
        let slice = replica.slice();
        replica.stream.zero(replica.gradient.at(0), 4 * slice.start);
        replica.stream.zero(replica.gradient.at(slice.end), 4 * (trained - slice.end));
    }
}

/// Copies each slice of the trained parameters from its owner to all others.
pub(super) fn share_parameters(replicas: &[Replica]) {
    if !able(replicas) {
        return;
    }
    meet(replicas);
    for (place, replica) in replicas.iter().enumerate() {
        for other in others(place, replicas.len()) {
            let (slice, from) = (replicas[other].slice(), replicas[other].trained_weights());
            replica.trained_weights().copy_from(&replica.stream, other, from, slice.start, slice.len());
        }
    }
    replicas.iter().for_each(|replica| replica.stream.synchronize());
}
