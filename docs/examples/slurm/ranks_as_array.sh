#!/bin/bash
# The ranks of one run as the elements of a job array. Each is a job of its own; they meet through a
# file and may start at different times, up to --rdzv-timeout apart.
#
#   sbatch ranks_as_array.sh                   more options of train may follow: --epochs 20
#
# The folder must be on a file system of all nodes. With GPUs: add --gres=gpu:2 above.
#SBATCH --job-name=array-ranks
#SBATCH --array=0,1
#SBATCH --ntasks=1
#SBATCH --ntasks-per-node=1
#SBATCH --time=20
#SBATCH --output=rank-%a.log

srun engine train --model convnet --dataset glyphs --rdzv-timeout 600 \
  --init-method "file://$PWD/meet-$SLURM_ARRAY_JOB_ID" \
  --rank "$SLURM_ARRAY_TASK_ID" --world-size "$SLURM_ARRAY_TASK_COUNT" \
  --save-dir runs/array "$@"
