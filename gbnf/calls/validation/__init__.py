"""Validation of calls: whether a call may be executed, and otherwise what a model should correct.

Validation uses jsonschema with all keywords and formats, never our grammar, so that it finds errors of the
compiler; only patterns are judged by the compiler's automata, by `gbnf.schema.pattern_matching`.
`argument_schemas` has the schemas, `messages` words the errors, and `validator` validates a call, or what the
runtime inserts for a step reference.
"""

from gbnf.calls.validation.validator import ValidationResult, validate_call

__all__ = ["ValidationResult", "validate_call"]
