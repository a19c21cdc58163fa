//! One end of a transfer: sends and reads as planned, and says how it ended.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use super::plan::{Order, Plan, Side};
use crate::common::clients;
use crate::common::wait::pause;

/// How an end saw its transfer end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// All was sent, and all came, to the end of the stream.
    Complete,
    /// This side reset it, as planned.
    ResetHere,
    /// The connection broke after so many bytes had come.
    Broken(usize, ErrorKind),
    /// The stream ended in order after so many bytes, which are not all: nothing excuses that.
    Short(usize),
    /// What nothing excuses either: wrong bytes, too many, or silence.
    Wrong(String),
}

/// Plays `side` of `plan` on `stream`.
pub(super) fn play(plan: &Plan, side: Side, stream: TcpStream) -> End {
    let _ = stream.set_nodelay(true);
    let _ = (stream.set_read_timeout(Some(HANG)), stream.set_write_timeout(Some(HANG)));
    let part = Part {
        stream: &stream,
        sends: plan.sends(side),
        gets: plan.gets(side),
        slow: plan.slow == Some(side),
    };
    if let Some(reset) = plan.reset.filter(|reset| reset.by == side) {
        let result = match reset.sends {
            true => part.send(0, reset.after.min(part.sends.len())),
            false => part.read(0, reset.after.min(part.gets.len())),
        };
        clients::reset(stream);
        return result.err().unwrap_or(End::ResetHere);
    }
    part.run(plan.order, side).err().unwrap_or(End::Complete)
}

struct Part<'a> {
    stream: &'a TcpStream,
    sends: Vec<u8>,
    gets: Vec<u8>,
    slow: bool,
}

impl Part<'_> {
    fn run(&self, order: Order, side: Side) -> Result<(), End> {
        let first = match order {
            Order::Together => return self.together(),
            Order::Rounds => return self.rounds(side),
            Order::UpFirst => Side::Client,
            Order::DownFirst => Side::Origin,
        };
        if side == first {
            self.send_all()?;
            self.read_all()
        } else {
            self.read_all()?;
            self.send_all()
        }
    }

    /// How reading ended says more, but the kernel tells of a reset only once: after a write that failed, a read
    /// finds the end of the stream.
    fn together(&self) -> Result<(), End> {
        std::thread::scope(|scope| {
            let sending = scope.spawn(|| self.send_all());
            let got = self.read_all();
            let sent = sending.join().unwrap();
            match (got, sent) {
                (Err(End::Short(_)), Err(sent @ End::Broken(..))) => Err(sent),
                (got, sent) => got.and(sent),
            }
        })
    }

    fn rounds(&self, side: Side) -> Result<(), End> {
        let rounds = self.sends.len().max(self.gets.len()).div_ceil(ROUND);
        for round in 0..rounds {
            let piece = |all: &[u8]| (all.len().min(round * ROUND), all.len().min((round + 1) * ROUND));
            let ((from, to), (begin, end)) = (piece(&self.sends), piece(&self.gets));
            match side {
                Side::Client => self.send(from, to).and_then(|()| self.read(begin, end))?,
                Side::Origin => self.read(begin, end).and_then(|()| self.send(from, to))?,
            }
        }
        self.end_stream()?;
        self.read_end()
    }

    fn send_all(&self) -> Result<(), End> {
        self.send(0, self.sends.len())?;
        self.end_stream()
    }

    fn read_all(&self) -> Result<(), End> {
        self.read(0, self.gets.len())?;
        self.read_end()
    }

    fn send(&self, from: usize, to: usize) -> Result<(), End> {
        let (mut stream, mut at) = (self.stream, from);
        while at < to {
            match stream.write(&self.sends[at..to.min(at + CHUNK)]) {
                Ok(count) => at += count,
                Err(error) => return Err(failed(&error, at, "sending")),
            }
        }
        Ok(())
    }

    fn end_stream(&self) -> Result<(), End> {
        self.stream.shutdown(Shutdown::Write).map_err(|error| failed(&error, self.sends.len(), "ending"))
    }

    fn read(&self, from: usize, to: usize) -> Result<(), End> {
        let (mut stream, mut at, mut buffer) = (self.stream, from, vec![0; CHUNK]);
        while at < to {
            match stream.read(&mut buffer[..CHUNK.min(to - at)]) {
                Ok(0) => return Err(End::Short(at)),
                Ok(count) if buffer[..count] == self.gets[at..at + count] => at += count,
                Ok(count) => return Err(End::Wrong(format!("wrong bytes within {at}..{}", at + count))),
                Err(error) => return Err(failed(&error, at, "reading")),
            }
            if self.slow {
                pause();
            }
        }
        Ok(())
    }

    fn read_end(&self) -> Result<(), End> {
        match { self.stream }.read(&mut [0; 1]) {
            Ok(0) => Ok(()),
            Ok(_) => Err(End::Wrong(format!("more came than {} bytes", self.gets.len()))),
            Err(error) => Err(failed(&error, self.gets.len(), "reading the end")),
        }
    }
}

fn failed(error: &std::io::Error, at: usize, doing: &str) -> End {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => {
            End::Wrong(format!("hangs {doing} at byte {at} for {HANG:?}"))
        }
        kind => End::Broken(at, kind),
    }
}

/// Nothing may stand still longer.
pub(super) const HANG: Duration = Duration::from_secs(60);
const CHUNK: usize = 64 << 10;
const ROUND: usize = 700;
