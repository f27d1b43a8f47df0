//! Short messages between host and device, in order with launches. A message waits only for work submitted before it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::Pinned;
use crate::driver::{Driver, Queue};
use crate::launch::{Address, Error};

/// Id of the next message's event. Other events have ids below 1000.
static NEXT_EVENT: AtomicUsize = AtomicUsize::new(1000);

/// A buffer in page-locked host memory for one message at a time, to or from the device.
#[derive(Debug)]
pub struct Message<T: Copy> {
    memory: Pinned<T>,
    /// Id of the last copy's event.
    event: usize,
    /// Number of elements of the last copy.
    len: usize,
}

impl<T: Copy + Default> Message<T> {
    /// Allocates memory for messages of up to `room` elements.
    pub fn new(driver: &Arc<dyn Driver>, room: usize) -> Result<Self, Error> {
        let event = NEXT_EVENT.fetch_add(1, Ordering::Relaxed);
        Ok(Self { memory: Pinned::new(driver, room)?, event, len: 0 })
    }
}

impl<T: Copy> Message<T> {
    /// Returns the maximum number of elements of a message.
    pub fn room(&self) -> usize {
        self.memory.len()
    }

    /// Copies values to the device, after the work submitted so far. The host waits only until this buffer's last message is copied.
    ///
    /// # Panics
    /// If the message is longer than the buffer.
    pub fn send(&mut self, values: &[T], to: Address) -> Result<(), Error> {
        let from = self.memory.at(0, values.len());
        let driver = &self.memory.driver;
        driver.wait_here(self.event)?;
        // SAFETY: `at` has checked the range. The last copy from or to the buffer is done, as the event shows.
        unsafe { std::ptr::copy_nonoverlapping(values.as_ptr(), from.0 as *mut T, values.len()) };
        self.len = values.len();
        driver.transfer(Queue::Compute, from, to, size_of_val(values))?;
        driver.record(Queue::Compute, self.event)
    }

    /// Copies `len` elements from the device to the buffer, after the work submitted so far.
    ///
    /// # Panics
    /// If the message is longer than the buffer.
    pub fn receive(&mut self, from: Address, len: usize) -> Result<(), Error> {
        let to = self.memory.at(0, len);
        self.len = len;
        self.memory.driver.transfer(Queue::Compute, from, to, len * size_of::<T>())?;
        self.memory.driver.record(Queue::Compute, self.event)
    }

    /// Waits for the last message, but not for work submitted after it, and returns the elements.
    pub fn read(&self) -> Result<&[T], Error> {
        self.memory.driver.wait_here(self.event)?;
        // SAFETY: `Pinned::new` initialized all elements. Copies to them are submitted through an exclusive borrow, and the last one is done.
        Ok(unsafe { std::slice::from_raw_parts(self.memory.at.0 as *const T, self.len) })
    }
}
