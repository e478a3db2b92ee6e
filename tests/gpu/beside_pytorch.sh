# shellcheck shell=bash
# Part of run.sh: training steps and single operators beside PyTorch's, in turns, and the tables of them.
# It needs run.sh's functions. Without PyTorch the engine is measured alone.
# shellcheck disable=SC2154  # run.sh sets these: logs pytorch scratch engine device emulated here

peer_python=${PEER_PYTHON:-python3} peer_device=${ENGINE_PEER_DEVICE:-cuda}
[ "$emulated" = no ] || peer_device=${ENGINE_PEER_DEVICE:-none}
has_peer() {  # asks once
  [ "$peer_device" != none ] && [ "$pytorch" = yes ] || return 1
  if [ ! -e "$scratch/peer" ]; then
    "$peer_python" -c "import sys, torch; sys.exit('$peer_device' == 'cuda' and not torch.cuda.is_available())" >/dev/null 2>&1
    echo $? >"$scratch/peer"
  fi
  [ "$(cat "$scratch/peer")" -eq 0 ]
}
median() { sort -g | awk '{ v[NR] = $1 } END { if (NR) print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'; }

# ---- Training steps.
step_ms() { sed -n 's/.*"step_ms": *\([0-9.e+-]*\).*/\1/p' "$1" | tail -n 1; }
# Random text of 65 different characters: the vocabulary that the peer's model has.
[ "$list" = yes ] || awk 'BEGIN { srand(1); for (i = 0; i < 100000; ++i) printf "%c", i < 65 ? 33 + i : 33 + int(65 * rand()) }' \
  >"$scratch/letters.txt"
our_step() {  # MODEL BATCH AMP FILE: appends a line of JSON
  local data=()
  [ "$1" != gpt-nano ] || data=(--dataset text --data-dir "$scratch/letters.txt")
  # shellcheck disable=SC2046
  "$engine" bench step --model "$1" "${data[@]}" --batch "$2" --device "$device" $(amp "$3") --optimizer sgd --momentum 0.9 \
    --seconds "$(choose 5 2 0.1)" --warmup "$(choose 20 10 1)" --format json >>"$4"
}
# float32 means float32 in PyTorch too: by itself it gives convolutions TF32, and products not.
peer_step() {  # MODEL BATCH AMP FILE OPTION...
  local model=$1 batch=$2 amp=$3 file=$4 precision=NVIDIA_TF32_OVERRIDE=0
  shift 4
  [ "$amp" = off ] || precision=TORCH_ALLOW_TF32_CUBLAS_OVERRIDE=1
  env "$precision" "$peer_python" "$peers/torch_peer.py" throughput --model "$model" --batch "$batch" --device "$peer_device" \
    --amp "$amp" --momentum 0.9 --seconds "$(choose 5 2 0.1)" --warmup "$(choose 20 20 1)" --chunk "$(choose 10 10 1)" "$@" |
    tail -n 1 >>"$file"
  return "${PIPESTATUS[0]}"
}
peer_variants() {  # MODEL
  [ "$emulated" = no ] || { echo; return; }
  case $1 in
    mlp | gpt-nano) printf '%s\n' "" "--compile default" "--compile reduce-overhead" ;;
    *) printf '%s\n' "" "--channels-last" "--compile default" "--channels-last --compile default" ;;
  esac
}
beside_step() {  # MODEL BATCH AMP
  local name="$1-b$2-$3" peers="${ENGINE_PEERS:-$here/../shared/peers}" round ms best_ms="" best=""
  local option found theirs="-" ratio="-"
  local ours="$logs/step-$name-ours.jsonl" peer="$logs/step-$name-peer.jsonl"
  rm -f "$ours" "$peer"
  for ((round = 1; round <= $(choose 3 1 1); ++round)); do
    our_step "$1" "$2" "$3" "$ours" || return 1
    if ! has_peer || [ ! -f "$peers/torch_peer.py" ]; then continue; fi
    if [ "$round" -eq 1 ]; then  # all variants; then the best
      while read -r option; do
        rm -f "$scratch/variant.json"
        # shellcheck disable=SC2086
        peer_step "$1" "$2" "$3" "$scratch/variant.json" $option </dev/null || { echo "PyTorch failed: $option"; continue; }
        ms=$(step_ms "$scratch/variant.json")
        [ -n "$ms" ] || { echo "PyTorch said nothing: $option"; continue; }
        echo "PyTorch ${option:-eager}: $ms ms"
        [ -z "$best_ms" ] || awk "BEGIN { exit !($ms < $best_ms) }" || continue
        best_ms=$ms best=$option
        tail -n 1 "$scratch/variant.json" >"$peer"
      done < <(peer_variants "$1")
    elif [ -n "$best_ms" ]; then
      # shellcheck disable=SC2086
      peer_step "$1" "$2" "$3" "$peer" $best || echo "PyTorch failed in round $round"
    fi
  done
  found=$(while read -r option; do step_ms <(echo "$option"); done <"$ours" | median)
  if [ -s "$peer" ]; then
    theirs=$(while read -r option; do step_ms <(echo "$option"); done <"$peer" | median)
    ratio=$(awk "BEGIN { printf \"%.3g\", $theirs / $found }")
    best=${best:-eager}
  fi
  awk -v m="$1" -v b="$2" -v a="$3" -v o="$found" -v t="$theirs" -v r="$ratio" -v v="$best" 'BEGIN {
    printf "| %s | %d | %s | %.3f | %.4g | %s | %s | %s |\n", m, b, a, o, 1000 * b / o, t, v, r }' >"$logs/step-$name.row"
  found="$(awk "BEGIN { printf \"%.3f\", $found }") ms"
  if [ "$ratio" != - ]; then found+="; PyTorch's best $theirs ms ($best): ratio $ratio"; fi
  note "$found"
}

