"""Train the demonstration model. Needs the extra `train`; run from a checkout's `server/`."""
