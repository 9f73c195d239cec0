"""What a model reads: the system prompt, tools, results."""
