#!/usr/bin/env bash
# The program under a real SLURM of three nodes on this machine: srun over nodes, two tasks on a node, a job array with file://,
# an elastic job that loses a node and takes one in, and the scripts of docs/examples/slurm.
#
# Usage: tests/cluster/slurm_test.sh ENGINE       needs root, slurmctld, slurmd, munge, iproute2; exits with 77 where one is missing
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/cluster_lib.sh"
. "$here/slurm_lib.sh"

[ "${1:-}" = --inside ] || enter_cluster "$here/slurm_test.sh" "$@"
engine=$2 folder=$3
examples=$here/../../docs/examples/slurm

export HOME=$folder/home
longer=("$engine" train --model mlp --dataset synthetic --synthetic-shape 8x8x1 --batch-size 48 --threads 1 --rdzv-timeout "$(scaled 20)"
  --save-rank-models)
train=("${longer[@]}" --steps 30)
start_cluster

# The environment first: what the program reports in each task.
timeout "$(scaled 20)" srun -N 3 -n 3 "$engine" env >"$folder/env.txt"
check "each task finds the first node" test "$(grep -c 'MASTER_ADDR *node1 *from SLURM_STEP_NODELIST' "$folder/env.txt")" = 3
check "three ranks of three" test "$(grep -cE '^RANK *[012] *from SLURM_PROCID' "$folder/env.txt")" = 3

timeout "$(scaled 40)" srun -N 3 -n 3 "${train[@]}" --save-dir "$folder/nodes" >"$folder/nodes.log" 2>&1 || fail "srun over three nodes" "$folder/nodes.log"
in_sync "$engine" 3 "$folder/nodes"

timeout "$(scaled 40)" srun -N 1 -n 2 "${train[@]}" --save-dir "$folder/tasks" >"$folder/tasks.log" 2>&1 || fail "two tasks on a node" "$folder/tasks.log"
in_sync "$engine" 2 "$folder/tasks"

# Two steps at once in one allocation start from one port and stay apart.
timeout "$(scaled 40)" salloc --quiet -N 2 -n 4 bash -c "
  srun --overlap -n 2 -N 2 ${train[*]} --save-dir $folder/left >$folder/left.log 2>&1 & left=\$!
  srun --overlap -n 2 -N 2 ${train[*]} --save-dir $folder/right >$folder/right.log 2>&1 || exit 1
  wait \$left" || fail "two steps at once" "$folder/left.log" "$folder/right.log"
in_sync "$engine" 2 "$folder/left"
in_sync "$engine" 2 "$folder/right"

# A batch script is not a task.
sbatch --quiet --wait -n 2 --output="$folder/batch.log" --wrap "$engine env" || fail "batch script" "$folder/batch.log"
check "a batch script is one rank and says so" grep -q 'it is one rank alone; start the ranks with srun' "$folder/batch.log"
check "a world of one in the batch script" grep -qE '^WORLD_SIZE *1 *from default' "$folder/batch.log"

# Job arrays: rank and size from the array alone, numbered from 1 with a stride; and as options, numbered from 0.
sbatch --quiet --wait --array=1-5:2 -n 1 --output="$folder/array.%a.log" \
  --wrap "srun ${train[*]} --init-method file://$folder/meet --save-dir $folder/array" || fail "job array" "$folder"/array.*.log
in_sync "$engine" 3 "$folder/array"
sbatch --quiet --wait --array=0,1 -n 1 --output="$folder/literal.%a.log" \
  --wrap "srun ${train[*]} --init-method file://$folder/meet --rank \$SLURM_ARRAY_TASK_ID --world_size \${SLURM_ARRAY_TASK_COUNT} --save-dir $folder/literal" ||
  fail "job array with options" "$folder"/literal.*.log
in_sync "$engine" 2 "$folder/literal"
check "the rendezvous file is gone" test ! -e "$folder/meet"

# A task that is killed while it trains is named by the others.
cat >"$folder/dies.sh" <<END
status=0
${longer[*]} --steps 1000000 --save-dir $folder/dies &
pid=\$!
if [ "\$SLURM_PROCID" = 2 ]; then
  until grep -q 'Step \[' $folder/dies.log; do sleep 0.1; done
  kill -KILL \$pid
fi
wait \$pid || status=\$?
echo "\$status" >$folder/status.\$SLURM_PROCID
END
timeout "$(scaled 60)" srun -N 3 -n 3 bash "$folder/dies.sh" >"$folder/dies.log" 2>&1 || fail "a task that dies" "$folder/dies.log"
check "the survivors name rank 2" grep -qE 'rank 2 \(host box, pid [0-9]+\)' "$folder/dies.log"
check "they exit with 69, the dead one was killed" test "$(cat "$folder"/status.[012] | tr '\n' ' ')" = "69 69 137 "

# An elastic job loses a node: its daemons and its rank. The others end the training, and exit with 0.
elastic=("${longer[@]}" --elastic 2:3 --heartbeat 0.5 --eval-every 0 --save-every 100000 --log-every 10)
cat >"$folder/elastic.sh" <<END
status=0
echo "\$PPID" >$folder/elastic.daemon.\$SLURMD_NODENAME
echo "\$\$" >$folder/elastic.shell.\$SLURMD_NODENAME
${elastic[*]} "\$@" &
echo "\$!" >$folder/elastic.rank.\$SLURMD_NODENAME
wait \$! || status=\$?
echo "\$status" >$folder/elastic.status.\$SLURMD_NODENAME
END
says() { grep -qE "$2" "$folder/$1" 2>/dev/null; }
timeout "$(scaled 60)" salloc --quiet --no-kill -N 3 -n 3 srun --no-kill --kill-on-bad-exit=0 bash "$folder/elastic.sh" \
  --steps 1500 --save-dir "$folder/elastic" >"$folder/elastic.log" 2>&1 &
