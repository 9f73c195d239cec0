"""Spans: the parts of a text that the values of a schema are read from, its dates, times and numbers."""
