#!/usr/bin/env bash
# Expected: TCP_KEEPIDLE is the silence before each probe, and TCP_KEEPINTVL counts only behind an unanswered one. A
# connection with an idle time of 1 s is then probed each second while its peer answers.
# Observed: Linux sets the timer to the interval behind every probe, answered or not. With an idle time of 1 s and an
# interval of 5 s an answering peer is probed each 5 s, the longer of both.
# Relevance here: a gateway mirroring another host's probes has to set both, and the patience by the count. With the
# interval left at the kernel's 75 s, every host seems to probe each 75 s at most, and a mirror meant to keep a
# connection tracker or a NAT awake at shorter intervals lets it fall asleep.
set -euo pipefail
command -v python3 > /dev/null || { echo "needs python3"; exit 77; }
[ "$(uname)" = Linux ] || { echo "needs Linux"; exit 77; }
dir=$(mktemp -d); trap 'rm -rf "$dir"' EXIT; cd "$dir"
cat > probes.py <<'P'
import platform, socket, struct, time

SEGS_IN = 140  # of struct tcp_info


def pair(idle, interval):
    listener = socket.create_server(("127.0.0.1", 0))
    near = socket.create_connection(listener.getsockname())
    far, _ = listener.accept()
    near.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, idle)
    near.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, interval)
    near.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    return near, far


def segments(connection):
    info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, SEGS_IN + 4)
    return struct.unpack_from("I", info, SEGS_IN)[0]


short, long = pair(1, 1), pair(1, 5)
before = [segments(far) for _, far in (short, long)]
time.sleep(12.5)
probes = [segments(far) - start for (_, far), start in zip((short, long), before)]
print("Linux", platform.release())
print("probes in 12.5 s, idle time 1 s, interval 1 s:", probes[0])
print("probes in 12.5 s, idle time 1 s, interval 5 s:", probes[1])
assert probes[0] >= 8, "answered probes no longer come each second"
assert 1 <= probes[1] <= 4, "the interval no longer delays answered probes"
P
python3 probes.py
