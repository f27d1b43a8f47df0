//! bfloat16 products with AMX: 16 x 16 sums per register, 8,192 multiplications per instruction.
//!
//! The compiler's AMX intrinsics aren't stable yet, so the instructions are written as assembly. Tiles are configured at the start of a product
//! and released at its end, so that context switches don't have to save them.

use std::arch::asm;

use super::super::microkernel::{Output, RowMajor};
use super::TILE;

/// Returns whether the processor has AMX for bfloat16 and the system lets this process use it.
pub(super) fn permitted() -> bool {
    const BF16_AND_TILES: u32 = 1 << 22 | 1 << 24;
    let has = std::arch::x86_64::__cpuid(0).eax >= 7
        && std::arch::x86_64::__cpuid_count(7, 0).edx & BF16_AND_TILES == BF16_AND_TILES;
    has && system_permits()
}

/// Requests the tile registers from Linux. The permission applies to all threads, including future ones.
#[cfg(target_os = "linux")]
fn system_permits() -> bool {
    const GET: libc::c_long = 0x1022;
    const REQUEST: libc::c_long = 0x1023;
    const TILE_DATA: u64 = 18;
    let mut permissions = 0u64;
    // SAFETY: both calls write at most the eight bytes of `permissions`.
    unsafe {
        libc::syscall(libc::SYS_arch_prctl, REQUEST, TILE_DATA) == 0
            && libc::syscall(libc::SYS_arch_prctl, GET, &raw mut permissions) == 0
            && permissions & 1 << TILE_DATA != 0
    }
}

/// Returns false, because only Linux is supported.
#[cfg(not(target_os = "linux"))]
fn system_permits() -> bool {
    false
}

