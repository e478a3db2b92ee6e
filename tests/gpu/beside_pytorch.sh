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

# ---- Training steps. $logs/step-MODEL-bBATCH-AMP.{ours,peer}.jsonl have a line for each round.
step_ms() { sed -n 's/.*"step_ms": *\([0-9.e+-]*\).*/\1/p' "$1" | tail -n 1; }
median_ms() { while read -r line; do step_ms <(echo "$line"); done | median; }
our_step() {  # MODEL BATCH AMP FILE: appends a line of JSON
  # shellcheck disable=SC2046
  "$engine" bench step --model "$1" $(bench_options "$1") --batch "$2" --device "$device" $(amp "$3") \
    $(choose "--seconds 5" "--seconds 2" "--steps 2") --warmup "$(choose 20 10 1)" --format json >>"$4"
}
peer_step() {  # MODEL BATCH AMP VARIANTS FILE: appends a line of JSON for each variant
  local optimizer=sgd
  [[ "$1" != gpt* ]] || optimizer=adamw
  "$peer_python" "$here/tests/peers/torch_steps.py" --model "$1" --batch "$2" --amp "$3" --variants "$4" --optimizer "$optimizer" \
    --device "$peer_device" --seconds "$(choose 5 2 0.1)" --warmup "$(choose 20 10 1)" | tee -a "$5"
  return "${PIPESTATUS[0]}"
}
straight_variants() { case $1 in convnet | resnet*) echo eager,channels_last ;; *) echo eager ;; esac; }
compiled_variants() {  # small models are limited by launches
  case $1 in
    convnet) echo channels_last+graphs ;;
    mlp | gpt-nano) echo graphs ;;
    resnet*) echo channels_last+compiled ;;
    *) echo compiled ;;
  esac
}
variants_of() {  # FILE: the variants in it, the fastest one first
  local variant
  sed -n 's/.*"variant": *"\([^"]*\)".*/\1/p' "$1" 2>/dev/null | sort -u | while read -r variant; do
    echo "$(grep -F "\"variant\": \"$variant\"" "$1" | median_ms) $variant"
  done | sort -g
}
step_row() {  # MODEL BATCH AMP: of what has been measured so far, a row of the table; and the note
  local base="$logs/step-$1-b$2-$3" ours theirs="-" best="-"
  ours=$(median_ms <"$base.ours.jsonl")
  [ ! -s "$base.peer.jsonl" ] || read -r theirs best < <(variants_of "$base.peer.jsonl")
  awk -v m="$1" -v b="$2" -v a="$3" -v o="$ours" -v t="$theirs" -v v="$best" '
    function ratio(time) { return t == "-" || time == "-" ? "-" : sprintf("%.3g", t / time) }
    BEGIN {
      printf "| %s | %d | %s | %.3f | %.4g | %s | %s | %s |\n", m, b, a, o, 1000 * b / o, t, v, ratio(o)
    }' >"$base.row"
  note "$(awk -F' *[|] *' '{ printf "%s ms", $5 }
    $7 != "-" { printf "; PyTorch %s (%s): ratio %s", $7, $8, $9 }' "$base.row")"
}
beside_step() {  # MODEL BATCH AMP: ours and PyTorch's, in turns
  local base="$logs/step-$1-b$2-$3" round variants
  rm -f "$base".{ours,peer}.jsonl
  variants=$(straight_variants "$1")
  for ((round = 1; round <= $(choose 3 1 1); ++round)); do
    our_step "$1" "$2" "$3" "$base.ours.jsonl" || return 1
    ! has_peer || peer_step "$1" "$2" "$3" "$variants" "$base.peer.jsonl" || echo "PyTorch failed"
  done
  step_row "$1" "$2" "$3"
}
beside_compiled_step() {  # MODEL BATCH AMP: PyTorch compiled, beside what beside_step has measured
  has_peer || skip "no PyTorch"
  local base="$logs/step-$1-b$2-$3" status
  [ -s "$base.ours.jsonl" ] || our_step "$1" "$2" "$3" "$base.ours.jsonl" || return 1
  peer_step "$1" "$2" "$3" "$(compiled_variants "$1")" "$base.peer.jsonl"
  status=$?
  step_row "$1" "$2" "$3"
  [ "$status" -eq 0 ] || skip "PyTorch cannot compile it"
}

