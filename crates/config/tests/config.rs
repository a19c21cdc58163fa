//! Configuration files, good and bad, with their expected messages.
//!
//! Each `config/*.toml` has its messages in `config/*.expected`. `UPDATE_EXPECTED=1 cargo test -p
//! oncewire-config --test config` writes the expectations anew for review.

#![allow(clippy::unwrap_used, reason = "a test stops at what it did not expect")]

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use oncewire_codec::entropy::Entropy;
use oncewire_codec::{Layers, MarkerKind, Matching, Plan};
use oncewire_config::{Adapt, Codec, Config, Mode, Network, PathChoice, SampleBytes, Scope};
use oncewire_keys::GroupKey;
use oncewire_keys::Identity;
use oncewire_keys::StorageKey;
use oncewire_link::Priority;

#[path = "config/wording.rs"]
mod wording;

/// Makes a directory with the configurations' key files.
fn folder() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let own = Identity::create(&dir.path().join("branch.key")).unwrap();
    Identity::create(&dir.path().join("exposed.key")).unwrap();
    StorageKey::create(&dir.path().join("storage.key")).unwrap();
    GroupKey::create(&dir.path().join("group.key")).unwrap();
    let write = |name: &str, text: &str, mode: u32| {
        let path = dir.path().join(name);
        if !text.is_empty() {
            std::fs::write(&path, text).unwrap();
        }
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    write("exposed.key", "", 0o640);
    write("public.key", &format!("{}\n", own.public_key()), 0o600);
    write("other.key", "-----BEGIN OPENSSH PRIVATE KEY-----\n", 0o600);
    write("token", "0123456789abcdef0123456789abcdef\n", 0o600);
    dir
}

/// Reads one of the configurations as if it lay in `dir`.
fn read(dir: &Path, file: &Path) -> Result<Config, String> {
    let own = Identity::load(&dir.join("branch.key")).unwrap().public_key().to_string();
    let text = std::fs::read_to_string(file).unwrap().replace("SELF", &own);
    let name = file.file_name().unwrap();
    let shown = format!("{}/", dir.display());
    Config::parse(&text, &dir.join(name)).map_err(|error| error.to_string().replace(&shown, "") + "\n")
}

fn fixtures(prefix: &str) -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/config");
    let files = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let wanted = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy();
        name.starts_with(prefix) && name.ends_with(".toml")
    };
    let mut files: Vec<_> = files.filter(wanted).collect();
    files.sort();
    assert!(!files.is_empty());
    files
}

#[test]
fn bad_configurations_name_problem_place_and_remedy() {
    let dir = folder();
    let mut differing = Vec::new();
    for file in fixtures("bad_") {
        let said = read(dir.path(), &file).map(|_| "no error\n".to_owned()).unwrap_or_else(|error| error);
        let expected = file.with_extension("expected");
        if std::env::var_os("UPDATE_EXPECTED").is_some() {
            std::fs::write(&expected, &said).unwrap();
        }
        if std::fs::read_to_string(&expected).unwrap_or_default() != said {
            differing.push(format!("{}:\n{said}", file.display()));
        }
    }
    assert!(differing.is_empty(), "not as expected:\n{}", differing.join("\n"));
}

#[test]
fn memory_as_written_in_the_error_suffices() {
    let dir = folder();
    for file in fixtures("bad_memory") {
        let said = read(dir.path(), &file).unwrap_err();
        let wanted = said.split("set memory to at least ").nth(1).unwrap();
        let wanted = wanted.split([',', '\n']).next().unwrap();
        let text = std::fs::read_to_string(&file).unwrap();
        let line = text.lines().find(|line| line.starts_with("memory ")).unwrap();
        let text = text.replace(line, &format!("memory = {wanted:?}"));
        Config::parse(&text, &dir.path().join("enough.toml")).unwrap_or_else(|error| panic!("{error}"));
    }
}

