//! Asking a running gateway by way of its admin interface.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context as _, bail};
use oncewire_gateway::config::{Config, read_token};
use serde::de::DeserializeOwned;

use crate::cli::Ask;
use crate::failure::Usage;

/// What a gateway answered.
pub(super) struct Answer<T> {
    /// The JSON as it came.
    pub(super) text: String,
    /// What it says.
    pub(super) report: T,
}

/// Asks for one of the admin interface's paths.
pub(super) fn ask<T: DeserializeOwned>(args: &Ask, path: &str) -> anyhow::Result<Answer<T>> {
    let (address, token) = place(args)?;
    let agent = ureq::Agent::new_with_config(
        ureq::Agent::config_builder()
            .timeout_global(Some(PATIENCE))
            .http_status_as_error(false)
            .proxy(None)
            .build(),
    );
    let mut request = agent.get(format!("http://{address}{path}"));
    if let Some(token) = token {
        request = request.header("Authorization", format!("Bearer {token}"));
    }
    let unreachable = || {
        format!(
            "no gateway answers at {address}; is it running, and is this the `admin` of its [gateway] section?"
        )
    };
    let mut response = request.call().with_context(unreachable)?;
    let status = response.status();
    let text =
        response.body_mut().with_config().limit(MAX_ANSWER).read_to_string().with_context(unreachable)?;
    if status == 401 {
        bail!("{address} asks for a token; give -c FILE, or --token-file FILE");
    }
    if !status.is_success() {
        bail!("{address} answered {status}: {}", text.trim());
    }
    let report = serde_json::from_str(&text)
        .with_context(|| format!("{address} is no oncewire admin interface, or one of another version"))?;
    Ok(Answer { text, report })
}

/// Returns where to ask and with what token.
fn place(args: &Ask) -> anyhow::Result<(String, Option<String>)> {
    let Some(path) = &args.config else {
        let token = args.token_file.as_deref().map(read_token).transpose().map_err(Usage)?;
        return Ok((args.admin.clone(), token));
    };
    match Config::load_admin(path)? {
        Some(admin) => Ok((reachable(admin.listen).to_string(), admin.token)),
        None => Err(Usage(format!(
            "{}: no `admin` in [gateway], so there is nobody to ask; set it",
            path.display()
        ))
        .into()),
    }
}

/// Returns where to connect to for what listens on an address: any address means this machine's.
fn reachable(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, listen.port())
}

/// Connecting and answering take milliseconds, unless the machine is in trouble.
const PATIENCE: Duration = Duration::from_secs(10);
/// Ten thousand flows with names of 255 bytes take some five million.
const MAX_ANSWER: u64 = 64 << 20;
