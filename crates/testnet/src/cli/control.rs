//! Shows and changes the lines of a network that runs: one request a connection, on a socket in a directory.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use oncewire_testnet::{Direction, Network, Wan};

use super::arguments::Settings;

/// Answers requests for as long as the process lives.
pub(super) fn serve(listener: &UnixListener, network: &Network) {
    for stream in listener.incoming().flatten() {
        let mut request = String::new();
        let mut reader = BufReader::new(&stream).take(LONGEST);
        if reader.read_line(&mut request).is_ok() {
            let answer = answer(network, request.trim()).unwrap_or_else(|error| format!("error: {error}\n"));
            // Whoever asked may have gone.
            let _ = (&stream).write_all(answer.as_bytes());
        }
    }
}

/// Sends a request and returns the answer.
pub(super) fn ask(control: &Path, request: &[String]) -> Result<String, String> {
    let failed = |error: std::io::Error| format!("{}: {error}; does the network run?", control.display());
    let mut stream = UnixStream::connect(control).map_err(failed)?;
    writeln!(stream, "{}", request.join(" ")).map_err(failed)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).map_err(failed)?;
    match answer.strip_prefix("error: ") {
        Some(error) => Err(error.trim().into()),
        None => Ok(answer),
    }
}

fn answer(network: &Network, request: &str) -> Result<String, String> {
    let mut words: Vec<&str> = request.split_whitespace().collect();
    let named = words.first().and_then(|word| word.strip_suffix(':'));
    let name = named.unwrap_or("branch");
    if named.is_some() {
        words.remove(0);
    }
    let (_, line) = network
        .lines()
        .iter()
        .find(|(line, _)| line == name)
        .ok_or(format!("{name} has no emulated line"))?;
    match words.as_slice() {
        [] | ["show"] => {}
        ["cut", way @ ..] => ways(line, way)?.iter().for_each(|way| way.cut()),
        ["restore", way @ ..] => ways(line, way)?.iter().for_each(|way| way.restore()),
        changes => {
            let mut settings = Settings::default();
            changes.iter().try_for_each(|change| settings.set(change))?;
            for way in [&line.up, &line.down] {
                way.set(&settings.applied_to(way.params())).map_err(|error| error.to_string())?;
            }
        }
    }
    Ok(shown(name, line))
}

fn ways<'a>(line: &'a Wan, way: &[&str]) -> Result<Vec<&'a Direction>, String> {
    match way {
        [] => Ok(vec![&line.up, &line.down]),
        ["up"] => Ok(vec![&line.up]),
        ["down"] => Ok(vec![&line.down]),
        other => Err(format!("{} is neither up nor down", other.join(" "))),
    }
}

fn shown(name: &str, line: &Wan) -> String {
    let mut text = String::new();
    for (way, direction) in [("up", &line.up), ("down", &line.down)] {
        let (params, counted) = (direction.params(), direction.counters());
        let cut = if direction.is_cut() { ", CUT" } else { "" };
        let rate = params.rate_bits_per_s.map_or("no limit".into(), |rate| format!("{} kbit/s", rate / 1000));
        let _ = writeln!(
            text,
            "{name} {way}: {rate}, delay {:?}, loss {} %{cut}\n  {} packets, {} bytes carried, {} lost, {} dropped \
             by the queue, {} too big, {} refused by the machine",
            params.delay,
            params.loss * 100.0,
            counted.packets,
            counted.carried_bytes,
            counted.lost,
            counted.queue_full,
            counted.too_big,
            direction.refused()
        );
    }
    text
}

/// The longest request that is read.
const LONGEST: u64 = 1000;
