"""Validation after decoding: whether a call may be executed, and if not, what a model should mend.

jsonschema judges, with all keywords and formats, and never our grammar: so a fault of the compiler is found
here. `closing` says which objects are closed, `complaints` words the errors, `judge` puts them together;
`filled` judges what the runtime puts in place of a step's number.
"""

from gbnf.calls.validation.filled_arguments import filled_argument_errors
from gbnf.calls.validation.validator import ValidationResult, validate_call

__all__ = ["ValidationResult", "filled_argument_errors", "validate_call"]
