#!/usr/bin/env bash
# Everything that can be checked on a machine with a GPU, in one run: tests, memory and race checks, training beside the CPU,
# ranks over NCCL, resuming, benchmarks. Writes one folder: summary.md, and a log of each step.
#
# Usage: tests/gpu/run.sh [OPTIONS]
#   --quick          fewer steps and shorter measurements: about five minutes without PyTorch beside it
#   --only REGEX     only steps whose names match; --list prints the names
#   --output DIR     where to write (default: gpu-results-DATE)
#   --bundle FILE    unpack this bundle (tools/scripts/bundle.sh) and test it; within an unpacked bundle that one is tested
#   --build DIR      test this build as it is; by default build/release is built first
#   --emulated       with the stand-in for a GPU (build/emulated), on any machine: a test of this script and of the whole path
#   --device NAME    default: cuda:0
#   PEER_PYTHON      a Python (python3) whose PyTorch sees the GPU, for steps "beside" it; ENGINE_PEERS: the folder of torch_peer.py
#   ENGINE_PEER_DEVICE   cuda; cpu, to try these steps without a GPU
# A step that takes longer than its limit is ended. Exits with 0 only if nothing has failed; what the machine lacks is skipped.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
say() { printf '%s\n' "$*" >&2; }
die() { say "run.sh: $*"; exit 2; }

quick=no only=. list=no output="" bundle="" build="" emulated=no device=cuda:0
while [ $# -gt 0 ]; do
  case $1 in
    --only | --output | --bundle | --build | --device) [ $# -ge 2 ] || die "$1 needs a value (see --help)" ;;&
    --quick) quick=yes ;;
    --only) only=$2; shift ;;
    --list) list=yes ;;
    --output) output=$2; shift ;;
    --bundle) bundle=$2; shift ;;
    --build) build=$2; shift ;;
    --emulated) emulated=yes quick=yes ;;
    --device) device=$2; shift ;;
    -h | --help) awk 'NR > 1 && !/^#/ { exit } NR > 1 { sub(/^# ?/, ""); print }' "$0"; exit 0 ;;
    *) die "unknown option $1 (see --help)" ;;
  esac
  shift
