//! Signals of this process.

/// Turns a write beyond the limit of file sizes (`RLIMIT_FSIZE`) into the error `EFBIG`; SIGXFSZ would end
/// the process.
///
/// It holds for all threads, and for programs started later.
#[allow(unsafe_code, reason = "what handles a signal may be any code")]
pub fn ignore_file_size_signal() {
    // SAFETY: the signal is ignored, so that no code runs in its place; nobody else here handles it.
    let _before = unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}
