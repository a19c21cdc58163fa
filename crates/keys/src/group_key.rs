//! The shared key of a trust group's members (`[[group]] key_file`).

use std::fmt;
use std::path::Path;

use oncewire_codec::wanax::NameKey;
use oncewire_codec::wire::GroupProof;
use ring::hmac;

use crate::identity::PublicKey;
use crate::secret::{Secret, SecretError, SecretKind};

/// A secret of 32 bytes held by all members of a group.
#[derive(Clone, PartialEq, Eq)]
pub struct GroupKey(Secret);

impl GroupKey {
    /// Makes a new key and writes it to a new file at `path`, readable by its owner alone.
    ///
    /// # Errors
    /// [`SecretError::Exists`] if anything is at `path` already; it is left alone.
    pub fn create(path: &Path) -> Result<Self, SecretError> {
        Secret::create(path, &KIND).map(Self)
    }

    /// Reads a key file: the line written by [`Self::create`], or 64 hexadecimal digits.
    ///
    /// # Errors
    /// If the file is missing, readable or writable by others than its owner, or no group key.
    pub fn load(path: &Path) -> Result<Self, SecretError> {
        Secret::load(path, &KIND).map(Self)
    }

    /// Returns the key of chunk names between members; they derive it and never send it.
    pub fn name_key(&self) -> NameKey {
        NameKey::new(self.0.derive("names of chunks"))
    }

    /// Returns the key of members' proofs to each other.
    pub fn proofs(&self) -> ProofKey {
        ProofKey(hmac::Key::new(hmac::HMAC_SHA256, &self.0.derive("proofs of membership")))
    }

    /// Returns the sealing secret of discovery notes.
    pub fn note_secret(&self) -> [u8; 32] {
        self.0.derive("notes of where members are")
    }
}

impl fmt::Debug for GroupKey {
    /// Shows nothing of it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GroupKey(…)")
    }
}

/// Makes and checks proofs of holding a group's key.
///
/// A proof is HMAC-SHA256 over [`Claim`], field by field. It serves on one TLS connection and for one end of
/// it alone: others with knowledge of it, such as a peer without the key, can use it nowhere.
#[derive(Clone)]
pub struct ProofKey(hmac::Key);

/// Parties and connection of a proof.
#[derive(Clone, Copy, Debug)]
pub struct Claim<'a> {
    /// A secret shared by both ends of the TLS connection alone: its exported keying material.
    pub binding: &'a [u8; 32],
    /// Maker of the proof.
    pub prover: &'a PublicKey,
    /// Its verifier.
    pub verifier: &'a PublicKey,
    /// The instance in the prover's hello.
    pub instance: u64,
}

impl ProofKey {
    /// Takes a key of 32 secret bytes, which in use are derived ([`GroupKey::proofs`]).
    pub fn of_bytes(bytes: &[u8; 32]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, bytes))
    }

    /// Makes a proof for one's own hello.
    pub fn prove(&self, claim: Claim<'_>) -> GroupProof {
        let mut proof = [0; 32];
        proof.copy_from_slice(hmac::sign(&self.0, &claim.bytes()).as_ref());
        GroupProof(proof)
    }

    /// Whether a proof of the peer's hello holds, in constant time.
    pub fn holds(&self, claim: Claim<'_>, proof: &GroupProof) -> bool {
        hmac::verify(&self.0, &claim.bytes(), &proof.0).is_ok()
    }
}

impl fmt::Debug for ProofKey {
    /// Shows nothing of it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ProofKey(…)")
    }
}

impl Claim<'_> {
    fn bytes(&self) -> Vec<u8> {
        let Self { binding, prover, verifier, instance } = self;
        [&binding[..], prover.as_bytes(), verifier.as_bytes(), &instance.to_le_bytes()].concat()
    }
}

const KIND: SecretKind =
    SecretKind { prefix: "oncewire-group-v1:", name: "group key", command: "oncewire keygen --group --out" };

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage_key::StorageKey;

    #[test]
    fn proof_holds_for_its_claim_alone() {
        let public = |seed| crate::identity::Identity::from_seed([seed; 32]).public_key();
        let (one, other, third) = (public(1), public(2), public(3));
        let (key, binding) = (GroupKey(Secret([7; 32])), [9; 32]);
        let claim = Claim { binding: &binding, prover: &one, verifier: &other, instance: 5 };
        let proof = key.proofs().prove(claim);
        assert!(key.proofs().holds(claim, &proof));
        for wrong in [
            Claim { binding: &[8; 32], ..claim },
            Claim { prover: &other, verifier: &one, ..claim },
            Claim { prover: &third, ..claim },
            Claim { verifier: &third, ..claim },
            Claim { instance: 6, ..claim },
        ] {
            assert!(!key.proofs().holds(wrong, &proof), "{wrong:?}");
        }
        assert!(!GroupKey(Secret([6; 32])).proofs().holds(claim, &proof));
        assert!(!key.proofs().holds(claim, &GroupProof([0; 32])));
        assert_eq!(format!("{:?}", key.proofs()), "ProofKey(…)");
    }

    #[test]
    fn group_key_gives_equal_names_to_all_readers() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("branches.key");
        let made = GroupKey::create(&path).unwrap();
        let read = GroupKey::load(&path).unwrap();
        assert_eq!(made.name_key(), read.name_key());
        assert_ne!(read.name_key(), GroupKey(Secret([1; 32])).name_key());
        assert_eq!(format!("{made:?}"), "GroupKey(…)");
        let error = StorageKey::load(&path).unwrap_err().to_string();
        assert!(error.contains("not a storage key"), "{error}");
        let no_directory = GroupKey::create(&dir.path().join("nowhere/x")).unwrap_err().to_string();
        assert!(no_directory.contains("there is no directory"), "{no_directory}");
        let missing = GroupKey::load(&dir.path().join("nowhere")).unwrap_err().to_string();
        assert!(missing.contains("keygen --group --out"), "{missing}");
    }
}
