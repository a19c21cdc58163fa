#!/usr/bin/env bash
# Expected: a connection takes its four numbers, so a port in use towards one server from one address is free for a
# connect to another server from another address. So it is for ports chosen by the kernel.
# Observed: a port chosen by a program with bind(), even with SO_REUSEADDR and on an address without other users, is
# left out of Linux's choice for a connect to any destination. Once all ports of the range are bound like this, no
# connect with an automatic port works: EADDRNOTAVAIL.
# Relevance here: a gateway connecting in its clients' names binds their addresses and ports. With as many clients as
# ports in the range, all to one server, no other program on that machine reaches anything.
# IP_BIND_ADDRESS_NO_PORT with IP_LOCAL_PORT_RANGE chooses the same port as the kernel would, and leaves it to others.
set -euo pipefail
command -v python3 > /dev/null && command -v unshare > /dev/null || { echo "needs python3 and unshare"; exit 77; }
unshare -rn true 2> /dev/null || { echo "needs network namespaces"; exit 77; }
dir=$(mktemp -d); trap 'rm -rf "$dir"' EXIT; cd "$dir"
cat > ports.py <<'P'
import errno, socket, struct, sys

IP_BIND_ADDRESS_NO_PORT, IP_LOCAL_PORT_RANGE = 24, 51
RANGE = "/proc/sys/net/ipv4/ip_local_port_range"
mode = sys.argv[1]
servers = [socket.create_server((host, 80), backlog=64) for host in ("127.0.0.1", "127.0.1.1")]
with open(RANGE, "w") as file:
    file.write("40000 40009")
kept = []
for port in range(40000, 40010):
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if mode == "bound":
        connection.bind(("127.0.0.2", port))
    if mode == "ranged":
        connection.setsockopt(socket.IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1)
        connection.setsockopt(socket.IPPROTO_IP, IP_LOCAL_PORT_RANGE, struct.pack("I", port | port << 16))
        connection.bind(("127.0.0.2", 0))
    connection.connect(servers[0].getsockname())
    kept.append(connection)
try:
    socket.create_connection(servers[1].getsockname())
    print("connects")
except OSError as error:
    print(errno.errorcode[error.errno])
P
lo='ip link set lo up && exec python3 ports.py'
echo "Linux $(uname -r)"
try() { unshare -rn sh -c "$lo $1"; }
chosen=$(try chosen); bound=$(try bound); ranged=$(try ranged)
echo "ten connects to one server with ports of the system's choice, then one to another server: $chosen"
echo "ten connects to one server with bound ports, then one to another server: $bound"
echo "ten connects to one server with ranges of one port each, then one to another server: $ranged"
[ "$chosen" = connects ] && [ "$bound" = EADDRNOTAVAIL ] && [ "$ranged" = connects ]
