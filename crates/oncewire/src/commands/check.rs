//! `oncewire check`: the meaning of a configuration.

use std::fmt::Write as _;
use std::path::Path;

use oncewire_codec::{Plan, Quota};
use oncewire_config::MAX_FOUND;
use oncewire_config::units::{Rate, Size, Time};
use oncewire_config::{
    Adapt, Capture, Config, Discovery, Intercept, LogBudget, Looked, Mode, OnPeerLoss, PathChoice, Peer,
    PeerChoice, Policy, Scope, StoreSettings,
};
use oncewire_gateway::lifecycle::{access, privileges};
use oncewire_intercept::rules::RuleSet;
use oncewire_tunnel::chunks::refuses_key;

use super::advice::advice;
use crate::table::counted;

/// Reads a configuration and prints its meaning.
pub(super) fn run(path: &Path) -> anyhow::Result<()> {
    let mut config = Config::load(path)?;
    let key = config.gateway.encrypt_key.as_ref();
    if let Some(why) = config.store.as_ref().and_then(|store| refuses_key(store, key)) {
        return Err(config.wrong_key(&why).into());
    }
    if let Some(rules) = RuleSet::of(&config).map(RuleSet::on_this_machine) {
        config.warnings.extend(rules.obstacles());
    }
    config.warnings.extend(config.obstacles());
    config.warnings.extend(privileges::obstacle(&config));
    config.warnings.extend(access::obstacles(&config));
    config.warnings.extend(advice(&config));
    super::print(describe(&config))
}

/// Writes the gateway's parts, one a line, and then the warnings.
fn describe(config: &Config) -> String {
    let mut text = gateway(config);
    for peer in &config.peers {
        text.push_str(&describe_peer(peer));
    }
    if let Some(discovery) = &config.discovery {
        text.push_str(&describe_discovery(discovery));
    }
    for intercept in &config.intercepts {
        text.push_str(&describe_intercept(intercept));
    }
    let rules = RuleSet::of(config);
    let bypasses = rules.as_ref().map(RuleSet::bypasses).unwrap_or_default();
    for (at, policy) in config.policies.rules.iter().enumerate() {
        let _ = writeln!(text, "policy {}: {}", at + 1, describe_policy(policy));
        if bypasses.iter().any(|(number, _)| *number == at + 1) {
            let _ =
                writeln!(text, "  where tproxy or redirect would take them in, the kernel lets them pass");
        }
        for peer in &config.peers {
            let mut plans = config.policies.plans(&peer.name, peer.settings.plan());
            if let Some((_, plan)) = plans.find(|(rule, _)| *rule == Some(at + 1)) {
                let _ = writeln!(text, "  by way of {}: {}", peer.name, describe_plan(&plan));
            }
        }
    }
    for warning in &config.warnings {
        let _ = writeln!(text, "warning: {warning}");
    }
    let _ = writeln!(text, "{} is good", config.path.display());
    text
}

fn gateway(config: &Config) -> String {
    let gateway = &config.gateway;
    let listen = match &gateway.listen[..] {
        [] => "accepts no peers, only dials".to_owned(),
        listen => format!("accepts peers on {}", joined(listen)),
    };
    let admin = match &gateway.admin {
        None => "no admin interface: `oncewire status` cannot ask".to_owned(),
        Some(admin) if admin.token.is_some() => format!("admin interface on {}, with a token", admin.listen),
        Some(admin) => format!("admin interface on {}", admin.listen),
    };
    let state = match &gateway.state {
        None if config.store.is_some() => "logs do not survive a restart".to_owned(),
        None => "nothing survives a restart".to_owned(),
        Some(state) if gateway.encrypt_key.is_some() => format!("state in {}, encrypted", state.display()),
        Some(state) => format!("state in {}, in clear text", state.display()),
    };
    let site = gateway.site.as_ref().map_or_else(String::new, |site| format!(", at site {site}"));
    let logs = match config.log_budget {
        LogBudget { bytes, contested: true } => {
            format!(", less than all logs can use: they compete for {}", Size(bytes))
        }
        LogBudget { .. } => String::new(),
    };
    let watchdog = match gateway.watchdog {
        None => "never ends itself".to_owned(),
        Some(limit) => format!("ends itself when it hangs for {}", Time(limit)),
    };
    let keepalive = match gateway.keepalive {
        None => "applications' hosts are not probed".to_owned(),
        Some(idle) => format!("applications' hosts are probed after {} of silence", Time(idle)),
    };
    let user = gateway.user.as_ref().map_or_else(String::new, |user| format!(", runs as {user}"));
    let store = config
        .store
        .as_ref()
        .map_or("no chunk store: what peers send is remembered in logs only".to_owned(), |store| {
            describe_store(store, gateway.encrypt_key.is_some())
        });
    format!(
        "gateway {}, public key {}{site}\n  {listen}\n  {admin}\n  {state}\n  {store}\n  memory {}{logs}, on stopping flows have {}\n  {watchdog}{user}\n  {keepalive}\n",
        gateway.name,
        gateway.identity.public_key(),
        Size(config.memory),
        Time(gateway.drain),
    )
}