#[test]
fn invalid_utf8_is_located() {
    let dir = folder();
    let path = dir.path().join("latin.toml");
    std::fs::write(&path, b"[gateway]\nname = \"caf\xe9\"\n").unwrap();
    let said = Config::load(&path).unwrap_err().to_string();
    assert!(said.starts_with(&format!("{}: line 2, column 12: ", path.display())), "{said}");
    assert_eq!(Config::load_admin(&path).unwrap_err().to_string(), said);
}

#[test]
fn bad_configurations_are_refused() {
    let dir = folder();
    for file in fixtures("bad_") {
        assert!(read(dir.path(), &file).is_err(), "{}", file.display());
    }
}

#[test]
fn samples_of_the_readme_are_valid() {
    let dir = folder();
    Identity::create(&dir.path().join("hub.key")).unwrap();
    let peer = Identity::from_seed([1; 32]).public_key().to_string();
    let readme = include_str!("../../../README.md");
    let samples: Vec<_> =
        readme.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert_eq!(samples.len(), 2);
    for sample in samples {
        let keys = sample.split("\"THE LINE").skip(1).map(|rest| rest.split('"').next().unwrap());
        let text = keys.fold(sample.to_owned(), |text, key| text.replace(&format!("THE LINE{key}"), &peer));
        let config = Config::parse(&text, &dir.path().join("sample.toml"));
        let config = config.unwrap_or_else(|error| panic!("{error}\n{sample}"));
        assert!(config.gateway.admin.is_some() && config.peers[0].access.allow.is_some(), "{sample}");
        assert_eq!(config.warnings, Vec::<String>::new());
    }
}

#[test]
fn store_without_logs_on_disk_can_be_encrypted() {
    let dir = folder();
    let text = "[gateway]\nname = \"branch\"\nkey_file = \"branch.key\"\nencrypt_key_file = \"storage.key\"\n\
                [cache]\nstore_disk = \"64 MiB\"\nstore_path = \"chunks\"\n";
    let config = Config::parse(text, &dir.path().join("store.toml")).unwrap();
    assert!(config.gateway.encrypt_key.is_some() && config.gateway.state.is_none());
    assert_eq!(config.store.unwrap().path, dir.path().join("chunks"));
}

