#!/usr/bin/env bash
# The steps "beside" PyTorch of tests/gpu/run.sh, with the real program on the CPU and a PyTorch that is played: names and shapes
# agree, ratios are those of the medians, wrong results fail. Usage: beside_pytorch_test.sh SOURCE_DIR ENGINE
set -euo pipefail
source=$1 program=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "beside_pytorch_test.sh: $*" >&2; exit 1; }
has() { grep -qF -- "$1" "$2" || { cat "$2" >&2; fail "not in $2: $1"; }; }

# ---- The table of operators.
cat >"$work/join.sh" <<'END'
emulated=yes list=yes pytorch=yes logs=none
. "$1/tests/gpu/beside_pytorch.sh"
shift
"$@"
END
head='op,model,shape,type,us,gflops,gbs,bound,share,error'
printf '%s\n' "$head" 'gemm,gemm,8x8x8,bf16,30.00,1000.0,1.0,flops,0.5000,2.0e-03' "$head" \
  'gemm,gemm,8x8x8,bf16,10.00,3000.0,1.0,flops,0.5000,1.0e-03' "$head" \
  'gemm,gemm,8x8x8,bf16,20.00,1500.0,1.0,flops,0.5000,1.0e-03' \
  >"$work/ours.csv"
for ms in 0.01 0.04; do
  echo '{"op": "gemm", "shape": "8x8x8", "dtype": "bf16", "ms": '$ms', "tflops": 1.0}'
done >"$work/peer.jsonl"
join() { bash "$work/join.sh" "$source" join_operators "$work/ours.csv" "$work/peer.jsonl" "$1"; }
join 1e-2 >"$work/table" || fail "refuses right results"
has '| gemm | 8x8x8 | 20.00 | 1.5 | 50 % | 2.0e-03 | 25.00 | 1.25 |' "$work/table"
! join 1.5e-3 >/dev/null || fail "takes an error above the limit"
sed -i 's/2.0e-03/inf/' "$work/ours.csv"
! join 1e-2 >"$work/table" || fail "takes an infinite error"
has '| inf |' "$work/table"
: >"$work/ours.csv"
! join 1e-2 >/dev/null || fail "takes an empty run"

# ---- The names and shapes of both sides.
if command -v python3 >/dev/null; then
  PYTHONPATH="$source/tests/peers" PYTHONDONTWRITEBYTECODE=1 python3 -c '
import torch_kernels as t
for op, shape, flops, build in [*t.gemm_cases(map(int, t.SIZES.split(","))), *t.conv_cases(128), *t.attention_cases(128)]: print(op, shape)' >"$work/peer"
  { for set in gemm conv; do "$program" bench kernels --set "$set" --batch 128 --list; done
    "$program" bench kernels --op attention --batch 128 --list; } | sed -E 's/ [a-z0-9-]+ / /' >"$work/ours"
  cmp "$work/peer" "$work/ours" || fail "torch_kernels.py and engine bench kernels measure other shapes"
fi

# ---- The whole way. The program on the CPU, called as one on a device is.
mkdir -p "$work/build/tools"
cat >"$work/build/tools/engine" <<END
#!/usr/bin/env bash
arguments=()
while [ \$# -gt 0 ]; do
  case \$1 in --amp) shift ;; --sizes) arguments+=(--sizes "32,64"); shift ;; *) arguments+=("\$1") ;; esac
  shift
done
if [ "\${arguments[0]}" = version ]; then
  "$program" "\${arguments[@]}" | sed 's/^CUDA .*/CUDA         13.0, sm_90a, compute_80/'  # a build for devices
  exit
fi
exec "$program" "\${arguments[@]}"
END
cat >"$work/python" <<'END'
#!/usr/bin/env bash
case "$*" in
  -c*) exit "${NO_TORCH:-0}" ;;
  *torch_steps.py*eager,channels_last*) for ms in 10000 9000; do echo '{"variant": "channels_last", "step_ms": '$ms'}'; done ;;
  *torch_steps.py*eager*) echo '{"variant": "eager", "step_ms": 10000}' ;;
  *torch_steps.py*"--model mlp"*graphs*) echo '{"variant": "graphs", "step_ms": 5000.0}' ;;
  *torch_steps.py*) exit 1 ;;
  *torch_kernels.py*"--set gemm"*) echo '{"op": "gemm", "shape": "64x64x64", "dtype": "bf16", "ms": 5.0, "tflops": 1.0}' ;;
esac
END
chmod +x "$work/python" "$work/build/tools/engine"
touch "$work/build/gpu_tests.txt"
run() {  # OPTION...
  PEER_PYTHON="$work/python" ENGINE_PEER_DEVICE=cpu "$source/tests/gpu/run.sh" \
    --device cpu --build "$work/build" --output "$work/results" "$@" || fail "the run failed"
}
some='beside (gemm|conv|(step|compiled) (mlp|gpt-nano))'
run --emulated --only "$some"
summary="$work/results/summary.md"
has '5 steps passed, 0 failed, 1 skipped' "$summary"
has '| 5000.00 |' "$summary"
grep -qE '^\| mlp \| 4 \| off \| [0-9.]+ \| [0-9.e+]+ \| 5000.0 \| graphs \| [0-9.e+]+ \|$' "$summary" || fail "no ratio of steps"
grep -qE '^\| gpt-nano \| 1 \| bf16 \| .* \| 10000 \| eager \| [0-9.e+]+ \|$' "$summary" || fail "what is not compiled is missing"
grep -qE '^\| beside compiled gpt-nano b1 bf16 \| skipped \| [0-9]+ \| PyTorch cannot compile it' "$summary" || fail "compiled without a compiler"
grep -qE '^\| conv2d_forward \| 1x32x32x3->64 k3 s1 \| .* \| - \| - \|' "$summary" || fail "no convolution without a peer"
NO_TORCH=1 run --emulated --only "$some"
has '4 steps passed, 0 failed' "$summary"
grep -qE '^\| mlp \| 4 \| off \| [0-9.]+ \| [0-9.e+]+ \| - \| - \| - \|$' "$summary" || fail "not measured without PyTorch"
