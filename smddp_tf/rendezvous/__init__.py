"""How the ranks of a job find one another where MPI has not started them: who started them, and where they meet."""
