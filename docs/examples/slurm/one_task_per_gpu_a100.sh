#!/bin/bash
# Nodes with eight GPUs each, of one kind: one task per GPU, and an eighth of a node's 64 cores for
# each task. Each task takes the GPU of its local rank.
#
#   sbatch --nodes=2 one_task_per_gpu_a100.sh  more options of train may follow: --amp bf16
#
# The job saves before its time limit and goes back into the queue until the run is complete.
#SBATCH --job-name=eight-gpus
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=8
#SBATCH --gres=gpu:8
#SBATCH --cpus-per-task=8
#SBATCH --hint=nomultithread
#SBATCH --constraint=a100
#SBATCH --time=20:00:00
#SBATCH --signal=USR1@300
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=eight-gpus-%j.log
##SBATCH --account=abc@a100

srun --cpus-per-task="$SLURM_CPUS_PER_TASK" engine train --model convnet --dataset glyphs \
  --save-dir "runs/eight-gpus" --resume auto --requeue "$@"
