#!/bin/bash
# Two hosts with four ranks each: `sbatch docker/job.sh`, in the folder of train.py. docs/launching.md has more.
#SBATCH --job-name=smddp_tf
# Hosts, ranks on each of them, and cores of a rank, for TensorFlow's threads:
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=8
# With GPUs, one for each rank: #SBATCH --gpus-per-node=4
# The job ends after an hour:
#SBATCH --time=01:00:00
# SIGTERM two minutes before, for hvd.callbacks.PreemptionCheckpoint:
#SBATCH --signal=B:TERM@120
# The environment in which smddp_tf is installed, at the same path on every host:
source "$HOME/venv/bin/activate"
# The hosts and the number of ranks come from Slurm. `exec`, so that Slurm's signal reaches smddprun:
exec smddprun python train.py
