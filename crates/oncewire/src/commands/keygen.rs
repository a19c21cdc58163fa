//! `oncewire keygen`: a gateway's key pair.

use oncewire_gateway::identity::Identity;

use crate::cli::Keygen;

/// Makes a key file, or reads an existing one, and prints the public key.
pub(super) fn run(args: &Keygen) -> anyhow::Result<()> {
    let identity = if args.show { Identity::load(&args.out)? } else { Identity::create(&args.out)? };
    super::print(&format!("{}\n", identity.public_key()))
}
