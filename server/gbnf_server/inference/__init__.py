"""Decoding under a constraint: what may come next, which token it is, and the model's memory."""