# ---- Single operators.
has_warpgroups() {
  has_tool nvidia-smi && [ "$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1)" = 9.0 ]
}
error_limit() {  # SET AMP: of results relative to the largest one; numbers of bf16 are off by 2^-9 of themselves
  case $2 in off) echo 1e-5 ;; tf32) echo 5e-3 ;; *) [ "$1" = attention ] && echo 1e-2 || echo 5e-3 ;; esac
}
operators() {  # SET AMP BATCH FILE: the engine's, appended as CSV
  local sizes=() what=(--set "$1")
  [ "$1" != attention ] || what=(--op attention)
  [ "$1-$emulated" != attention-yes ] || sizes=(--model gpt-nano)
  [ "$1" != gemm ] || sizes=(--sizes "$(choose 512,1024,2048,4096,8192 512,1024,2048,4096,8192 32,64)")
  [ "$1-$emulated" != conv-yes ] || sizes=(--shape 32x32x3-)
  # shellcheck disable=SC2046
  "$engine" bench kernels "${what[@]}" "${sizes[@]}" --batch "$3" --device "$device" $(amp "$2") \
    --seconds "$(choose 0.5 0.1 0.001)" --format csv >>"$4"
}
peer_operators() {  # SET TYPE BATCH FILE: PyTorch's, appended as lines of JSON
  local sizes=()
  [ "$1-$emulated" != gemm-yes ] || sizes=(--sizes "32,64")
  [ "$1-$emulated" != conv-yes ] || sizes=(--shape 32x32x3-)
  [ "$1-$emulated" != attention-yes ] || sizes=(--shape 64x128)
  "$peer_python" "$here/tests/peers/torch_kernels.py" --device "$peer_device" --set "$1" --dtype "$2" --batch "$3" \
    "${sizes[@]}" --seconds "$(choose 0.5 0.1 0.01)" >>"$4"
}
# join_operators OURS PEER LIMIT: the medians of their rounds as one table; fails where an error is above LIMIT.
join_operators() {
  touch "$1" "$2"
  sed -n 's/.*"op": "\([^"]*\)", "shape": "\([^"]*\)".*"ms": \([^,]*\),.*/\1,peer,\2,,\3/p' "$2" |
    cat "$1" - | awk -F, -v limit="$3" '
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
      who = $2 == "peer" ? "peer" : "ours"
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
      print "| operator | shape | us | TFLOP/s | of the ceiling | error | PyTorch us | ratio |"
      print "|---|---|---:|---:|---:|---:|---:|---:|"
      for (i = 1; i <= rows; ++i) {
        row = order[i]
        o = median(row SUBSEP "ours"); p = count[row, "peer"]
        pt = p ? median(row SUBSEP "peer") : 0
        printf "| %s | %.2f | %.4g | %.0f %% | %s |", row, o, work[row] / o, 100 * best[row], error[row, "ours"]
        printf " %s | %s |\n", cell(sprintf("%.2f", pt), p), cell(sprintf("%.3g", p ? pt / o : 0), p)
      }
      exit bad || !rows
    }'
}
ratio_note() {  # TABLE: the geometric mean of its ratios
  awk -F'|' 'NR > 2 && $9 + 0 > 0 { sum += log($9); ++count }
    END {
      printf "%d shapes", NR - 2
      if (count) printf ", %.2f times as fast as PyTorch (geometric mean)", exp(sum / count)
    }' "$1"
}
beside_operators() {  # SET AMP BATCH
  local base="$logs/$1-$2" type=${2/off/f32} round limit peer=0
  [ "$1" = gemm ] || base="$logs/$1-b$3-$2"
  limit=$(error_limit "$1" "$2")
  rm -f "$base".{ours.csv,peer.jsonl}
  for ((round = 1; round <= $(choose 3 1 1); ++round)); do
    operators "$1" "$2" "$3" "$base.ours.csv" || return 1
    if has_peer; then
      peer_operators "$1" "$type" "$3" "$base.peer.jsonl" || { peer=1; echo "PyTorch failed"; }
    fi
  done
  join_operators "$base.ours.csv" "$base.peer.jsonl" "$limit" >"$base.md"
  local status=$?
  cat "$base.md"
  local complaint=""
  [ "$status" -eq 0 ] || complaint="an error above $limit; "
  [ "$peer" -eq 0 ] || complaint+="PyTorch failed; "
  note "$complaint$(ratio_note "$base.md")"
  return "$status"
}

beside_steps() {  # all of them
  local model batch amps amp models
  models=$(case $(choose full quick emulated) in
    full)
      printf '%s\n' "gpt2 16 bf16 tf32" "resnet50 256 bf16 tf32" "resnet18-cifar 512 bf16 tf32" "convnet 512 bf16 tf32" \
        "gpt-nano 256 bf16 tf32" "mlp 512 bf16 tf32 off" "resnet18-cifar 128 bf16" "convnet 128 bf16" "mlp 128 bf16"
      ;;
    quick)
      printf '%s\n' "gpt2 16 bf16" "resnet50 256 bf16" "resnet18-cifar 512 bf16" "convnet 512 bf16" "gpt-nano 256 bf16" "mlp 512 bf16"
      ;;
    *) printf '%s\n' "convnet 2 off" "gpt-nano 1 bf16" "mlp 4 off" ;;
  esac)
  while read -r model batch amps; do
    for amp in $amps; do step "beside step $model b$batch $amp" "$(choose 600 90 300)" beside_step "$model" "$batch" "$amp"; done
  done <<<"$models"
  for amp in $(choose "bf16 tf32 off" bf16 bf16); do step "beside gemm $amp" 300 beside_operators gemm "$amp" 1; done
  step "beside attention bf16" 300 beside_operators attention bf16 "$(choose 256 256 1)"
  for batch in $(choose "128 512" 128 1); do
    for amp in $(choose "bf16 tf32" bf16 bf16); do step "beside conv b$batch $amp" 400 beside_operators conv "$amp" "$batch"; done
  done
  # Last, as compiling takes PyTorch up to a minute for each.
  while read -r model batch amps; do
    for amp in $amps; do
      step "beside compiled $model b$batch $amp" "$(choose 600 100 300)" beside_compiled_step "$model" "$batch" "$amp"
    done
  done <<<"$models"
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
  for file in "$logs"/gemm-*.md "$logs"/attention-*.md "$logs"/conv-*.md; do
    name=$(basename "$file" .md)
    printf '\n## %s beside PyTorch\n\n' "${name//-/ }"
    cat "$file"
  done
  shopt -u nullglob
}
