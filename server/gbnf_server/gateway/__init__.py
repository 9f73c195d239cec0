"""A gateway: OpenAI's and Anthropic's APIs, in front of a backend whose answers a grammar constrains.

Public modules: `gateway` (the parts of a server), `engine` and `agent` (what answers: a model, the planner),
`chat` (requests) and `answers` (their events), `proxying` (a llama-server's own endpoints), `serving` (the
HTTP server).
"""
