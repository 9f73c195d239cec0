"""ASGI: access, bodies, limits, a queue, streams of events, and the HTTP server. All modules are public."""