/// Operand of `ldtilecfg`: eight tiles of 16 rows of 64 bytes.
#[repr(C, align(64))]
struct Tiles {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

static TILES: Tiles = {
    let (mut row_bytes, mut rows) = ([0; 16], [0; 16]);
    let mut i = 0;
    while i < 8 {
        (row_bytes[i], rows[i]) = (64, 16);
        i += 1;
    }
    Tiles { palette: 1, start_row: 0, reserved: [0; 14], row_bytes, rows }
};

/// Configures this thread's tiles.
///
/// # Safety
/// AMX must be [`permitted`].
pub(super) unsafe fn begin() {
    // SAFETY: the caller guarantees it; 64 bytes are read.
    unsafe { asm!("ldtilecfg [{}]", in(reg) &raw const TILES, options(nostack, readonly, preserves_flags)) }
}

/// Releases the tiles.
///
/// # Safety
/// [`begin`] must have been called on the same thread.
pub(super) unsafe fn end() {
    // SAFETY: the caller guarantees it.
    unsafe { asm!("tilerelease", options(nostack, nomem, preserves_flags)) }
}

/// Assembly that overwrites all tiles. `s` is the distance in bytes between the rows of a tile, and `cs` between the rows of the result.
macro_rules! tiles {
    ($($line:literal)*; $($operands:tt)*) => {
        asm!(
            $($line,)*
            $($operands)*
            s = in(reg) 64usize,
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
            out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
            options(nostack),
        )
    };
}

/// Computes 16 x 16 results, from one strip of each operand.
///
/// # Safety
/// [`begin`] must have been called. `blocks` blocks of `a` and `b` must be readable, and 16 rows of 16 values of `c` readable and writable.
pub(super) unsafe fn tile<const PARTS: usize>(blocks: usize, a: *const f32, b: *const f32, c: Output) {
    macro_rules! one {
        ($($line:literal)*) => {
            tiles!(
                "tilezero tmm0"
                "test {add}, {add}"
                "jz 2f"
                "tileloadd tmm0, [{c} + {cs}]"
                "2:"
                $($line)*
                "dec {n}"
                "jnz 2b"
                "tilestored [{c} + {cs}], tmm0";
                a = inout(reg) a => _, b = inout(reg) b => _, n = inout(reg) blocks => _,
                add = in(reg) usize::from(c.add), c = in(reg) c.first, cs = in(reg) 4 * c.stride,
            )
        };
    }
    // SAFETY: the caller guarantees it.
    unsafe {
        if PARTS == 1 {
            one!(
                "tileloadd tmm4, [{a} + {s}]"
                "tileloadd tmm6, [{b} + {s}]"
                "tdpbf16ps tmm0, tmm4, tmm6"
                "add {a}, 1024"
                "add {b}, 1024"
            );
        } else {
            one!(
                "tileloadd tmm5, [{a} + {s} + 1024]"
                "tileloadd tmm6, [{b} + {s}]"
                "tdpbf16ps tmm0, tmm5, tmm6"
                "tileloadd tmm4, [{a} + {s}]"
                "tdpbf16ps tmm0, tmm4, tmm6"
                "tileloadd tmm7, [{b} + {s} + 1024]"
                "tdpbf16ps tmm0, tmm4, tmm7"
                "add {a}, 2048"
                "add {b}, 2048"
            );
        }
    }
}

/// Computes 32 x 32 results from 32 rows of `a` and 32 columns of `b`.
///
/// # Safety
/// See [`tile`], but `c` has 32 rows of 32 values.
pub(super) unsafe fn four_tiles<const PARTS: usize>(blocks: usize, a: RowMajor, b: RowMajor, c: Output) {
    const { assert!(TILE == 256) };
    // SAFETY: the caller guarantees the second strips and the second half of the result.
    let (a2, b2, c2) = unsafe { (a.first.add(a.stride), b.first.add(b.stride), c.at(16, 0)) };
    macro_rules! four {
        ($($line:literal)*) => {
            tiles!(
                "test {add}, {add}"
                "jz 3f"
                "tileloadd tmm0, [{c} + {cs}]"
                "tileloadd tmm1, [{c} + {cs} + 64]"
                "tileloadd tmm2, [{c2} + {cs}]"
                "tileloadd tmm3, [{c2} + {cs} + 64]"
                "jmp 2f"
                "3:"
                "tilezero tmm0"
                "tilezero tmm1"
                "tilezero tmm2"
                "tilezero tmm3"
                "2:"
                $($line)*
                "dec {n}"
                "jnz 2b"
                "tilestored [{c} + {cs}], tmm0"
                "tilestored [{c} + {cs} + 64], tmm1"
                "tilestored [{c2} + {cs}], tmm2"
                "tilestored [{c2} + {cs} + 64], tmm3";
                a = inout(reg) a.first => _, a2 = inout(reg) a2 => _,
                b = inout(reg) b.first => _, b2 = inout(reg) b2 => _, n = inout(reg) blocks => _,
                add = in(reg) usize::from(c.add), c = in(reg) c.first, c2 = in(reg) c2.first,
                cs = in(reg) 4 * c.stride,
            )
        };
    }
    // Loads are placed between multiplications, which would otherwise wait for them.
    // SAFETY: the caller guarantees it.
    unsafe {
        if PARTS == 1 {
            four!(
                "tileloadd tmm4, [{a} + {s}]"
                "tileloadd tmm6, [{b} + {s}]"
                "tileloadd tmm7, [{b2} + {s}]"
                "tdpbf16ps tmm0, tmm4, tmm6"
                "tileloadd tmm5, [{a2} + {s}]"
                "tdpbf16ps tmm1, tmm4, tmm7"
                "tdpbf16ps tmm2, tmm5, tmm6"
                "tdpbf16ps tmm3, tmm5, tmm7"
                "add {a}, 1024"
                "add {a2}, 1024"
                "add {b}, 1024"
                "add {b2}, 1024"
            );
        } else {
            // The left's second parts with the right's first parts, then first with first, then first with second.
            four!(
                "tileloadd tmm4, [{a} + {s} + 1024]"
                "tileloadd tmm6, [{b} + {s}]"
                "tileloadd tmm7, [{b2} + {s}]"
                "tdpbf16ps tmm0, tmm4, tmm6"
                "tileloadd tmm5, [{a2} + {s} + 1024]"
                "tdpbf16ps tmm1, tmm4, tmm7"
                "tileloadd tmm4, [{a} + {s}]"
                "tdpbf16ps tmm2, tmm5, tmm6"
                "tdpbf16ps tmm3, tmm5, tmm7"
                "tileloadd tmm5, [{a2} + {s}]"
                "tdpbf16ps tmm0, tmm4, tmm6"
                "tdpbf16ps tmm1, tmm4, tmm7"
                "tdpbf16ps tmm2, tmm5, tmm6"
                "tileloadd tmm6, [{b} + {s} + 1024]"
                "tdpbf16ps tmm3, tmm5, tmm7"
                "tileloadd tmm7, [{b2} + {s} + 1024]"
                "tdpbf16ps tmm0, tmm4, tmm6"
                "tdpbf16ps tmm1, tmm4, tmm7"
                "tdpbf16ps tmm2, tmm5, tmm6"
                "tdpbf16ps tmm3, tmm5, tmm7"
                "add {a}, 2048"
                "add {a2}, 2048"
                "add {b}, 2048"
                "add {b2}, 2048"
            );
        }
    }
}
