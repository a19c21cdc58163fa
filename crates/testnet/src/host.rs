//! A host of a network.

use std::io::{self, Read};
use std::net::IpAddr;
use std::ops::{Deref, DerefMut};
use std::panic::resume_unwind;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::thread;

use crate::Family;
use crate::addresses::Pair;
use crate::namespace::{Cage, Namespace};

/// A running program in a host; dropping this kills it.
#[derive(Debug)]
pub struct Process {
    child: Child,
}

/// A host of a network: an end host, a gateway, or the core.
#[derive(Debug)]
pub struct Host {
    pub(crate) name: String,
    pub(crate) site: Option<String>,
    pub(crate) lan: Option<Pair>,
    pub(crate) line: Option<Pair>,
    pub(crate) namespace: Arc<Namespace>,
    pub(crate) cage: Arc<Cage>,
}

impl Host {
    /// Returns its name, such as `client2`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the name of its site's gateway; `None` for the core.
    pub fn site(&self) -> Option<&str> {
        self.site.as_deref()
    }

    /// Returns its address for the other hosts: of its interface to the line, else to its LAN.
    ///
    /// # Panics
    ///
    /// For the core; it has none of its own.
    pub fn ip(&self, family: Family) -> IpAddr {
        let pair = self.line.or(self.lan);
        assert!(pair.is_some(), "{} has no address of its own", self.name);
        pair.map_or(std::net::Ipv4Addr::UNSPECIFIED.into(), |pair| pair.of(family))
    }

    /// Returns its address in the LAN; for a gateway the one for the hosts of its site.
    ///
    /// # Panics
    ///
    /// For the core; it is in no LAN.
    pub fn lan_ip(&self, family: Family) -> IpAddr {
        assert!(self.lan.is_some(), "{} is in no LAN", self.name);
        self.lan.map_or(std::net::Ipv4Addr::UNSPECIFIED.into(), |pair| pair.of(family))
    }

    /// Returns a path of the host's network namespace, for `nsenter --net=`, while this process lives.
    pub fn namespace(&self) -> String {
        self.namespace.path()
    }

    /// Runs `body` in the host, on a thread of its own.
    ///
    /// Its sockets belong to the host, also after its return. Its threads are in the host, too, and so are runtimes
    /// built in it.
    ///
    /// # Panics
    ///
    /// On a panic of `body`, or without permission to enter.
    pub fn enter<T: Send>(&self, body: impl FnOnce() -> T + Send) -> T {
        match self.namespace.enter(body) {
            Ok(value) => value,
            Err(error) => panic!("cannot enter {}: {error}", self.name),
        }
    }

    /// Runs `body` in the host; processes started by it are killed with the network.
    ///
    /// Neither `body` nor any function called by it can start a thread; use [`enter`](Self::enter) for that.
    ///
    /// # Panics
    ///
    /// On a panic of `body`, or without permission to enter.
    pub fn launch<T: Send>(&self, body: impl FnOnce() -> T + Send) -> T {
        match self.cage.enter(&self.namespace, body) {
            Ok(value) => value,
            Err(error) => panic!("cannot enter {}: {error}", self.name),
        }
    }

    /// Starts a program in the host.
    ///
    /// It is killed when the result is dropped, and its child processes with the network.
    ///
    /// # Errors
    ///
    /// The program cannot be started.
    pub fn spawn(&self, command: &mut Command) -> io::Result<Process> {
        self.launch(|| command.spawn()).map(|child| Process { child })
    }

    /// Runs a program in the host to its end, without input, and returns its output.
    ///
    /// # Errors
    ///
    /// The program cannot be started.
    pub fn run(&self, command: &mut Command) -> io::Result<Output> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        self.spawn(command)?.output()
    }

    /// Runs a line of shell in the host and returns its standard output.
    ///
    /// # Panics
    ///
    /// If it fails, with its output.
    #[track_caller]
    pub fn sh(&self, line: &str) -> String {
        match self.run(Command::new("sh").args(["-c", line])) {
            Ok(output) if output.status.success() => String::from_utf8_lossy(&output.stdout).into_owned(),
            other => panic!("in {}: {line}: {other:?}", self.name),
        }
    }
}

impl Process {
    /// Waits for its end and returns its output, if that was piped.
    ///
    /// # Errors
    ///
    /// Its output cannot be read.
    pub fn output(mut self) -> io::Result<Output> {
        drop(self.child.stdin.take());
        let mut stderr = self.child.stderr.take();
        let errors = thread::spawn(move || read_all(stderr.as_mut()));
        let stdout = read_all(self.child.stdout.as_mut())?;
        let stderr = errors.join().unwrap_or_else(|panic| resume_unwind(panic))?;
        Ok(Output { status: self.child.wait()?, stdout, stderr })
    }
}

impl Deref for Process {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.child
    }
}

impl DerefMut for Process {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.child
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended, and been waited for, already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read_all(stream: Option<&mut impl Read>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(stream) = stream {
        stream.read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}
