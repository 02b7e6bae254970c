"""The training step, optimiser, checkpoints and the call to Lightning's trainer."""