done
[ -n "$output" ] || output="gpu-results-$(date -u +%Y%m%d-%H%M%S)"
mkdir -p "$output" || exit 2
output=$(cd "$output" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# ---- What is tested: $engine, and $tests, lines of "LIMIT PROGRAM".
tests="$scratch/gpu_tests.txt"
use_bundle() {
  engine="$1/bin/engine"
  sed "s| | $1/tests/|" "$1/tests/gpu_tests.txt" >"$tests"
  export ENGINE_SOURCE_DIR="$1"
}
if [ -n "$bundle" ]; then
  tar -C "$scratch" -xzf "$bundle" || exit 2
  use_bundle "$(echo "$scratch"/engine-*)"
elif [ -f "$here/BUILD" ] && [ -x "$here/bin/engine" ]; then
  use_bundle "$here"
else
  preset=release
  [ "$emulated" = no ] || preset=emulated
  if [ -z "$build" ]; then
    build="$here/build/$preset"
    if [ "$list" = no ]; then
      (. "$here/tools/scripts/lib.sh" && configure_and_build "$preset" gpu_tests -DENGINE_BUILD_TESTS=ON) >"$output/build.log" 2>&1 ||
        { tail -n 20 "$output/build.log" >&2; die "the build failed, see $output/build.log"; }
    fi
  fi
  engine="$build/tools/engine"
  cp "$build/gpu_tests.txt" "$tests" 2>/dev/null
fi
[ -z "$build" ] || build=$(cd "$build" && pwd)
[ -x "$engine" ] || die "no program $engine"
export ENGINE_BINARY="$engine"

# ---- Steps: each runs in its own process group, within its limit, into its own log.
rows="" failures=0 skips=0 passes=0 row_note=""
# step NAME LIMIT COMMAND...: exit status 77 is skipped. The log's last line "note: ..." stands in the summary.
step() {
  local name=$1 limit=$2 log status begin=$SECONDS result pid guard
  shift 2
  [[ "$name" =~ $only ]] || return 0
  if [ "$list" = yes ]; then echo "$name"; return 0; fi
  log="$output/${name//[^a-zA-Z0-9_.-]/_}.log"
  set -m
  ("$@") >"$log" 2>&1 </dev/null &
  pid=$!
  (sleep "$limit"; touch "$log.late"; kill -TERM -- "-$pid"; sleep 5; kill -KILL -- "-$pid") >/dev/null 2>&1 &
  guard=$!
  set +m
  wait "$pid"
  status=$?
  { kill -KILL -- "-$guard"; wait "$guard"; } 2>/dev/null
  row_note=$(sed -n 's/^note: //p' "$log" | tail -n 1)
  if [ -e "$log.late" ]; then
    result="FAILED" row_note="ended after $limit s" failures=$((failures + 1))
    rm -f "$log.late"
  elif [ "$status" -eq 0 ]; then
    result="passed" passes=$((passes + 1))
  elif [ "$status" -eq 77 ]; then
    result="skipped" skips=$((skips + 1))
  else
    result="FAILED" failures=$((failures + 1))
    [ -n "$row_note" ] || row_note="exit $status: $(grep -v '^$' "$log" | tail -n 1 | cut -c 1-160)"
  fi
  row_note=${row_note//|/\\|}
  rows+="| $name | $result | $((SECONDS - begin)) | $row_note |"$'\n'
  say "$(printf '%-36s %-8s %5d s  %s' "$name" "$result" $((SECONDS - begin)) "$row_note")"
}
note() { echo "note: $*"; }
amp() { [ "$1" = off ] || echo "--amp $1"; }
skip() { note "$*"; exit 77; }
choose() { if [ "$emulated" = yes ]; then echo "$3"; elif [ "$quick" = yes ]; then echo "$2"; else echo "$1"; fi; }  # FULL QUICK EMULATED

# ---- The machine.
show_device() {
  "$engine" version --build
  "$engine" env || return 1
  [ "$emulated" = yes ] && { note "the stand-in"; return 0; }
  command -v nvidia-smi >/dev/null || { note "no nvidia-smi: is there a driver?"; return 1; }
  nvidia-smi || return 1
  nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm,clocks.max.memory,power.limit --format=csv
  note "$(nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader | head -n 1)"
}

# ---- Tests.
run_tests() {  # PROGRAM [VARIABLE=VALUE]
  local program=$1 xml status
  xml=$(mktemp "$scratch/XXXXXX.xml")
  shift
  env "$@" "$program" --gtest_output="xml:$xml"
  status=$?
  [ -s "$xml" ] || { note "it left no report (exit $status)"; return 1; }
  local all failed skipped
  all=$(grep -c '<testcase ' "$xml") failed=$(grep -c '<failure ' "$xml") skipped=$(grep -c 'result="skipped"' "$xml")
  note "$((all - skipped)) ran, $skipped skipped, $failed complaints"
  [ "$status" -eq 0 ] || return 1
  [ "$skipped" -lt "$all" ] || exit 77
}
sanitize() {  # TOOL PROGRAM
  command -v compute-sanitizer >/dev/null || skip "no compute-sanitizer"
  local tool=$1 extra=()
  [ "$tool" = memcheck ] && extra=(--leak-check full)
  compute-sanitizer --tool "$tool" "${extra[@]}" --error-exitcode 9 --print-limit 20 "$2" || return 1
  note "$(compute-sanitizer --version | tail -n 1)"
}

# ---- Training.
settings() {  # MODEL: data and optimizer on which float32 strays little
  case $1 in
    convnet) echo --model convnet --dataset synthetic --synthetic-size 4096 --lr 0.001 --momentum 0.9 --batch-size "$(choose 128 128 4)" ;;
    resnet18-cifar)
      echo --model resnet18-cifar --dataset synthetic --synthetic-shape 32x32x3 --synthetic-size 1024 --lr 0.001 --momentum 0.9 \
        --batch-size "$(choose 64 64 1)" ;;
    gpt-nano)
      echo --model gpt-nano --dataset text --data-dir "$scratch/text.txt" --optimizer adamw --lr 0.001 --batch-size "$(choose 64 64 1)" \
        --context "$(choose 64 64 16)" ;;
    mlp) echo --model mlp --dataset synthetic --synthetic-size 4096 --lr 0.01 --momentum 0.9 --batch-size "$(choose 128 128 4)" ;;
  esac
}
# Some text of 100 KB for the model of text: the readme, again and again.
while [ "$(stat -c %s "$scratch/text.txt" 2>/dev/null || echo 0)" -lt 100000 ]; do
  cat "$here/README.md" >>"$scratch/text.txt" 2>/dev/null || seq 20000 >>"$scratch/text.txt"
