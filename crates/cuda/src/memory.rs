//! Typed arrays in device memory and in page-locked host memory.

mod message;

pub use message::Message;

use crate::driver::{Driver, Queue};
use crate::launch::{Address, Argument, Error};
use crate::pointer::Pointer;
use std::marker::PhantomData;
use std::sync::Arc;

/// An array in device memory, freed on drop.
#[derive(Debug)]
pub struct Memory<T: Copy> {
    driver: Arc<dyn Driver>,
    at: Address,
    len: usize,
    numbers: PhantomData<T>,
}

impl<T: Copy> Memory<T> {
    /// Allocates `len` elements with unspecified contents.
    pub fn new(driver: &Arc<dyn Driver>, len: usize) -> Result<Self, Error> {
        let at = driver.allocate(len * size_of::<T>())?;
        Ok(Self { driver: Arc::clone(driver), at, len, numbers: PhantomData })
    }

    /// Allocates an array on the device and copies a slice to it.
    pub fn from(driver: &Arc<dyn Driver>, values: &[T]) -> Result<Self, Error> {
        let memory = Self::new(driver, values.len())?;
        driver.write(memory.at, bytes_of(values))?;
        Ok(memory)
    }

    /// Returns the address of the first element.
    pub fn address(&self) -> Address {
        self.at
    }

    /// Returns the address of element `index`, or of the end.
    ///
    /// # Panics
    /// If `index` is greater than the length.
    pub fn at(&self, index: usize) -> Address {
        assert!(index <= self.len, "number {index} of {}", self.len);
        self.at.plus(index * size_of::<T>())
    }

    /// Returns a pointer to element `index`, or to the end.
    ///
    /// # Panics
    /// If `index` is greater than the length.
    pub fn pointer(&self, index: usize) -> Pointer<T> {
        Pointer::new(self.at(index))
    }

    /// Overwrites the elements from index `first` on.
    ///
    /// # Panics
    /// If the values don't fit.
    pub fn write(&self, first: usize, values: &[T]) -> Result<(), Error> {
        assert!(
            first + values.len() <= self.len,
            "{} numbers from {first}, room for {}",
            values.len(),
            self.len
        );
        self.driver.write(self.at(first), bytes_of(values))
    }

    /// Waits for all submitted work, then copies elements from index `first` on to the slice.
    ///
    /// # Panics
    /// If the array is too short.
    pub fn read_into(&self, first: usize, to: &mut [T]) -> Result<(), Error> {
        assert!(first + to.len() <= self.len, "{} numbers from {first} of {}", to.len(), self.len);
        let bytes = size_of_val(to);
        // SAFETY: the bytes are those of the slice, and every `T` in use is a number, for which all bit patterns are valid.
        let view = unsafe { std::slice::from_raw_parts_mut(to.as_mut_ptr().cast::<u8>(), bytes) };
        self.driver.read(self.at(first), view)
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the array is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Waits for all submitted work, then returns a copy of the array.
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
    // SAFETY: the bytes are those of the slice, and every `T` in use is a number without padding.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast::<u8>(), size_of_val(values)) }
}

/// An array in page-locked host memory, which the device can copy from and to while it computes. Freed on drop.
#[derive(Debug)]
pub struct Pinned<T: Copy> {
    driver: Arc<dyn Driver>,
    at: Address,
    len: usize,
    numbers: PhantomData<T>,
}

impl<T: Copy + Default> Pinned<T> {
    /// Allocates `len` elements with the type's default value.
    pub fn new(driver: &Arc<dyn Driver>, len: usize) -> Result<Self, Error> {
        let at = driver.allocate_host(len * size_of::<T>())?;
        for index in 0..len {
            // SAFETY: the allocation has `len` elements and is aligned to a page.
            unsafe { (at.0 as *mut T).add(index).write(T::default()) };
        }
        Ok(Self { driver: Arc::clone(driver), at, len, numbers: PhantomData })
    }
}

impl<T: Copy> Pinned<T> {
    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the array is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn at(&self, first: usize, len: usize) -> Address {
        assert!(first + len <= self.len, "{len} numbers from {first} of {}", self.len);
        self.at.plus(first * size_of::<T>())
    }

    /// Copies `len` elements from index `first` on to the device, in [`Queue::Upload`].
    ///
    /// # Panics
    /// If the array is too short.
    pub fn upload(&mut self, first: usize, len: usize, to: Address) -> Result<(), Error> {
        self.driver.transfer(Queue::Upload, self.at(first, len), to, len * size_of::<T>())
    }

    /// Copies `len` elements from the device to index `first` and the following indices, in [`Queue::Download`].
    ///
    /// # Panics
    /// If the array is too short.
    pub fn download(&mut self, from: Address, first: usize, len: usize) -> Result<(), Error> {
        self.driver.transfer(Queue::Download, from, self.at(first, len), len * size_of::<T>())
    }

    /// Waits for all submitted work, then returns the array.
    pub fn read(&self) -> Result<&[T], Error> {
        self.driver.synchronize()?;
        // SAFETY: `new` initialized all elements. Copies to them are submitted through an exclusive borrow, and none is under way.
        Ok(unsafe { std::slice::from_raw_parts(self.at.0 as *const T, self.len) })
    }

    /// Waits for all submitted work, then overwrites the elements from index `first` on.
    ///
    /// # Panics
    /// If the values don't fit.
    pub fn write(&mut self, first: usize, values: &[T]) -> Result<(), Error> {
        self.driver.synchronize()?;
        let to = self.at(first, values.len());
        // SAFETY: `at` has checked the range, and no copy is under way.
        unsafe { std::ptr::copy_nonoverlapping(values.as_ptr(), to.0 as *mut T, values.len()) };
        Ok(())
    }
}

impl<T: Copy> Drop for Pinned<T> {
    fn drop(&mut self) {
        // Copies may be under way, unless the device has failed.
        let _ = self.driver.synchronize();
        self.driver.free_host(self.at, self.len * size_of::<T>());
    }
}
