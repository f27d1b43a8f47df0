//! Memory as arrays of numbers: the device's, and page-locked memory of the host.

mod message;

pub use message::Message;

use crate::driver::{Driver, Queue};
use crate::launch::{Address, Argument, Error};
use std::marker::PhantomData;
use std::sync::Arc;

/// Numbers in a device's memory, which is freed on drop.
#[derive(Debug)]
pub struct Memory<T: Copy> {
    driver: Arc<dyn Driver>,
    at: Address,
    len: usize,
    numbers: PhantomData<T>,
}

impl<T: Copy> Memory<T> {
    /// Allocates `len` numbers with unspecified content.
    pub fn new(driver: &Arc<dyn Driver>, len: usize) -> Result<Self, Error> {
        let at = driver.allocate(len * size_of::<T>())?;
        Ok(Self { driver: Arc::clone(driver), at, len, numbers: PhantomData })
    }

    /// Copies the numbers of a slice to the device.
    /// Fails with [`Error::OutOfMemory`], or as reported by the driver.
    pub fn from(driver: &Arc<dyn Driver>, values: &[T]) -> Result<Self, Error> {
        let memory = Self::new(driver, values.len())?;
        driver.write(memory.at, bytes_of(values))?;
        Ok(memory)
    }

    /// Its address.
    pub fn address(&self) -> Address {
        self.at
    }

    /// The address of number `index`.
    ///
    /// # Panics
    /// If it is beyond the end.
    pub fn at(&self, index: usize) -> Address {
        assert!(index <= self.len, "number {index} of {}", self.len);
        self.at.plus(index * size_of::<T>())
    }

    /// Overwrites the numbers from `first` on.
    ///
    /// # Panics
    /// If they don't fit.
    pub fn write(&self, first: usize, values: &[T]) -> Result<(), Error> {
        assert!(
            first + values.len() <= self.len,
            "{} numbers from {first}, room for {}",
            values.len(),
            self.len
        );
        self.driver.write(self.at(first), bytes_of(values))
    }

    /// Reads the numbers from `first` on, after all work submitted so far.
    ///
    /// # Panics
    /// If there are fewer.
    pub fn read_into(&self, first: usize, to: &mut [T]) -> Result<(), Error> {
        assert!(first + to.len() <= self.len, "{} numbers from {first} of {}", to.len(), self.len);
        let bytes = size_of_val(to);
        // SAFETY: the slice covers exactly these numbers, which are plain data for every T used here.
        let view = unsafe { std::slice::from_raw_parts_mut(to.as_mut_ptr().cast::<u8>(), bytes) };
        self.driver.read(self.at(first), view)
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Reads all numbers, after all work submitted so far.
    pub fn read(&self) -> Result<Vec<T>, Error>
    where
        T: Default,
    {
        let mut values = vec![T::default(); self.len];
        self.read_into(0, &mut values)?;
        Ok(values)
    }
}

impl<T: Copy> From<&Memory<T>> for Argument {
    fn from(memory: &Memory<T>) -> Self {
        Argument::Address(memory.address())
    }
}

impl<T: Copy> Drop for Memory<T> {
    fn drop(&mut self) {
        self.driver.free(self.at, self.len * size_of::<T>());
    }
}

fn bytes_of<T: Copy>(values: &[T]) -> &[u8] {
    // SAFETY: plain data may be read as bytes; the length is the slice's own.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast::<u8>(), size_of_val(values)) }
}

/// Numbers in page-locked memory of the host, which the device copies from and to while it computes. Freed on drop.
#[derive(Debug)]
pub struct Pinned<T: Copy> {
    driver: Arc<dyn Driver>,
    at: Address,
    len: usize,
    numbers: PhantomData<T>,
}

impl<T: Copy + Default> Pinned<T> {
    /// Allocates `len` numbers, each the type's default.
    pub fn new(driver: &Arc<dyn Driver>, len: usize) -> Result<Self, Error> {
        let at = driver.allocate_host(len * size_of::<T>())?;
        for index in 0..len {
            // SAFETY: fresh memory for `len` numbers, aligned to a page.
            unsafe { (at.0 as *mut T).add(index).write(T::default()) };
        }
        Ok(Self { driver: Arc::clone(driver), at, len, numbers: PhantomData })
    }
}

impl<T: Copy> Pinned<T> {
    /// The number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn at(&self, first: usize, len: usize) -> Address {
        assert!(first + len <= self.len, "{len} numbers from {first} of {}", self.len);
        self.at.plus(first * size_of::<T>())
    }

    /// Copies `len` numbers to the device, in [`Queue::Upload`].
    ///
    /// # Panics
    /// If there are fewer.
    pub fn upload(&mut self, first: usize, len: usize, to: Address) -> Result<(), Error> {
        self.driver.transfer(Queue::Upload, self.at(first, len), to, len * size_of::<T>())
    }

    /// Overwrites `len` numbers by those of the device, in [`Queue::Download`].
    ///
    /// # Panics
    /// If there are fewer.
    pub fn download(&mut self, from: Address, first: usize, len: usize) -> Result<(), Error> {
        self.driver.transfer(Queue::Download, from, self.at(first, len), len * size_of::<T>())
    }

    /// The numbers, after all work submitted so far.
    pub fn read(&self) -> Result<&[T], Error> {
        self.driver.synchronize()?;
        // SAFETY: all numbers were written by `new`; copies to them are submitted through an exclusive borrow, and none is under way.
        Ok(unsafe { std::slice::from_raw_parts(self.at.0 as *const T, self.len) })
    }

    /// Overwrites the numbers from `first` on, after all work submitted so far.
    ///
    /// # Panics
    /// If they don't fit.
    pub fn write(&mut self, first: usize, values: &[T]) -> Result<(), Error> {
        self.driver.synchronize()?;
        let to = self.at(first, values.len());
        // SAFETY: the place holds that many numbers, and no copy is under way.
        unsafe { std::ptr::copy_nonoverlapping(values.as_ptr(), to.0 as *mut T, values.len()) };
        Ok(())
    }
}

impl<T: Copy> Drop for Pinned<T> {
    fn drop(&mut self) {
        // Copies may be under way; after a failure of the device none is.
        let _ = self.driver.synchronize();
        self.driver.free_host(self.at, self.len * size_of::<T>());
    }
}
