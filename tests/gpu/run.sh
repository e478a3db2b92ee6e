#!/usr/bin/env bash
# Everything that can be checked on a machine with a GPU, in one run: tests, memory and race checks, training beside the CPU,
# ranks over NCCL, resuming, benchmarks. Writes one folder: summary.md, anew after every step, and a log of each step.
#
# Usage: tests/gpu/run.sh [OPTIONS]
#   --quick          fewer steps and shorter measurements: about five minutes without PyTorch beside it
#   --only REGEX     only steps whose names match; --list prints the names
#   --call N         one of three parts, each useful alone. 1: does it run and is it right (540 s); 2: beside PyTorch (540 s);
#                    3: counters of the slowest kernels, ranks, memory, race and barrier checks (330 s). Implies --deadline with
#                    these seconds, --quick and --pack
#   --deadline S     end after S seconds: what no longer fits is skipped, what still runs then is cut off, and both are said
#   --limit S        no step longer than this
#   --jobs N         suites of tests at a time (default: 4)
#   --pack           write two files: summary.md and results.tar.gz with all else
#   --no-pytorch     the engine alone, also where there is a PyTorch
#   --output DIR     where to write (default: gpu-results-DATE)
#   --bundle FILE    unpack this bundle (tools/scripts/bundle.sh) and test it; within an unpacked bundle that one is tested
#   --build DIR      test this build as it is; by default build/release is built first
#   --emulated       with the emulator of the GPU (build/emulated), on any machine: a test of this script and of the whole path;
#                    a program of the emulator implies it
#   --device NAME    default: cuda:0
#   PEER_PYTHON      a Python (python3) whose PyTorch sees the GPU, for steps "beside" it; its folders are also searched for
#                    NCCL and CUPTI, which ENGINE_NCCL_LIBRARY and ENGINE_CUPTI_LIBRARY name
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
      [[ "$2" =~ ^[1-3]$ ]] || die "--call is 1, 2 or 3"
      call=$2 quick=yes pack=yes
      [ -n "$deadline" ] || deadline=$([ "$call" = 3 ] && echo 330 || echo 540)
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
for folder in /usr/local/cuda/bin /opt/nvidia/nsight-compute/*; do [ ! -d "$folder" ] || PATH="$PATH:$folder"; done
[ -z "$played" ] || PATH="$played:$PATH"
export PATH
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
  engine="$1/bin/engine" holder="$1/tests/hold_device"
  sed "s| | $1/tests/|" "$1/tests/gpu_tests.txt" >"$tests"
  export ENGINE_SOURCE_DIR="$1"
  choose_cpp_library "$1/lib"
}
# A bundle has the C++ library of the machine that built it. If the program does not start with it here, the host's is taken.
cpp_library=""
choose_cpp_library() {  # FOLDER
  local complaint file
  if complaint=$("$engine" version 2>&1 >/dev/null) || ! compgen -G "$1/libstdc++.so*" >/dev/null; then return; fi
  mkdir -p "$1/unused"
  for file in "$1"/libstdc++.so* "$1"/libgcc_s.so*; do [ ! -e "$file" ] || mv "$file" "$1/unused/"; done
  "$engine" version >/dev/null 2>&1 || { mv "$1"/unused/* "$1/"; die "the program of the bundle does not start: $complaint"; }
  cpp_library="The bundle's libstdc++ does not load here (${complaint##*$'\n'}); the host's is used."
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
  engine="$build/tools/engine" holder="$build/tests/hold_device"
  cp "$build/gpu_tests.txt" "$tests" 2>/dev/null
fi
[ -z "$build" ] || build=$(cd "$build" && pwd)
[ -x "$engine" ] || die "no program $engine"
export ENGINE_BINARY="$engine"
! "$engine" version --build | grep >/dev/null '^CUDA  *played by the CPU' || emulated=yes quick=yes

# ---- Steps: each runs in its own process group, within its limit, into its own log, and leaves a row.
steps=0 reserve=0  # reserve: seconds before the deadline that are kept for later steps
# step NAME LIMIT COMMAND...: exit status 77 is skipped. The log's last line "note: ..." stands in the summary.
step() {
  begin_step "$1" || return 0
  run_step "$(printf '%04d' "$steps")" "$@"
  grep -qF '| skipped | 0 | no time left |' "$scratch/rows/$(printf '%04d' "$steps")" || write_summary
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
  # What is skipped for lack of time changes no log: packing would take the time that is left.
  if [ -n "$deadline" ] && [ $((deadline - SECONDS - 10 - reserve)) -lt 20 ]; then write_text; else write_summary; fi
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
    local left=$((deadline - SECONDS - 10 - reserve))  # the end takes its time, too
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
  if [ "$(stat -c %s "$log")" -gt 1000000 ]; then  # a sanitizer may complain without end
    { head -c 600000 "$log"; printf '\n...\n'; tail -c 300000 "$log"; } >"$log.short"
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
    [ "$emulated" = yes ] && { note "the emulator"; return 0; }
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
}
# What failed runs again: with a name for the kernel, and with the address and the line. Beside others, as what hangs would leave
# no time for the rest.
repeat_failed_suites() {
  local limit program suite name
  while read -r limit program suite; do
    name="$(basename "$program") $suite"
    grep -qF "| test $name | FAILED |" "$scratch"/rows/???? 2>/dev/null || continue
    step_beside "again $name" "$(suite_limit "$limit")" run_suite "$program" "$suite" ENGINE_CUDA_SYNC=1
    step_beside "memcheck $name" "$limit" sanitize memcheck "$program" "$suite"
  done < <(cat "$scratch/suites" 2>/dev/null)
  wait_for_steps
}
# The path of every device that the program has no machine code for: the driver translates the PTX of all kernels.
translated_suite() {  # PROGRAM SUITE
  "$engine" version --build | grep >/dev/null '^CUDA .*compute_' || skip "the program has no PTX"
  run_suite "$1" "$2" CUDA_FORCE_PTX_JIT=1 CUDA_CACHE_DISABLE=1
}
run_translated_suites() {
  local program suite
  if [ "$list" = yes ]; then begin_step "translated suites"; return; fi
  while read -r _ program suite; do
    ! [[ "$suite" =~ ^(DenseCuda/4|CudaTrain|DensePlayed)$ ]] ||
      step_beside "translated $(basename "$program") $suite" 240 translated_suite "$program" "$suite"
  done <"$scratch/suites"
  wait_for_steps
}
sanitize() {  # TOOL PROGRAM SUITE: memcheck, racecheck, synccheck, or leaks
  has_tool compute-sanitizer || skip "no compute-sanitizer"
  local tool=("$1")
  [ "$1" != leaks ] || tool=(memcheck --leak-check full)
  compute-sanitizer --tool "${tool[@]}" --error-exitcode 9 --print-limit 20 "$2" --gtest_filter="$3.*" || return 1
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
step_data() {  # MODEL: one batch, whose gradient is judged
  case $1 in
    gpt2) echo --synthetic-shape 256 --synthetic-classes 50257 --batch-size 1 ;;
    gpt-nano) echo --synthetic-shape "$(choose 64 64 16)" --batch-size "$(choose 64 64 1)" ;;
    resnet50) echo --synthetic-shape 224x224x3 --synthetic-size 8 --batch-size 8 ;;
    resnet18-cifar) echo --synthetic-shape 32x32x3 --synthetic-size 64 --batch-size 64 ;;
    *) echo --synthetic-shape 16x16x3 --synthetic-size 4 --batch-size 4 ;;
  esac
}
train_a_step() {  # MODEL DEVICE RATE FOLDER OPTION...
  local model=$1 on=$2 rate=$3 folder=$4
  shift 4
  # shellcheck disable=SC2046
  "$engine" train --model "$model" --dataset synthetic $(step_data "$model") --device "$on" --steps 1 --seed 1 --optimizer sgd \
    --momentum 0 --lr "$rate" --eval-every 0s --keep-best none --log-every 1 --metrics "$folder.jsonl" --save-dir "$folder" "$@"
}
changes() {  # FOLDER FOLDER: of each parameter that differs, its name and the largest difference
  "$engine" verify "$(saved "$1")" "$(saved "$2")" --only params --format table >"$scratch/changes"
  [ $? -le 1 ] || return 1
  sed -nE 's/^([^ ]+) .* parameter +values +([^ ]+) .*/\1 \2/p' "$scratch/changes"
}
# judge_step MODEL AMP LOSS MOST MEDIAN: a training step on the CPU, in f32, and on the device. Fails where the losses differ by
# more than LOSS of their size; where the gradient of a parameter differs by more than MOST of its largest number, or that of half
# of the parameters by more than MEDIAN. bf16 is with warpgroup products, if the device has them.
judge_step() {
  local model=$1 amp=$2 base="$scratch/step-$1" warpgroup=0 text status
  if [ ! -e "$base-cpu.done" ]; then
    train_a_step "$model" cpu 1e-30 "$base-start" || return 1  # the initial weights
    train_a_step "$model" cpu 1 "$base-cpu" || return 1
    changes "$base-cpu" "$base-start" >"$base-cpu.done" || return 1
  fi
  [ "$amp" = off ] || ! has_warpgroups || warpgroup=1
  # shellcheck disable=SC2046
  ENGINE_WARPGROUP_PRODUCTS=$warpgroup train_a_step "$model" "$device" 1 "$base-$amp" $(amp "$amp") || return 1
  changes "$base-cpu" "$base-$amp" >"$base-$amp.changes" || return 1
  rm -rf "$base-$amp"
  paste -d' ' <(losses "$base-cpu.jsonl") <(losses "$base-$amp.jsonl") >"$base-$amp.losses"
  text=$(awk -v may_loss="$3" -v may_most="$4" -v may_median="$5" '
    function number(text) { return text ~ /^[0-9.]+(e[-+]?[0-9]+)?$/ }
    FILENAME ~ /losses$/ { loss = ($1 - $2) / $1; if (loss < 0) loss = -loss; odd += !number($1) || !number($2); ++steps; next }
    FILENAME ~ /done$/ { size[$1] = $2; next }
    { off[$1] = $2; odd += !number($2) || !($1 in size) }
    END {
      for (name in size) {
        ratio = off[name] / size[name]
        for (i = n++; i > 0 && sorted[i - 1] > ratio; --i) sorted[i] = sorted[i - 1]
        sorted[i] = ratio
        if (ratio >= most) { most = ratio; worst = name }
      }
      median = sorted[int(n / 2)]
      printf "loss off by %.1e (may %s), gradients by %.1e at most (may %s, %s), half of %d by %.1e (may %s)", loss, may_loss, most,
        may_most, worst, n, median, may_median
      exit odd || steps != 1 || n == 0 || !(loss <= may_loss && most <= may_most && median <= may_median)
    }' "$base-$amp.losses" "$base-cpu.done" "$base-$amp.changes")
  status=$?
  note "$text$([ "$warpgroup" = 0 ] || echo "; warpgroup products")"
  return "$status"
}
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

# ---- Libraries that the machine may have in a place of its own: a Python package, or a toolkit's folder.
# find_library VARIABLE SYSTEM_NAME PATTERN...: exports VARIABLE, unless it is set or the system finds the library by itself.
find_library() {
  local variable=$1 system=$2 folder file pattern
  shift 2
  [ -z "${!variable:-}" ] || return 0
  if ldconfig -p 2>/dev/null | grep >/dev/null "^[[:space:]]*${system//./\\.} "; then return 0; fi
  while read -r folder; do
    for pattern; do
      # shellcheck disable=SC2231  # both may be patterns
      for file in $folder/$pattern; do
        [ -f "$file" ] || continue
        export "$variable=$file"
        return 0
      done
    done
  done < <("$peer_python" -c 'import sys; print(*(path for path in sys.path if path), sep="\n")' 2>/dev/null
    printf '%s\n' '/usr/local/cuda*' /usr/lib/x86_64-linux-gnu '/opt/*' '/usr/local/lib/python3*/*-packages')
  return 1
}
has_nccl=no has_cupti=no
find_libraries() {
  if [ "$emulated" = no ]; then
    ! find_library ENGINE_NCCL_LIBRARY libnccl.so.2 'nvidia/nccl/lib/libnccl.so.2' 'nvidia/*/lib/libnccl.so.2' \
      'lib64/libnccl.so.2' libnccl.so.2 || has_nccl=yes
    ! find_library ENGINE_CUPTI_LIBRARY libcupti.so.13 'nvidia/cu13/lib/libcupti.so.13' 'nvidia/*/lib/libcupti.so.1[23]' \
      'extras/CUPTI/lib64/libcupti.so.1[23]' 'lib64/libcupti.so.1[23]' 'libcupti.so.1[23]' || has_cupti=yes
  else  # real ones would look for a real device
    [ -z "${ENGINE_NCCL_LIBRARY:-}" ] && ! "$engine" env | grep >/dev/null '(/.*nccl_on_cpu' || has_nccl=yes
    [ -z "${ENGINE_CUPTI_LIBRARY:-}" ] || has_cupti=yes
  fi
}
show_library() {  # NAME FOUND VARIABLE
  [ "$2" = yes ] || skip "no $1: $3 names its file"
  note "${!3:-found by the loader}"
}

# ---- Ranks.
ranks() {  # MODEL BACKEND: two ranks on one device stay equal
  if [ "$2" = nccl ]; then
    [ "$has_nccl" = yes ] || skip "no NCCL"
  fi
  export ENGINE_ALLOW_SHARED_GPU=1  # two ranks on one device: right, but slow
  local folder="$scratch/ranks-$1-$2"
  train "$1" "$device" "$(choose 50 20 2)" --spawn 2 --backend "$2" --save-dir "$folder" --save-rank-models || return 1
  same "$folder/final_model_rank_0.ckpt" "$folder/final_model_rank_1.ckpt" params "2 ranks over $2 on one device:"
}

# scaling MODEL BATCH: steps of one global batch by 1, 2 and 4 ranks that share the device.
scaling() {
  [ "$has_nccl" = yes ] || skip "no NCCL"
  local count text="" file
  for count in $(choose "1 2 4" "1 2 4" "1 2"); do
    file="$logs/scaling-$1-$count.json"
    # shellcheck disable=SC2046
    ENGINE_ALLOW_SHARED_GPU=1 "$engine" bench step --model "$1" --ranks "$count" --batch $(($2 / count)) --device "$device" \
      $([ "$count" = 1 ] || echo --backend nccl) $(choose "--amp bf16" "--amp bf16" "") $(choose "--seconds 3" "--seconds 1" "--steps 2") \
      --warmup "$(choose 10 10 1)" --format json >"$file" || return 1
    cat "$file"
    text+="${text:+, }$count: $(printf '%.4g' "$(step_ms "$file")") ms"
  done
  note "ranks and time of a step: $text"
}

# ---- Speed.
bench_kernels() {  # AMP
  # shellcheck disable=SC2046
  "$engine" bench kernels --device "$device" $(amp "$1") --format md \
    $(choose "" "--seconds 0.05" "--seconds 0.001 --batch 1 --model convnet,gpt-nano,resnet20-cifar")
}
# times SET AMP WARPGROUP: gemm, conv or attention, as CSV, with ENGINE_WARPGROUP_PRODUCTS=WARPGROUP (0 or 1). Fails where an error is above
# its limit: of square products, whole rows are compared with sums in float64.
times() {
  [ "$3" = 0 ] || has_warpgroups || skip "no compute capability 9.0"
  local file="$logs/times-$1-$2-$3.csv" what=(--set "$1")
  [ "$1" != attention ] || what=(--op attention)
  # shellcheck disable=SC2046
  ENGINE_WARPGROUP_PRODUCTS=$3 "$engine" bench kernels "${what[@]}" --device "$device" $(amp "$2") --format csv \
    $(choose "" "--seconds 0.05" "--seconds 0.001 --batch 1 $(small_shapes "$1")") >"$file" || return 1
  cat "$file"
  local text status
  text=$(awk -F, -v limit="$(error_limit "$1" "$2")" '
    NR > 1 && $6 > best { best = $6; shape = $3 }
    NR > 1 && ($10 !~ /^[0-9.]+(e[-+]?[0-9]+)?$/ || $10 + 0 > limit) { ++bad; where = where " " $1 " " $3 " " $10 }
    NR > 1 && $10 + 0 > most { most = $10 + 0 }
    END {
      printf "%d rows, at most %.1f TFLOP/s (%s), error %.1e (may %s)%s", NR - 1, best / 1e3, shape, most, limit, bad ? ":" where : ""
      exit bad || NR < 2
    }' "$file")
  status=$?
  note "$text"
  return "$status"
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
  note "$(awk -F, '
    NR > 1 { key = $1 FS $3; if (!(key in best) || $10 < best[key]) best[key] = $10 }
    NR > 1 && $9 == 1 { chosen[key] = $10 }
    END {
      for (key in best) { ++n; if (best[key] > 0) over += chosen[key] / best[key] - 1 }
      printf "%d products, %d times; the chosen cuts take %.1f %% longer than the best in the mean", n, NR - 1, n ? 100 * over / n : 0
    }' "$file")"
  return "$status"
}
# Transformers are trained by AdamW, the others by SGD; samples are random, those of text models have the model's context.
bench_options() { if [[ "$1" = gpt* ]]; then echo --optimizer adamw; else echo --optimizer sgd --momentum 0.9; fi; }
whole_step() {  # MODEL BATCH AMP GRAPH
  # shellcheck disable=SC2046
  "$engine" bench step --model "$1" $(bench_options "$1") --batch "$2" --device "$device" $(amp "$3") --cuda-graph "$4" \
    $(choose "--seconds 5" "--seconds 2" "--steps 2") --warmup "$(choose 20 10 1)" --format json >"$logs/whole-$1-b$2-$3-$4.json" || return 1
  cat "$logs/whole-$1-b$2-$3-$4.json"
  note "$(step_ms "$logs/whole-$1-b$2-$3-$4.json") ms a step"
}
hot_data() {  # MODEL BATCH
  echo --dataset synthetic --synthetic-size "$((4 * $2))" --batch-size "$2"
  case $1 in
    gpt2) echo --synthetic-shape 1024 --synthetic-classes 50257 --optimizer adamw ;;
    resnet50) echo --synthetic-shape 224x224x3 ;;
    resnet18-cifar) echo --synthetic-shape 32x32x3 ;;
  esac
}
# hot MODEL BATCH: a trace of some steps, and the time of each kernel in it.
hot() {
  [ "$has_cupti" = yes ] || skip "no CUPTI"
  local file="$logs/hot-$1.trace.json"
  # shellcheck disable=SC2046
  "$engine" train --model "$1" $(hot_data "$1" "$2") --steps "$(choose 20 10 2)" \
    --device "$device" $(choose "--amp bf16" "--amp bf16" "") --cuda-graph off --eval-every 0s --trace "$file" || return 1
  tr '{' '\n' <"$file" | sed -n 's/.*"name": *"\([^"]*\)".*"dur": *\([0-9.]*\).*/\2 \1/p' | awk '
    { t = $1; sub(/^[^ ]* /, ""); sum[$0] += t; ++n[$0] }
    END { for (k in sum) printf "%12.1f us %6d calls  %s\n", sum[k], n[k], k }' | sort -rn >"$logs/hot-$1.txt"
  head -n 40 "$logs/hot-$1.txt"
  gzip -f "$file"
  note "$(grep -m 1 kernel "$logs/hot-$1.txt")"
}
# counters MODEL BATCH: by ncu, of the kernels that cost most in "hot MODEL", each launch of another size once; without that, of all.
counters() {
  has_tool ncu || skip "no ncu"
  local kernels="" chosen=() status
  [ ! -s "$logs/hot-$1.txt" ] || kernels=$(sed -nE '/kernel/s/^.* calls  (void )?//p' "$logs/hot-$1.txt" |
    sed -E 's/[<(].*//; s/.*:://' | awk '!seen[$0]++' | head -n 12 | paste -sd '|')
  [ -z "$kernels" ] || chosen=(--kernel-name "regex:^($kernels)\$")
  # shellcheck disable=SC2046
  ncu --clock-control none --set basic --section MemoryWorkloadAnalysis --section WarpStateStats --filter-mode per-launch-config \
    --launch-count 1 "${chosen[@]}" --csv "$engine" train --model "$1" $(hot_data "$1" "$2") --steps 2 --device "$device" \
    $(choose "--amp bf16" "--amp bf16" "") --cuda-graph off --eval-every 0s >"$logs/counters-$1.csv"
  status=$?
  ! grep -q ERR_NVGPUCTRPERM "$logs/counters-$1.csv" || skip "the driver keeps its counters to root (ERR_NVGPUCTRPERM)"
  note "$(grep -c '^"' "$logs/counters-$1.csv") lines${kernels:+ of $kernels}"
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
  [ "$has_nccl" = yes ] || skip "no NCCL"
  export ENGINE_ALLOW_SHARED_GPU=1
  "$engine" bench comm --op all --backends nccl --ranks 2 --sizes "$(choose 8:256M:8 8:16M:64 8:4K:8)" --format md
}
# shellcheck source=tests/gpu/beside_pytorch.sh
. "$here/tests/gpu/beside_pytorch.sh"