done
train() {  # MODEL DEVICE STEPS OPTION...
  local model=$1 on=$2 steps=$3
  shift 3
  # shellcheck disable=SC2046
  "$engine" train $(settings "$model") --device "$on" --steps "$steps" --seed 1 --eval-every 0s "$@"
}
losses() { sed -n 's/.*"event":"step".*"loss":\([^,]*\),.*/\1/p' "$1"; }
# compare A B FIRST ALL: losses of two metrics files; fails where the first differ by more than FIRST of their size, any by ALL.
compare() {
  local text
  text=$(paste <(losses "$1") <(losses "$2") | awk -v first="$3" -v all="$4" '
    NF < 2 { short = 1; next }
    { d = ($1 - $2) / $1; if (d < 0) d = -d; if (NR == 1) one = d; if (!(d <= most)) most = d; last = $2 }
    $2 !~ /^-?[0-9.]+(e[-+]?[0-9]+)?$/ { odd = 1 }
    END {
      printf "%d steps, first loss off by %.1e (may %s), any by %.1e (may %s), last loss %.4f\n", NR, one, first, most, all, last
      exit NR == 0 || short || odd || !(one <= first) || !(most <= all)
    }')
  local status=$?
  note "$text"
  return "$status"
}
trace() {  # MODEL AMP STEPS FIRST ALL: the same steps on the CPU and on the device
  local model=$1 amp=$2 steps=$3
  [ -s "$scratch/$model.cpu.jsonl" ] ||
    train "$model" cpu "$steps" --log-every 1 --metrics "$scratch/$model.cpu.jsonl" || return 1
  # shellcheck disable=SC2046
  train "$model" "$device" "$steps" --log-every 1 $(amp "$amp") --metrics "$scratch/$model.$amp.jsonl" || return 1
  if [ "$amp" != off ] && [ -s "$scratch/$model.off.jsonl" ] &&
    cmp -s <(losses "$scratch/$model.off.jsonl") <(losses "$scratch/$model.$amp.jsonl"); then
    note "the same losses as with --amp off: it does nothing"
    return 1
  fi
  cp "$scratch/$model.cpu.jsonl" "$output/trace-$model-cpu.jsonl"
  cp "$scratch/$model.$amp.jsonl" "$output/trace-$model-$amp.jsonl"
  compare "$scratch/$model.cpu.jsonl" "$scratch/$model.$amp.jsonl" "$4" "$5"
}
saved() { echo "$1/$(cat "$1/latest")"; }
same() { "$engine" verify "$1" "$2" --only "${3:-all}" && note "${4:-} bit-equal"; }
repeat() {  # MODEL: twice the same bits
  local steps
  steps=$(choose 50 20 2)
  for i in 1 2; do train "$1" "$device" "$steps" --deterministic --save-dir "$scratch/repeat$i-$1" || return 1; done
  same "$(saved "$scratch/repeat1-$1")" "$(saved "$scratch/repeat2-$1")" all "two runs of $steps steps:"
}
resume() {  # MODEL: stopped and resumed, the same bits as in one go
  local steps half
  steps=$(choose 40 20 2) half=$((steps / 2))
  train "$1" "$device" "$steps" --deterministic --save-dir "$scratch/whole-$1" || return 1
  train "$1" "$device" "$half" --deterministic --save-dir "$scratch/parts-$1" || return 1
  train "$1" "$device" "$steps" --deterministic --save-dir "$scratch/parts-$1" --resume auto || return 1
  same "$(saved "$scratch/whole-$1")" "$(saved "$scratch/parts-$1")" all "$half + $half steps and $steps:"
}
moves() {  # MODEL: what a device saved goes on on the CPU and the other way
  local steps
  steps=$(choose 20 10 1)
  train "$1" "$device" "$steps" --save-dir "$scratch/moves-$1" || return 1
  train "$1" cpu "$((2 * steps))" --save-dir "$scratch/moves-$1" --resume auto || return 1
  train "$1" "$device" "$((3 * steps))" --save-dir "$scratch/moves-$1" --resume auto || return 1
  "$engine" inspect "$(saved "$scratch/moves-$1")" --check && note "$device, cpu, $device"
}

# ---- Ranks.
find_nccl() {
  [ -n "${ENGINE_NCCL_LIBRARY:-}" ] && return 0
  if [ "$emulated" = yes ]; then  # a real one would look for a real device
    export ENGINE_NCCL_LIBRARY="$build/gpu_stand_in/libnccl_on_cpu.so"
    [ -n "$build" ] && [ -f "$ENGINE_NCCL_LIBRARY" ]
    return
  fi
  ldconfig -p 2>/dev/null | grep -q 'libnccl\.so\.2' && return 0
  local found
  found=$("${PEER_PYTHON:-python3}" -c 'import nvidia.nccl, os; print(os.path.join(list(nvidia.nccl.__path__)[0], "lib", "libnccl.so.2"))' 2>/dev/null)
  [ -f "$found" ] || found=$(find / -xdev -name 'libnccl.so.2' -not -path '/proc/*' 2>/dev/null | head -n 1)
  [ -f "$found" ] || return 1
  ENGINE_NCCL_LIBRARY=$found LD_LIBRARY_PATH="$(dirname "$found")${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
  export ENGINE_NCCL_LIBRARY LD_LIBRARY_PATH
}
ranks() {  # MODEL BACKEND: two ranks on one device stay equal
  if [ "$2" = nccl ]; then
    find_nccl || skip "no NCCL (ENGINE_NCCL_LIBRARY)"
  fi
  export ENGINE_ALLOW_SHARED_GPU=1  # two ranks on one device: right, but slow
  local folder="$scratch/ranks-$1-$2"
  train "$1" "$device" "$(choose 50 20 2)" --spawn 2 --backend "$2" --save-dir "$folder" --save-rank-models || return 1
  same "$folder/final_model_rank_0.ckpt" "$folder/final_model_rank_1.ckpt" params "2 ranks over $2 on one device:"
}

# ---- Speed.
bench_kernels() {  # AMP
  # shellcheck disable=SC2046
  "$engine" bench kernels --device "$device" $(amp "$1") --format md \
    $(choose "" "--seconds 0.05" "--seconds 0.001 --batch 1 --model convnet,gpt-nano,resnet20-cifar")
}
bench_comm() {
  find_nccl || skip "no NCCL (ENGINE_NCCL_LIBRARY)"
  export ENGINE_ALLOW_SHARED_GPU=1
  "$engine" bench comm --op all --backends nccl --ranks 2 --sizes "$(choose 8:256M:8 8:16M:64 8:4K:8)" --format md
}
# shellcheck source=tests/gpu/beside_pytorch.sh
. "$here/tests/gpu/beside_pytorch.sh"

# ---- All of it.
step device 60 show_device
while read -r limit program; do
  name=$(basename "$program")
  step "test $name" $((4 * limit)) run_tests "$program"
  [ "$emulated" = no ] || step "test $name shuffled" $((4 * limit)) run_tests "$program" ENGINE_EMULATED_ORDER=shuffled
done <"$tests"
step "trace convnet" 300 trace convnet off "$(choose 20 20 2)" 1e-4 1e-2
step "trace gpt-nano" 300 trace gpt-nano off "$(choose 20 20 2)" 1e-4 1e-3
step "trace resnet18-cifar" 300 trace resnet18-cifar off "$(choose 5 5 1)" 1e-4 5e-2
for amp in O1 O2 bf16; do
  step "trace convnet $amp" 300 trace convnet "$amp" "$(choose 20 20 2)" 2e-2 1e-1
  step "trace gpt-nano $amp" 300 trace gpt-nano "$amp" "$(choose 20 20 2)" 2e-2 5e-2
done
step "trace resnet18-cifar bf16" 300 trace resnet18-cifar bf16 "$(choose 5 5 1)" 2e-2 2e-1
for model in convnet gpt-nano; do
  step "repeat $model" 120 repeat "$model"
  step "resume $model" 120 resume "$model"
done
step "moves mlp" 120 moves mlp
for backend in nccl shm; do
  step "ranks mlp $backend" 120 ranks mlp "$backend"
  step "ranks gpt-nano $backend" 120 ranks gpt-nano "$backend"
done
for amp in $(choose "off tf32 O2 bf16" "off bf16" "off bf16"); do
  step "bench kernels $amp" 300 bench_kernels "$amp"
done
step "bench comm" 180 bench_comm
beside_steps
# Last: these take longest.
if [ "$emulated" = no ]; then
  while read -r limit program; do
    name=$(basename "$program")
    step "memcheck $name" $((8 * limit)) sanitize memcheck "$program"
    [ "$quick" = yes ] || step "racecheck $name" $((8 * limit)) sanitize racecheck "$program"
  done <"$tests"
fi
[ "$list" = no ] || exit 0

# ---- The summary.
commit=$("$engine" version --build | awk '$1 == "commit" { print $2 }')
gpu="the stand-in on $(awk -F': ' '/model name/ { print $2; exit }' /proc/cpuinfo)" driver=none
if [ "$emulated" = no ] && command -v nvidia-smi >/dev/null; then
  gpu=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -n 1)
  driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null | head -n 1)
fi
{
  echo "# Run on ${gpu:-no GPU}"
  echo
  echo "$(date -u +%Y-%m-%d), commit $commit, driver ${driver:-none}: $passes steps passed, $failures failed, $skips skipped."
  echo
  echo "Row for docs/gpu.md:"
  echo
  echo "| $(date -u +%Y-%m-%d) | $commit | ${gpu:-none} | ${driver:-none} | $passes | $failures | $skips |"
  echo
  echo "| step | result | seconds | |"
  echo "|---|---|---:|---|"
  printf '%s' "$rows"
  for log in bench_kernels_off bench_kernels_tf32 bench_kernels_O2 bench_kernels_bf16 bench_comm; do
    [ ! -s "$output/$log.log" ] || { echo; echo "## ${log//_/ }"; echo; grep -v '^note: ' "$output/$log.log"; }
  done
  beside_summary
} >"$output/summary.md"
say "$output/summary.md: $passes passed, $failures failed, $skips skipped"
[ "$failures" -eq 0 ]
