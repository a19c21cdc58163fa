//! The command: a network for a person.

mod arguments;
mod control;
mod signals;
mod units;

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{self, ExitCode};
use std::sync::Arc;

use oncewire_testnet::{Error, Family, Host, Network};
use tokio::sync::oneshot;

pub(crate) use arguments::Arguments;
use arguments::Command;
use signals::Signals;

/// Executes the command line.
pub(crate) fn run(arguments: Arguments) -> Result<ExitCode, String> {
    if let Some(Command::Wan { control, request }) = &arguments.command {
        print!("{}", control::ask(control, request)?);
        return Ok(ExitCode::SUCCESS);
    }
    let mut builder = Network::builder()
        .branches(arguments.branches)
        .hubs(arguments.hubs)
        .clients_each(arguments.clients)
        .servers_each(arguments.servers)
        .line(arguments.line()?);
    if let Some(name) = &arguments.congestion {
        builder = builder.congestion(name);
    }
    let network = builder.build().map_err(|error| match error {
        Error::Missing(_) => format!("{error}{HINT}"),
        Error::Failed(why) => why,
    })?;
    if !network.hosts().iter().any(|host| host.name() == arguments.host) {
        let names: Vec<_> = network.hosts().iter().map(Host::name).collect();
        return Err(format!("there is no host {}; there are {}", arguments.host, names.join(", ")));
    }
    inhabit(network, &arguments).map_err(|error| error.to_string())
}

/// Runs the program or the shell, with the helpers on its PATH.
fn inhabit(network: Network, arguments: &Arguments) -> io::Result<ExitCode> {
    let signals = Signals::listen()?;
    // The only thing here with a name: signals are heard by now, and it is removed before we end.
    let dir = tempfile::Builder::new().prefix("oncewire-testnet-").tempdir()?;
    let control = dir.path().join("control");
    write_helpers(&network, dir.path(), &control)?;
    let listener = UnixListener::bind(&control)?;
    let mut command = match arguments.program.split_first() {
        Some((program, rest)) => {
            let mut command = process::Command::new(program);
            command.args(rest);
            command
        }
        None => {
            introduce(&network);
            process::Command::new(std::env::var_os("SHELL").unwrap_or_else(|| "/bin/sh".into()))
        }
    };
    let path = std::env::var_os("PATH").unwrap_or_default();
    let dirs = std::iter::once(dir.path().to_path_buf()).chain(std::env::split_paths(&path));
    command.env("PATH", std::env::join_paths(dirs).map_err(io::Error::other)?);
    command.env("ONCEWIRE_TESTNET_HOST", &arguments.host);
    let network = Arc::new(network);
    let served = Arc::clone(&network);
    // It ends with this process.
    std::thread::spawn(move || control::serve(&listener, &served));
    let mut process = network.host(&arguments.host).spawn(&mut command).map_err(|error| {
        let program = Path::new(command.get_program()).display();
        io::Error::new(error.kind(), format!("cannot run {program} in {}: {error}", arguments.host))
    })?;
    let (ended, status) = oneshot::channel();
    // After a signal nobody waits for it.
    std::thread::spawn(move || ended.send(process.wait()));
    let status = match signals.unless_ended(status) {
        Ok(status) => status.map_err(io::Error::other)??,
        // As a shell has it. Programs still running in the network end with this process.
        Err(signal) => return Ok(ExitCode::from(128 + signal)),
    };
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from))
}

/// Writes `@NAME` for each host, and `@wan`.
fn write_helpers(network: &Network, dir: &Path, control: &Path) -> io::Result<()> {
    let helper = |name: &str, body: &str| {
        let file = dir.join(format!("@{name}"));
        fs::write(&file, format!("#!/bin/sh\n{body}\n"))?;
        fs::set_permissions(file, fs::Permissions::from_mode(0o755))
    };
    for host in network.hosts() {
        let name = host.name();
        let enter = format!("ONCEWIRE_TESTNET_HOST={name} exec nsenter --net={}", host.namespace());
        helper(name, &format!("[ $# -gt 0 ] || set -- \"${{SHELL:-/bin/sh}}\"\n{enter} -- \"$@\""))?;
    }
    let program = std::env::current_exe()?;
    let (program, control) = (program.display(), control.display());
    helper("wan", &format!("exec '{program}' wan --control '{control}' -- \"$@\""))
}

/// Lists the hosts, and the commands to reach them.
fn introduce(network: &Network) {
    println!("{} hosts in {:.0?}:", network.hosts().len(), network.time_to_build());
    for host in network.hosts().iter().filter(|host| host.site().is_some()) {
        println!("  {:10} {:16} {}", host.name(), host.ip(Family::V4), host.ip(Family::V6));
    }
    println!(
        "This shell is in one of them. @HOST CMD runs a command in a host, @HOST alone gives a shell there;"
    );
    println!(
        "@wan shows the line, @wan loss=2% delay=80ms changes it, @wan cut and @wan restore. exit ends it all."
    );
}

const HINT: &str = "\nIt takes Linux, the program ip, and root; without root: \
                    unshare --user --map-root-user --fork --kill-child oncewire-testnet …";
