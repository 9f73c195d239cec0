"""Grammars as values: the intermediate representation, passes over it, and GBNF text in and out."""
