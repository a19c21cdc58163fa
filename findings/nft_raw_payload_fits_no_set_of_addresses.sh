#!/usr/bin/env bash
# Expected: `@th,192,32` in a rule can be looked up in a set of `type ipv4_addr`, since both are 32 bits and an
# address in the packet quoted by an ICMP error has no name of its own; and a raw expression stays as written.
# Observed: nft refuses the look-up ("datatype mismatch"); the set has to be declared with `typeof @th,192,32`, and
# cannot then be filled by `ip daddr`, only by raw bits, too (`@nh,128,32`). But if nft knows a field at these bits,
# as with `@th,16,16` behind `meta l4proto tcp`, it reads the raw expression as that field, fit for sets of ports and
# for no set of integers.
# Relevance here: ICMP errors are led by their quoted packet. A set filled by `ip daddr` of outgoing packets cannot be
# searched for the quoted address: both sides have to be raw, and of bits without a field in nft.
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
cat > inside.sh <<'S'
try() {
  echo "--- $1 looked up by: $2"
  printf 'table inet t {\nset s { %s; size 10; flags dynamic; }\nchain c {\ntype filter hook input priority 0;\n%s @s counter\n}\n}\n' \
    "$1" "$2" > rules.nft
  "$NFT" -f rules.nft && "$NFT" list table inet t | grep -E 'counter' && "$NFT" flush ruleset
}
try 'type ipv4_addr' 'icmp type 3 @th,192,32'
try 'typeof @th,192,32' 'icmp type 3 @th,192,32'
try 'type inet_service' 'meta l4proto tcp @th,16,16'
S
unshare -n bash inside.sh 2>&1 | tee out || true
grep -q 'datatype mismatch, expected integer' out
grep -q '@th,192,32 @s counter' out
grep -q 'tcp dport @s counter' out
echo "as described: refused, taken raw, and read as a port"
