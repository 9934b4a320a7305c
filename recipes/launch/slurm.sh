#!/bin/bash
# Ray on every node of one allocation, and the command on the first of them.
# SBATCH_PARTITION, SBATCH_ACCOUNT, SBATCH_TIMELIMIT and SBATCH_GPUS_PER_NODE go before what stands here.
#SBATCH --job-name=atrl-bench
#SBATCH --nodes={nodes}
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node={gpus}
#SBATCH --exclusive
#SBATCH --time=24:00:00
#SBATCH --signal=B:USR1@120
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output={folder}/%j.out
set -euo pipefail
cd "$SLURM_SUBMIT_DIR"
# Out of time: the same job waits for its turn again, and goes on from what is stored.
trap 'scontrol requeue "$SLURM_JOB_ID"' USR1
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | sed -n 1p)
port=${RAY_PORT:-6379}
export RAY_ADDRESS="$head:$port"
srun --overlap --nodes=1 --ntasks=1 --nodelist="$head" ray start --head --port="$port" --block &
until ray status > /dev/null 2>&1; do kill -0 $!; sleep 2; done  # a head that has ended ends the script
if (( SLURM_JOB_NUM_NODES > 1 )); then
  others=$((SLURM_JOB_NUM_NODES - 1))
  srun --overlap --nodes=$others --ntasks=$others --exclude="$head" ray start --address="$RAY_ADDRESS" --block &
fi
srun --overlap --nodes=1 --ntasks=1 --nodelist="$head" {command} &
wait $!  # in the background, so that the signal is heard