# ---- Single operators.
has_warpgroups() {
  has_tool nvidia-smi && [ "$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1)" = 9.0 ]
}
operators() {  # SET AMP BATCH FILE: the engine's, appended as CSV
  local sizes=()
  [ "$1" != gemm ] || sizes=(--sizes "$(choose 512,1024,2048,4096,8192 512,1024,2048,4096,8192 32,64)")
  [ "$1-$emulated" != conv-yes ] || sizes=(--shape 32x32x3-)
  # shellcheck disable=SC2046
  "$engine" bench kernels --set "$1" "${sizes[@]}" --batch "$3" --device "$device" $(amp "$2") \
    --seconds "$(choose 0.5 0.1 0.001)" --format csv >>"$4"
}
peer_operators() {  # SET TYPE BATCH FILE: PyTorch's, appended as lines of JSON
  local sizes=()
  [ "$1-$emulated" != gemm-yes ] || sizes=(--sizes "32,64")
  [ "$1-$emulated" != conv-yes ] || sizes=(--shape 32x32x3-)
  "$peer_python" "$here/tests/peers/torch_kernels.py" --device "$peer_device" --set "$1" --dtype "$2" --batch "$3" \
    "${sizes[@]}" --seconds "$(choose 0.5 0.1 0.01)" >>"$4"
}
# join_operators OURS WARPGROUP PEER LIMIT: the medians of their rounds as one table; fails where an error is above LIMIT.
join_operators() {
  touch "$1" "$2" "$3"
  sed -n 's/.*"op": "\([^"]*\)", "shape": "\([^"]*\)".*"ms": \([^,]*\),.*/\1,peer,\2,,\3/p' "$3" |
    cat "$1" "$2" - | awk -F, -v limit="$4" -v ours="$(wc -l <"$1")" '
    function median(key,   n, i, j, t, v) {
      n = count[key]
      for (i = 1; i <= n; ++i) v[i] = value[key, i]
      for (i = 2; i <= n; ++i) for (j = i; j > 1 && v[j] < v[j - 1]; --j) { t = v[j]; v[j] = v[j - 1]; v[j - 1] = t }
      return n % 2 ? v[(n + 1) / 2] : (v[n / 2] + v[n / 2 + 1]) / 2
    }
    function cell(text, there) { return there ? text : "-" }
    $1 == "op" { next }
    {
      row = $1 " | " $3
      who = $2 == "peer" ? "peer" : NR <= ours ? "ours" : "warp"
      if (who == "ours" && !seen[row]++) order[++rows] = row
      key = row SUBSEP who
      value[key, ++count[key]] = who == "peer" ? 1000 * $5 : $5
      if (who != "peer") {
        work[row] = $6 * $5 / 1e3  # TFLOP/s times us
        if (error[key] == "" || $10 + 0 > error[key] + 0 || $10 !~ /^[0-9.]+(e[-+]?[0-9]+)?$/) error[key] = $10
        if ($10 !~ /^[0-9.]+(e[-+]?[0-9]+)?$/ || $10 + 0 > limit) bad = 1
      }
      if (who == "ours") best[row] = $9
    }
    END {
      printf "| operator | shape | us | TFLOP/s | of the ceiling | error | PyTorch us | ratio |"
      print " warpgroup us | TFLOP/s | error | ratio |"
      print "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|"
      for (i = 1; i <= rows; ++i) {
        row = order[i]
        o = median(row SUBSEP "ours"); p = count[row, "peer"]; w = count[row, "warp"]
        pt = p ? median(row SUBSEP "peer") : 0; wt = w ? median(row SUBSEP "warp") : 0
        printf "| %s | %.2f | %.4g | %.0f %% | %s |", row, o, work[row] / o, 100 * best[row], error[row, "ours"]
        printf " %s | %s |", cell(sprintf("%.2f", pt), p), cell(sprintf("%.3g", p ? pt / o : 0), p)
        printf " %s | %s |", cell(sprintf("%.2f", wt), w), cell(sprintf("%.4g", w ? work[row] / wt : 0), w)
        printf " %s |", cell(error[row, "warp"], w)
        printf " %s |\n", cell(sprintf("%.3g", p && w ? pt / wt : 0), p && w)
      }
      exit bad || !rows
    }'
}
ratio_note() {  # TABLE: the geometric mean of a column's ratios
  awk -F'|' 'function add(n) { if ($n + 0 > 0) { s[n] += log($n); c[n]++ } }
    NR > 2 { add(9); add(13) }
    END {
      printf "%d shapes", NR - 2
      if (c[9]) printf ", %.2f times as fast as PyTorch (geometric mean)", exp(s[9] / c[9])
      if (c[13]) printf ", with warpgroup products %.2f", exp(s[13] / c[13])
    }' "$1"
}
beside_operators() {  # SET AMP BATCH
  local base="$logs/$1-$2" type=$2 round limit warp=0 peer=0
  [ "$1" = gemm ] || base="$logs/$1-b$3-$2"
  case $2 in off) type=f32 limit=1e-5 ;; tf32) limit=5e-3 ;; *) limit=3e-2 ;; esac
  rm -f "$base".{ours.csv,warpgroup.csv,peer.jsonl}
  for ((round = 1; round <= $(choose 3 1 1); ++round)); do
    operators "$1" "$2" "$3" "$base.ours.csv" || return 1
    if [ "$1-$2" = gemm-bf16 ] && has_warpgroups; then
      ENGINE_WARPGROUP_PRODUCTS=1 operators "$1" "$2" "$3" "$base.warpgroup.csv" || { warp=1; echo "warpgroup products failed"; }
    fi
    if has_peer; then
      peer_operators "$1" "$type" "$3" "$base.peer.jsonl" || { peer=1; echo "PyTorch failed"; }
    fi
  done
  join_operators "$base.ours.csv" "$base.warpgroup.csv" "$base.peer.jsonl" "$limit" >"$base.md"
  local status=$?
  cat "$base.md"
  local complaint=""
  [ "$status" -eq 0 ] || complaint="an error above $limit; "
  [ "$warp" -eq 0 ] || complaint+="warpgroup products failed; "
  [ "$peer" -eq 0 ] || complaint+="PyTorch failed; "
  note "$complaint$(ratio_note "$base.md")"
  return $((status + warp))
}

