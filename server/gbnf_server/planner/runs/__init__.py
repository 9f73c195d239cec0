"""Runs as files: recorded ones, logs that are resumed, and what identifies a run and its model."""
