"""What the ranks print: shown line by line, copied into files, kept for the end of the job."""
