#!/usr/bin/env bash
# Expected: after an element of a set was made with `timeout 5m`, an update with `timeout 4h` gives it the new
# timeout; `nft list` shows the new one; and the output of `nft list ruleset` can be loaded again.
# Observed: the element expires in four hours, but still shows its original timeout, five minutes. The kernel refuses
# an element with an expiry beyond its timeout, so the saved listing does not load: "Numerical result out of range",
# and with it none of the rules.
# Relevance here: new connections are remembered briefly, established ones for long. A reader of the set has to look
# at `expires`; and a service for saving and restoring all rules of a machine, as distributions have it, has to leave
# such elements out (`nft -s` omits the state).
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
uname -sr
cat > rules.nft <<'N'
table inet t {
  set seen { type ipv4_addr . inet_service; size 100; flags dynamic,timeout; timeout 1m; }
  chain input {
    type filter hook input priority 0;
    udp length 9 update @seen { ip saddr . udp dport timeout 5m }
    udp length 10 update @seen { ip saddr . udp dport timeout 4h }
  }
}
N
cat > inside.sh <<'S'
ip link set lo up
"$NFT" -f rules.nft
printf x > /dev/udp/127.0.0.1/9000
"$NFT" list set inet t seen | grep elements
printf xx > /dev/udp/127.0.0.1/9000
"$NFT" list set inet t seen | grep elements
"$NFT" list ruleset > saved.nft
"$NFT" -s list ruleset > without.nft
"$NFT" flush ruleset
if "$NFT" -f saved.nft; then echo "loaded"; else echo "refused"; fi
grep -q expires without.nft && echo "-s says when it expires"
if "$NFT" -f without.nft; then echo "loaded without state"; fi
S
unshare -n bash inside.sh 2>&1 | tee out
grep -q 'timeout 5m expires 3h59m59s' out
grep -q '^refused' out
grep -q 'Numerical result out of range' out
