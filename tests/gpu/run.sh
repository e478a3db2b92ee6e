#!/usr/bin/env bash
# Everything that can be checked on a machine with a GPU, in one run: tests, memory and race checks, training beside the CPU,
# ranks over NCCL, resuming, benchmarks. Writes one folder: summary.md, anew after every step, and a log of each step.
#
# Usage: tests/gpu/run.sh [OPTIONS]
#   --quick          fewer steps and shorter measurements: about five minutes without PyTorch beside it
#   --only REGEX     only steps whose names match; --list prints the names
#   --call N         one of four parts, each useful alone and within nine minutes. 1: tests, training beside the CPU, times of
#                    operators; 2: whole steps, products with every tile and number of parts; 3: counters of the slowest kernels,
#                    PyTorch; 4: ranks, memory, race and barrier checks, large shapes. Implies --deadline 530 and --pack
#   --deadline S     end after S seconds: what no longer fits is skipped, what still runs then is cut off, and both are said
#   --limit S        no step longer than this
#   --jobs N         suites of tests at a time (default: 4)
#   --pack           write two files: summary.md and results.tar.gz with all else
#   --no-pytorch     the engine alone, also where there is a PyTorch
#   --output DIR     where to write (default: gpu-results-DATE)
#   --bundle FILE    unpack this bundle (tools/scripts/bundle.sh) and test it; within an unpacked bundle that one is tested
#   --build DIR      test this build as it is; by default build/release is built first
#   --emulated       with the stand-in for a GPU (build/emulated), on any machine: a test of this script and of the whole path
#   --device NAME    default: cuda:0
#   PEER_PYTHON      a Python (python3) whose PyTorch sees the GPU, for steps "beside" it; ENGINE_PEERS: the folder of torch_peer.py
#   ENGINE_PEER_DEVICE   cuda; cpu, to try these steps without a GPU
#   ENGINE_GPU_TOOLS     a folder whose nvidia-smi, ncu, compute-sanitizer are taken first; with --emulated no others are
# A suite of tests is a process, so that an illegal address ends no other; what fails runs again with ENGINE_CUDA_SYNC=1 and under
# compute-sanitizer. A step that takes longer than its limit is ended. Exits with 0 only if nothing has failed; what the machine lacks is skipped.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
say() { printf '%s\n' "$*" >&2; }
die() { say "run.sh: $*"; exit 2; }

quick=no only=. list=no output="" bundle="" build="" emulated=no device=cuda:0
call=all deadline="" most="" jobs=4 pack=no pytorch=yes
while [ $# -gt 0 ]; do
  case $1 in
    --only | --output | --bundle | --build | --device | --call | --deadline | --limit | --jobs) [ $# -ge 2 ] || die "$1 needs a value (see --help)" ;;&
    --quick) quick=yes ;;
    --call)
      [[ "$2" =~ ^[1-4]$ ]] || die "--call is 1, 2, 3 or 4"
      call=$2 quick=yes pack=yes deadline=${deadline:-530}
      shift
      ;;
    --deadline) deadline=$2; shift ;;
    --limit) most=$2; shift ;;
    --jobs) jobs=$2; shift ;;
    --pack) pack=yes ;;
    --no-pytorch) pytorch=no ;;
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
played=${ENGINE_GPU_TOOLS:-}
unset ENGINE_GPU_TOOLS  # the program does not know it, and would say so
[ -z "$played" ] || export PATH="$played:$PATH"
has_tool() {  # NAME: the real ones would look for a real device
  [ "$emulated" = no ] || [ -x "${played:-/nowhere}/$1" ] || return 1
  command -v "$1" >/dev/null
}
logs=$output
[ "$pack" = no ] || logs="$scratch/results"
mkdir -p "$logs" "$scratch/rows"
for number in "$deadline" "$most" "$jobs"; do [[ "$number" =~ ^[0-9]*$ ]] || die "'$number' is no number"; done