#[test]
fn every_key_has_its_effect() {
    let dir = folder();
    let config = read(dir.path(), &fixtures("good_full")[0]).unwrap();
    let gateway = &config.gateway;
    assert_eq!(gateway.name, "branch");
    assert_eq!(gateway.listen.len(), 2);
    assert_eq!(gateway.state.as_deref(), Some(&*dir.path().join("state")));
    assert_eq!(gateway.encrypt_key, Some(StorageKey::load(&dir.path().join("storage.key")).unwrap()));
    assert_eq!(gateway.drain.as_secs(), 5);
    assert_eq!(gateway.log_level.unwrap().to_string(), "debug");
    let admin = gateway.admin.as_ref().unwrap();
    assert_eq!(admin.token.as_deref(), Some("0123456789abcdef0123456789abcdef"));
    let hub = config.peer("hub").unwrap();
    assert_eq!(hub.public_keys.len(), 2);
    assert_eq!(hub.address.as_ref().unwrap().to_string(), "hub.example.net:7400");
    assert_eq!((&gateway.site, &hub.site), (&Some("harbour".to_owned()), &Some("harbour".to_owned())));
    let group = hub.group.as_ref().unwrap();
    let key = GroupKey::load(&dir.path().join("group.key")).unwrap();
    assert_eq!((&*group.name, group.key.name_key()), ("branches", key.name_key()));
    let settings = serde_json::to_value(&hub.settings).unwrap();
    let expected = serde_json::json!({
        "codec": "endre", "entropy": "lz4", "markers": "maxp", "matching": "max", "period": 32, "window": 48,
        "index_slots": 1, "sample_bytes": [32, 101], "chunk_sizes": "mrc:4:1024", "log_memory": 16 << 20,
        "max_in_flight": 2 << 20, "hint_memory": 2 << 20,
    });
    assert_eq!(settings, expected);
    assert!(hub.access.permits("192.168.1.1".parse().unwrap()));
    assert!(!hub.access.permits("192.168.9.1".parse().unwrap()));
    let ship = config.peer("ship").unwrap();
    assert_eq!((hub.adapt, ship.adapt), (Adapt::Off, Adapt::Speed));
    assert_eq!(ship.settings.log_memory, 64 << 20);
    assert_eq!((ship.settings.index_slots, ship.settings.sample_bytes), (2, SampleBytes::Adaptive));
    assert!(ship.settings.params().sample_adapts);
    assert_eq!(ship.link.resume_window.as_secs(), 600);
    assert_eq!(ship.link.dead_after.unwrap().as_secs(), 20);
    assert_eq!(ship.link.max_lanes, 16);
    assert_eq!((hub.link.rate_limit, ship.link.rate_limit), (Some(5_000_000), Some(20_000_000)));
    assert_eq!(ship.link.bulk_after, 4_000_000);
    assert_eq!(ship.link.congestion, "cubic");
    assert!(!ship.link.shed);
    assert_eq!(ship.memory.flows, 100_000_000);
    assert_eq!(config.memory, 1 << 30);
    assert_eq!((ship.settings.codec, ship.memory.hints), (Codec::Wanax, 2 << 20));
    let store = config.store.as_ref().unwrap();
    assert_eq!((store.path.file_name().unwrap().to_str(), store.disk), (Some("chunks"), 10_000_000_000));
    assert_eq!(store.read_latency.unwrap().as_millis(), 8);
    let [forward, socks, http, tproxy, redirect] = &config.intercepts[..] else {
        panic!("{:?}", config.intercepts)
    };
    assert_eq!((forward.mode.name(), forward.on_peer_loss.name()), ("forward", "direct"));
    assert!(matches!(forward.mode, Mode::Forward { proxy_protocol: true, .. }));
    assert!(socks.users.verify(b"ann", b"secret") && !socks.users.verify(b"ann", b"word"));
    assert_eq!(http.allow_from.as_ref().unwrap().len(), 1);
    let capture = tproxy.mode.capture().unwrap();
    assert_eq!((capture.scope, capture.interfaces.len(), capture.as_client), (Scope::Gateway, 2, true));
    assert!(capture.hold_syn && !redirect.mode.capture().unwrap().hold_syn);
    assert_eq!((tproxy.on_peer_loss.name(), socks.on_peer_loss.name()), ("direct", "refuse"));
    let capture = redirect.mode.capture().unwrap();
    assert_eq!((capture.scope, capture.users.len(), capture.groups.len()), (Scope::Host, 2, 1));
    assert_eq!((&capture.cgroups[..], redirect.users.is_empty()), (&["user.slice".to_owned()][..], true));
    assert_eq!(hub.allow_sources.len(), 1);
    assert_eq!(config.policies.rules.len(), 4);
    let paths: Vec<_> = config.policies.rules.iter().map(|rule| rule.path).collect();
    assert_eq!(paths, [PathChoice::Link, PathChoice::Link, PathChoice::Direct, PathChoice::Link]);
    assert_eq!(config.policy_lines.len(), 4);
    let rsync = "10.1.2.3:873".parse::<std::net::SocketAddr>().unwrap().into();
    let plan = config.policies.plan(&rsync, "hub", hub.settings.usual()).unwrap();
    assert_eq!(config.policies.priority(&rsync, "hub"), Some(Priority::Bulk));
    let expected = Plan {
        layers: Layers::Log,
        matching: Matching::Max,
        markers: MarkerKind::Maxp,
        period: 128,
        entropy: Entropy::Zstd(1),
        busy_entropy: None,
        quota: plan.quota,
    };
    assert_eq!(plan, expected);
    assert_eq!(plan.quota.map(|quota| quota.bytes), Some(4 << 20));
}