/// Describes a chunk store's settings.
fn describe_store(store: &StoreSettings, is_encrypted: bool) -> String {
    let latency = store.read_latency.map_or_else(String::new, |latency| {
        format!(", on a model of a disk with one arm that takes {} to move", Time(latency))
    });
    format!(
        "chunk store of {} in {}, {}, its index up to {} of the memory{latency}",
        Size(store.disk),
        store.path.display(),
        if is_encrypted { "encrypted" } else { "in clear text" },
        Size(store.index_memory),
    )
}

/// Says how other gateways of the site are looked for.
fn describe_discovery(discovery: &Discovery) -> String {
    let mut text = String::new();
    for Looked { group, interfaces, seeds } in &discovery.groups {
        let mut ways = Vec::new();
        ways.extend((!interfaces.is_empty()).then(|| format!("by multicast on {}", joined(interfaces))));
        ways.extend((!seeds.is_empty()).then(|| format!("by way of {}", joined(seeds))));
        if ways.is_empty() {
            ways.push("if they have this one as a seed".to_owned());
        }
        let _ = writeln!(
            text,
            "gateways of this site and group {} are found {}, on UDP port {}",
            group.name,
            ways.join(" and "),
            discovery.port
        );
    }
    let memory = Size(discovery.found.memory.total() * MAX_FOUND as u64);
    let _ = writeln!(text, "  up to {MAX_FOUND} of them, for whom {memory} of the memory are set aside");
    text
}

fn describe_peer(peer: &Peer) -> String {
    let (settings, link) = (&peer.settings, &peer.link);
    let mut text = format!("peer {}\n", peer.name);
    let _ = match &peer.address {
        Some(address) => {
            writeln!(text, "  dialled at {address}; transparent modes leave connections to it alone")
        }
        None => writeln!(text, "  expected to dial us"),
    };
    if let Some(group) = &peer.group {
        let site = peer.site.as_ref().map_or_else(String::new, |site| format!(", at site {site}"));
        let _ = writeln!(text, "  of group {}{site}", group.name);
    }
    let _ = writeln!(
        text,
        "  codec {}: {}, window {}, {} a marker, sample bytes {}, log {} each way, {} in flight",
        settings.codec,
        if settings.usual().coded {
            describe_plan(&settings.plan())
        } else {
            "flows cross as they are".to_owned()
        },
        settings.window,
        counted(settings.index_slots as u64, "slot", "slots"),
        settings.sample_bytes,
        Size(settings.log_memory),
        Size(settings.in_flight()),
    );
    if peer.memory.hints > 0 {
        let _ = writeln!(
            text,
            "  where its peer has a store, chunks ({}) are named, of about the last {} GB that were sent",
            settings.chunk_sizes,
            peer.memory.hints_reach().div_ceil(1_000_000_000),
        );
    }
    let busy = match peer.adapt {
        Adapt::Off => "coded so",
        Adapt::Savings => "repeats are found, new bytes get a cheaper entropy stage",
        Adapt::Speed => {
            "new bytes get a cheaper entropy stage, or none is coded while hardly anything repeats"
        }
    };
    let _ = writeln!(text, "  while encoding holds traffic up: {busy}");
    let _ = writeln!(
        text,
        "  memory up to {}: logs {}, table {}, kept {}, hints {}, contexts {}, flows {}",
        Size(peer.memory.total()),
        Size(peer.memory.logs()),
        Size(peer.memory.table),
        Size(peer.memory.kept),
        Size(peer.memory.hints),
        Size(peer.memory.contexts),
        Size(peer.memory.flows),
    );
    let dead_after =
        link.dead_after.map_or("10 s, or longer on a slow path".to_owned(), |time| Time(time).to_string());
    let _ = writeln!(
        text,
        "  up to {} lanes, congestion control {}, dead after {dead_after}, flows wait {} for a lane",
        link.max_lanes,
        link.congestion,
        Time(link.resume_window),
    );
    if let Some(rate) = link.rate_limit {
        let _ = writeln!(text, "  sends at most {}", Rate(rate));
    }
    let _ = writeln!(text, "  may reach {}", reach(peer));
    let _ = writeln!(text, "  fronts {}", fronts(peer));
    if !peer.told.is_empty() {
        let _ = writeln!(text, "  is told that we front {}", joined(&peer.told));
    }
    if !peer.allow_sources.is_empty() {
        let _ = writeln!(text, "  connected for in the names of clients in {}", joined(&peer.allow_sources));
    }
    text
}

