"""gbnf: tool manifests to GBNF grammars that llama.cpp can hold a model to."""
