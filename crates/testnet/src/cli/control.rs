//! Control of a running network's lines, through a socket in a directory.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use oncewire_testnet::{Direction, LinkParams, Network, Queue, Wan};

use super::arguments::Settings;

/// Answers requests for as long as the process lives.
pub(super) fn serve(listener: &UnixListener, network: &Network) {
    for stream in listener.incoming().flatten() {
        let mut request = String::new();
        let mut reader = BufReader::new(&stream).take(LONGEST);
        if reader.read_line(&mut request).is_ok() {
            let answer = answer(network, request.trim()).unwrap_or_else(|error| format!("error: {error}\n"));
            // The client may have gone.
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
        let _ = writeln!(
            text,
            "{name} {way}: {}{cut}\n  {} packets, {} bytes carried, {} lost, {} reordered, {} duplicated, {} dropped \
             by the queue, {} too big, {} refused by the machine",
            settings(&params),
            counted.packets,
            counted.carried_bytes,
            counted.lost,
            counted.reordered,
            counted.duplicated,
            counted.queue_full,
            counted.too_big,
            direction.refused()
        );
    }
    text
}

/// Writes rate, delay, loss, and other settings unless they have their default.
fn settings(params: &LinkParams) -> String {
    let usual = LinkParams::default();
    let mut text = params.rate_bits_per_s.map_or("no limit".into(), rate);
    let _ = write!(text, ", delay {:?}, loss {}", params.delay, percent(params.loss));
    if params.jitter != usual.jitter {
        let _ = write!(text, ", jitter {:?}", params.jitter);
    }
    if let Some(gilbert) = params.gilbert {
        let _ = write!(text, ", gilbert {},{}", percent(gilbert.p13), percent(gilbert.p31));
    }
    for (name, share) in [("reorder", params.reorder), ("duplicate", params.duplicate)] {
        if share > 0.0 {
            let _ = write!(text, ", {name} {}", percent(share));
        }
    }
    match params.queue {
        queue if queue == usual.queue => {}
        Queue::Bytes(bytes) => _ = write!(text, ", queue {bytes} B"),
        Queue::Time(time) => _ = write!(text, ", queue {time:?}"),
    }
    if params.mtu != usual.mtu {
        let _ = write!(text, ", mtu {}", params.mtu);
    }
    text
}

fn rate(bits_per_s: u64) -> String {
    match bits_per_s % 1000 {
        0 => format!("{} kbit/s", bits_per_s / 1000),
        _ => format!("{bits_per_s} bit/s"),
    }
}

/// Writes a share in per cent, without digits from binary rounding.
fn percent(share: f64) -> String {
    format!("{} %", (share * 1e12).round() / 1e10)
}

/// The longest accepted request.
const LONGEST: u64 = 1000;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use oncewire_testnet::Gilbert;

    use super::*;

    #[test]
    fn settings_are_shown_as_they_were_given() {
        let ms = Duration::from_millis;
        assert_eq!(settings(&LinkParams::default()), "no limit, delay 0ns, loss 0 %");
        let params = LinkParams {
            rate_bits_per_s: Some(999),
            delay: ms(80),
            jitter: ms(5),
            loss: 0.07,
            gilbert: Some(Gilbert { p13: 0.005, p31: 0.3 }),
            reorder: 0.01,
            duplicate: 0.000_002,
            queue: Queue::Bytes(64_000),
            mtu: 1400,
            seed: 7,
        };
        assert_eq!(
            settings(&params),
            "999 bit/s, delay 80ms, loss 7 %, jitter 5ms, gilbert 0.5 %,30 %, reorder 1 %, duplicate 0.0002 %, \
             queue 64000 B, mtu 1400"
        );
    }
}
