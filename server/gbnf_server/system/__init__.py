"""Folders, processes and append-only files."""