#[test]
fn minimal_configuration_gets_its_defaults() {
    let dir = folder();
    let config = read(dir.path(), &fixtures("good_least")[0]).unwrap();
    assert!(config.gateway.listen.is_empty() && config.gateway.admin.is_none() && config.peers.is_empty());
    assert_eq!(config.gateway.drain.as_secs(), 30);
    let keepalive = config.gateway.keepalive.unwrap();
    assert!(keepalive.as_secs() >= 2 * 3600, "RFC 9293 §3.8.4: {keepalive:?}");
    assert_eq!(config.warnings.len(), 2, "{:?}", config.warnings);
}

#[test]
fn peer_gets_only_networks_within_its_access() {
    let dir = folder();
    let config = read(dir.path(), &fixtures("good_full")[0]).unwrap();
    let networks = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<Network>>();
    assert_eq!(config.gateway.announce, networks(&["192.168.1.0/24", "192.168.9.0/24"]));
    let [hub, ship] = &config.peers[..] else { panic!("{:?}", config.peers) };
    assert_eq!(hub.told, networks(&["192.168.1.0/24"]));
    assert_eq!(ship.told, config.gateway.announce);
    assert_eq!((&hub.networks, &hub.accept_networks), (&networks(&["10.0.0.0/8"]), &None));
    assert_eq!(ship.accept_networks, Some(networks(&["172.16.0.0/12"])));
}

#[test]
fn admin_address_is_read_without_the_key() {
    let dir = folder();
    let path = dir.path().join("branch.toml");
    let text = "[gateway]\nname = \"a\"\nkey_file = \"nowhere.key\"\nadmin = \"127.0.0.1:7411\"\n";
    std::fs::write(&path, text).unwrap();
    let admin = Config::load_admin(&path).unwrap().unwrap();
    assert_eq!(admin.listen, "127.0.0.1:7411".parse().unwrap());
    assert!(Config::load(&path).is_err());
}

#[test]
fn site_without_neighbours_or_store_gets_a_warning() {
    let dir = folder();
    let other = Identity::from_seed([7; 32]).public_key();
    let warnings = |ours: &str, theirs: &str, more: &str| {
        let text = format!(
            "[gateway]\nname = \"a\"\nkey_file = \"branch.key\"\nsite = \"{ours}\"\n\
             [[group]]\nname = \"all\"\nkey_file = \"group.key\"\n[[peer]]\nname = \"b\"\naddress = \"b:1\"\n\
             public_key = \"{other}\"\ngroup = \"all\"\nsite = \"{theirs}\"\n{more}"
        );
        let config = Config::parse(&text, &dir.path().join("branch.toml"));
        let warnings = config.unwrap_or_else(|error| panic!("{error}")).warnings;
        warnings.into_iter().filter(|warning| warning.starts_with("site: ")).collect::<Vec<_>>()
    };
    assert!(warnings("harbour", "office", "")[0].contains("no [[peer]] stands at \"harbour\""));
    assert!(warnings("harbour", "harbour", "")[0].contains("store_disk"));
    let store =
        format!("[cache]\nstore_disk = \"64 MiB\"\nstore_path = \"{}\"\n", dir.path().join("s").display());
    assert_eq!(warnings("harbour", "harbour", &store), [""; 0]);
}

#[test]
fn disk_beyond_its_index_gets_a_warning() {
    let dir = folder();
    let load = |cache: &str| {
        let text = format!(
            "[gateway]\nname = \"branch\"\nkey_file = \"branch.key\"\nstate = \"state\"\n[cache]\n{cache}store_disk = \"1 TB\"\n"
        );
        Config::parse(&text, &dir.path().join("branch.toml")).unwrap()
    };
    let warning = |config: &Config| {
        config
            .warnings
            .iter()
            .find(|warning| warning.starts_with("store_disk: "))
            .cloned()
            .unwrap_or_default()
    };
    let small = load("memory = \"4 GiB\"\n");
    assert!(warning(&small).contains("an index of 512 MiB"), "{:?}", small.warnings);
    // The advised size is enough.
    let said = warning(&small);
    let (_, said) = said.split_once("set store_index_memory to ").unwrap();
    let (wanted, _) = said.split_once(" or more").unwrap();
    let large = load(&format!("memory = \"8 GiB\"\nstore_index_memory = \"{wanted}\"\n"));
    assert_eq!(warning(&large), "");
    assert!(large.store.unwrap().index_memory > 3 << 30);
}

