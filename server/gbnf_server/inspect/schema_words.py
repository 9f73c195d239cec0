"""What a schema allows at a path of a value that is being written, in words: `an integer ≥ 5`.

A *form* is a conjunction: subschemas that all judge the value. `anyOf`, `oneOf` and `if` make several, of
which those that the value so far contradicts are dropped. The words only name keywords of these subschemas;
what the grammar makes of them is not decided here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from gbnf.schema.document import Document, Subschema, UndecidedError
from gbnf.schema.drafts import as_2020_12
from gbnf.schema.keywords import KEYWORDS, REFERENCES
from gbnf.schema.pattern_matching import pattern_matches

Kind: TypeAlias = Literal["string", "number", "object", "array", "boolean", "null"]
Form: TypeAlias = tuple[Subschema, ...]

KINDS: tuple[Kind, ...] = ("string", "number", "object", "array", "boolean", "null")
_ANYTHING = "any JSON value"
_MOST_VALUES = 8
_MOST_JUDGED = 500
_MOST_MEMBERS = 50
_MOST_PHRASES = 4
_MOST_DEPTH = 12
_MOST_FORMS = 64
_LONGEST = 80
_NOUNS: dict[Kind, str] = {
    "string": "a string",
    "number": "a number",
    "object": "an object",
    "array": "an array",
    "boolean": "true or false",
    "null": "null",
}
_BOUNDS = (("minimum", "≥ {}", max), ("exclusiveMinimum", "> {}", max),
           ("maximum", "≤ {}", min), ("exclusiveMaximum", "< {}", min))  # fmt: skip
_SIZES: dict[Kind, tuple[str, str, str, str]] = {
    "string": ("minLength", "maxLength", "character", "characters"),
    "array": ("minItems", "maxItems", "item", "items"),
    "object": ("minProperties", "maxProperties", "property", "properties"),
}


class SchemaWords:
    """The words of one schema. Raises SchemaError for a malformed one."""

    def __init__(self, schema: Any) -> None:
        self._document = Document(as_2020_12(schema))

    def at(self, path: Sequence[str | int], known: Sequence[Mapping[str | int, Any]] = ()) -> ValueWords:
        """Return the words for the value at a path.

        `known`: for each container on the path, the members that are complete. Without them, all forms
        count. Raises SchemaError for a reference that leads nowhere.
        """
        forms = self._expanded([self._document.root])
        for level, step in enumerate(path):
            forms = self._inside(forms, step, known[level] if level < len(known) else {})
        if len(path) < len(known):
            forms = self._fitting(forms, known[len(path)])
        return ValueWords(self, tuple(forms))

    def below(self, forms: Iterable[Form], step: str | int) -> ValueWords:
        """Return the words for what is under a key or an index."""
        return ValueWords(self, tuple(self._inside(forms, step, {})))

    def of(self, subschema: Subschema) -> ValueWords:
        """Return the words of one subschema."""
        return ValueWords(self, tuple(self._expanded([subschema])))

    def allows(self, form: Form, value: Any) -> bool:
        """Return whether all subschemas of a form allow a value; True if that cannot be decided."""
        try:
            return all(self._document.allows(each, value) for each in form)
        except UndecidedError:
            return True

    def _inside(self, forms: Iterable[Form], step: str | int, known: Mapping[str | int, Any]) -> list[Form]:
        kind: Kind = "array" if isinstance(step, int) else "object"
        found: dict[Form, None] = {}
        for form in self._fitting([form for form in forms if allows_kind(form, kind)], known):
            children = [child for each in form for child in _children(each, step)]
            found.update(dict.fromkeys(self._expanded(children)))
        return list(found)[:_MOST_FORMS]

    def _fitting(self, forms: Sequence[Form], known: Mapping[str | int, Any]) -> list[Form]:
        """Return the forms that the members of a container do not contradict; all if each is contradicted."""
        if len(forms) < 2 or not known:
            return list(forms)
        members = list(known.items())[:_MOST_MEMBERS]
        found = [form for form in forms if all(self._fits(each, members) for each in form)]
        return found or list(forms)

    def _fits(self, subschema: Subschema, members: Sequence[tuple[str | int, Any]]) -> bool:
        if any(
            not self.allows((child,), value)
            for step, value in members
            for child in _children(subschema, step)
        ):
            return False
        excluded = subschema.raw.get("not") if isinstance(subschema.raw, Mapping) else None
        return not (isinstance(excluded, Mapping) and self._is_certain(subschema.at("not"), dict(members)))

    def _is_certain(self, subschema: Subschema, members: Mapping[str | int, Any]) -> bool:
        """Return whether an object with these members, and any others, satisfies a simple subschema."""
        raw = subschema.raw
        if (
            not raw
            or not set(raw) <= {"type", "properties", "required"}
            or raw.get("type", "object") != "object"
        ):
            return False
        named = {*raw.get("properties", {}), *raw.get("required", ())}
        return named <= set(members) and all(
            self.allows((child,), members[name]) for name in named for child in _children(subschema, name)
        )

    def _expanded(self, subschemas: Iterable[Subschema]) -> list[Form]:
        """Return the forms of subschemas that all judge a value."""
        forms: list[Form] = [()]
        for each in subschemas:
            forms = _product(forms, self._alternatives(each, 0, frozenset()))
        return [_distinct(form) for form in forms]

    def _alternatives(self, subschema: Subschema, depth: int, seen: frozenset[int]) -> list[Form]:
        if subschema.raw is False:
            return []
        if not isinstance(subschema.raw, Mapping) or id(subschema.raw) in seen or depth > _MOST_DEPTH:
            return [()]
        seen |= {id(subschema.raw)}
        subschema = self._document.enter(subschema)
        raw = subschema.raw

        def within(inner: Subschema) -> list[Form]:
            return self._alternatives(inner, depth + 1, seen)

        def members(keyword: str) -> list[Subschema]:
            found = raw.get(keyword)
            return (
                [subschema.at(keyword, index) for index in range(len(found))]
                if isinstance(found, list)
                else []
            )

        forms: list[Form] = [(subschema,)]
        for keyword in REFERENCES:
            if keyword in raw:
                forms = _product(forms, within(self._document.follow(subschema, keyword)))
        for member in members("allOf"):
            forms = _product(forms, within(member))
        for keyword in ("anyOf", "oneOf"):
            if choices := members(keyword)[:_MOST_FORMS]:
                forms = _product(forms, [form for choice in choices for form in within(choice)])
        if isinstance(raw.get("if"), Mapping | bool) and not {"then", "else"}.isdisjoint(raw):
            then, other = (
                [()] if word not in raw else within(subschema.at(word)) for word in ("then", "else")
            )
            excluded = replace(subschema, raw={"not": raw["if"]}, is_generated=True)
            forms = _product(
                forms, [*_product(within(subschema.at("if")), then), *_product([(excluded,)], other)]
            )
        excluded = raw.get("not")
        if isinstance(excluded, Mapping) and set(excluded) == {"not"}:
            forms = _product(forms, within(subschema.at("not", "not")))
        if isinstance(dependent := raw.get("dependentSchemas"), Mapping):
            for name in dependent:
                forms = _product(forms, [(), *within(subschema.at("dependentSchemas", name))])
        return forms


@dataclass(frozen=True, slots=True)
class ValueWords:
    """What may be at one path, in words; `forms` are the alternatives."""

    schema: SchemaWords
    forms: tuple[Form, ...]

    def of_kind(self, kind: Kind, depth: int = 0) -> str:
        """Return the words for the values of one kind."""
        fitting = [form for form in self.forms if allows_kind(form, kind)]
        phrases = list(dict.fromkeys(self._phrase(form, kind, depth) for form in fitting))
        phrases = [phrase for phrase in phrases if phrase]
        if not phrases or _NOUNS[kind] in phrases:
            return _NOUNS[kind]
        more = [f"{len(phrases) - _MOST_PHRASES} more forms"] if len(phrases) > _MOST_PHRASES else []
        return " or ".join([*phrases[:_MOST_PHRASES], *more])

    def described(self, kinds: Iterable[Kind] = KINDS, depth: int = 0) -> str:
        """Return the words for the values of several kinds that the schema allows."""
        if not self.forms:
            return "nothing"
        allowed = [kind for kind in kinds if any(allows_kind(form, kind) for form in self.forms)]
        if all(any(_enumerated(each) for each in form) for form in self.forms):
            values = [value for value in self.values() if kind_of(value) in allowed]
            return listed_values([json_text(value) for value in values]) if values else "nothing"
        phrases = [self.of_kind(kind, depth) for kind in allowed]
        if set(allowed) == set(KINDS) and phrases == [_NOUNS[kind] for kind in allowed]:
            return _ANYTHING
        return " or ".join(phrases) or "nothing"

    def values(self, kind: Kind | None = None) -> list[Any]:
        """Return the values of `enum` and `const` that the forms allow, each once."""
        found: dict[str, Any] = {}
        for form in self.forms:
            for value in self._listed(form, kind):
                found.setdefault(json.dumps(value, sort_keys=True), value)
        return list(found.values())

    def names(self) -> list[str]:
        """Return the declared properties of an object, each once."""
        found: dict[str, None] = {}
        for keyword in ("properties", "required"):
            for raw in self._keywords():
                if isinstance(declared := raw.get(keyword), Mapping | list):
                    found.update((name, None) for name in declared if isinstance(name, str))
        return list(found)

    def required(self) -> set[str]:
        """Return the properties that each form requires."""
        found = []
        for form in self.forms:
            lists = [each.raw["required"] for each in form if isinstance(each.raw.get("required"), list)]
            found.append({name for names in lists for name in names if isinstance(name, str)})
        return set.intersection(*found) if found else set()

    def other_names(self) -> str:
        """Return the words for a property that is not declared."""
        patterns = {
            pattern: None
            for raw in self._keywords()
            if isinstance(raw.get("patternProperties"), Mapping) and raw.get("additionalProperties") is False
            for pattern in raw["patternProperties"]
        }
        if patterns:
            return f"a property whose name matches {' or '.join(map(_cut, patterns))}"
        return "any other property" if self.names() else "any property"

    def least(self, keyword: str) -> int:
        """Return the greatest `minLength` or `minItems` that all forms have at least."""
        return int(min((max(_numbers(form, keyword), default=0) for form in self.forms), default=0))

    def most(self, keyword: str) -> int | None:
        """Return the smallest `maxLength` or `maxItems` of all forms; None if one has none."""
        limits = [min(_numbers(form, keyword), default=None) for form in self.forms]
        return (
            None if not limits or None in limits else int(max(limit for limit in limits if limit is not None))
        )

    def _keywords(self) -> Iterator[Mapping[str, Any]]:
        for form in self.forms:
            for each in form:
                yield each.raw

    def _listed(self, form: Form, kind: Kind | None = None) -> list[Any]:
        """Return the listed values that a form allows; those after the first many are not judged."""
        source = min(
            (each for each in form if _lists(each)), key=lambda each: len(_values(each)), default=None
        )
        if source is None:
            return []
        values = [value for value in _values(source) if kind is None or kind_of(value) == kind]
        rest = {keyword: value for keyword, value in source.raw.items() if keyword not in ("enum", "const")}
        judges = [replace(each, raw=rest) if each is source else each for each in form]
        judges = [each for each in judges if not KEYWORDS.isdisjoint(each.raw)]
        judged = [value for value in values[:_MOST_JUDGED] if self.schema.allows(tuple(judges), value)]
        return [*judged, *values[_MOST_JUDGED:]]

    def _phrase(self, form: Form, kind: Kind, depth: int) -> str:
        if any(map(_lists, form)):
            values = self._listed(form, kind)
            return listed_values([json_text(value) for value in values]) if values else ""
        match kind:
            case "number":
                return self._number(form, depth)
            case "boolean" | "null":
                return _NOUNS[kind]
        noun, pieces = _NOUNS[kind], [size] if (size := _size(form, kind)) else []
        if kind == "string":
            formats = dict.fromkeys(
                each.raw["format"] for each in form if isinstance(each.raw.get("format"), str)
            )
            pieces += [f"in the format {_cut(name)}" for name in formats]
            patterns = dict.fromkeys(
                each.raw["pattern"] for each in form if isinstance(each.raw.get("pattern"), str)
            )
            if patterns:
                pieces.append(f"that matches {' and '.join(map(_cut, patterns))}")
        elif kind == "array":
            pieces += self._items(form, depth)
        return " ".join([noun, *pieces]) + self._other_than(form, kind, depth)

    def _number(self, form: Form, depth: int) -> str:
        whole = any("number" not in _types(each) and "integer" in _types(each) for each in form)
        details = []
        for keyword, text, strongest in _BOUNDS:
            if numbers := _numbers(form, keyword):
                details.append(text.format(json_text(strongest(numbers))))
        multiples = dict.fromkeys(_numbers(form, "multipleOf"))
        details += [f"a multiple of {json_text(number)}" for number in multiples]
        noun = "an integer" if whole else "a number"
        return " ".join([noun, *([" and ".join(details)] if details else [])]) + self._other_than(
            form, "number", depth
        )

    def _other_than(self, form: Form, kind: Kind, depth: int) -> str:
        """Return which values of a kind `not` excludes."""
        phrases: dict[str, None] = {}
        for each in form:
            excluded = each.raw.get("not")
            if not isinstance(excluded, Mapping) or set(excluded) == {"not"} or depth:
                continue
            words = self.schema.of(each.at("not"))
            if any(allows_kind(one, kind) for one in words.forms):
                phrases[words.of_kind(kind, depth=1)] = None
        found = [phrase for phrase in phrases if phrase != _NOUNS[kind] and len(phrase) < _LONGEST]
        return f" other than {' and '.join(found)}" if found else ""

    def _items(self, form: Form, depth: int) -> Iterator[str]:
        if any(each.raw.get("uniqueItems") is True for each in form):
            yield "without duplicates"
        if depth:
            return
        for each in form:
            if isinstance(each.raw.get("contains"), Mapping) and each.raw.get("minContains", 1) != 0:
                words = self.schema.of(each.at("contains")).described(depth=1)
                if words != _ANYTHING and len(words) < _LONGEST:
                    yield f"with an item that is {words}"
        items = [each.at("items") for each in form if isinstance(each.raw.get("items"), Mapping)]
        if items and not any("prefixItems" in each.raw for each in form):
            words = self.schema.of(items[0]).described(depth=1) if len(items) == 1 else _ANYTHING
            if words not in (_ANYTHING, "nothing") and len(words) < _LONGEST:
                yield f"whose items are each {words}"


def kind_of(value: Any) -> Kind:
    """Return the kind of a JSON value."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
    return "object"