# ---- What is tested: $engine, and $tests, lines of "LIMIT PROGRAM".
tests="$scratch/gpu_tests.txt"
use_bundle() {
  engine="$1/bin/engine"
  sed "s| | $1/tests/|" "$1/tests/gpu_tests.txt" >"$tests"
  export ENGINE_SOURCE_DIR="$1"
}
if [ -n "$bundle" ]; then
  case $bundle in
    *.zst) zstd -dc --long=28 "$bundle" | tar -C "$scratch" -xf - || exit 2 ;;
    *) tar -C "$scratch" -xzf "$bundle" || exit 2 ;;
  esac
  use_bundle "$(echo "$scratch"/engine-*)"
elif [ -f "$here/BUILD" ] && [ -x "$here/bin/engine" ]; then
  use_bundle "$here"
else
  preset=release
  [ "$emulated" = no ] || preset=emulated
  if [ -z "$build" ]; then
    build="$here/build/$preset"
    if [ "$list" = no ]; then
      (. "$here/tools/scripts/lib.sh" && configure_and_build "$preset" gpu_tests -DENGINE_BUILD_TESTS=ON) >"$logs/build.log" 2>&1 ||
        { tail -n 20 "$logs/build.log" >&2; die "the build failed"; }
    fi
  fi
  engine="$build/tools/engine"
  cp "$build/gpu_tests.txt" "$tests" 2>/dev/null
fi
[ -z "$build" ] || build=$(cd "$build" && pwd)
[ -x "$engine" ] || die "no program $engine"
export ENGINE_BINARY="$engine"

# ---- Steps: each runs in its own process group, within its limit, into its own log, and leaves a row.
steps=0
# step NAME LIMIT COMMAND...: exit status 77 is skipped. The log's last line "note: ..." stands in the summary.
step() {
  begin_step "$1" || return 0
  run_step "$(printf '%04d' "$steps")" "$@"
  write_summary
}
# The same beside others: at most $jobs at a time, and wait_for_steps ends them all.
step_beside() {
  begin_step "$1" || return 0
  while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do
    wait -n
    write_summary
  done
  run_step "$(printf '%04d' "$steps")" "$@" &
}
wait_for_steps() {
  while [ -n "$(jobs -rp)" ]; do
    wait -n
    write_summary
  done
}
begin_step() {  # NAME: whether it is to run
  [[ "$1" =~ $only ]] || return 1
  if [ "$list" = yes ]; then echo "$1"; return 1; fi
  steps=$((steps + 1))
  put_row "$(printf '%04d' "$steps")" "$1" unfinished 0 "was running, or about to, when this was written"
  write_summary
}
put_row() {  # NUMBER NAME RESULT SECONDS NOTE
  echo "| $2 | $3 | $4 | ${5//|/\\|} |" >"$scratch/rows/$1.new"
  mv "$scratch/rows/$1.new" "$scratch/rows/$1"
}
run_step() {  # NUMBER NAME LIMIT COMMAND...
  local number=$1 name=$2 limit=$3 log status begin=$SECONDS result pid guard row_note cut=no
  shift 3
  log="$logs/${name//[^a-zA-Z0-9_.-]/_}.log"
  [ -z "$most" ] || [ "$limit" -le "$most" ] || limit=$most
  if [ -n "$deadline" ]; then
    local left=$((deadline - SECONDS - 10))  # the end takes its time, too
    if [ "$left" -lt 20 ] && [ "$left" -lt "$limit" ]; then
      put_row "$number" "$name" skipped 0 "no time left"
      return
    fi
    [ "$limit" -le "$left" ] || limit=$left cut=yes
  fi
  set -m
  ("$@") >"$log" 2>&1 </dev/null &
  pid=$!
  echo "$pid" >"$scratch/running.$number"
  (sleep "$limit"; touch "$log.late"; kill -TERM -- "-$pid"; sleep 5; kill -KILL -- "-$pid") >/dev/null 2>&1 &
  guard=$!
  echo "$guard" >>"$scratch/running.$number"
  set +m
  wait "$pid"
  status=$?
  { kill -KILL -- "-$guard"; wait "$guard"; } 2>/dev/null
  rm -f "$scratch/running.$number"
  row_note=$(sed -n 's/^note: //p' "$log" | tail -n 1)
  if [ -e "$log.late" ] && [ "$cut" = yes ]; then
    result="cut off" row_note="by the deadline, after $limit s"
  elif [ -e "$log.late" ]; then
    result="FAILED" row_note="ended after $limit s"
  elif [ "$status" -eq 0 ]; then
    result="passed"
  elif [ "$status" -eq 77 ]; then
    result="skipped"
  else
    result="FAILED"
    [ -n "$row_note" ] || row_note="exit $status: $(grep -v '^$' "$log" | tail -n 1 | cut -c 1-160)"
  fi
  rm -f "$log.late"
  if [ "$(stat -c %s "$log")" -gt 4000000 ]; then  # a sanitizer may complain without end
    { head -c 2000000 "$log"; printf '\n...\n'; tail -c 1000000 "$log"; } >"$log.short"
    mv "$log.short" "$log"
  fi
  put_row "$number" "$name" "$result" $((SECONDS - begin)) "$row_note"
  say "$(printf '%-36s %-8s %5d s  %s' "$name" "$result" $((SECONDS - begin)) "$row_note")"
}
count() { cat "$scratch"/rows/???? 2>/dev/null | grep -cE "^\| [^|]* \| ($1) \|"; }
note() { echo "note: $*"; }
amp() { [ "$1" = off ] || echo "--amp $1"; }
skip() { note "$*"; exit 77; }
choose() { if [ "$emulated" = yes ]; then echo "$3"; elif [ "$quick" = yes ]; then echo "$2"; else echo "$1"; fi; }  # FULL QUICK EMULATED

