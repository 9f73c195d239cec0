"""Regular languages over Unicode characters: as automata, and from patterns and formats.

Modules import only those before them. Languages as values: `charset`, `transition_tables`, `automaton`. From
patterns to languages: `unicode_properties`, `pattern_syntax`, `pattern_parser`, `glushkov`,
`subset_construction`, `ecma262`, `formats`. Nothing here depends on JSON Schema or on grammars.
"""
