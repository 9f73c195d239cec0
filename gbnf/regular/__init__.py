"""Regular languages over Unicode characters: as automata, from patterns and formats, and as productions.

Imports run downward, in two strands. Languages as values: `charset` < `alphabet` < `tables` < `operations` <
`automaton`. From patterns to languages: `syntax` < `escapes` < `reader` < `positions` < `subsets` < `ecma`.
Nothing here knows JSON Schema; only `lower` and `spelling` know grammars.
"""
