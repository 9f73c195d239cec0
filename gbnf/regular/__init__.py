"""Regular languages over Unicode characters: as automata, from patterns and formats, and as productions.

Imports run downward: charset < alphabet < tables < operations < automaton, and syntax < reader,
positions < subsets < ecma. Nothing here knows JSON Schema; only `lower` knows grammars.
"""
