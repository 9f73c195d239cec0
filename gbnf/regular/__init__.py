"""Regular languages over Unicode characters: as automata, from patterns and formats, and as productions.

Imports run downward: charset < alphabet < tables < operations < automaton, and syntax < reader,
positions < subsets < ecma. Nothing here knows JSON Schema; only `lower` knows grammars.
"""

from gbnf.regular.automaton import Dfa, concat, star
from gbnf.regular.charset import CharSet
from gbnf.regular.ecma import search
from gbnf.regular.errors import MalformedPatternError, PatternError, TooManyStates, UnsupportedPatternError

__all__ = [
    "CharSet",
    "Dfa",
    "MalformedPatternError",
    "PatternError",
    "TooManyStates",
    "UnsupportedPatternError",
    "concat",
    "search",
    "star",
]