# ---- The machine.
show_device() {
  "$engine" version --build
  "$engine" env || return 1
  if ! has_tool nvidia-smi; then
    [ "$emulated" = yes ] && { note "the stand-in"; return 0; }
    note "no nvidia-smi: is there a driver?"
    return 1
  fi
  nvidia-smi || return 1
  nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm,clocks.max.memory,power.limit --format=csv
  note "$(nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader | head -n 1)"
}

# ---- Tests.
run_suite() {  # PROGRAM SUITE [VARIABLE=VALUE]
  local program=$1 suite=$2 xml status
  xml=$(mktemp "$scratch/XXXXXX.xml")
  shift 2
  env "$@" "$program" --gtest_filter="$suite.*" --gtest_output="xml:$xml"
  status=$?
  [ -s "$xml" ] || { note "it left no report (exit $status)"; return 1; }
  local all failed skipped
  all=$(grep -c '<testcase ' "$xml") failed=$(grep -c '<failure ' "$xml") skipped=$(grep -c 'result="skipped"' "$xml")
  note "$((all - skipped)) ran, $skipped skipped, $failed complaints"
  [ "$status" -eq 0 ] || return 1
  [ "$skipped" -lt "$all" ] || exit 77
}
list_suites() {  # lines of "LIMIT PROGRAM SUITE"
  local limit program name
  while read -r limit program; do
    name=$(timeout 60 "$program" --gtest_list_tests 2>/dev/null | sed -n 's/^\([^ ].*\)\.\( .*\)\{0,1\}$/\1/p')
    [ -n "$name" ] || name='*'  # it does not even list them: its step says why
    while read -r name; do echo "$limit $program $name"; done <<<"$name"
  done <"$tests"
}
suite_limit() { choose "$((4 * $1))" "$1" "$((4 * $1))"; }
run_suites() {
  local limit program suite name
  list_suites >"$scratch/suites"
  while read -r limit program suite; do
    name="test $(basename "$program") $suite"
    step_beside "$name" "$(suite_limit "$limit")" run_suite "$program" "$suite"
    [ "$emulated" = no ] || [ -n "$deadline" ] ||
      step_beside "$name shuffled" "$(suite_limit "$limit")" run_suite "$program" "$suite" ENGINE_EMULATED_ORDER=shuffled
  done <"$scratch/suites"
  wait_for_steps
  # What failed, once more: with a name for the kernel, and with the address and the line. Beside others, as what hangs would
  # leave no time for the rest.
  while read -r limit program suite; do
    name="$(basename "$program") $suite"
    grep -qF "| test $name | FAILED |" "$scratch"/rows/???? || continue
    step_beside "again $name" "$(suite_limit "$limit")" run_suite "$program" "$suite" ENGINE_CUDA_SYNC=1
    step_beside "memcheck $name" "$limit" sanitize memcheck "$program" "$suite"
  done <"$scratch/suites"
  wait_for_steps
}
sanitize() {  # TOOL PROGRAM SUITE
  has_tool compute-sanitizer || skip "no compute-sanitizer"
  local tool=$1 extra=()
  [ "$tool" = memcheck ] && extra=(--leak-check full)
  compute-sanitizer --tool "$tool" "${extra[@]}" --error-exitcode 9 --print-limit 20 "$2" --gtest_filter="$3.*" || return 1
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
  cp "$scratch/$model.cpu.jsonl" "$logs/trace-$model-cpu.jsonl"
  cp "$scratch/$model.$amp.jsonl" "$logs/trace-$model-$amp.jsonl"
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
    if [ -z "$build" ]; then "$engine" env | grep 'NCCL between GPUs' | grep -q '(/.*nccl_on_cpu'; return; fi
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
# times SET AMP WARPGROUP: gemm, conv or attention, as CSV, with ENGINE_WARPGROUP_PRODUCTS=WARPGROUP.
times() {
  [ "$3" = 0 ] || has_warpgroups || skip "no compute capability 9.0"
  local file="$logs/times-$1-$2-$3.csv" what=(--set "$1")
  [ "$1" != attention ] || what=(--op attention)
  # shellcheck disable=SC2046
  ENGINE_WARPGROUP_PRODUCTS=$3 "$engine" bench kernels "${what[@]}" --device "$device" $(amp "$2") --format csv \
    $(choose "" "--seconds 0.05" "--seconds 0.001 --batch 1 $(small_shapes "$1")") >"$file" || return 1
  cat "$file"
  note "$(awk -F, 'NR > 1 && $6 > best { best = $6; shape = $3 }
    END { printf "%d rows, at most %.1f TFLOP/s (%s)", NR - 1, best / 1e3, shape }' "$file")"
}
small_shapes() {
  case $1 in gemm) echo --sizes 32,64 ;; conv) echo --shape 32x32x3- ;; *) echo --model gpt-nano ;; esac
}
# cuts SET AMP WARPGROUP: products with every tile and number of parts, as CSV that planners can be fitted to.
cuts() {
  [ "$3" = 0 ] || has_warpgroups || skip "no compute capability 9.0"
  local file="$logs/cuts-$1-$2-$3.csv" what=(--set "$1")
  [ "$1" != dense ] || what=(--op dense)
  # shellcheck disable=SC2046
  ENGINE_WARPGROUP_PRODUCTS=$3 "$engine" bench kernels "${what[@]}" --device "$device" $(amp "$2") --cuts \
    $(choose "--seconds 0.05" "--seconds 0.02" "--seconds 0.001 --batch 1 $(small_shapes "${1/dense/attention}")") >"$file"
  local status=$?
  note "$(awk -F, 'NR > 1 { shapes[$1, $3] = 1 }
    END { for (s in shapes) ++n; printf "%d products, %d times", n, NR - 1 }' "$file")"
  return "$status"
}
bench_data() {  # MODEL
  case $1 in
    gpt2)  # letters in pairs are ids below 25000
      mkdir -p "$scratch/tokens"
      cp "$scratch/letters.txt" "$scratch/tokens/train.bin"
      cp "$scratch/letters.txt" "$scratch/tokens/val.bin"
      echo --dataset tokens --data-dir "$scratch/tokens" --vocabulary-size 50257 --context 1024
      ;;
    gpt-*) echo --dataset text --data-dir "$scratch/letters.txt" ;;
  esac
}
whole_step() {  # MODEL BATCH AMP GRAPH
  # shellcheck disable=SC2046
  "$engine" bench step --model "$1" $(bench_data "$1") --batch "$2" --device "$device" $(amp "$3") --cuda-graph "$4" --optimizer sgd --momentum 0.9 \
    --seconds "$(choose 5 2 0.1)" --warmup "$(choose 20 10 1)" --format json >"$logs/whole-$1-b$2-$3-$4.json" || return 1
  cat "$logs/whole-$1-b$2-$3-$4.json"
  note "$(step_ms "$logs/whole-$1-b$2-$3-$4.json") ms a step"
}
hot_data() {  # MODEL BATCH
  case $1 in
    gpt*) bench_data "$1" ;;
    resnet50) echo --dataset synthetic --synthetic-size "$((4 * $2))" --synthetic-shape 224x224x3 ;;
    resnet18-cifar) echo --dataset synthetic --synthetic-size "$((4 * $2))" --synthetic-shape 32x32x3 ;;
    *) echo --dataset synthetic --synthetic-size "$((4 * $2))" ;;
  esac
  echo --batch-size "$2"
}
# hot MODEL BATCH: a trace of some steps, and the time of each kernel in it.
hot() {
  local file="$logs/hot-$1.trace.json"
  # shellcheck disable=SC2046
  "$engine" train --model "$1" $(hot_data "$1" "$2") --steps "$(choose 30 20 2)" \
    --device "$device" $(choose "--amp bf16" "--amp bf16" "") --cuda-graph off --eval-every 0s --trace "$file" || return 1
  tr '{' '\n' <"$file" | sed -n 's/.*"name": *"\([^"]*\)".*"dur": *\([0-9.]*\).*/\2 \1/p' | awk '
    { t = $1; sub(/^[^ ]* /, ""); sum[$0] += t; ++n[$0] }
    END { for (k in sum) printf "%12.1f us %6d calls  %s\n", sum[k], n[k], k }' | sort -rn >"$logs/hot-$1.txt"
  head -n 40 "$logs/hot-$1.txt"
  gzip -f "$file"
  note "$(head -n 1 "$logs/hot-$1.txt")"
}
counters() {  # MODEL BATCH: of the kernels that a step launches, by ncu
  has_tool ncu || skip "no ncu"
  # shellcheck disable=SC2046
  ncu --clock-control none --set basic --section MemoryWorkloadAnalysis --section WarpStateStats --launch-skip 400 --launch-count 200 --csv \
    "$engine" train --model "$1" $(hot_data "$1" "$2") --steps 6 --device "$device" $(choose "--amp bf16" "--amp bf16" "") --cuda-graph off --eval-every 0s \
    >"$logs/counters-$1.csv"
  local status=$?
  ! grep -q ERR_NVGPUCTRPERM "$logs/counters-$1.csv" || skip "the driver keeps its counters to root (ERR_NVGPUCTRPERM)"
  return "$status"
}
# large OP BATCH: an operator at more than 2^31 elements. The bench compares a small batch alone: this shows only that no access
# leaves its memory, and the time.
large() {
  ENGINE_CUDA_SYNC=1 "$engine" bench kernels --op "$1" --batch "$2" --device "$device" --amp bf16 --seconds 0.01 --format csv \
    --model resnet18-cifar --shape "$3" || return 1
  note "batch $2"
}
bench_comm() {
  find_nccl || skip "no NCCL (ENGINE_NCCL_LIBRARY)"
  export ENGINE_ALLOW_SHARED_GPU=1
  "$engine" bench comm --op all --backends nccl --ranks 2 --sizes "$(choose 8:256M:8 8:16M:64 8:4K:8)" --format md
}
# shellcheck source=tests/gpu/beside_pytorch.sh
. "$here/tests/gpu/beside_pytorch.sh"

