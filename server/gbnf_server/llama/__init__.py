"""Constrained decoding with llama.cpp: allowed tokens, sampling, and the KV cache."""
