"""From the settings of a job to its end: mpirun's line, the running job, restarts, `run(func)`."""