# ---- The summary: written before and after every step, so that a run that is cut off can be read.
commit=$("$engine" version --build | awk '$1 == "commit" { print $2 }')
gpu="the stand-in on $(awk -F': ' '/model name/ { print $2; exit }' /proc/cpuinfo)" driver=none
if has_tool nvidia-smi; then
  gpu=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -n 1)
  driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null | head -n 1)
fi
summary_text() {
  local passes failures skips
  passes=$(count passed) failures=$(count FAILED) skips=$(count 'skipped|cut off|unfinished')
  echo "# Run on ${gpu:-no GPU}"
  echo
  echo "$(date -u +%Y-%m-%d), commit $commit, driver ${driver:-none}: $passes steps passed, $failures failed, $skips skipped."
  [ "$call" = all ] || echo "Part $call of 4 (--call $call)."
  [ -z "$deadline" ] || echo "$SECONDS of $deadline seconds are used; $(count 'cut off') steps were cut off by the deadline."
  if [ "$pytorch" = no ]; then
    echo "Without PyTorch (--no-pytorch): the engine was measured alone."
  elif [ -e "$scratch/peer" ] && [ "$(cat "$scratch/peer")" -ne 0 ]; then
    echo "Without PyTorch ($peer_python has none that sees the device): the engine was measured alone."
  fi
  echo
  echo "Row for docs/gpu.md:"
  echo
  echo "| $(date -u +%Y-%m-%d) | $commit | ${gpu:-none} | ${driver:-none} | $passes | $failures | $skips |"
  echo
  echo "| step | result | seconds | |"
  echo "|---|---|---:|---|"
  cat "$scratch"/rows/???? 2>/dev/null | awk -F' [|] ' '{ print ($2 == "FAILED" ? 0 : 1) " " $0 }' | sort -s -k 1,1 | cut -c 3-
  local log
  for log in bench_kernels_off bench_kernels_tf32 bench_kernels_O2 bench_kernels_bf16 bench_comm; do
    [ ! -s "$logs/$log.log" ] || { echo; echo "## ${log//_/ }"; echo; grep -v '^note: ' "$logs/$log.log"; }
  done
  beside_summary
}
write_summary() {
  kill -0 "$$" 2>/dev/null || exit 1  # who was started has been killed, and this is all_of_it(): nobody waits any more
  summary_text >"$scratch/summary.new"
  cp "$scratch/summary.new" "$output/summary.md.part" && mv "$output/summary.md.part" "$output/summary.md"
  [ "$pack" = no ] || pack_results
}
pack_results() {  # what another step is writing just now may be in it half
  tar -C "$scratch" --ignore-failed-read --warning=no-file-changed -cf - results 2>/dev/null | gzip -1 >"$scratch/results.tar.gz"
  cp "$scratch/results.tar.gz" "$output/results.part" && mv "$output/results.part" "$output/results.tar.gz"
}
ended() {
  trap '' TERM INT
  local pid
  kill -KILL "$main" 2>/dev/null
  write_summary  # before the suites end: these have not failed
  cat "$scratch"/running.* 2>/dev/null | while read -r pid; do kill -KILL -- "-$pid" 2>/dev/null; done
  say "ended from outside, see $output/summary.md"
  exit 1
}