step=$!
wait_for 40 "training of three" says elastic.log 'Step \['
# The shell is killed first, before it can write the status of its rank.
kill -KILL "$(cat "$folder/elastic.shell.node3")" "${daemons[4]}" "$(cat "$folder/elastic.daemon.node3")" \
  "$(cat "$folder/elastic.rank.node3")"
scontrol update NodeName=node3 State=DOWN Reason=lost
wait "$step" || echo "srun's exit code with a lost node: $?"
check "two ranks went on" says elastic.log 'membership: 2 ranks \(process [0-9]+ on box left\)'
check "they exit with 0" test "$(cat "$folder"/elastic.status.node[12] | tr '\n' ' ')" = "0 0 "
check "the lost one has said nothing" test ! -e "$folder/elastic.status.node3"

# The node is there again, and a job of its own joins one of the other nodes.
join=(bash "$folder/elastic.sh" --steps 10000000 --job-id lasting --init-method tcp://node1:29511 --save-dir "$folder/lasting")
timeout "$(scaled 90)" srun --quiet -N 2 -n 2 "${join[@]}" >"$folder/lasting.log" 2>&1 &
step=$!
wait_for 40 "training of two" says lasting.log 'Step \['
slurmd -D -N node3 >"$folder/slurmd.node3.again.log" 2>&1 &
daemons[4]=$!
scontrol update NodeName=node3 State=RESUME
timeout "$(scaled 60)" srun --quiet -w node3 -n 1 "${join[@]}" >"$folder/joins.log" 2>&1 &
joins=$!
wait_for 40 "training of three" says lasting.log 'membership: 3 ranks \(process [0-9]+ on box joined\)'
kill -TERM "$(cat "$folder/elastic.rank.node1")"
wait "$step" "$joins" || true
check "one that is asked to stop stops all" test "$(cat "$folder"/elastic.status.node[123] | tr '\n' ' ')" = "143 143 143 "

check "no rank is left over" test -z "$(ps -eo args= | grep -F "$engine train" | grep -v grep || true)"

# A job that is put back into the queue in the middle goes on and ends like one that was not.
long=("$engine" train --model mlp --dataset synthetic --synthetic-shape 8x8x1 --batch-size 48 --threads 1 --rdzv-timeout "$(scaled 20)"
  --steps 6000 --log-every 1000 --save-every 200 --keep-last 2 --eval-every 0)
timeout "$(scaled 60)" srun -N 2 -n 2 "${long[@]}" --save-dir "$folder/whole" >"$folder/whole.log" 2>&1 || fail "a whole run" "$folder/whole.log"
job=$(sbatch --parsable --requeue -N 2 -n 2 --open-mode=append --output="$folder/requeued.log" \
  --wrap "srun ${long[*]} --save-dir $folder/requeued --resume auto")
wait_for 30 "checkpoint of job $job" test -e "$folder/requeued/latest"
scontrol requeue "$job"
state() { squeue --noheader --jobs "$job" --format=%T 2>/dev/null; }
pending() { [ "$(state)" = PENDING ]; }
wait_for 30 "job $job to be in the queue again" pending
# SLURM holds such a job back for two minutes; started within a second of its end, its nodes refuse it ("credential revoked").
scontrol update "JobId=$job" StartTime=now+2
ended() { [ -z "$(state)" ]; }
wait_for 60 "end of job $job" ended
check "the job went on from a checkpoint" grep -q 'resumed ' "$folder/requeued.log"
check "and ended like the undisturbed one" "$engine" verify "$folder/whole" "$folder/requeued"

# The scripts of the documentation, shorter.
mkdir "$folder/bin" && ln -s "$engine" "$folder/bin/engine"
export PATH=$folder/bin:$PATH
(cd "$folder" && sbatch --quiet --wait "$examples/independent_runs.sh" --steps 20 --threads 1) || fail "independent runs" "$folder"/seed-*.log
check "five runs of five seeds" test "$(grep -l '"seed"' "$folder"/runs/seed-[0-4]/run.json | wc -l)" = 5
check "which differ" bash -c "! '$engine' verify '$folder/runs/seed-0' '$folder/runs/seed-1' >/dev/null"
(cd "$folder" && sbatch --quiet --wait --output=two-steps.log "$examples/two_steps.sh" --steps 20 --threads 1 --save-rank-models) || fail "two steps" "$folder/two-steps.log"
in_sync "$engine" 2 "$folder/runs/lr-0.05"
in_sync "$engine" 2 "$folder/runs/lr-0.1"
(cd "$folder" && sbatch --quiet --wait "$examples/ranks_as_array.sh" --steps 20 --threads 1 --save-rank-models) || fail "ranks as an array" "$folder"/rank-*.log
in_sync "$engine" 2 "$folder/runs/array"
# Nodes here have four cores and no GPU.
for script in one_task_per_gpu one_task_per_gpu_a100; do
  (cd "$folder" && sbatch --quiet --wait --nodes=2 --ntasks-per-node=4 --gres=none --cpus-per-task=1 --output="$script.log" \
    "$examples/$script.sh" --steps 20 --threads 1 --save-rank-models) || fail "$script" "$folder/$script.log"
done
in_sync "$engine" 8 "$folder/runs/four-gpus"
in_sync "$engine" 8 "$folder/runs/eight-gpus"
echo "slurm_test: all $checks checks passed"
