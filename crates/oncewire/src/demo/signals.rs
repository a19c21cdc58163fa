//! The signals for the end of the demonstration.

use anyhow::{Context, bail};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Listens for SIGINT, SIGTERM and SIGHUP: none of them may end the process before its directory is removed.
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Signals {
    /// Listens from now on; earlier signals are kept until somebody waits. Needs a runtime.
    ///
    /// # Errors
    ///
    /// The system refuses.
    pub(crate) fn listen() -> anyhow::Result<Self> {
        let listen = |kind| signal(kind).context("cannot listen for signals");
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hangup: listen(SignalKind::hangup())?,
        })
    }

    /// Waits for the next of them and returns its name.
    pub(crate) async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.hangup.recv() => "SIGHUP",
        }
    }

    /// Does `work`, unless one of them comes first.
    ///
    /// # Errors
    ///
    /// Those of `work`, and the signal.
    pub(crate) async fn unless_ended<T>(
        &mut self,
        work: impl Future<Output = anyhow::Result<T>>,
    ) -> anyhow::Result<T> {
        tokio::select! {
            done = work => done,
            signal = self.next() => bail!("ended by {signal} before everything was shown"),
        }
    }
}