def allows_kind(form: Form, kind: Kind) -> bool:
    """Return whether no `type`, `enum` or `const` of a form excludes a kind."""
    for each in form:
        types = _types(each)
        if types and kind not in types and not (kind == "number" and "integer" in types):
            return False
        if kind not in _enumerated(each, KINDS):
            return False
    return True


def json_text(value: Any) -> str:
    """Return a value as JSON, cut if it is long."""
    return _cut(json.dumps(value, ensure_ascii=False))


def listed_values(texts: Sequence[str]) -> str:
    """Return values as words: the only one, or `one of` the first."""
    shown = [*texts[:_MOST_VALUES]]
    shown += [f"{len(texts) - _MOST_VALUES} more"] if len(texts) > _MOST_VALUES else []
    return shown[0] if len(shown) == 1 else f"one of {', '.join(shown)}"


def _lists(subschema: Subschema) -> bool:
    return "const" in subschema.raw or isinstance(subschema.raw.get("enum"), list)


def _values(subschema: Subschema) -> list[Any]:
    raw = subschema.raw
    return [raw["const"]] if "const" in raw else list(raw["enum"])


def _enumerated(subschema: Subschema, default: Iterable[Kind] = ()) -> set[Kind]:
    raw = subschema.raw
    if "const" in raw:
        return {kind_of(raw["const"])}
    if isinstance(raw.get("enum"), list):
        return {kind_of(value) for value in raw["enum"]}
    return set(default)


