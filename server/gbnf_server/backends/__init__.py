"""Language models behind one interface: in this process, or in a server.

Public modules: `base` (the interface), `answer` (verified answers), one for each backend (`in_process`,
`llama_server`, `ollama`, `openai_compatible`), `embeddings` (a ranking of tools), `http_client` (requests
with retries) and `reasoning` (reasoning tags).
"""
