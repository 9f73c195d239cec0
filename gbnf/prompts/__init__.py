"""The texts for a model: the system prompt, descriptions of tools, results."""
