#!/bin/bash
# One job of two steps: two runs train side by side, each on its own half of the job's nodes. The
# steps share the allocation, and each finds its ranks, its first node and a free port by itself.
#
#   sbatch two_steps.sh                        more options of train may follow: --epochs 20
#
# With GPUs: add --gpus-per-node=4 and --ntasks-per-node=4 above, and --gpus-per-node=4 to srun.
#SBATCH --job-name=two-steps
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=2
#SBATCH --time=20
#SBATCH --output=two-steps-%j.log

nodes=$((SLURM_JOB_NUM_NODES / 2))
pids=()
for lr in 0.05 0.1; do
  srun --exact --nodes="$nodes" --ntasks-per-node=2 --ntasks=$((2 * nodes)) \
    engine train --model convnet --dataset glyphs --lr "$lr" \
    --save-dir "runs/lr-$lr" --resume auto "$@" &
  pids+=($!)
done

# The job fails if one of the steps fails.
code=0
for pid in "${pids[@]}"; do
  wait "$pid" || code=$?
done
exit "$code"
