//! What is written once instead of for each constant, flag, option and callback's row of the header.

/// A group of the header's constants as a type of its own. It is no enum, since a later library may
/// return numbers that this crate has no name for.
macro_rules! constants {
    ($(#[$doc:meta])* $name:ident { $($(#[$item_doc:meta])* $item:ident = $value:ident,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub struct $name(pub(crate) i32);

        impl $name {
            $($(#[$item_doc])* pub const $item: $name = $name($crate::sys::$value);)+

            /// The number in specbatch.h.
            pub const fn code(self) -> i32 {
                self.0
            }
        }
    };
}

/// A group of the header's flags as a type of its own: `A | B`, and `Default` for none of them.
macro_rules! flags {
    ($(#[$doc:meta])* $name:ident { $($(#[$item_doc:meta])* $item:ident = $value:ident,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
        pub struct $name(pub(crate) u32);

        impl $name {
            /// None of them.
            pub const NONE: $name = $name(0);
            $($(#[$item_doc])* pub const $item: $name = $name($crate::sys::$value as u32);)+
        }

        impl std::ops::BitOr for $name {
            type Output = $name;

            fn bitor(self, other: $name) -> $name {
                $name(self.0 | other.0)
            }
        }
    };
}

/// Numbers up to a count that have names in the library: `name`, `by_name` and `all`.
macro_rules! named {
    ($name:ident, $count:ident, $name_of:ident, $by_name:ident) => {
        impl $name {
            /// All that the library at run time has.
            pub fn all() -> impl Iterator<Item = $name> {
                // SAFETY: the function takes nothing, and may be called at any time.
                (0..unsafe { $crate::sys::$count() }).map($name)
            }

            /// Its name in the library.
            pub fn name(self) -> &'static str {
                // SAFETY: any number may be asked for; names are static strings, or NULL.
                unsafe { $crate::call::name($crate::sys::$name_of(self.0)) }.unwrap_or("unknown")
            }

            /// The one with this name.
            ///
            /// # Errors
            /// `INVALID` if there is a NUL in the name, or else `NOT_FOUND`.
            pub fn by_name(name: &str) -> $crate::Result<$name> {
                let name = $crate::call::terminated(name.as_bytes())?;
                // SAFETY: the name ends in NUL.
                $crate::call::checked(unsafe { $crate::sys::$by_name(name.as_ptr()) }).map($name)
            }
        }
    };
}

/// Options: a struct of the header in `self.raw`, and methods that set its fields and return it.
/// A `field` is as in the header, a `constant` is one of `constants!` or `flags!`, and a `flag` is a
/// bool for a bit of the field `flags`.
macro_rules! setters {
    ($($(#[$doc:meta])* $kind:ident $name:ident $(: $type:ty)? $(= $flag:ident)?,)+) => {
        $(setters!(@ $(#[$doc])* $kind $name $(: $type)? $(= $flag)?);)+
    };
    (@ $(#[$doc:meta])* field $name:ident: $type:ty) => {
        $(#[$doc])*
        #[must_use]
        pub fn $name(mut self, $name: $type) -> Self {
            self.raw.0.$name = $name;
            self
        }
    };
    (@ $(#[$doc:meta])* constant $name:ident: $type:ty) => {
        $(#[$doc])*
        #[must_use]
        pub fn $name(mut self, $name: $type) -> Self {
            self.raw.0.$name = $name.0;
            self
        }
    };
    (@ $(#[$doc:meta])* flag $name:ident = $flag:ident) => {
        $(#[$doc])*
        #[must_use]
        pub fn $name(mut self, $name: bool) -> Self {
            let bit = $crate::sys::$flag as u32;
            self.raw.0.flags = if $name { self.raw.0.flags | bit } else { self.raw.0.flags & !bit };
            self
        }
    };
}

/// The rows that a callback is given: the iterator over them, a row, and what all kinds of rows have.
macro_rules! rows {
    ($(#[$rows_doc:meta])* $rows:ident, $(#[$row_doc:meta])* $row:ident = $raw:ident,
     $(#[$tokens_doc:meta])* tokens) => {
        $(#[$rows_doc])*
        #[derive(Debug)]
        pub struct $rows<'a> {
            rows: std::slice::Iter<'a, *mut $crate::sys::$raw>,
        }

        impl<'a> Iterator for $rows<'a> {
            type Item = $row<'a>;

            fn next(&mut self) -> Option<$row<'a>> {
                // SAFETY: the rows are ours until the callback returns, and each is borrowed once.
                self.rows.next().map(|row| $row { raw: unsafe { &mut **row } })
            }

            fn size_hint(&self) -> (usize, Option<usize>) {
                self.rows.size_hint()
            }
        }

        impl ExactSizeIterator for $rows<'_> {}

        $(#[$row_doc])*
        #[derive(Debug)]
        pub struct $row<'a> {
            raw: &'a mut $crate::sys::$raw,
        }

        // SAFETY: what a row points to is its own, or not written by anybody while it is there. So
        // rows may be worked on by several threads, which their lifetime lets end before the
        // callback does.
        unsafe impl Send for $row<'_> {}

        impl $row<'_> {
            /// The request, by its number in its pool.
            pub fn request(&self) -> $crate::RequestId {
                self.raw.request_id
            }

            /// The request's `user`.
            pub fn user(&self) -> usize {
                self.raw.request_user as usize
            }

            $(#[$tokens_doc])*
            pub fn tokens(&self) -> &[$crate::Token] {
                // SAFETY: the library's tokens do not change while the row is there.
                unsafe { $crate::call::borrowed(self.raw.tokens, self.raw.n_tokens) }
            }
        }
    };
}