#[test]
fn unused_index_memory_gets_a_warning() {
    let dir = folder();
    let load = |index: &str| {
        let text = format!(
            "[gateway]\nname = \"branch\"\nkey_file = \"branch.key\"\nstate = \"state\"\n[cache]\nmemory = \"1 GiB\"\n\
             store_disk = \"1 GiB\"\nstore_index_memory = \"{index}\"\n"
        );
        Config::parse(&text, &dir.path().join("branch.toml")).unwrap()
    };
    let warning = |config: &Config| {
        let mut of_index =
            config.warnings.iter().filter(|warning| warning.starts_with("store_index_memory: "));
        of_index.next().cloned().unwrap_or_default()
    };
    let large = load("200 MiB");
    let said = warning(&large);
    assert!(said.starts_with("store_index_memory: of 200 MiB, "), "{:?}", large.warnings);
    // The advised size is not too much.
    let (_, said) = said.split_once("uses ").unwrap();
    let (most, _) = said.split_once(" at most").unwrap();
    let fitting = load(most);
    assert_eq!(warning(&fitting), "");
    let (large, fitting) = (large.store.unwrap().index_memory, fitting.store.unwrap().index_memory);
    assert!(large >= fitting && large - fitting < 1 << 20, "{large} {fitting}");
}

#[test]
fn memory_asked_for_by_an_error_suffices() {
    let dir = folder();
    let store = "store_disk = \"1 GiB\"\n";
    let set = "store_disk = \"1 GiB\"\nstore_index_memory = \"20 MiB\"\n";
    let group = "[[group]]\nname = \"all\"\nkey_file = \"group.key\"\ndiscover = []\n";
    for (cache, group) in [("", ""), (store, ""), (set, ""), (store, group), (set, group)] {
        let parse = |mib: u64| {
            let text = format!(
                "[gateway]\nname = \"branch\"\nkey_file = \"branch.key\"\nlisten = \"127.0.0.1:1\"\nstate = \"state\"\n\
                 site = \"town\"\n[[peer]]\nname = \"hub\"\n\
                 public_key = \"AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=\"\n[cache]\nmemory = \"{mib} MiB\"\n{cache}{group}"
            );
            Config::parse(&text, &dir.path().join("branch.toml")).map_err(|error| error.to_string())
        };
        let said = parse(4).unwrap_err();
        let (_, said) = said.split_once("at least ").unwrap();
        let (needed, _) = said.split_once(' ').unwrap();
        let needed = needed.parse().unwrap();
        assert!(parse(needed).is_ok() && parse(needed - 1).is_err(), "{cache}{group}: {needed}");
    }
}

#[test]
fn default_memory_is_reported_as_a_quarter_of_the_limit() {
    let dir = folder();
    let text = "[gateway]\nname = \"branch\"\nkey_file = \"branch.key\"\nlisten = \"127.0.0.1:1\"\n[[peer]]\nname = \"hub\"\n\
                public_key = \"AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=\"\n[link]\nflow_memory = \"1000 TiB\"\n";
    let said = Config::parse(text, &dir.path().join("branch.toml")).unwrap_err().to_string();
    let owners = ["this machine", "this container or unit (its control group's limit)"];
    let is_said = |owner: &&str| said.contains(&format!(" of {owner}, is too small for 1 peer"));
    assert!(said.contains(", a quarter of the ") && owners.iter().any(is_said), "{said}");
}

