use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::Queue;

const MS: Duration = Duration::from_millis(1);

/// A network with applications that write as much as possible and read at once.
struct Bench {
    network: Network,
    now: Now,
    /// Bytes each stream still has to write, by connection and writing side.
    to_write: BTreeMap<(ConnectionId, Side), u64>,
    /// Received bytes, by connection and reading side.
    received: BTreeMap<(ConnectionId, Side), u64>,
    events: Vec<(Now, Event)>,
    /// Sides without a reader.
    stopped: Option<Side>,
}

impl Bench {
    fn new(up: LinkParams) -> Self {
        let down = LinkParams { loss: 0.0, seed: up.seed ^ 0xFF, ..up.clone() };
        Self::with(up, down)
    }

    fn with(up: LinkParams, down: LinkParams) -> Self {
        Self {
            network: Network::new(up, down).unwrap(),
            now: Now::ZERO,
            to_write: BTreeMap::new(),
            received: BTreeMap::new(),
            events: Vec::new(),
            stopped: None,
        }
    }

    fn connect(&mut self, policy: Policy, bytes: u64) -> ConnectionId {
        let id = self.network.connect(Side::Near, policy, Account(1), self.now).unwrap();
        self.to_write.insert((id, Side::Near), bytes);
        id
    }

    fn run_until(&mut self, end: Now) {
        self.drain();
        while let Some(at) = self.network.poll_timeout().filter(|at| *at <= end) {
            self.now = at;
            self.network.handle_timeout(at);
            self.drain();
        }
        self.now = end;
    }

    fn drain(&mut self) {
        while let Some(event) = self.network.poll_event() {
            match event {
                Event::Incoming(id) => self.network.accept(id, self.now),
                Event::Connected(id) => self.write(id, Side::Near),
                Event::Writable { connection, side } => self.write(connection, side),
                Event::Readable { connection, side, bytes } => {
                    *self.received.entry((connection, side)).or_default() += bytes;
                    if self.stopped != Some(side) {
                        self.network.handle_consumed(connection, side, bytes, self.now);
                    }
                }
                _ => {}
            }
            if !matches!(event, Event::Readable { .. } | Event::Writable { .. }) {
                self.events.push((self.now, event));
            }
        }
    }

    fn write(&mut self, id: ConnectionId, side: Side) {
        let left = self.to_write.entry((id, side)).or_default();
        if *left > 0 {
            *left -= self.network.handle_written(id, side, *left, self.now);
            if *left == 0 {
                self.network.finish(id, side, self.now);
            }
        }
    }

    fn received(&self, id: ConnectionId, side: Side) -> u64 {
        self.received.get(&(id, side)).copied().unwrap_or_default()
    }

    fn when(&self, wanted: impl Fn(&Event) -> bool) -> Option<Now> {
        self.events.iter().find(|(_, event)| wanted(event)).map(|(at, _)| *at)
    }
}

fn path(mbit_per_s: u64, rtt_ms: u32, loss: f64, seed: u64) -> LinkParams {
    LinkParams {
        rate_bits_per_s: Some(mbit_per_s * 1_000_000),
        delay: MS * rtt_ms / 2,
        loss,
        queue: Queue::Time(100 * MS),
        seed,
        ..LinkParams::default()
    }
}

/// Mean goodput in Mbit/s of one bulk stream, of several seeds.
fn goodput(policy: Policy, mbit_per_s: u64, rtt_ms: u32, loss: f64) -> f64 {
    // Long where losses are rare and decide, short where a full link makes many events.
    let seconds = if policy == Policy::Cubic && loss > 0.0 { 60 } else { 12 };
    let seeds = [1, 2];
    let total: u64 = seeds
        .iter()
        .map(|seed| {
            let mut bench = Bench::new(path(mbit_per_s, rtt_ms, loss, *seed));
            let id = bench.connect(policy, u64::MAX / 2);
            bench.run_until(Duration::from_secs(seconds));
            bench.received(id, Side::Far)
        })
        .sum();
    let mbit_per_s = total as f64 * 8.0 / 1e6 / seconds as f64 / seeds.len() as f64;
    println!("{policy}, {rtt_ms} ms, loss {loss}: {mbit_per_s:.2} Mbit/s");
    mbit_per_s
}

#[test]
fn without_loss_both_policies_fill_the_link() {
    for policy in [Policy::Cubic, Policy::Bbr] {
        let mbit_per_s = goodput(policy, 50, 100, 0.0);
        assert!((44.0..48.5).contains(&mbit_per_s), "{policy}: {mbit_per_s:.1} Mbit/s");
    }
}

