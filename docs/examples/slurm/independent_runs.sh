#!/bin/bash
# Five independent runs, one per seed, as a job array. Each run has a folder of its own, saves before
# its time limit, and goes back into the queue until it is complete.
#
#   sbatch independent_runs.sh                 more options of train may follow: --epochs 20
#   engine report runs/seed-*                  compares the runs
#SBATCH --job-name=seeds
#SBATCH --array=0-4
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=2
#SBATCH --time=20
#SBATCH --signal=USR1@120
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=seed-%a.log

seed=$SLURM_ARRAY_TASK_ID
srun --cpus-per-task="$SLURM_CPUS_PER_TASK" engine train --model convnet --dataset glyphs \
  --seed "$seed" --save-dir "runs/seed-$seed" --resume auto --requeue "$@"