#[test]
fn many_peers_fit_into_little_memory_with_smaller_logs() {
    let dir = folder();
    let parse = |cache: &str, peers: usize| {
        let mut text = format!(
            "[gateway]\nname = \"branch\"\nkey_file = \"branch.key\"\nlisten = \"127.0.0.1:1\"\n[cache]\n{cache}\n"
        );
        for peer in 0..peers {
            let key = Identity::from_seed([peer as u8 + 1; 32]).public_key();
            text += &format!("[[peer]]\nname = \"b{peer}\"\npublic_key = \"{key}\"\n");
        }
        Config::parse(&text, &dir.path().join("branch.toml")).map_err(|error| error.to_string())
    };
    for (memory, peers, log_mib) in
        [("256 MiB", 1, 64), ("256 MiB", 7, 64), ("1 GB", 40, 16), ("256 MiB", 40, 4)]
    {
        let config = parse(&format!("memory = \"{memory}\""), peers).unwrap();
        assert_eq!(config.peers.len(), peers);
        for peer in &config.peers {
            assert_eq!(peer.settings.log_memory >> 20, log_mib, "{peers} in {memory}: {:?}", peer.memory);
        }
        let planned: u64 = config.peers.iter().map(|peer| peer.memory.total()).sum();
        assert!(planned <= config.memory, "{planned} of {memory}");
    }
    // Set sizes are not reduced.
    let said = parse("memory = \"256 MiB\"\nlog_memory = \"64 MiB\"", 40).unwrap_err();
    assert!(said.contains("lower log_memory"), "{said}");
}

#[test]
fn more_memory_than_the_machine_has_is_warned_of() {
    let dir = folder();
    let warnings = |memory: &str| {
        let text = format!(
            "[gateway]\nname = \"branch\"\nkey_file = \"branch.key\"\n[cache]\nmemory = \"{memory}\"\n"
        );
        Config::parse(&text, &dir.path().join("branch.toml")).unwrap().warnings
    };
    let tells = |warnings: &[String]| warnings.iter().any(|warning| warning.starts_with("memory: 1000 TiB"));
    assert!(tells(&warnings("1000 TiB")), "{:?}", warnings("1000 TiB"));
    assert_eq!(warnings("64 MiB").iter().filter(|warning| warning.starts_with("memory: ")).count(), 0);
}

#[test]
fn passwords_in_a_public_file_get_a_warning() {
    let dir = folder();
    let path = dir.path().join("branch.toml");
    std::fs::copy(&fixtures("good_full")[0], &path).unwrap();
    for (mode, warned) in [(0o644, true), (0o600, false)] {
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        let warnings = Config::load(&path).unwrap().warnings;
        assert_eq!(warnings.iter().any(|warning| warning.contains("passwords")), warned, "{warnings:?}");
    }
}

#[test]
fn missing_configuration_is_named() {
    let error = Config::load(Path::new("/nowhere/branch.toml")).unwrap_err().to_string();
    assert!(error.starts_with("/nowhere/branch.toml: cannot read"), "{error}");
}

#[test]
fn every_key_is_documented() {
    let document = include_str!("../../../docs/reference/configuration.md");
    let text = std::fs::read_to_string(&fixtures("good_full")[0]).unwrap();
    let keys = text.lines().filter_map(|line| Some(line.split_once('=')?.0.trim()));
    for key in keys.filter(|key| !key.starts_with('#')) {
        assert!(document.contains(&format!("`{key}`")), "{key}");
    }
}