#[test]
fn loss_collapses_cubic_as_it_does_on_linux() {
    // Linux over the same path: 5.5 and 1.4 Mbit/s.
    let light = goodput(Policy::Cubic, 50, 100, 0.001);
    assert!((3.5..8.0).contains(&light), "0.1 %: {light:.2} Mbit/s");
    let heavy = goodput(Policy::Cubic, 50, 100, 0.01);
    assert!((1.0..2.2).contains(&heavy), "1 %: {heavy:.2} Mbit/s");
    let near = goodput(Policy::Cubic, 50, 50, 0.01);
    assert!((2.0..4.4).contains(&near), "1 % at 50 ms: {near:.2} Mbit/s");
}

#[test]
fn loss_leaves_bbr_standing() {
    for loss in [0.001, 0.01] {
        let mbit_per_s = goodput(Policy::Bbr, 50, 100, loss);
        assert!((41.0..48.5).contains(&mbit_per_s), "{loss}: {mbit_per_s:.1} Mbit/s");
    }
}

#[test]
fn a_short_transfer_takes_neither_policy_long() {
    // A small head and then a body, as a web server writes them.
    for policy in [Policy::Cubic, Policy::Bbr] {
        let mut bench = Bench::new(path(20, 80, 0.0, 1));
        // Not at the origin of time: a policy must not take its own age for the path's.
        let start = Duration::from_secs(100);
        bench.run_until(start);
        let id = bench.connect(policy, 0);
        bench.run_until(start + 85 * MS);
        bench.network.handle_written(id, Side::Near, 200, bench.now);
        bench.run_until(start + 90 * MS);
        bench.to_write.insert((id, Side::Near), 600_000);
        bench.write(id, Side::Near);
        bench.run_until(start + Duration::from_secs(5));
        let end = bench.when(|event| matches!(event, Event::Finished { .. })).unwrap() - start;
        assert!(end < 800 * MS, "{policy}: {end:?}");
    }
}

#[test]
fn slow_start_ends_before_it_floods_the_queue() {
    let mut bench = Bench::new(path(20, 80, 0.0, 1));
    bench.connect(Policy::Cubic, 2_000_000);
    bench.run_until(Duration::from_secs(10));
    let end = bench.when(|event| matches!(event, Event::Finished { .. })).unwrap();
    assert!(end < 1300 * MS, "{end:?}");
    let traffic = bench.network.traffic(Account(1), Side::Near);
    assert!(traffic.repeated < traffic.payload / 10, "{traffic:?}");
}

#[test]
fn streams_share_the_rate() {
    let mut bench = Bench::new(path(20, 80, 0.0, 1));
    let ids: Vec<_> = (0..4).map(|_| bench.connect(Policy::Cubic, u64::MAX / 8)).collect();
    bench.run_until(Duration::from_secs(60));
    let shares: Vec<f64> = ids.iter().map(|id| bench.received(*id, Side::Far) as f64 * 8.0 / 60e6).collect();
    let sum: f64 = shares.iter().sum();
    assert!((18.0..19.4).contains(&sum), "{shares:?}");
    assert!(shares.iter().all(|share| *share > 2.0), "{shares:?}");
}

#[test]
fn connecting_costs_one_round_trip_and_first_byte_half_more() {
    let mut bench = Bench::new(path(100, 80, 0.0, 1));
    let id = bench.connect(Policy::Cubic, 100);
    bench.run_until(Duration::from_secs(1));
    let connected = bench.when(|event| *event == Event::Connected(id)).unwrap();
    assert_eq!(connected.as_millis(), 80);
    let end = bench.when(|event| matches!(event, Event::Finished { .. })).unwrap();
    assert_eq!(end.as_millis(), 120);
    assert_eq!(bench.received(id, Side::Far), 100);
}

#[test]
fn slow_start_takes_the_rounds_it_takes_on_the_wire() {
    // 10, 20, 40 segments: 70 segments arrive in the third round after the handshake.
    let mut bench = Bench::new(path(1000, 100, 0.0, 1));
    bench.connect(Policy::Cubic, 70 * u64::from(MSS));
    bench.run_until(Duration::from_secs(2));
    let end = bench.when(|event| matches!(event, Event::Finished { .. })).unwrap();
    assert!((350..=352).contains(&end.as_millis()), "{end:?}");
}

