"""Where the ranks of a job are to run: hosts and slots, Slurm's allocation, network interfaces."""
