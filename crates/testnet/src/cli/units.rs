//! Rates, times, probabilities and queues as people write them.

use std::time::Duration;

use oncewire_testnet::{Gilbert, Queue};

/// Reads `20mbit`, `20 Mbit/s`, `512kbit` or `1gbit`; a bare number is bits per second.
pub(super) fn rate(text: &str) -> Result<u64, String> {
    let (number, unit) = split(text.trim_end_matches("/s"))?;
    let factor = match unit.to_ascii_lowercase().as_str() {
        "" | "bit" => 1.0,
        "kbit" => 1e3,
        "mbit" => 1e6,
        "gbit" => 1e9,
        _ => return Err(format!("{unit} is no unit of rate; there are bit, kbit, mbit and gbit")),
    };
    Ok((number * factor) as u64)
}

/// Reads `50ms`, `1.5s` or `200us`.
pub(super) fn time(text: &str) -> Result<Duration, String> {
    let (number, unit) = split(text)?;
    let factor = match unit {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        _ => return Err(format!("{text} needs a unit of time: us, ms or s")),
    };
    Duration::try_from_secs_f64(number * factor).map_err(|error| format!("{text}: {error}"))
}

/// Reads `1%` or `0.01`.
pub(super) fn probability(text: &str) -> Result<f64, String> {
    match split(text)? {
        (number, "%") => Ok(number / 100.0),
        (number, "") => Ok(number),
        (_, unit) => Err(format!("{unit} is no unit of a probability; there is %")),
    }
}

/// Reads a queue in time (`100ms`) or in bytes (`64kB`).
pub(super) fn queue(text: &str) -> Result<Queue, String> {
    let (number, unit) = split(text)?;
    let factor = match unit {
        "B" => 1.0,
        "kB" => 1e3,
        "MB" => 1e6,
        _ => {
            return time(text)
                .map(Queue::Time)
                .map_err(|_| format!("{text} is neither a time nor in B, kB, MB"));
        }
    };
    Ok(Queue::Bytes((number * factor) as u64))
}

/// Reads `0.5%,30%`: the probabilities to turn bad and to turn good again.
pub(super) fn gilbert(text: &str) -> Result<Gilbert, String> {
    let (bad, good) = text.split_once(',').ok_or("two probabilities with a comma between them")?;
    Ok(Gilbert { p13: probability(bad)?, p31: probability(good)? })
}

/// Separates a non-negative number from its unit.
fn split(text: &str) -> Result<(f64, &str), String> {
    let end = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let number = number.parse().map_err(|_| format!("{text} does not begin with a number"))?;
    Ok((number, unit.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_read_as_written() {
        assert_eq!(rate("20mbit"), Ok(20_000_000));
        assert_eq!(rate("1.5 Mbit/s"), Ok(1_500_000));
        assert_eq!(rate("9600"), Ok(9600));
        assert_eq!(time("50ms"), Ok(Duration::from_millis(50)));
        assert_eq!(time("1.5 s"), Ok(Duration::from_millis(1500)));
        assert_eq!(probability("1%"), Ok(0.01));
        assert_eq!(probability("0.25"), Ok(0.25));
        assert_eq!(queue("64kB"), Ok(Queue::Bytes(64_000)));
        assert_eq!(queue("100ms"), Ok(Queue::Time(Duration::from_millis(100))));
        assert_eq!(gilbert("0.5%,30%"), Ok(Gilbert { p13: 0.005, p31: 0.3 }));
    }

    #[test]
    fn missing_and_wrong_units_are_refused() {
        assert!(rate("20MB").unwrap_err().contains("no unit of rate"));
        assert!(time("50").unwrap_err().contains("needs a unit"));
        assert!(time("-1s").unwrap_err().contains("number"));
        assert!(probability("1permille").is_err());
        assert!(queue("3 parsecs").unwrap_err().contains("neither"));
        assert!(gilbert("1%").is_err());
    }
}
