#!/usr/bin/env bash
# Expected: `update @set { … }` in a rule adds or refreshes an element; on a full set nothing is added and the rule
# goes on, as `counter` or `log` always do. "Update" is a statement, not a match.
# Observed: with the set at its `size`, the statement acts as a failed match. The rest of the rule behind it (a mark,
# a verdict, a counter) is not carried out for packets with an element missing in the set, without an error.
# Relevance here: a rule to remember a connection and then mark its packets marks nothing of new connections once the
# set is full. The verdict belongs in front of the update, or in a rule of its own.
set -euo pipefail
[ "$(id -u)" = 0 ] || { echo "needs root, for a network namespace"; exit 77; }
dir=$(mktemp -d); trap 'rm -rf "$dir"' EXIT; cd "$dir"
version=1.0.6-2+deb12u2
apt-get download -qq "nftables=$version" "libnftables1=$version" 2>/dev/null
for package in ./*.deb; do dpkg-deb -x "$package" root; done
LD_LIBRARY_PATH=$(dirname "$(find "$PWD/root" -name 'libnftables.so.1')")
NFT=$(find "$PWD/root" -name nft -type f)
export LD_LIBRARY_PATH NFT
"$NFT" --version
cat > rules.nft <<'N'
table inet t {
  set seen { type ipv4_addr . inet_service; size 2; flags dynamic,timeout; timeout 1m; }
  counter before { }
  counter behind { }
  chain input {
    type filter hook input priority 0;
    udp dport 9000-9003 counter name before update @seen { ip saddr . udp dport } counter name behind
  }
}
N
cat > inside.sh <<'S'
set -e
ip link set lo up
"$NFT" -f rules.nft
for port in 9000 9001 9002 9003; do echo x > /dev/udp/127.0.0.1/$port; done
"$NFT" list counters
S
unshare -n bash inside.sh | tee out
count() { awk -v name="$1" '$1 == "counter" { at = $2 } $1 == "packets" && at == name { print $2 }' out; }
echo "before the update: $(count before), behind it: $(count behind), of 4 packets and a set of 2"
[ "$(count before)" = 4 ] && [ "$(count behind)" = 2 ]
