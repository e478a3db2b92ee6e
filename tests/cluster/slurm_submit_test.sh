#!/usr/bin/env bash
# engine submit under a real SLURM of three nodes on this machine: a time limit, a preemption, five signals of time limits and a lost
# node, in a job of two ranks and in an elastic one, which both end like an undisturbed run.
#
# Usage: tests/cluster/slurm_submit_test.sh ENGINE       needs what slurm_test.sh needs
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/cluster_lib.sh"
. "$here/slurm_lib.sh"

[ "${1:-}" = --inside ] || enter_cluster "$here/slurm_submit_test.sh" "$@"
engine=$2 folder=$3

export HOME=$folder/home
start_cluster
cd "$folder"
train=(train --model mlp --dataset synthetic --synthetic-shape 8x8x1 --batch-size 48 --threads 1 --rdzv-timeout "$(scaled 20)"
  --log-every 500 --save-every 200 --keep-last 2 --eval-every 0)

has() { grep -q "$1" "$2" 2>/dev/null; }
state() { squeue --noheader --jobs "$job" --format=%T 2>/dev/null || true; }
gone() { [ -z "$(state)" ]; }
pending() { [ "$(state)" = PENDING ]; }
waits_to_begin() { pending && scontrol show job "$job" | grep -q 'Reason=BeginTime'; }
# submit NAME OPTION...: sets `run` and `job`
submit() {
  run="$folder/a run's \$HOME $1"
  shift
  "$engine" submit --no-wait "$@" --save-dir "$run" >submitted.txt 2>submit.log || fail "submitting" submit.log
  job=$(sed -n 's/^submitted job \([0-9]*\);.*/\1/p' submitted.txt)
  notes="$run/job-$job.txt" log="$run/job-$job.log"
}
newest() { cat "$run/latest" 2>/dev/null || true; }
advanced() { [ -n "$(newest)" ] && [ "$(newest)" != "$before" ]; }
wait_for_checkpoint() {
  before=$1
  wait_for 40 "checkpoint of job $job after ${before:-step 0}" advanced
}
count_notes() { [ "$(grep -c "^$1" "$notes")" -ge "$2" ]; }
# SLURM holds a requeued job back for two minutes, and its nodes refuse it within a second of its end.
start_again() {
  wait_for 40 "job $job to be in the queue again" waits_to_begin
  scontrol update "JobId=$job" StartTime=now+2
}
# limit N: the signal that SLURM sends before the time limit, after some more steps
limit() {
  wait_for_checkpoint "$(newest)"
  scancel --signal=USR1 "$job"
  wait_for 40 "requeue $1 of job $job" count_notes 'requeue 75' "$1"
  start_again
}
# The processes of the job on a node, and its daemon, end without a word.
lose_node() {
  local node=$1 process
  kill -KILL "${daemons[$((1 + ${node#node}))]}"
  for process in /proc/[0-9]*; do
    grep -qzx "SLURMD_NODENAME=$node" "$process/environ" 2>/dev/null || continue
    kill -KILL "$(awk '/^PPid:/ { print $2 }' "$process/status")" "${process#/proc/}" 2>/dev/null || true
  done
  scontrol update "NodeName=$node" State=DOWN Reason=lost
}
return_node() {
  slurmd -D -N "$1" >"slurmd.$1.again.log" 2>&1 &
  daemons[$((1 + ${1#node}))]=$!
  scontrol update "NodeName=$1" State=RESUME
}
last_node() { scontrol show hostnames "$(squeue --noheader --jobs "$job" --format=%N)" | tail -n 1; }
ended() { has '^end' "$notes"; }
# ended_in_order WHAT
ended_in_order() { has '^end 0' "$notes" || fail "$1 ended in order" "$notes" "$log"; }

# A mistake is found before the queue.
code=0
"$engine" submit train --batch-sise 3 --save-dir typo 2>typo.log || code=$?
check "a mistyped option is found at once" test "$code" = 2
check "and nothing was submitted" test -z "$(squeue --noheader)"

# What follows is the job's output and exit code.
"$engine" submit --sbatch comment="it's late" "${train[@]}" --steps 400 --save-dir "$folder/followed" >followed.log 2>&1 || fail "a job that is followed" followed.log
check "the job's output was followed" has 'Training completed in' followed.log
check "its end is shown" bash -c "'$engine' submit --status followed | grep -q 'ended with exit code 0'"

# SLURM's own time limit: its check comes every half minute, so the signal comes in the first one.
submit limit --time 1 --signal-before 50 "${train[@]}" --steps 100000000
wait_for 60 "signal before the time limit" has '^requeue 75' "$notes"
check "the time limit was announced, and the run saved" has 'preempted by signal 10' "$log"
wait_for 60 "job $job in the queue again" pending  # SLURM first completes its last start
"$engine" submit --status "$job" >status.txt
check "the state of the job is shown" has "^job $job: PENDING" status.txt
"$engine" submit --cancel "$run" >cancel.txt
wait_for 40 "end of job $job" gone

# A preemption with a grace time: SIGTERM, and the nodes are taken away when the program has saved.
submit spare --partition spare --nodes 3 --cpus-per-task 4 "${train[@]}" --steps 100000000
wait_for_checkpoint ""
srun --partition urgent --nodes 3 --cpus-per-task 4 true 2>urgent.log || fail "a job that preempts another" urgent.log
check "a preempted job goes back" has '^requeue 143' "$notes"
start_again
wait_for_checkpoint "$(newest)"
check "and continues" test "$(grep -c '^start ' "$notes")" = 2
"$engine" submit --cancel "$run" >cancel.txt
wait_for 40 "end of job $job" gone
check "a job that was cancelled after that does not go back" test "$(grep -c '^requeue' "$notes")" = 1

# Two ranks: five announced limits, and the loss of a node, after which SLURM itself requeues the job.
steps=15000
srun -N 2 -n 2 "$engine" "${train[@]}" --steps "$steps" --save-dir whole >whole.log 2>&1 || fail "a whole run" whole.log
submit two --nodes 2 "${train[@]}" --steps "$steps"
limit 1
limit 2
wait_for_checkpoint "$(newest)"
lost=$(last_node)
lose_node "$lost"
start_again
return_node "$lost"
for turn in 3 4 5; do limit "$turn"; done
wait_for 120 "end of job $job" ended
ended_in_order "the job"
check "in seven starts" test "$(grep -c '^start ' "$notes")" = 7
check "and ended like the undisturbed one" "$engine" verify whole "$run"

# The same in an elastic job, which loses the node without an end.
steps=6000  # these are slower
elastic=("${train[@]}" --elastic 2:3 --reduction-order canonical --heartbeat 0.5 --steps "$steps")
submit elastic --nodes 2-3 "${elastic[@]}"
limit 1
limit 2
wait_for_checkpoint "$(newest)"
lost=$(last_node)
lose_node "$lost"
wait_for 40 "two ranks to go on" has 'membership: 2 ranks' "$log"
for turn in 3 4 5; do limit "$turn"; done
return_node "$lost"
wait_for 120 "end of job $job" ended
ended_in_order "the elastic job"
check "in six starts" test "$(grep -c '^start ' "$notes")" = 6
srun -N 2 -n 2 "$engine" "${train[@]}" --reduction-order canonical --steps "$steps" --save-dir canonical >canonical.log 2>&1 || fail "a whole canonical run" canonical.log
check "and ended like the undisturbed one" "$engine" verify canonical "$run"

# A folder that one node does not see is named.
mkdir -p "$folder/unshared"
kill "${daemons[4]}"
wait "${daemons[4]}" || true
unshare --mount bash -c "mount -t tmpfs none '$folder/unshared' && exec slurmd -D -N node3" >slurmd.node3.unshared.log 2>&1 &
daemons[4]=$!
wait_for 20 "three idle nodes" three_idle_nodes
code=0
"$engine" submit --nodes 3 "${train[@]}" --steps 10 --save-dir unshared/run >unshared.log 2>&1 || code=$?
check "a folder that is not shared ends the job with 73" test "$code" = 73
check "and is named" has "node node3 does not see $folder/unshared/run" unshared.log
echo "slurm_submit_test: all $checks checks passed"
