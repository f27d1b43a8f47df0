//! Enums whose values have names, used in files, flags and messages.

/// A choice among named values.
pub trait Named: Copy + Send + Sync + 'static {
    /// Every value, with its name and a one-line description.
    const NAMES: &'static [(Self, &'static str, &'static str)];

    /// The name of the value.
    fn name(self) -> &'static str;

    /// The description of the value.
    fn about(self) -> &'static str {
        let own = Self::NAMES.iter().find(|(_, name, _)| *name == self.name());
        own.expect("every value has a name").2
    }

    /// The value with this name.
    fn from_name(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(_, own, _)| *own == name).map(|(value, _, _)| *value)
    }
}

/// An enum whose variants have a name and a description, which is their documentation too.
#[macro_export]
macro_rules! named {
    ($(#[$attribute:meta])* $seen:vis enum $kind:ident {
        $($(#[$own:meta])* $variant:ident = $name:literal: $about:literal,)+
    }) => {
        $(#[$attribute])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        $seen enum $kind {
            $(#[doc = $about] $(#[$own])* $variant,)+
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
