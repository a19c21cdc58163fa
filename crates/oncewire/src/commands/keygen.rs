//! `oncewire keygen`: key pairs, encryption keys and group keys.

use anyhow::Context as _;
use oncewire_keys::GroupKey;
use oncewire_keys::Identity;
use oncewire_keys::StorageKey;

use crate::cli::Keygen;

/// Makes a key file, or reads an existing one, and prints the public key if it has one.
pub(super) fn run(args: &Keygen) -> anyhow::Result<()> {
    if args.encrypt_key {
        StorageKey::create(&args.out)?;
        return Ok(());
    }
    if args.group {
        GroupKey::create(&args.out)?;
        return Ok(());
    }
    let identity = if args.show { Identity::load(&args.out)? } else { Identity::create(&args.out)? };
    let shown = super::print(format!("{}\n", identity.public_key()));
    if args.show {
        return shown;
    }
    shown.with_context(|| {
        let path = args.out.display();
        format!("{path} was made, and `oncewire keygen --show --out {path}` prints its public key")
    })
}
