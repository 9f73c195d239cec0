"""jsonschema's validator classes, adapted where they interpret a schema differently than the compiler.

Patterns are matched by `gbnf.schema.pattern_matching`, as ECMA-262 reads them. The private keywords of
`gbnf.schema.keywords` are rules too, since values are also judged by complements.

String formats are judged by jsonschema, otherwise by their automata. The extra `formats` installs the
packages with which jsonschema checks eight more formats. Without one of them, the format's automaton judges,
and what its caveat says that only validation refuses is checked here. For IRIs the automaton always judges:
jsonschema needs `rfc3987_syntax`, which takes longer to import than all other modules together, and refuses
characters beyond U+FFFF, which RFC 3987 allows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from typing import Any, TypeAlias

from jsonschema import Draft202012Validator, FormatChecker, ValidationError, validators
from jsonschema.exceptions import FormatError, best_match
from referencing.jsonschema import lookup_recursive_ref

from gbnf.errors import GbnfError
from gbnf.schema import keywords
from gbnf.schema.drafts import DRAFTS
from gbnf.schema.pattern_matching import pattern_matches
from gbnf.work_limits import MAX_VALIDATION_WORK, limit_nesting, limit_work, spend

_Errors: TypeAlias = Iterator[ValidationError]
_Rule: TypeAlias = Callable[[Any, Any, Any, Any], _Errors]
"""From validator, the keyword's value, instance and schema to the errors, as jsonschema calls it."""


#: The work of one rule, in the units of `gbnf.work_limits`.
_RULE_WORK = 8
#: The work of a rule that descends into subschemas: it resolves a reference, or evolves a validator.
_DESCENT_WORK = 24
#: How deeply rules that descend into subschemas may nest: each takes three Python calls.
_MAX_DEPTH = 120
_NESTING = frozenset(
    {*keywords.APPLICATORS, *keywords.REFERENCES, "additionalItems", "dependencies", "extends", "disallow"}
)


def schema_validator(schema: Any, *, closed: bool = False) -> Any:
    """Return a validator of the draft that a schema declares, of all drafts without one."""
    declared = schema.get("$schema") if isinstance(schema, Mapping) else None
    dialect = {"$schema": declared} if str(declared).rstrip("#") in DRAFTS else {}
    draft = validators.validator_for(dialect, default=Draft202012Validator)
    extended = extend_validator(draft, every_draft=declared is None, closed=closed)
    return extended(schema, format_checker=FORMAT_CHECKER)


def violation(schema: Any, value: Any) -> str:
    """Return how a value violates a schema, "" if it does not."""
    try:
        with limit_work(MAX_VALIDATION_WORK, may_backtrack=True):
            error = best_match(schema_validator(schema).iter_errors(value))
    except (GbnfError, RecursionError) as fault:
        return f"it cannot be validated: {fault}"
    return "" if error is None else f"at {error.json_path} {error.message}"


@cache
def extend_validator(validator: Any, *, every_draft: bool = False, closed: bool = False) -> Any:
    """Extend a validator class of jsonschema; its other keywords are unchanged.

    `every_draft`: for schemas that declare no draft; `dependencies` means what it meant up to draft 7.
    `closed`: for schemas of `gbnf.schema.closing`, which use `unevaluatedProperties` in every draft.
    """
    usual = validator.VALIDATORS
    adapted = dict(_ADAPTED)
    if "prefixItems" in usual:  # it is the default too, for schemas of other drafts that declare none
        adapted |= dict.fromkeys((*_EXCLUSIVE, *_EXCLUSIVE.values()), _bound)
        adapted["items"] = _items_or_tuples
    rules = {
        **usual,
        **({"dependencies": _dependencies} if every_draft else {}),
        **{keyword: partial(rule, usual[keyword]) for keyword, rule in adapted.items() if keyword in usual},
        **{keyword: rule for keyword, rule in _REPLACED.items() if keyword in usual or closed},
        **_PRIVATE,
    }
    counted = {
        keyword: partial(_nesting if keyword in _NESTING else _counted, rule)
        for keyword, rule in rules.items()
    }
    return validators.extend(validator, counted)  # type: ignore[no-untyped-call]  # it has none


def _counted(rule: _Rule, validator: Any, value: Any, instance: Any, schema: Any) -> _Errors:
    """Apply a rule, and count its work."""
    spend(_RULE_WORK + (len(value) if isinstance(value, list | dict) else 0))
    return rule(validator, value, instance, schema)


def _nesting(rule: _Rule, validator: Any, value: Any, instance: Any, schema: Any) -> _Errors:
    """Apply a rule that descends into subschemas, count its work, and limit its nesting.

    A schema may refer to itself without end; jsonschema would recurse until Python's stack is exhausted.
    """
    spend(_DESCENT_WORK + (len(value) if isinstance(value, list | dict) else 0))
    with limit_nesting(_MAX_DEPTH):
        yield from rule(validator, value, instance, schema) or ()