#[test]
fn a_refused_connection_fails_after_one_round_trip() {
    let mut network = Network::new(path(10, 60, 0.0, 1), path(10, 60, 0.0, 2)).unwrap();
    let id = network.connect(Side::Near, Policy::Cubic, Account(1), Now::ZERO).unwrap();
    network.handle_timeout(40 * MS);
    assert_eq!(network.poll_event(), Some(Event::Incoming(id)));
    network.refuse(id, 40 * MS);
    network.handle_timeout(100 * MS);
    assert_eq!(network.poll_event(), Some(Event::Failed(id, ConnectError::Refused)));
    assert_eq!(network.connections(), 0);
}

#[test]
fn an_opener_learns_of_a_reset_before_its_handshake_ends() {
    let mut network = Network::new(path(10, 60, 0.0, 1), path(10, 60, 0.0, 2)).unwrap();
    let id = network.connect(Side::Near, Policy::Cubic, Account(1), Now::ZERO).unwrap();
    network.handle_timeout(40 * MS);
    network.accept(id, 40 * MS);
    network.reset(id, Side::Far, 41 * MS);
    assert_eq!(network.poll_event(), Some(Event::Incoming(id)));
    assert_eq!(network.poll_event(), Some(Event::Failed(id, ConnectError::Refused)));
    assert_eq!(network.poll_event(), Some(Event::Closed(id)));
    let id = network.connect(Side::Near, Policy::Cubic, Account(1), 50 * MS).unwrap();
    network.handle_timeout(90 * MS);
    network.reset(id, Side::Near, 90 * MS);
    assert_eq!(network.poll_event(), Some(Event::Incoming(id)));
    assert_eq!(network.poll_event(), Some(Event::Reset { connection: id, side: Side::Far }));
    assert_eq!(network.connections(), 0);
}

#[test]
fn dead_path_fails_the_connection_within_about_a_minute() {
    let mut bench = Bench::new(path(10, 60, 1.0, 1));
    let id = bench.connect(Policy::Cubic, 100);
    bench.run_until(Duration::from_secs(120));
    let failed = bench.when(|event| *event == Event::Failed(id, ConnectError::TimedOut)).unwrap();
    assert_eq!(failed.as_secs(), 63);
    assert_eq!(bench.network.poll_timeout(), None, "nothing goes on");
}

#[test]
fn a_lost_syn_costs_a_second() {
    for seed in 0.. {
        let mut bench = Bench::new(path(10, 60, 0.5, seed));
        let id = bench.connect(Policy::Cubic, 100);
        bench.run_until(Duration::from_secs(30));
        let connected = bench.when(|event| *event == Event::Connected(id));
        if connected.is_some_and(|at| at > 500 * MS) {
            assert!(connected.unwrap() > 1060 * MS, "seed {seed}: {connected:?}");
            break;
        }
    }
}

#[test]
fn both_directions_end_on_their_own() {
    let mut bench = Bench::new(path(10, 60, 0.0, 1));
    let id = bench.connect(Policy::Cubic, 1000);
    bench.run_until(Duration::from_secs(1));
    assert_eq!(bench.network.connections(), 1, "half-closed");
    bench.to_write.insert((id, Side::Far), 5000);
    bench.write(id, Side::Far);
    bench.run_until(Duration::from_secs(2));
    assert_eq!(bench.received(id, Side::Near), 5000);
    assert!(bench.when(|e| *e == Event::Finished { connection: id, side: Side::Near }).is_some());
    assert_eq!(bench.network.connections(), 0);
    assert_eq!(bench.events.last().map(|(_, event)| *event), Some(Event::Closed(id)));
    assert_eq!(bench.network.poll_timeout(), None);
}

#[test]
fn reset_arrives_behind_sent_bytes_and_drops_the_rest() {
    let mut bench = Bench::new(path(10, 60, 0.0, 1));
    let id = bench.connect(Policy::Cubic, 128 << 10);
    bench.run_until(65 * MS);
    bench.network.reset(id, Side::Near, bench.now);
    bench.run_until(Duration::from_secs(1));
    assert!(bench.when(|e| *e == Event::Reset { connection: id, side: Side::Far }).is_some());
    assert_eq!(bench.received(id, Side::Far), 10 * u64::from(MSS));
    assert_eq!(bench.network.connections(), 0);
}

