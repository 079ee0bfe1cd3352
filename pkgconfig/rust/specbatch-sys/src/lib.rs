//! The declarations of `specbatch.h`, as they are: libspecbatch decodes language models by batch
//! speculative decoding, and exactly. The crate `specbatch` is what programs use; this one is what
//! it stands on.
//!
//! `bindings.rs` is generated from the header, whose comments are the manual: what each function
//! asks of its caller is said there. `Default` of a struct is the header's `_INIT`. Which library is
//! linked is told in `build.rs`.

#![allow(non_camel_case_types)]

use std::marker::{PhantomData, PhantomPinned};
use std::mem::{size_of, zeroed};

/// The content of a handle, which is the library's. It makes the handle neither `Send` nor `Sync`
/// nor `Unpin`, since that is for a safe layer to say.
#[repr(C)]
struct Opaque {
    _none: [u8; 0],
    _marker: PhantomData<(*mut u8, PhantomPinned)>,
}

/// Implements `Default` for an option struct: its size, the fields that are given, and zero in all
/// others.
macro_rules! initial {
    ($name:ident $(, $field:ident: $value:literal)*) => {
        impl Default for $name {
            fn default() -> $name {
                $name {
                    struct_size: size_of::<$name>(),
                    $($field: $value,)*
                    // SAFETY: the fields are numbers and pointers, which all may be zero.
                    ..unsafe { zeroed() }
                }
            }
        }
    };
}

include!("bindings.rs");
