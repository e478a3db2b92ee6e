#!/bin/bash
# Nodes with four GPUs each: one task per GPU, and a fourth of a node's 40 cores for each task. Each
# task takes the GPU of its local rank.
#
#   sbatch --nodes=2 one_task_per_gpu.sh       more options of train may follow: --epochs 20
#
# The job saves before its time limit and goes back into the queue until the run is complete.
#SBATCH --job-name=four-gpus
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=4
#SBATCH --gres=gpu:4
#SBATCH --cpus-per-task=10
#SBATCH --hint=nomultithread
#SBATCH --time=20:00:00
#SBATCH --signal=USR1@300
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=four-gpus-%j.log
##SBATCH --account=abc@v100

srun --cpus-per-task="$SLURM_CPUS_PER_TASK" engine train --model convnet --dataset glyphs \
  --save-dir "runs/four-gpus" --resume auto --requeue "$@"
