//! Gateways across an emulated line, in a network of namespaces.

mod lost;
mod neighbours;
mod outage;
mod scoped;
mod soak;
mod worn;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use oncewire_testnet::{Family, LinkParams, isolated};

use crate::common::data::{assert_same, random, text};
use crate::common::network::{PairInNetwork, Setup};
use crate::common::origin::{Origin, halves};
use crate::common::wait::{LIMIT, eventually};

/// A pair across this line, with this at the end of both configurations.
fn start(line: LinkParams, both: &str) -> Option<PairInNetwork> {
    PairInNetwork::start(crate::binary(), &Setup { line, both: both.into(), ..Setup::default() })
}

/// 20 Mbit/s and a round trip of 40 ms, with this share lost each way.
fn line(loss: f64) -> LinkParams {
    LinkParams {
        rate_bits_per_s: Some(20_000_000),
        delay: Duration::from_millis(20),
        loss,
        seed: 42,
        ..LinkParams::default()
    }
}

/// Serves `data` to every client.
fn serve(listener: TcpListener, data: Vec<u8>) {
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            // Whether it arrived is for the client to say.
            let _ = stream.write_all(&data);
            let _ = stream.shutdown(Shutdown::Write);
        }
    });
}

#[test]
fn downloads_cross_a_lossy_line_whole_then_as_references() {
    isolated(|| {
        let Some(pair) = start(line(0.01), "[codec]\nadapt = false\n") else { return };
        let data = text(1, 2_000_000);
        let mut crossed = Vec::new();
        for family in Family::BOTH {
            serve(pair.listen(family), data.clone());
            let before = pair.network.wan().down.counters().carried_bytes;
            let mut got = Vec::new();
            pair.connect(family).read_to_end(&mut got).unwrap();
            assert_same(&got, &data, &format!("{family:?}, seed 42"));
            crossed.push(pair.network.wan().down.counters().carried_bytes - before);
        }
        println!("bytes of packets down the line: {crossed:?}; {:?}", pair.network.wan().down.counters());
        assert!(pair.network.wan().down.counters().lost > 0, "seed 42");
        assert!(crossed[1] < crossed[0] / 4, "{crossed:?}");
    });
}

#[test]
fn download_survives_a_cut_noticed_by_the_gateways() {
    isolated(|| {
        let link = "[link]\ndead_after = \"2 s\"\n";
        let Some(pair) = start(line(0.0), link) else { return };
        for (seed, family) in (2..).zip(Family::BOTH) {
            let data = random(seed, 4_000_000);
            let gone = Arc::new(AtomicBool::new(false));
            let (sent, cut) = (data.clone(), Arc::clone(&gone));
            let _origin = Origin::on(pair.listen(family), move |stream| halves(&stream, &sent, &cut));
            let mut stream = pair.connect(family);
            let mut got = vec![0; 500_000];
            stream.read_exact(&mut got).unwrap();
            pair.network.wan().cut();
            gone.store(true, Ordering::SeqCst);
            pair.wait_until_down();
            pair.network.wan().restore();
            stream.read_to_end(&mut got).unwrap();
            assert_same(&got, &data, &format!("{family:?}"));
        }
        assert!(pair.count("resumes") >= 2, "both flows were cut in their middle");
        assert_eq!(pair.count("mismatches"), 0);
    });
}

#[test]
fn upload_survives_the_loss_of_one_direction() {
    isolated(|| {
        let Some(pair) = start(line(0.0), "") else { return };
        let wan = pair.network.wan();
        for (seed, family, way) in [(4, Family::V4, &wan.up), (5, Family::V6, &wan.down)] {
            let data = random(seed, 4_000_000);
            let listener = pair.listen(family);
            let sent = data.clone();
            let mut stream = pair.connect(family);
            let writer = std::thread::spawn(move || {
                stream.write_all(&sent).unwrap();
                stream.shutdown(Shutdown::Write).unwrap();
                // Kept open until the far end is done.
                stream.read(&mut [0]).unwrap()
            });
            let (mut accepted, _) = listener.accept().unwrap();
            accepted.set_read_timeout(Some(LIMIT)).unwrap();
            let mut got = vec![0; 500_000];
            accepted.read_exact(&mut got).unwrap();
            let before = way.counters().lost;
            way.cut();
            eventually("packets are lost", LIMIT, || (way.counters().lost >= before + 5).then_some(()));
            way.restore();
            accepted.read_to_end(&mut got).unwrap();
            drop(accepted);
            assert_same(&got, &data, &format!("{family:?}"));
            assert_eq!(writer.join().unwrap(), 0);
        }
    });
}
