#!/usr/bin/env bash
# All-reduces between "hosts" whose links carry a fixed rate, beside the cost model of docs/scaling.md: a measurement, no test.
#
# Usage: tests/cluster/wire_model.sh ENGINE [MBIT] [BACKEND]      needs root, iproute2 and a kernel with tbf
# MBIT: of each link, 50 if left out; so few that the hosts, which share this machine's cores, are not what limits them.
# Prints for 2, 4 and 8 hosts and each size the median, what the model gives, and their ratio.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/cluster_lib.sh"
engine=$(readlink -f "${1:?usage: wire_model.sh ENGINE [MBIT] [BACKEND]}")
mbit=${2:-50} backend=${3:-socket}
hosts=8
on_hosts 10.87.0
mkdir "$folder/home"
export HOME=$folder/home

# all_reduce WORLD SIZES: CSV with the median of each size
all_reduce() {
  local i
  ranks=()
  for ((i = 0; i < $1; ++i)); do
    LOCAL_WORLD_SIZE=1 ip netns exec "$base-$i" "$engine" bench comm --world-size "$1" --rank "$i" --backends "$backend" --local-stage off \
      --init-method tcp://10.87.0.1:29500 --sizes "$2" --seconds 6 --iters 15 --format csv >"$folder/$i.csv" 2>"$folder/$i.err" &
    ranks[i]=$!
  done
  for ((i = 0; i < $1; ++i)); do wait "${ranks[i]}" || fail "rank $i" "$folder/$i.err"; done
  ranks=()
  cat "$folder/0.csv"
}

# The rates of the links apply to what is large; the latency, which is this machine's, is measured without them.
for world in 2 4 8; do all_reduce "$world" 8 >"$folder/small.$world"; done
for ((i = 0; i < hosts; ++i)); do
  ip netns exec "$base-$i" tc qdisc add dev data0 root tbf rate "${mbit}mbit" burst 128kbit latency 400ms 2>/dev/null ||
    skip "this kernel has no tbf"
done
for world in 2 4 8; do all_reduce "$world" 256K,1M,4M >"$folder/large.$world"; done

printf 'hosts  bytes     measured ms  model ms  ratio   (%s, %s Mbit/s a link)\n' "$backend" "$mbit"
for world in 2 4 8; do
  # Of 1,514 bytes on the wire 1,448 are data.
  awk -F, -v n="$world" -v rate="$mbit" '
    FNR == 1 { for (i = 1; i <= NF; ++i) column[$i] = i; next }
    NR == FNR { small = $column["p50_us"] / 1000; printf "%5d  %-8d  %11.3f\n", n, $column["bytes"], small; next }
    { model = small + 2 * (n - 1) / n * $column["bytes"] / (rate * 125 * 1448 / 1514)
      measured = $column["p50_us"] / 1000
      printf "%5d  %-8d  %11.1f  %8.1f  %5.2f\n", n, $column["bytes"], measured, model, measured / model }
  ' "$folder/small.$world" "$folder/large.$world"
done
