//! Device addresses with the type of their elements.

use std::marker::PhantomData;

use crate::launch::{Address, Argument};

/// A bfloat16 number in device memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bf16(pub u16);

/// Device address of an element of type `T`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pointer<T> {
    address: Address,
    element: PhantomData<T>,
}

impl<T> Pointer<T> {
    /// A null pointer, for parameters that a kernel doesn't use.
    pub const NULL: Self = Self::new(Address(0));

    /// Returns a pointer to the element at an address.
    pub const fn new(address: Address) -> Self {
        Self { address, element: PhantomData }
    }

    /// Returns the pointer to the element that is `elements` elements further.
    #[must_use]
    pub fn plus(self, elements: usize) -> Self {
        Self::new(self.address.plus(elements * size_of::<T>()))
    }

    /// Returns a pointer to the same address with another element type.
    #[must_use]
    pub fn cast<U>(self) -> Pointer<U> {
        Pointer::new(self.address)
    }

    /// Returns the address.
    pub fn address(self) -> Address {
        self.address
    }
}

impl<T> From<Pointer<T>> for Argument {
    fn from(pointer: Pointer<T>) -> Self {
        Argument::Address(pointer.address)
    }
}

/// Device address of an activation or a weight, whose number type is known at run time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Values {
    /// Address of an f32 number.
    F32(Pointer<f32>),
    /// Address of a bfloat16 number.
    Bf16(Pointer<Bf16>),
}

impl Values {
    /// Returns the address.
    pub fn address(self) -> Address {
        match self {
            Values::F32(pointer) => pointer.address,
            Values::Bf16(pointer) => pointer.address,
        }
    }

    /// Returns the bytes of a value.
    pub fn bytes(self) -> usize {
        if matches!(self, Values::F32(_)) { 4 } else { 2 }
    }

    /// Returns whether a kernel that takes f32 values can take the address, because it has f32 values or is null.
    pub fn is_f32(self) -> bool {
        matches!(self, Values::F32(_)) || self.address() == Address(0)
    }

    /// Returns whether a kernel that takes bfloat16 values can take the address, because its values are or it is null.
    pub fn is_bf16(self) -> bool {
        matches!(self, Values::Bf16(_)) || self.address() == Address(0)
    }

    /// Returns the address that is `count` values further.
    #[must_use]
    pub fn plus(self, count: usize) -> Self {
        match self {
            Values::F32(pointer) => Values::F32(pointer.plus(count)),
            Values::Bf16(pointer) => Values::Bf16(pointer.plus(count)),
        }
    }
}

impl From<Values> for Argument {
    fn from(values: Values) -> Self {
        Argument::Address(values.address())
    }
}
