"""Jobs in SageMaker's training containers: what the container says, how hosts wait for each other, mpirun's line."""
