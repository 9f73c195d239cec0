"""ASGI plumbing: access, bodies, limits, a queue, streams of events, and the HTTP server."""
