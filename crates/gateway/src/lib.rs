//! The oncewire daemon as a library.
