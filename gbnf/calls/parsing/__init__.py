"""The parser of tool calls in a model's text."""