# ---- All of it.
in_call() { [ "$call" = all ] || [ "$call" = "$1" ]; }
all_of_it() {
  [ "$call" = all ] || in_call 1 || step device 60 show_device
  if in_call 1; then
    step device 60 show_device
    if [ "$list" = yes ]; then
      while read -r _ program; do begin_step "test $(basename "$program")"; done <"$tests"
    else
      run_suites
    fi
    step "trace convnet" 300 trace convnet off "$(choose 20 20 2)" 1e-4 1e-2
    step "trace gpt-nano" 300 trace gpt-nano off "$(choose 20 20 2)" 1e-4 1e-3
    step "trace resnet18-cifar" 300 trace resnet18-cifar off "$(choose 5 5 1)" 1e-4 5e-2
    for model in convnet gpt-nano; do step "repeat $model" 120 repeat "$model"; done
    for set in gemm conv attention; do
      step "times $set bf16" 120 times "$set" bf16 0
      step "times $set bf16 warpgroup" 120 times "$set" bf16 1
    done
    for amp in O1 O2 bf16; do
      step "trace convnet $amp" 300 trace convnet "$amp" "$(choose 20 20 2)" 2e-2 1e-1
      step "trace gpt-nano $amp" 300 trace gpt-nano "$amp" "$(choose 20 20 2)" 2e-2 5e-2
    done
    step "trace resnet18-cifar bf16" 300 trace resnet18-cifar bf16 "$(choose 5 5 1)" 2e-2 2e-1
    for model in convnet gpt-nano; do step "resume $model" 120 resume "$model"; done
    step "moves mlp" 120 moves mlp
  fi
  if in_call 2; then
    while read -r model batch; do
      for graph in auto off; do step "whole $model b$batch graph $graph" 90 whole_step "$model" "$batch" bf16 "$graph"; done
    done < <(choose "$(printf '%s\n' "mlp 128" "convnet 512" "resnet18-cifar 512" "resnet50 64" "gpt-nano 256" "gpt2 8")" \
      "$(printf '%s\n' "mlp 128" "convnet 512" "resnet18-cifar 512" "resnet50 64" "gpt-nano 256" "gpt2 8")" \
      "$(printf '%s\n' "mlp 4" "convnet 2")")
    for set in gemm conv dense; do
      step "cuts $set bf16" 150 cuts "$set" bf16 0
      step "cuts $set bf16 warpgroup" 150 cuts "$set" bf16 1
    done
    for amp in $(choose "off tf32 O2 bf16" "off bf16" "off bf16"); do
      step "bench kernels $amp" 300 bench_kernels "$amp"
    done
  fi
  if in_call 3; then
    while read -r model batch; do
      step "hot $model" 120 hot "$model" "$batch"
      step "counters $model" 180 counters "$model" "$batch"
    done < <(choose "$(printf '%s\n' "resnet18-cifar 512" "gpt2 8" "resnet50 64")" \
      "$(printf '%s\n' "resnet18-cifar 512" "gpt2 8" "resnet50 64")" "convnet 2")
    beside_steps
  fi
  if in_call 4; then
    for backend in nccl shm; do
      step "ranks mlp $backend" 120 ranks mlp "$backend"
      step "ranks gpt-nano $backend" 120 ranks gpt-nano "$backend"
    done
    step "bench comm" 180 bench_comm
    step "large relu" 90 large relu_forward "$(choose 32800 32800 1)" 32x32x64
    step "large convolution" 120 large conv2d_forward "$(choose 32800 32800 1)" "32x32x64->64"
    if [ "$list" = yes ]; then begin_step "memcheck, racecheck and synccheck of each suite"; else list_suites >"$scratch/suites"; fi
    for tool in memcheck racecheck synccheck; do
      while read -r limit program suite; do
        # In a part of the whole: the kernels that share memory among warps, and copy asynchronously.
        [ "$call" = all ] || [[ "$suite" =~ Dense|Gemm|Conv|Attention|Wgmma ]] || continue
        [ "$tool" = memcheck ] || [ "$quick" = no ] || [ "$call" = 4 ] || continue
        step_beside "$tool $(basename "$program") $suite" "$((8 * limit))" sanitize "$tool" "$program" "$suite"
      done < <(cat "$scratch/suites" 2>/dev/null)
      wait_for_steps
    done
  fi
  [ "$list" = no ] || return 0

  write_summary
  local failures
  failures=$(count FAILED)
  say "$output/summary.md: $(count passed) passed, $failures failed, $(count 'skipped|cut off') skipped"
  [ "$failures" -eq 0 ]
}
# In a process of its own, as a signal that meets bash while it reads a "$(...)" may be lost: this one only waits.
main=""
trap ended TERM INT
all_of_it &
main=$!
wait "$main"