/// Describes the destinations of a peer for intercepts with `peer = "auto"`.
fn fronts(peer: &Peer) -> String {
    let announced = peer.accept_networks.as_ref().map(|accepted| match &accepted[..] {
        [] => "nothing that it announces".to_owned(),
        accepted => format!("what it announces within {}", joined(accepted)),
    });
    match (&peer.networks[..], announced) {
        ([], None) => "whatever no other peer fronts".to_owned(),
        ([], Some(announced)) => announced,
        (networks, None) => joined(networks),
        (networks, Some(announced)) => format!("{}, and {announced}", joined(networks)),
    }
}

fn reach(peer: &Peer) -> String {
    let allowed = match &peer.access.allow {
        None => "everything but link-local addresses and cloud metadata services".to_owned(),
        Some(allow) if allow.is_empty() => "nothing".to_owned(),
        Some(allow) => joined(allow),
    };
    match &peer.access.deny[..] {
        [] => allowed,
        deny => format!("{allowed}, and not {}", joined(deny)),
    }
}

fn describe_intercept(intercept: &Intercept) -> String {
    let target = match &intercept.mode {
        Mode::Forward { target, proxy_protocol: false } => format!(", to {target}"),
        Mode::Forward { target, proxy_protocol: true } => {
            format!(", to {target}, which is told the client by PROXY protocol v2")
        }
        _ => String::new(),
    };
    let peer = match &intercept.peer {
        PeerChoice::Named(name) => format!("by way of {name}"),
        PeerChoice::Auto => "by way of the best peer that fronts the destination".to_owned(),
    };
    let mut text = format!("intercept {} on {}{target}, {peer}\n", intercept.mode.name(), intercept.listen);
    let _ = match intercept.on_peer_loss {
        OnPeerLoss::Refuse => {
            writeln!(text, "  on_peer_loss = refuse: without the peer, connections are refused")
        }
        OnPeerLoss::Direct => {
            writeln!(
                text,
                "  on_peer_loss = direct: without the peer, this gateway connects by itself, in the clear"
            )
        }
    };
    if let Some(capture) = intercept.mode.capture() {
        text.push_str(&describe_capture(capture));
    }
    let users = intercept.users.len();
    if users > 0 {
        let _ = writeln!(text, "  for {} with passwords", counted(users as u64, "user", "users"));
    }
    let _ = match intercept.allow_from.as_deref() {
        None => Ok(()),
        Some([]) => writeln!(text, "  for no client at all: allow_from is empty"),
        Some(networks) => writeln!(text, "  for clients in {}", joined(networks)),
    };
    text
}

/// Describes the connections intercepted by a transparent mode.
fn describe_capture(capture: &Capture) -> String {
    let mut taken = vec![match capture.scope {
        Scope::Host => "this machine's own connections".to_owned(),
        Scope::Gateway => format!("connections that come in by {}", joined(&capture.interfaces)),
    }];
    taken.extend((!capture.ports.is_empty()).then(|| format!("to ports {}", joined(&capture.ports))));
    taken.extend((!capture.networks.is_empty()).then(|| format!("to {}", joined(&capture.networks))));
    for (whose, names) in
        [("users", &capture.users), ("groups", &capture.groups), ("control groups", &capture.cgroups)]
    {
        taken.extend((!names.is_empty()).then(|| format!("of {whose} {}", joined(names))));
    }
    let source = if capture.as_client { "the client's address" } else { "the connecting gateway's address" };
    let connect = match capture.hold_syn {
        true => "  a connect waits for the server's, and fails as it does\n",
        false => "  a connect succeeds before the server is asked\n",
    };
    format!(
        "  takes in {}\n  servers see {source}, rules = {}\n{connect}",
        taken.join(", "),
        capture.rules.name()
    )
}

fn describe_policy(policy: &Policy) -> String {
    let conditions = policy.conditions();
    let priority = match policy.priority {
        None => String::new(),
        Some(priority) => format!(", priority {priority}"),
    };
    match policy.path {
        PathChoice::Direct => format!("{conditions} → direct, by way of no peer"),
        PathChoice::Link => format!("{conditions} → codec {}{priority}", policy.codec),
    }
}

/// Says how flows are coded.
fn describe_plan(plan: &Plan) -> String {
    let Plan { layers, matching, period, entropy, quota, .. } = plan;
    if !layers.use_log() {
        return format!("names of chunks alone, entropy stage {entropy}");
    }
    let markers = plan.effective_markers();
    let remembered = match quota {
        None => String::new(),
        Some(Quota { bytes: 0, .. }) => ", never remembered".to_owned(),
        Some(Quota { bytes, .. }) => format!(", together up to {} of the log", Size(*bytes)),
    };
    format!("matching {matching}, markers {markers}, period {period}, entropy stage {entropy}{remembered}")
}

