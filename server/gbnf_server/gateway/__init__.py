"""A gateway: OpenAI's and Anthropic's APIs, in front of a backend whose answers a grammar constrains."""
