"""Language models behind one interface: in this process, in a server, or in workers of a cluster.

Public modules: `base` (the interface), `model_traits` (what a model is), `answer` (verified answers), one for
each backend (`in_process`, `llama_server`, `ollama`, `openai_compatible`, `ray_workers`), `opening` (by
name), `upstreams` (several as one), `call_odds` (whether a small model means to call), `embeddings` (a
ranking of tools), `http_client` (requests with retries) and `reasoning` (its tags).
"""