fn joined<T: ToString>(items: &[T]) -> String {
    items.iter().map(T::to_string).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use oncewire_keys::Identity;

    use super::*;

    #[test]
    fn a_store_without_logs_on_disk_is_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        Identity::create(&dir.path().join("branch.key")).unwrap();
        let text = "[gateway]\nname = \"branch\"\nkey_file = \"branch.key\"\n\
                    [cache]\nmemory = \"1 GiB\"\nstore_disk = \"64 MiB\"\nstore_path = \"chunks\"\n";
        let told = describe(&Config::parse(text, &dir.path().join("branch.toml")).unwrap());
        assert!(told.contains("  logs do not survive a restart\n"), "{told}");
        assert!(told.contains("/chunks, in clear text, its index up to "), "{told}");
    }

    #[test]
    fn description_covers_flows_without_the_peer() {
        let dir = tempfile::tempdir().unwrap();
        Identity::create(&dir.path().join("branch.key")).unwrap();
        let hub = Identity::from_seed([1; 32]).public_key();
        let text = format!(
            "[gateway]\nname = \"branch\"\nkey_file = \"branch.key\"\nannounce = [\"10.9.0.0/16\", \"192.168.0.0/16\"]\n\
             [[peer]]\nname = \"hub\"\npublic_key = \"{hub}\"\naddress = \"hub.example.net:7400\"\n\
             deny = [\"10.9.0.0/16\"]\nnetworks = [\"10.0.0.0/8\"]\n\
             accept_networks = [\"172.16.0.0/12\"]\n\
             [[intercept]]\nmode = \"forward\"\nlisten = \"127.0.0.1:8080\"\ntarget = \"10.0.0.5:80\"\npeer = \"hub\"\n\
             [[intercept]]\nmode = \"socks5\"\nlisten = \"127.0.0.1:1080\"\non_peer_loss = \"direct\"\n\
             [[intercept]]\nmode = \"redirect\"\nlisten = \"127.0.0.1:15001\"\n\
             [[policy]]\nmatch = {{ ports = [22, 2222] }}\ncodec = \"none\"\n\
             [[policy]]\nmatch = {{ ports = [873] }}\ncodec = \"auto\"\nperiod = 128\nentropy = \"none\"\n\
             log_memory = \"4 MiB\"\n\
             [[policy]]\nmatch = {{ networks = [\"10.9.0.0/16\"] }}\npath = \"direct\"\n\
             [[policy]]\ncodec = \"auto\"\nmatching = \"chunk\"\nlog_memory = 0\n\
             [cache]\nmemory = \"1 GiB\"\n"
        );
        let told = describe(&Config::parse(&text, &dir.path().join("branch.toml")).unwrap());
        for line in [
            "  accepts no peers, only dials",
            "  dialled at hub.example.net:7400; transparent modes leave connections to it alone",
            "  no chunk store: what peers send is remembered in logs only",
            "  where its peer has a store, chunks (mrc:8:128) are named, of about the last 136 GB that were sent",
            "  codec auto: matching max, markers maxp, period 64, entropy stage zstd:3, window 32, 2 slots a marker, \
             sample bytes 0,32,48,101,105,115,116,255, log 64 MiB each way, 16 MiB in flight",
            "  may reach everything but link-local addresses and cloud metadata services, and not 10.9.0.0/16",
            "intercept forward on 127.0.0.1:8080, to 10.0.0.5:80, by way of hub",
            "  on_peer_loss = refuse: without the peer, connections are refused",
            "intercept socks5 on 127.0.0.1:1080, by way of the best peer that fronts the destination",
            "  fronts 10.0.0.0/8, and what it announces within 172.16.0.0/12",
            "  is told that we front 192.168.0.0/16",
            "  on_peer_loss = direct: without the peer, this gateway connects by itself, in the clear",
            "policy 1: ports 22, 2222 → codec none",
            "policy 2: ports 873 → codec auto",
            "  by way of hub: matching max, markers maxp, period 128, entropy stage none, together up to 4 MiB of the log",
            "policy 3: networks 10.9.0.0/16 → direct, by way of no peer",
            "  where tproxy or redirect would take them in, the kernel lets them pass",
            "policy 4: everything → codec auto",
            "  by way of hub: matching chunk, markers modp, period 64, entropy stage zstd:3, never remembered",
        ] {
            assert!(told.lines().any(|found| found == line), "{line:?} is missing in\n{told}");
        }
        assert!(told.ends_with("branch.toml is good\n"));
    }
}
