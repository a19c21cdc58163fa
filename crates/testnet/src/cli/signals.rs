//! Signals to end the command.

use std::io;

use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Listens for SIGINT, SIGTERM and SIGHUP: none of them may end the process before its directory is removed.
pub(super) struct Signals {
    runtime: Runtime,
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Signals {
    /// Listens from now on; earlier signals are kept until somebody waits.
    pub(super) fn listen() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let inside = runtime.enter();
        let interrupt = signal(SignalKind::interrupt())?;
        let terminate = signal(SignalKind::terminate())?;
        let hangup = signal(SignalKind::hangup())?;
        drop(inside);
        Ok(Self { runtime, interrupt, terminate, hangup })
    }

    /// Waits for `work`, or for one of them: the error is its number.
    pub(super) fn unless_ended<T>(mut self, work: impl Future<Output = T>) -> Result<T, u8> {
        self.runtime.block_on(async {
            tokio::select! {
                done = work => Ok(done),
                _ = self.hangup.recv() => Err(1),
                _ = self.interrupt.recv() => Err(2),
                _ = self.terminate.recv() => Err(15),
            }
        })
    }
}
