"""Build, start and stop llama-server."""