def _pattern(validator: Any, pattern: str, instance: Any, _schema: Any) -> _Errors:
    if validator.is_type(instance, "string") and pattern_matches(pattern, instance) is False:
        yield ValidationError(f"{instance!r} does not match {pattern!r}")


def _pattern_properties(validator: Any, patterns: Any, instance: Any, _schema: Any) -> _Errors:
    for key, value in instance.items() if validator.is_type(instance, "object") else ():
        for pattern, schema in patterns.items():
            if pattern_matches(pattern, key):
                yield from validator.descend(value, schema, path=key, schema_path=pattern)


def _additional_properties(usual: _Rule, validator: Any, value: Any, instance: Any, schema: Any) -> _Errors:
    patterns = schema.get("patternProperties")
    if patterns and validator.is_type(instance, "object"):
        instance = {key: member for key, member in instance.items() if not _matches_any(patterns, key)}
        schema = {keyword: member for keyword, member in schema.items() if keyword != "patternProperties"}
    yield from usual(validator, value, instance, schema) or ()


def _matches_any(patterns: Any, key: str) -> bool:
    return any(pattern_matches(pattern, key) is not False for pattern in patterns)


def _unevaluated_properties(validator: Any, value: Any, instance: Any, schema: Any) -> _Errors:
    if not validator.is_type(instance, "object"):
        return
    own = {keyword: member for keyword, member in schema.items() if keyword != "unevaluatedProperties"}
    evaluated = _evaluated(validator, instance, own)
    unevaluated = [key for key in instance if key not in evaluated]
    if value is False and unevaluated:
        yield ValidationError(f"Unevaluated properties are not allowed ({unevaluated!r} were unexpected)")
    elif value is not False:
        for key in unevaluated:
            yield from validator.descend(instance[key], value, path=key, schema_path=key)


@limit_nesting(_MAX_DEPTH)
def _evaluated(validator: Any, instance: Any, schema: Any) -> set[str]:
    """Return the keys of an object that a schema's keywords evaluate. Source: 2020-12 core, 10.3 and 11.3."""
    if not isinstance(schema, Mapping):
        return set()
    spend(_RULE_WORK * (1 + len(schema)))
    if not {"additionalProperties", "unevaluatedProperties"}.isdisjoint(schema):
        return set(instance)
    keys: set[str] = instance.keys() & schema.get("properties", {}).keys()
    keys |= {key for key in instance if _matches_any(schema.get("patternProperties", ()), key)}
    branches = [
        branch
        for keyword in ("allOf", "anyOf", "oneOf")
        for branch in schema.get(keyword, ())
        if _is_valid(validator, instance, branch)
    ]
    branches += [branch for key, branch in schema.get("dependentSchemas", {}).items() if key in instance]
    if "if" in schema:
        holds = _is_valid(validator, instance, schema["if"])
        branches += [schema["if"], schema.get("then")] if holds else [schema.get("else")]
    for keyword in keywords.REFERENCES:
        if keyword in schema and keyword in validator.VALIDATORS:
            resolver = validator._resolver  # noqa: SLF001  # as its own keywords do
            target = (
                lookup_recursive_ref(resolver)
                if keyword == "$recursiveRef"
                else resolver.lookup(schema[keyword])
            )
            there = validator.evolve(schema=target.contents, _resolver=target.resolver)
            keys |= _evaluated(there, instance, target.contents)
    return set(keys).union(*(_evaluated(validator, instance, branch) for branch in branches))


def _is_valid(validator: Any, instance: Any, schema: Any) -> bool:
    return next(validator.descend(instance, schema), None) is None


def _required(usual: _Rule, validator: Any, names: Any, instance: Any, schema: Any) -> _Errors:
    yield from (() if isinstance(names, bool) else usual(validator, names, instance, schema) or ())


def _items(usual: _Rule, validator: Any, items: Any, instance: Any, schema: Any) -> _Errors:
    """Allow booleans, too, which draft 4 does not have."""
    if not isinstance(items, bool) or "prefixItems" in schema:
        yield from usual(validator, items, instance, schema) or ()
    elif validator.is_type(instance, "array"):
        for index, value in enumerate(instance):
            yield from validator.descend(value, items, path=index)


def _items_or_tuples(usual: _Rule, validator: Any, items: Any, instance: Any, schema: Any) -> _Errors:
    """Allow booleans and arrays, too, which 2020-12 does not have."""
    if not isinstance(items, list) or not items:
        yield from _items(usual, validator, items, instance, schema)
    elif validator.is_type(instance, "array"):
        rest = schema.get("additionalItems", True)
        for index, value in enumerate(instance):
            yield from validator.descend(value, items[index] if index < len(items) else rest, path=index)


_EXCLUSIVE = {"minimum": "exclusiveMinimum", "maximum": "exclusiveMaximum"}


