//! Keys of gateways: identities, group and storage keys, and TLS by raw public keys.
//!
//! The only crate with secrets in files: keys are made here, read here, and never written twice.

mod group_key;
mod identity;
pub mod key_file;
mod secret;
mod storage_key;
pub mod tls;

pub use group_key::{Claim, GroupKey, ProofKey};
pub use identity::{Identity, IdentityError, PublicKey, PublicKeyError};
pub use secret::{SecretError, SecretKind};
pub use storage_key::StorageKey;
