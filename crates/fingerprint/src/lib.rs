//! Where to look in the bytes: markers and fingerprints.
