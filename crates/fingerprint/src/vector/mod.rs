//! The vector operations of the algorithms, and the instruction sets for them.
//!
//! An algorithm is written once, over [`Vector`], as safe code: a value of an implementing type exists only on a
//! processor with the instructions, so its methods need no further proof. [`Backend::run`] takes the one decision of
//! a call, and compiles the whole [`Task`] for the chosen instruction set.

#[cfg(all(target_arch = "aarch64", target_feature = "neon", not(feature = "portable")))]
#[expect(unsafe_code, reason = "NEON's instructions")]
mod aarch64;
#[cfg(all(target_arch = "x86_64", not(feature = "portable")))]
#[expect(unsafe_code, reason = "AVX2's instructions")]
mod x86_64;

use std::fmt;

/// The instruction set for this crate's loops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Backend {
    /// Any processor.
    Portable,
    /// x86-64 with AVX2, BMI1, BMI2 and LZCNT: Intel's since 2013, AMD's since 2015.
    Avx2,
    /// 64-bit ARM.
    Neon,
}

impl Backend {
    /// All of them, on any machine.
    pub const ALL: [Self; 3] = [Self::Portable, Self::Avx2, Self::Neon];

    /// Returns the fastest on this machine; [`Self::Portable`] in a build with the feature `portable`.
    #[inline]
    pub fn best() -> Self {
        [Self::Avx2, Self::Neon].into_iter().find(|backend| backend.is_available()).unwrap_or(Self::Portable)
    }

    /// Returns whether this machine has it, and this build is made for it.
    #[inline]
    pub fn is_available(self) -> bool {
        match self {
            Self::Portable => true,
            #[cfg(all(target_arch = "x86_64", not(feature = "portable")))]
            Self::Avx2 => x86_64::Avx2::new().is_some(),
            #[cfg(all(target_arch = "aarch64", target_feature = "neon", not(feature = "portable")))]
            Self::Neon => true,
            #[allow(unreachable_patterns, reason = "no machine has them all")]
            _ => false,
        }
    }

    /// Returns a name for reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Portable => "portable",
            Self::Avx2 => "avx2",
            Self::Neon => "neon",
        }
    }

    /// Does `task` on this backend, or on [`Self::Portable`] if the machine lacks it.
    #[inline(always)]
    pub(crate) fn run<T: Task>(self, task: T) -> T::Output {
        match self {
            #[cfg(all(target_arch = "x86_64", not(feature = "portable")))]
            Self::Avx2 => match x86_64::Avx2::new() {
                Some(vector) => vector.run(task),
                None => task.portable(),
            },
            #[cfg(all(target_arch = "aarch64", target_feature = "neon", not(feature = "portable")))]
            Self::Neon => task.vectors(aarch64::Neon),
            _ => task.portable(),
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Work with a version for any processor and one for vectors.
pub(crate) trait Task {
    type Output;

    /// Does it without vectors.
    fn portable(self) -> Self::Output;

    /// Does it with vectors; to be marked `inline(always)`, like all functions with the vector as a parameter, since
    /// only inlined code is compiled for the instruction set.
    fn vectors<V: Vector>(self, vector: V) -> Self::Output;
}

/// Bytes in a register, and positions of one step.
pub(crate) const LANES: usize = 32;

/// The bytes read by a step, with four for each position.
pub(crate) type Group = [u8; LANES + 3];

/// Returns the group of the positions from `at` on, if all its bytes are there.
#[inline(always)]
pub(crate) fn group(bytes: &[u8], at: usize) -> Option<&Group> {
    bytes.get(at..)?.first_chunk()
}

/// An instruction set for registers of 32 bytes, or eight numbers of 32 bits.
pub(crate) trait Vector: Copy {
    type Register: Copy;

    fn load(self, bytes: &[u8; LANES]) -> Self::Register;
    /// Returns a register with `half` twice.
    fn twice(self, half: &[u8; LANES / 2]) -> Self::Register;
    fn splat_u32(self, number: u32) -> Self::Register;
    fn and(self, a: Self::Register, b: Self::Register) -> Self::Register;
    fn or(self, a: Self::Register, b: Self::Register) -> Self::Register;
    /// Returns the lower half of each byte.
    fn lower_nibbles(self, a: Self::Register) -> Self::Register;
    /// Returns the upper half of each byte.
    fn upper_nibbles(self, a: Self::Register) -> Self::Register;
    /// Returns entry `indices[i]` of the table in both halves of `table`; indices are below 16.
    fn look_up(self, table: Self::Register, indices: Self::Register) -> Self::Register;
    /// Returns the nonzero bytes, as bits.
    fn nonzero_bytes(self, a: Self::Register) -> u32;
    fn mul_u32(self, a: Self::Register, b: Self::Register) -> Self::Register;
    fn max_u32(self, a: Self::Register, b: Self::Register) -> Self::Register;
    /// Returns all ones in each number equal in `a` and `b`, zeros in the others.
    fn eq_u32(self, a: Self::Register, b: Self::Register) -> Self::Register;
    /// Returns `a` if `mask` is all ones, `b` if it is 0, for each byte.
    fn select(self, mask: Self::Register, a: Self::Register, b: Self::Register) -> Self::Register;
    /// Returns all ones in each number greater in `a` than in `b` as signed ones, zeros in the others.
    fn gt_i32(self, a: Self::Register, b: Self::Register) -> Self::Register;
    /// Returns the largest number of `a` in all places.
    fn highest_u32(self, a: Self::Register) -> Self::Register;
    /// Returns the first number.
    fn first_u32(self, a: Self::Register) -> u32;
    /// Returns bit `4 * i + j` set if number `i` of `parts[j]` is all ones; each number must be that or 0.
    fn interleave(self, parts: [Self::Register; 4]) -> u32;

    /// Returns the products of each four neighbouring bytes and `multiplier`: number `i` of result `j` is of the bytes
    /// from `4 * i + j` on.
    #[inline(always)]
    fn products(self, group: &Group, multiplier: Self::Register) -> [Self::Register; 4] {
        each(
            parts(group),
            #[inline(always)]
            |part| self.mul_u32(self.load(part), multiplier),
        )
    }
}

/// Returns `f` of each; spelt out, since an array's `map` would not be compiled for the instruction set.
#[inline(always)]
pub(crate) fn each<A, B>([a, b, c, d]: [A; 4], f: impl Fn(A) -> B) -> [B; 4] {
    [f(a), f(b), f(c), f(d)]
}

/// Returns the 32 bytes from each of the first four positions on.
#[inline(always)]
fn parts(group: &Group) -> [&[u8; LANES]; 4] {
    let part = |offset: usize| group.get(offset..).and_then(<[u8]>::first_chunk).unwrap_or(&[0; LANES]);
    [part(0), part(1), part(2), part(3)]
}