# ---- The summary: written before and after every step, so that a run that is cut off can be read.
commit=$("$engine" version --build | awk '$1 == "commit" { print $2 }')
gpu="the emulator on $(awk -F': ' '/model name/ { print $2; exit }' /proc/cpuinfo)" driver=none
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
  [ "$call" = all ] || echo "Part $call of 3 (--call $call)."
  [ -z "$deadline" ] || echo "$SECONDS of $deadline seconds are used; $(count 'cut off') steps were cut off by the deadline."
  [ -z "$cpp_library" ] || echo "$cpp_library"
  [ ! -s "$scratch/held" ] || echo "A process holds a context of the device: $(head -n 1 "$scratch/held")."
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
  write_text
  [ "$pack" = no ] || pack_results
}
write_text() {
  kill -0 "$$" 2>/dev/null || exit 1  # who was started has been killed, and this is all_of_it(): nobody waits any more
  summary_text >"$scratch/summary.new"
  cp "$scratch/summary.new" "$output/summary.md.part" && mv "$output/summary.md.part" "$output/summary.md"
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
is_it_right() {  # call 1
  if [ "$list" = yes ]; then
    while read -r _ program; do begin_step "test $(basename "$program")"; done <"$tests"
  else
    [ "$call" = all ] || reserve=240  # for the judged steps, however long suites take
    run_suites
    reserve=0
  fi
  local model amp set limits off
  for model in $(choose "gpt2 gpt-nano" "gpt2 gpt-nano" gpt-nano); do
    step "step $model bf16" 180 judge_step "$model" bf16 1e-2 0.15 0.05
    step "step $model off" 120 judge_step "$model" off 1e-4 1e-2 1e-3
  done
  # Rounding turns ReLUs on and off. On a CPU, the gradients of resnet50 in f32 differ from those in f64 by up to 0.14, half of them by
  # more than 0.024; those of resnet18-cifar by 0.051 and 0.0044. Between f32 and bf16: 1.9 and 1.2; 0.46 and 0.31.
  for model in $(choose "resnet50 resnet18-cifar" "resnet50 resnet18-cifar" resnet20-cifar); do
    limits="5 3" off="0.5 0.1"
    [ "$model" != resnet18-cifar ] || limits="0.9 0.6" off="0.3 0.03"
    # shellcheck disable=SC2086
    step "step $model bf16" 120 judge_step "$model" bf16 2e-2 $limits
    # shellcheck disable=SC2086
    step "step $model off" 120 judge_step "$model" off 1e-4 $off
  done
  for set in gemm conv attention; do
    step "times $set bf16" 120 times "$set" bf16 0
    [ "$set" = attention ] || step "times $set bf16 warpgroup" 120 times "$set" bf16 1
  done
  run_translated_suites
  step "trace convnet" 300 trace convnet off "$(choose 20 20 2)" 1e-4 1e-2
  step "trace gpt-nano" 300 trace gpt-nano off "$(choose 20 20 2)" 1e-4 1e-3
  step "trace resnet18-cifar" 300 trace resnet18-cifar off "$(choose 5 5 1)" 1e-4 5e-2
  for model in convnet gpt-nano; do step "repeat $model" 120 repeat "$model"; done
  repeat_failed_suites
  for amp in O1 O2 bf16; do
    step "trace convnet $amp" 300 trace convnet "$amp" "$(choose 20 20 2)" 2e-2 1e-1
    step "trace gpt-nano $amp" 300 trace gpt-nano "$amp" "$(choose 20 20 2)" 2e-2 5e-2
  done
  step "trace resnet18-cifar bf16" 300 trace resnet18-cifar bf16 "$(choose 5 5 1)" 2e-2 2e-1
  for model in convnet gpt-nano; do step "resume $model" 120 resume "$model"; done
  step "moves mlp" 120 moves mlp
}
more_times() {  # without a limit of time only
  local model batch graph amp
  while read -r model batch; do
    for graph in auto off; do step "whole $model b$batch graph $graph" 90 whole_step "$model" "$batch" bf16 "$graph"; done
  done < <(choose "$(printf '%s\n' "mlp 128" "convnet 512" "resnet18-cifar 512" "resnet50 64" "gpt-nano 256" "gpt2 8")" \
    "$(printf '%s\n' "convnet 512" "gpt2 8")" "$(printf '%s\n' "mlp 4" "convnet 2")")
  for amp in $(choose "off tf32 O2 bf16" "off bf16" bf16); do step "bench kernels $amp" 300 bench_kernels "$amp"; done
}
what_costs_most() {  # call 3
  local model batch backend tool limit program suite set
  while read -r model batch; do
    step "hot $model" 60 hot "$model" "$batch"
    # There is no time for those of resnet50 in a call; its kernels are those of resnet18-cifar.
    [ "$model $call" = "resnet50 3" ] || step "counters $model" 180 counters "$model" "$batch"
  done < <(choose "$(printf '%s\n' "gpt2 16" "resnet18-cifar 512" "resnet50 64")" \
    "$(printf '%s\n' "gpt2 16" "resnet18-cifar 512" "resnet50 64")" "convnet 2")
  for backend in nccl shm; do
    step "ranks mlp $backend" 60 ranks mlp "$backend"
    step "ranks gpt-nano $backend" 60 ranks gpt-nano "$backend"
  done
  step "scaling gpt-nano" 60 scaling gpt-nano "$(choose 256 256 4)"
  step "bench comm" 60 bench_comm
  if [ "$list" = yes ]; then begin_step "memcheck, racecheck, synccheck and leaks of suites"; else list_suites >"$scratch/suites"; fi
  for tool in racecheck memcheck synccheck leaks; do
    while read -r limit program suite; do
      # In a part of the whole: kernels that share memory among warps and copy asynchronously, in bf16. Leaks are looked for in one
      # suite: what the driver and libraries keep until the end is reported, too.
      case $tool in
        leaks) [[ "$suite" =~ ^(DeviceStep|DensePlayed)$ ]] || continue ;;
        *) [ "$call" = all ] || [[ "$suite" =~ ^((Dense|Conv2d)Cuda/4|DenseCudaWarpgroup/0|Conv2dCudaWarpgroup/0|AttentionCuda|.*Played)$ ]] || continue ;;
      esac
      [ "$tool" = memcheck ] || [ "$quick" = no ] || [ "$call" = 3 ] || continue
      step_beside "$tool $(basename "$program") $suite" "$((2 * limit))" sanitize "$tool" "$program" "$suite"
    done < <(cat "$scratch/suites" 2>/dev/null)
    wait_for_steps
  done
  for set in gemm conv dense; do
    step "cuts $set bf16" 150 cuts "$set" bf16 0
    step "cuts $set bf16 warpgroup" 150 cuts "$set" bf16 1
  done
  step "large relu" 90 large relu_forward "$(choose 32800 32800 1)" 32x32x64
  step "large convolution" 120 large conv2d_forward "$(choose 32800 32800 1)" "32x32x64->64"
}
all_of_it() {
  step device 60 show_device
  [ "$list" = yes ] || find_libraries
  step "library NCCL" 20 show_library NCCL "$has_nccl" ENGINE_NCCL_LIBRARY
  step "library CUPTI" 20 show_library CUPTI "$has_cupti" ENGINE_CUPTI_LIBRARY
  ! in_call 1 || is_it_right
  ! in_call 2 || beside_steps
  [ "$call" != all ] || more_times
  ! in_call 3 || what_costs_most
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
if [ "$list" = no ] && [ -x "$holder" ]; then
  "$holder" "${device#cuda:}" >"$scratch/held" 2>&1 </dev/null &
  holding=$!
  disown "$holding"  # it is no step; it ends with this process
fi
all_of_it &
main=$!
wait "$main"
status=$?
[ -z "${holding:-}" ] || kill "$holding" 2>/dev/null
exit "$status"
