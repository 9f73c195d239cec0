"""Folders, processes, threads, append-only files and errors, for all packages. All modules are public."""