def _bound(usual: _Rule, validator: Any, bound: Any, instance: Any, schema: Any) -> _Errors:
    """Allow the flags of draft 4, too."""
    flagged = any(bound is schema.get(key) and schema.get(flag) is True for key, flag in _EXCLUSIVE.items())
    if flagged and instance == bound and validator.is_type(instance, "number"):
        yield ValidationError(f"{instance!r} is the excluded bound")
    elif not isinstance(bound, bool):
        yield from usual(validator, bound, instance, schema) or ()


_ADAPTED: Mapping[str, Callable[..., _Errors]] = {
    "additionalProperties": _additional_properties,
    "required": _required,
    "items": _items,
}
_REPLACED: Mapping[str, _Rule] = {
    "pattern": _pattern,
    "patternProperties": _pattern_properties,
    "unevaluatedProperties": _unevaluated_properties,
}


def _dependencies(validator: Any, dependencies: Any, instance: Any, _schema: Any) -> _Errors:
    for name, needed in dependencies.items() if validator.is_type(instance, "object") else ():
        if name not in instance:
            continue
        if isinstance(needed, list | str):
            for other in [needed] if isinstance(needed, str) else needed:
                if other not in instance:
                    yield ValidationError(f"{other!r} is a dependency of {name!r}")
        else:
            yield from validator.descend(instance, needed, schema_path=name)


def _first_items(validator: Any, schemas: Any, instance: Any, _schema: Any) -> _Errors:
    if validator.is_type(instance, "array"):
        for index, (item, schema) in enumerate(zip(instance, schemas, strict=False)):
            yield from validator.descend(item, schema, path=index, schema_path=index)


def _refusal(kind: str, is_refused: Callable[[Any, Any, Any], object], text: str) -> _Rule:
    """Return a rule that refuses values of type `kind` for which `is_refused(validator, value, instance)`."""

    def rule(validator: Any, value: Any, instance: Any, _schema: Any) -> _Errors:
        if validator.is_type(instance, kind) and is_refused(validator, value, instance):
            yield ValidationError(f"{instance!r} {text.format(value)}")

    return rule


_PRIVATE: Mapping[str, _Rule] = {
    keywords.NOT_PATTERN: _refusal(
        "string", lambda _, pattern, text: pattern_matches(pattern, text), "matches {!r}"
    ),
    keywords.NOT_FORMAT: _refusal(
        "string", lambda validator, name, text: validator.format_checker.conforms(text, name), "is a {}"
    ),
    keywords.NOT_WORDS: _refusal("string", lambda _, words, text: text in words, "is one of {!r}"),
    keywords.NOT_INTEGER: _refusal(
        "number",
        lambda validator, _, number: (
            validator.is_type(number, "integer") or (isinstance(number, float) and number.is_integer())
        ),
        "is an integer",
    ),
    keywords.ABOVE: _refusal("number", lambda _, bound, number: number <= bound, "is not above {!r}"),
    keywords.BELOW: _refusal("number", lambda _, bound, number: number >= bound, "is not below {!r}"),
    keywords.FIRST_ITEMS: _first_items,
    keywords.HAS_ITEM: _refusal(
        "array",
        lambda validator, schema, items: not any(_is_valid(validator, item, schema) for item in items),
        "has no item that is valid under {!r}",
    ),
}


_IRIS = frozenset({"iri", "iri-reference"})
_HYPHEN_AT_END = re.compile(r"(?:^|\.)-|-(?:\.|$)")  # of a label, which its encoding hides
_LONGEST_HOSTNAME = 253  # RFC 1035, section 2.3.4, without the lengths of the labels


class _FormatChecker(FormatChecker):
    def check(self, instance: object, format: str) -> None:  # noqa: A002  # the name in jsonschema
        """Raise FormatError if the instance is a string that does not conform to the format."""
        if format in self.checkers and format not in _IRIS:
            super().check(instance, format)
        elif isinstance(instance, str) and not _conforms(format, instance):
            raise FormatError(f"{instance!r} is not a {format!r}")


def _conforms(name: str, text: str) -> bool:
    # most schemas have no such format
    from gbnf.regular.formats import IDN_HOSTNAME, format_language  # noqa: PLC0415  # few schemas need it

    if name == IDN_HOSTNAME:
        try:
            name, text = "hostname", "" if _HYPHEN_AT_END.search(text) else text.encode("idna").decode()
        except UnicodeError:
            return False
    language, refused = format_language(name), _REFUSED.get(name)
    return language is None or (language.accepts(text) and not (refused and refused(text)))


_REFUSED: Mapping[str, Callable[[str], object]] = {
    "hostname": lambda text: len(text) > _LONGEST_HOSTNAME,
    "relative-json-pointer": re.compile(r"\d+0\d").match,
    "uri-template": re.compile(r"[{,][+#./;?&]?%").search,
}

#: Formats mean in every draft what they mean in 2020-12.
FORMAT_CHECKER = _FormatChecker()
FORMAT_CHECKER.checkers = Draft202012Validator.FORMAT_CHECKER.checkers
