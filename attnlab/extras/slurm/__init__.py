"""Studies on several machines, as Slurm jobs."""
