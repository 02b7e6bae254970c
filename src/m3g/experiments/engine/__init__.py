"""Run specifications, their storage, the worker pool, plans, Slurm scripts and the `m3g reproduce` command."""
