"""The run folder: files, export, loading, evaluation."""