#[test]
fn a_reset_passes_a_closed_window_and_follows_a_finish() {
    let mut bench = Bench::new(path(100, 20, 0.0, 1));
    bench.stopped = Some(Side::Far);
    let id = bench.connect(Policy::Cubic, 64 << 20);
    bench.run_until(Duration::from_secs(10));
    bench.network.reset(id, Side::Near, bench.now);
    bench.run_until(Duration::from_secs(11));
    assert!(bench.when(|e| *e == Event::Reset { connection: id, side: Side::Far }).is_some());

    let mut bench = Bench::new(path(100, 20, 0.0, 1));
    let id = bench.connect(Policy::Cubic, 1000);
    bench.run_until(Duration::from_secs(1));
    bench.network.reset(id, Side::Near, bench.now);
    bench.run_until(Duration::from_secs(2));
    let of = |wanted: Event| bench.when(|e| *e == wanted);
    assert!(of(Event::Finished { connection: id, side: Side::Far }).is_some());
    assert!(of(Event::Reset { connection: id, side: Side::Far }).is_some());
    assert_eq!(bench.network.connections(), 0);
}

#[test]
fn both_sides_may_reset_at_once() {
    let mut bench = Bench::new(path(10, 60, 0.3, 3));
    let id = bench.connect(Policy::Cubic, 1 << 20);
    bench.run_until(Duration::from_secs(3));
    assert!(bench.network.room(id, Side::Far) > 0, "connected");
    bench.network.reset(id, Side::Near, bench.now);
    bench.network.reset(id, Side::Far, bench.now);
    bench.run_until(Duration::from_secs(600));
    assert_eq!(bench.network.connections(), 0);
}

#[test]
fn stalled_reader_gets_one_window_and_the_rest_on_reading() {
    let mut bench = Bench::new(path(100, 20, 0.01, 5));
    bench.stopped = Some(Side::Far);
    let total = 10 << 20;
    let id = bench.connect(Policy::Bbr, total);
    bench.run_until(Duration::from_secs(20));
    assert_eq!(bench.received(id, Side::Far), crate::tcp::RECEIVE_WINDOW);
    let before = bench.network.traffic(Account(1), Side::Near);
    bench.run_until(Duration::from_secs(40));
    let idle = bench.network.traffic(Account(1), Side::Near);
    assert!(idle.control - before.control <= 16, "window probes back off");
    bench.stopped = None;
    bench.network.handle_consumed(id, Side::Far, crate::tcp::RECEIVE_WINDOW, bench.now);
    bench.run_until(Duration::from_secs(60));
    assert_eq!(bench.received(id, Side::Far), total);
    assert!(bench.when(|e| matches!(e, Event::Finished { .. })).is_some());
}

#[test]
fn traffic_counts_payload_repeats_and_headers_apart() {
    let mut bench = Bench::new(path(20, 40, 0.02, 9));
    let total = 3_000_000;
    let id = bench.connect(Policy::Bbr, total);
    bench.run_until(Duration::from_secs(60));
    assert_eq!(bench.received(id, Side::Far), total);
    let traffic = bench.network.traffic(Account(1), Side::Near);
    assert_eq!(traffic.payload, total);
    let share = traffic.repeated as f64 / total as f64;
    assert!((0.012..0.035).contains(&share), "{share} sent again at 2 % loss");
    let packets = traffic.segments + traffic.repeated_segments + traffic.control;
    assert_eq!(traffic.packets_bytes, traffic.payload + traffic.repeated + packets * u64::from(HEADER_BYTES));
    assert_eq!(bench.network.traffic(Account(2), Side::Near), Traffic::default());
    assert_eq!(bench.network.link_counters(Side::Near).packets, packets);
}

#[test]
fn a_late_caller_changes_nothing_inside_the_model() {
    let run = |step: Duration| {
        let mut bench = Bench::new(path(20, 40, 0.01, 4));
        let id = bench.connect(Policy::Cubic, 120_000);
        bench.run_until(50 * MS);
        while bench.now < Duration::from_secs(5) {
            bench.now += step;
            bench.network.handle_timeout(bench.now);
        }
        bench.drain();
        (bench.received(id, Side::Far), bench.network.link_counters(Side::Near))
    };
    let exact = run(Duration::from_micros(50));
    assert_eq!(exact.0, 120_000);
    assert_eq!(exact, run(3 * MS));
}

#[test]
fn an_mtu_below_a_segment_is_refused() {
    let small = LinkParams { mtu: 1400, ..LinkParams::default() };
    let error = Network::new(LinkParams::default(), small).unwrap_err();
    assert_eq!(error, ParamsError::MtuOutOfRange { mtu: 1400, least: 1500 });
}

