"""Shows the output of the ranks line by line, copies it into files, and keeps the last lines of each rank."""