def _types(subschema: Subschema) -> list[str]:
    declared = subschema.raw.get("type")
    return [declared] if isinstance(declared, str) else declared if isinstance(declared, list) else []


def _numbers(form: Form, keyword: str) -> list[Any]:
    found = (each.raw.get(keyword) for each in form)
    return [number for number in found if isinstance(number, int | float) and not isinstance(number, bool)]


def _size(form: Form, kind: Kind) -> str:
    """Return how long a string, how large an array or object is, in words."""
    low_keyword, high_keyword, one, several = _SIZES[kind]
    low, high = (
        max(_numbers(form, low_keyword), default=None),
        min(_numbers(form, high_keyword), default=None),
    )
    unit = one if (low if high is None else high) == 1 else several
    if low is not None and high is not None:
        return f"of {low} to {high} {unit}" if low != high else f"of exactly {low} {unit}"
    if low is not None:
        return f"of at least {low} {unit}"
    return "" if high is None else f"of at most {high} {unit}"


def _children(subschema: Subschema, step: str | int) -> Iterator[Subschema]:
    """Yield the subschemas of the value under a key or an index."""
    raw = subschema.raw
    if not isinstance(raw, Mapping):
        return
    if isinstance(step, int):
        prefix = raw.get("prefixItems")
        if isinstance(prefix, list) and step < len(prefix):
            yield subschema.at("prefixItems", step)
        elif isinstance(raw.get("items"), Mapping | bool):
            yield subschema.at("items")
        return
    declared = isinstance(raw.get("properties"), Mapping) and step in raw["properties"]
    if declared:
        yield subschema.at("properties", step)
    if isinstance(patterns := raw.get("patternProperties"), Mapping):
        for pattern in patterns:
            if pattern_matches(pattern, step):
                declared = True
                yield subschema.at("patternProperties", pattern)
    if not declared and isinstance(raw.get("additionalProperties"), Mapping):
        yield subschema.at("additionalProperties")


def _product(first: Iterable[Form], second: Sequence[Form]) -> list[Form]:
    return [(*one, *other) for one in first for other in second][:_MOST_FORMS]


def _distinct(form: Form) -> Form:
    return tuple({id(each.raw): each for each in form}.values())


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