#[test]
fn connections_are_bounded() {
    let mut network = Network::new(LinkParams::default(), LinkParams::default()).unwrap();
    for _ in 0..MAX_CONNECTIONS {
        network.connect(Side::Near, Policy::Cubic, Account(0), Now::ZERO).unwrap();
    }
    let refused = network.connect(Side::Near, Policy::Cubic, Account(0), Now::ZERO);
    assert_eq!(refused, Err(TooManyConnections));
}

#[test]
fn waiting_writer_is_told_again_after_its_room_shrank() {
    // Losses shrink the window and with it the buffer, between the event and the write.
    for seed in 0..50 {
        let mut bench = Bench::new(path(20, 80, 0.01, seed));
        let id = bench.connect(Policy::Cubic, 0);
        bench.run_until(100 * MS);
        let (mut waits, mut told) = (true, 0);
        for step in 0..500 {
            let now = 100 * MS + 40 * MS * step;
            bench.network.handle_timeout(now);
            while let Some(event) = bench.network.poll_event() {
                match event {
                    Event::Writable { .. } => (waits, told) = (true, told + 1),
                    Event::Readable { connection, side, bytes } => {
                        bench.network.handle_consumed(connection, side, bytes, now);
                    }
                    _ => {}
                }
            }
            let room = bench.network.room(id, Side::Near);
            if waits {
                waits = room >= 32 << 10;
                bench.network.handle_written(id, Side::Near, if waits { room } else { 0 }, now);
                waits = false;
            }
        }
        assert!(told > 20, "seed {seed}: told {told} times");
    }
}

#[test]
fn unsent_limit_leaves_little_waiting_and_the_path_busy() {
    let written_in_5_s = |most_unsent: u64| {
        let mut bench = Bench::new(path(20, 80, 0.0, 1));
        let id = bench.connect(Policy::Cubic, 0);
        bench.run_until(100 * MS);
        bench.network.limit_unsent(id, Side::Near, most_unsent, 100 * MS);
        let (mut written, mut arrived) = (0, 0);
        let mut now = 100 * MS;
        while now < Now::from_secs(5) {
            bench.network.handle_timeout(now);
            let room = bench.network.room(id, Side::Near);
            assert!(room <= most_unsent);
            written += bench.network.handle_written(id, Side::Near, room, now);
            while let Some(event) = bench.network.poll_event() {
                if let Event::Readable { connection, side, bytes } = event {
                    bench.network.handle_consumed(connection, side, bytes, now);
                    arrived += bytes;
                }
            }
            now = bench.network.poll_timeout().unwrap_or(now).max(now + Duration::from_micros(1));
        }
        (written, arrived)
    };
    let (_, unlimited) = written_in_5_s(u64::MAX);
    let (written, limited) = written_in_5_s(16 << 10);
    assert!(limited * 20 > unlimited * 19, "{limited} of {unlimited} bytes");
    assert!(written > limited);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// On any path, every byte arrives once and in count, and the connection comes to its end.
    #[test]
    fn every_byte_arrives_over_any_path(
        loss in 0.0..0.2f64,
        reorder in 0.0..0.2f64,
        duplicate in 0.0..0.2f64,
        jitter_ms in 0u32..20,
        mbit_per_s in 1u64..100,
        seed: u64,
        bytes in 1u64..400_000,
        back in 1u64..50_000,
        bbr: bool,
    ) {
        let up = LinkParams {
            loss, reorder, duplicate, jitter: MS * jitter_ms, ..path(mbit_per_s, 50, loss, seed)
        };
        let down = LinkParams { seed: !seed, ..up.clone() };
        let mut bench = Bench::with(up, down);
        let id = bench.connect(if bbr { Policy::Bbr } else { Policy::Cubic }, bytes);
        let mut written_back = false;
        for second in 1..2000 {
            bench.run_until(Duration::from_secs(second));
            if !written_back && bench.received(id, Side::Far) > 0 {
                written_back = true;
                bench.to_write.insert((id, Side::Far), back);
                bench.write(id, Side::Far);
            }
            if bench.network.connections() == 0 {
                break;
            }
        }
        // Six lost SYNs in a row, or eleven timeouts, are legitimate failures at such losses.
        let failed = bench.events.iter().any(|(_, e)| matches!(e, Event::Failed(..) | Event::Reset { .. }));
        if !failed {
            prop_assert_eq!(bench.received(id, Side::Far), bytes);
            prop_assert_eq!(bench.received(id, Side::Near), back);
        }
        prop_assert_eq!(bench.network.connections(), 0);
        prop_assert_eq!(bench.network.poll_timeout().is_some(), bench.network.links.iter().any(|l| l.held() > 0));
    }
}
