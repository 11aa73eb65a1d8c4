#!/bin/bash
# napkin bench on two nodes of eight GPUs: sbatch docs/examples/bench-slurm.sh
#SBATCH --job-name=napkin-bench
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --exclusive
#SBATCH --time=00:20:00
#SBATCH --requeue

set -euo pipefail
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)

# Only rank 0 writes the profile; --resume makes a requeued job go on where it was stopped.
srun torchrun \
  --nnodes "$SLURM_NNODES" --nproc-per-node 8 \
  --rdzv-id "$SLURM_JOB_ID" --rdzv-backend c10d --rdzv-endpoint "$head:29500" \
  -m napkin bench --resume -o "napkin-$SLURM_JOB_PARTITION-${SLURM_NNODES}x8.json"
