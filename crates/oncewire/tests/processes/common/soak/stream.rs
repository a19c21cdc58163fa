//! One end of a transfer: sends and reads as planned, and reports its end.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use super::super::clients;
use super::super::wait::pause;
use super::excuses::Excuses;
use super::plan::{Order, Plan, Side};
use super::transfer::{Silence, Transfer};

/// How an end saw its transfer end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// All was sent, and all came, to the end of the stream.
    Complete,
    /// This side reset it, as planned.
    ResetHere,
    /// The connection broke after so many bytes had come.
    Broken(usize, ErrorKind),
    /// The stream ended in order after so many bytes, too few: nothing excuses this.
    Short(usize),
    /// Never excused either: wrong bytes, too many, or silence.
    Wrong(String),
}

/// Plays `side` of `plan` on `stream`.
pub(super) fn play(
    plan: &Plan,
    side: Side,
    stream: TcpStream,
    transfer: &Transfer,
    excuses: &Excuses,
) -> End {
    let _ = stream.set_nodelay(true);
    let _ = (stream.set_read_timeout(Some(LOOK)), stream.set_write_timeout(Some(LOOK)));
    let (sends, gets) = (plan.sends(side), plan.gets(side));
    let slow = plan.slow == Some(side);
    let part = Part { stream: &stream, sends, gets, slow, side, transfer, excuses };
    let (result, reset) = match plan.reset.filter(|reset| reset.by == side) {
        Some(reset) if reset.sends => (part.send(0, reset.after.min(part.sends.len())), true),
        Some(reset) => (part.read(0, reset.after.min(part.gets.len())), true),
        None => (part.run(plan.order), false),
    };
    if reset || result.is_err() {
        // The gateways in between must not wait in vain.
        clients::reset(stream);
    }
    result.err().unwrap_or(if reset { End::ResetHere } else { End::Complete })
}

struct Part<'a> {
    stream: &'a TcpStream,
    sends: Vec<u8>,
    gets: Vec<u8>,
    slow: bool,
    side: Side,
    transfer: &'a Transfer,
    excuses: &'a Excuses,
}

impl Part<'_> {
    fn run(&self, order: Order) -> Result<(), End> {
        let first = match order {
            Order::Together => return self.together(),
            Order::Rounds(piece) => return self.rounds(piece),
            Order::UpFirst => Side::Client,
            Order::DownFirst => Side::Origin,
        };
        if self.side == first {
            self.send_all()?;
            self.read_all()
        } else {
            self.read_all()?;
            self.send_all()
        }
    }

    /// The end of reading says more, but the kernel tells of a reset only once: after a failed write, a read finds
    /// the end of the stream.
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

    fn rounds(&self, piece: usize) -> Result<(), End> {
        let rounds = self.sends.len().max(self.gets.len()).div_ceil(piece);
        for round in 0..rounds {
            let part = |all: &[u8]| (all.len().min(round * piece), all.len().min((round + 1) * piece));
            let ((from, to), (begin, end)) = (part(&self.sends), part(&self.gets));
            match self.side {
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
                Ok(count) => at += self.moved(count),
                Err(error) => self.failed(&error, at, "sending")?,
            }
        }
        Ok(())
    }

    fn end_stream(&self) -> Result<(), End> {
        self.stream.shutdown(Shutdown::Write).map_err(|error| End::Broken(self.sends.len(), error.kind()))
    }

    fn read(&self, from: usize, to: usize) -> Result<(), End> {
        let chunk = if self.slow { SLOW_CHUNK } else { CHUNK };
        let (mut stream, mut at, mut buffer) = (self.stream, from, vec![0; chunk]);
        while at < to {
            match stream.read(&mut buffer[..chunk.min(to - at)]) {
                Ok(0) => return Err(End::Short(at)),
                Ok(count) if buffer[..count] == self.gets[at..at + count] => at += self.moved(count),
                Ok(count) => return Err(End::Wrong(format!("wrong bytes within {at}..{}", at + count))),
                Err(error) => self.failed(&error, at, "reading")?,
            }
            if self.slow {
                pause();
            }
        }
        Ok(())
    }

    fn read_end(&self) -> Result<(), End> {
        loop {
            match { self.stream }.read(&mut [0; 1]) {
                Ok(0) => return Ok(()),
                Ok(_) => return Err(End::Wrong(format!("more came than {} bytes", self.gets.len()))),
                Err(error) => self.failed(&error, self.gets.len(), "reading the end")?,
            }
        }
    }

    fn moved(&self, count: usize) -> usize {
        self.transfer.moves();
        count
    }

    /// Judges an error of the socket; the timer's own is none while there is reason for patience.
    fn failed(&self, error: &std::io::Error, at: usize, doing: &str) -> Result<(), End> {
        match error.kind() {
            ErrorKind::Interrupted => Ok(()),
            ErrorKind::WouldBlock => match self.transfer.silence(self.side, self.excuses) {
                Silence::Patience => Ok(()),
                Silence::Lost => Err(End::Broken(at, ErrorKind::TimedOut)),
                Silence::Stuck(time) => Err(End::Wrong(format!("hangs {doing} at byte {at} for {time:?}"))),
            },
            kind => Err(End::Broken(at, kind)),
        }
    }
}

/// The interval of looks at a stalled socket.
const LOOK: Duration = Duration::from_secs(1);
const CHUNK: usize = 64 << 10;
/// A slow reader takes so much a hundred times a second at most.
const SLOW_CHUNK: usize = 4 << 10;
