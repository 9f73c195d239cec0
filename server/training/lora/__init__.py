"""The adapter of the small real model: tools and requests as data, their conversations, the training."""