#[test]
fn discovery_uses_interfaces_and_seeds() {
    let dir = folder();
    let text = "[gateway]\nname = \"branch\"\nkey_file = \"branch.key\"\nlisten = \"0.0.0.0:7400\"\nsite = \"town\"\n\
                [cache]\nmemory = \"256 MiB\"\nstore_disk = \"64 MiB\"\nstore_path = \"store\"\n\
                [[group]]\nname = \"all\"\nkey_file = \"group.key\"\n\
                discover = [\"eth0\", \"seed.example.net:7401\"]\n";
    let config = Config::parse(text, &dir.path().join("branch.toml")).unwrap();
    let found = config.discovery.unwrap();
    let [looked] = &found.groups[..] else { panic!("{:?}", found.groups) };
    assert_eq!((found.port, &looked.interfaces[..]), (7400, &["eth0".to_owned()][..]));
    assert_eq!(looked.seeds[0].to_string(), "seed.example.net:7401");
    // Discovered peers reach nothing by way of us, and fit their reserved memory.
    assert_eq!(found.found.access.allow, Some(vec![]));
    assert!(found.found.found && found.found.memory.total() <= 1 << 20);
    assert!(
        !config.warnings.iter().any(|warning| warning.contains("has no effect")),
        "{:?}",
        config.warnings
    );
}

#[test]
fn unused_marker_bytes_get_a_warning() {
    let dir = folder();
    let key = "AwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwM=";
    let warnings = |codec: &str, peer: &str, policy: &str| {
        let text = format!(
            "[gateway]\nname = \"branch\"\nkey_file = \"branch.key\"\n[cache]\nmemory = \"256 MiB\"\n\
             [[peer]]\nname = \"hub\"\npublic_key = \"{key}\"\naddress = \"h:1\"\n{peer}\n[codec]\n{codec}\n{policy}\n"
        );
        let config = Config::parse(&text, &dir.path().join("branch.toml"));
        let warnings = config.unwrap_or_else(|error| panic!("{error}")).warnings;
        warnings.into_iter().filter(|warning| warning.starts_with("sample_bytes ")).collect::<Vec<_>>()
    };
    let (bytes, markers) = ("sample_bytes = [32, 101]", "markers = \"samplebyte\"");
    let rule = format!("[[policy]]\nmatch = {{ ports = [80] }}\ncodec = \"endre\"\n{markers}");
    let unused = "has no effect without markers = \"samplebyte\"";
    assert_eq!(warnings(bytes, "", ""), [format!("sample_bytes in [codec]: {unused}")]);
    assert_eq!(warnings("", bytes, ""), [format!("sample_bytes of peer \"hub\": {unused}")]);
    for (codec, peer, policy) in [
        (&*format!("{bytes}\n{markers}"), "", ""),
        (bytes, markers, ""),
        (bytes, "", &*rule),
        ("", bytes, &*rule),
        (markers, bytes, ""),
    ] {
        assert_eq!(warnings(codec, peer, policy), [""; 0], "{codec} {peer} {policy}");
    }
}

#[test]
fn common_rate_limit_excludes_lan_peers() {
    let dir = folder();
    let keys =
        ["AwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwM=", "BAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQ="];
    let rates = |near: &str| {
        let text = format!(
            "[gateway]\nname = \"branch\"\nkey_file = \"branch.key\"\nsite = \"town\"\n\
             [link]\nrate_limit = \"5 Mbit/s\"\n[cache]\nmemory = \"512 MiB\"\n\
             [[group]]\nname = \"all\"\nkey_file = \"group.key\"\n\
             [[peer]]\nname = \"hub\"\npublic_key = \"{}\"\naddress = \"h:1\"\ngroup = \"all\"\n\
             [[peer]]\nname = \"near\"\npublic_key = \"{}\"\naddress = \"n:1\"\n{near}\n",
            keys[0], keys[1]
        );
        let config = Config::parse(&text, &dir.path().join("branch.toml"));
        let peers = config.unwrap_or_else(|error| panic!("{error}")).peers;
        peers.iter().map(|peer| peer.link.rate_limit).collect::<Vec<_>>()
    };
    let line = Some(5_000_000);
    assert_eq!(rates("group = \"all\"\nsite = \"town\""), [line, None]);
    let own = "group = \"all\"\nsite = \"town\"\nrate_limit = \"7 Mbit/s\"";
    assert_eq!(rates(own), [line, Some(7_000_000)]);
    assert_eq!(rates("group = \"all\"\nsite = \"village\""), [line, line]);
}
