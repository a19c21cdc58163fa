//! The key that the members of a trust group share (`[[group]] key_file`).

use std::fmt;
use std::path::Path;

use oncewire_codec::wanax::NameKey;
use oncewire_codec::wire::GroupProof;
use ring::hmac;

use crate::identity::PublicKey;
use crate::secret::{Secret, SecretError, SecretKind};

/// A secret of 32 bytes that all members of a group hold.
#[derive(Clone, PartialEq, Eq)]
pub struct GroupKey(Secret);

impl GroupKey {
    /// Makes a new key and writes it to `path`, which must not exist, readable by its owner alone.
    ///
    /// # Errors
    /// [`SecretError::Exists`] if anything is at `path` already; it is left alone.
    pub fn create(path: &Path) -> Result<Self, SecretError> {
        Secret::create(path, &KIND).map(Self)
    }

    /// Reads a key file: the line that [`Self::create`] writes, or 64 hexadecimal digits.
    ///
    /// # Errors
    /// If the file is missing, readable or writable by others than its owner, or no group key.
    pub fn load(path: &Path) -> Result<Self, SecretError> {
        Secret::load(path, &KIND).map(Self)
    }

    /// Returns what chunks are named with between members, who derive it and never say it.
    pub fn name_key(&self) -> NameKey {
        NameKey::new(self.0.derive("names of chunks"))
    }

    /// Returns what members prove to each other with that they hold this key.
    pub fn proofs(&self) -> ProofKey {
        ProofKey(hmac::Key::new(hmac::HMAC_SHA256, &self.0.derive("proofs of membership")))
    }

    /// Returns what members seal with in which they say where they are.
    pub(crate) fn note_secret(&self) -> [u8; 32] {
        self.0.derive("notes of where members are")
    }
}

impl fmt::Debug for GroupKey {
    /// Shows nothing of it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GroupKey(…)")
    }
}

/// Makes and checks proofs that a gateway holds a group's key.
///
/// A proof is HMAC-SHA256 over [`Claim`], field by field. It serves on one TLS connection and for one end of it alone,
/// so who sees it, as a peer without the key does, can use it nowhere.
#[derive(Clone)]
pub struct ProofKey(hmac::Key);

/// Who proves its membership to whom, and where.
#[derive(Clone, Copy, Debug)]
pub struct Claim<'a> {
    /// What both ends of the TLS connection know and nobody else: its exported keying material.
    pub binding: &'a [u8; 32],
    /// Who makes the proof.
    pub prover: &'a PublicKey,
    /// Who is to check it.
    pub verifier: &'a PublicKey,
    /// The instance that the prover's hello says.
    pub instance: u64,
}

impl ProofKey {
    #[cfg(test)]
    pub(crate) fn of_bytes(bytes: &[u8; 32]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, bytes))
    }

    /// Makes a proof for one's own hello.
    pub fn prove(&self, claim: Claim<'_>) -> GroupProof {
        let mut proof = [0; 32];
        proof.copy_from_slice(hmac::sign(&self.0, &claim.bytes()).as_ref());
        GroupProof(proof)
    }

    /// Says whether a proof of the peer's hello holds; the time that takes tells nothing of the right one.
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
    fn a_group_key_is_no_other_key_and_names_alike_for_whoever_reads_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("branches.key");
        let made = GroupKey::create(&path).unwrap();
        let read = GroupKey::load(&path).unwrap();
        assert_eq!(made.name_key(), read.name_key());
        assert_ne!(read.name_key(), GroupKey(Secret([1; 32])).name_key());
        assert_eq!(format!("{made:?}"), "GroupKey(…)");
        let error = StorageKey::load(&path).unwrap_err().to_string();
        assert!(error.contains("not a storage key"), "{error}");
        let no_folder = GroupKey::create(&dir.path().join("nowhere/x")).unwrap_err().to_string();
        assert!(no_folder.contains("there is no folder"), "{no_folder}");
        let missing = GroupKey::load(&dir.path().join("nowhere")).unwrap_err().to_string();
        assert!(missing.contains("keygen --group --out"), "{missing}");
    }
}
