"""Constrained decoding with llama.cpp: allowed tokens, sampling, and the KV cache; and llama-server.

Public modules: for a backend in this process `native`, `decoder`, `drafts`, `sampler`, `evidence_bias`,
`kv_cache`, `cancellation`, `constraint`, `grammar_engines`, `value_scores`, `bindings` and `process_globals`;
without llama.cpp `token_values`, `grammar_limits`, `repetition` and `demo_model`; for llama-server
`server_build`, `server_process` and `api_keys`; for checks `grammar_checker`, `cpu_support` and `prebuilt`.
"""
