//! Defines enums whose values have names for files, flags and messages.

/// An enum with named values.
pub trait Named: Copy + Send + Sync + 'static {
    /// Every value, with its name and a one-line description.
    const NAMES: &'static [(Self, &'static str, &'static str)];

    /// Returns the name of the value.
    fn name(self) -> &'static str;

    /// Returns the description of the value.
    fn about(self) -> &'static str {
        let entry = Self::NAMES.iter().find(|(_, name, _)| *name == self.name());
        entry.expect("every value has a name").2
    }

    /// Returns the value with this name, if there is one.
    fn from_name(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(_, other, _)| *other == name).map(|(value, _, _)| *value)
    }
}

/// Defines an enum whose variants have a name and a description, which is also their documentation.
#[macro_export]
macro_rules! named {
    ($(#[$attribute:meta])* $visibility:vis enum $kind:ident {
        $($(#[$inner:meta])* $variant:ident = $name:literal: $about:literal,)+
    }) => {
        $(#[$attribute])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        $visibility enum $kind {
            $(#[doc = $about] $(#[$inner])* $variant,)+
        }

        impl $crate::names::Named for $kind {
            const NAMES: &'static [(Self, &'static str, &'static str)] = &[$((Self::$variant, $name, $about)),+];

            fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name),+
                }
            }
        }

        impl std::fmt::Display for $kind {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad($crate::names::Named::name(*self))
            }
        }
    };
}
