//! Short messages between host and device, in order with launches. Neither side waits for the other's further work.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::Pinned;
use crate::driver::{Driver, Queue};
use crate::launch::{Address, Error};

/// Marks of messages; other work has smaller ones.
static NEXT_MARK: AtomicUsize = AtomicUsize::new(1000);

/// Page-locked memory of the host for one message at a time: to the device, or from it.
#[derive(Debug)]
pub struct Message<T: Copy> {
    memory: Pinned<T>,
    /// Of the last copy.
    mark: usize,
    /// Numbers of the last copy.
    len: usize,
}

impl<T: Copy + Default> Message<T> {
    /// Allocates memory for `room` numbers.
    pub fn new(driver: &Arc<dyn Driver>, room: usize) -> Result<Self, Error> {
        let mark = NEXT_MARK.fetch_add(1, Ordering::Relaxed);
        Ok(Self { memory: Pinned::new(driver, room)?, mark, len: 0 })
    }
}

impl<T: Copy> Message<T> {
    /// The largest number of elements.
    pub fn room(&self) -> usize {
        self.memory.len()
    }

    /// Copies numbers to the device, after the work submitted so far. It waits only for the message before this one.
    ///
    /// # Panics
    /// If there is no room for them.
    pub fn send(&mut self, values: &[T], to: Address) -> Result<(), Error> {
        let from = self.memory.at(0, values.len());
        let driver = &self.memory.driver;
        driver.wait_here(self.mark)?;
        // SAFETY: the place holds that many numbers, and the only copies from or to it are those of the mark.
        unsafe { std::ptr::copy_nonoverlapping(values.as_ptr(), from.0 as *mut T, values.len()) };
        self.len = values.len();
        driver.transfer(Queue::Compute, from, to, size_of_val(values))?;
        driver.record(Queue::Compute, self.mark)
    }

    /// Copies `len` numbers from the device, after the work submitted so far.
    ///
    /// # Panics
    /// If there is no room for them.
    pub fn receive(&mut self, from: Address, len: usize) -> Result<(), Error> {
        let to = self.memory.at(0, len);
        self.len = len;
        self.memory.driver.transfer(Queue::Compute, from, to, len * size_of::<T>())?;
        self.memory.driver.record(Queue::Compute, self.mark)
    }

    /// The numbers received last. It waits for them, and not for work submitted later.
    pub fn read(&self) -> Result<&[T], Error> {
        self.memory.driver.wait_here(self.mark)?;
        // SAFETY: all numbers were written by `Pinned::new`; copies to them are submitted through an exclusive borrow, and the last one is done.
        Ok(unsafe { std::slice::from_raw_parts(self.memory.at.0 as *const T, self.len) })
    }
}