beside_steps() {  # all of them
  local model batch amps amp
  for amp in $(choose "bf16 tf32 off" "bf16 tf32" bf16); do step "beside gemm $amp" 300 beside_operators gemm "$amp" 1; done
  for batch in $(choose "128 512" 128 1); do
    for amp in $(choose "bf16 tf32" bf16 bf16); do step "beside conv b$batch $amp" 400 beside_operators conv "$amp" "$batch"; done
  done
  while read -r model batch amps; do
    for amp in $amps; do step "beside step $model b$batch $amp" 900 beside_step "$model" "$batch" "$amp"; done
  done < <(case $(choose full quick emulated) in
    full)
      printf '%s\n' "mlp 128 off tf32 bf16" "mlp 512 off tf32 bf16" "convnet 128 tf32 bf16" "convnet 512 tf32 bf16" \
        "resnet18-cifar 128 tf32 bf16" "resnet18-cifar 512 tf32 bf16" "resnet50 64 tf32 bf16" \
        "gpt-nano 64 tf32 bf16" "gpt-nano 256 tf32 bf16"
      ;;
    quick)
      printf '%s\n' "mlp 128 bf16" "convnet 512 bf16" "resnet18-cifar 128 bf16" "resnet18-cifar 512 bf16" "resnet50 64 bf16" \
        "gpt-nano 64 bf16"
      ;;
    *) printf '%s\n' "mlp 4 off" "convnet 2 off" "gpt-nano 1 off" ;;
  esac)
}
beside_summary() {
  local file name steps=()
  shopt -s nullglob
  steps=("$logs"/step-*.row)
  if [ ${#steps[@]} -gt 0 ]; then
    printf '\n## Training steps beside PyTorch\n\nMedians of rounds in turns; ratio: the time of the best PyTorch over ours.\n\n'
    echo "| model | batch | amp | ms | samples/s | PyTorch ms | its best | ratio |"
    echo "|---|---:|---|---:|---:|---:|---|---:|"
    cat "${steps[@]}"
  fi
  for file in "$logs"/gemm-*.md "$logs"/conv-*.md; do
    name=$(basename "$file" .md)
    printf '\n## %s beside PyTorch\n\n' "${name//-/ }"
    cat "$file"
  done
  shopt -u nullglob
}
