"""The subjects of the laws, a pool of tools or a schema: their valid values, and an independent validator."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, TypeAlias

from hypothesis import assume
from hypothesis import strategies as st
from jsonschema import Draft202012Validator, ValidationError
from jsonschema.validators import extend, validator_for

from gbnf.calls.validation import validate_call
from gbnf.errors import InvalidArgumentError
from gbnf.findings import Finding
from gbnf.schema.closing import close_arguments
from gbnf.schema.validators import FORMAT_CHECKER
from gbnf.testing.generation import ValueGenerator
from gbnf.tools import Tool
from gbnf.tools.tool import offered_args

Schema: TypeAlias = Mapping[str, Any] | bool
ToolsOrSchema: TypeAlias = Sequence[Tool] | Schema
"""Tools, whose values are calls, or a JSON Schema."""


def subject(of: ToolsOrSchema, *, steps: Sequence[int] = (), closed: bool | None = None) -> Subject:
    """Return the subject for tools or a schema.

    `steps`: the earlier steps that calls may refer to. `closed`: as in `compile_pool` and `compile_schema`.
    """
    if isinstance(of, bool | Mapping):
        return SchemaSubject(of)
    return PoolSubject(tuple(of), tuple(steps), closed=closed is not False)


def calls(tools: Sequence[Tool], *, steps: Sequence[int] = (), closed: bool = True) -> st.SearchStrategy[Any]:
    """Return valid calls of the tools, keys in declared order.

    Raises InvalidArgumentError if no tool can be called.
    """
    return PoolSubject(tuple(tools), tuple(steps), closed=closed).valid()


def values(schema: Schema) -> st.SearchStrategy[Any]:
    """Return valid values of a schema, keys in declared order."""
    return SchemaSubject(schema).valid()


@dataclass(frozen=True)
class PoolSubject:
    """Calls of tools, which a grammar should accept if they are valid."""

    tools: tuple[Tool, ...]
    steps: tuple[int, ...] = ()
    closed: bool = True
    only: str | None = None
    """The tool whose calls are drawn, None for all; the others stay callable."""

    def __repr__(self) -> str:
        return f"<{', '.join(tool.name for tool in self.tools)}>"

    def _repr_pretty_(self, printer: Any, _cycle: bool) -> None:
        """Print the `repr` in Hypothesis, which otherwise prints every field of a dataclass."""
        printer.text(repr(self))

    def __post_init__(self) -> None:
        if not self.offered:
            wanted = self.only or ", ".join(tool.name for tool in self.tools) or "no tool at all"
            raise InvalidArgumentError(f"no tool can be called with steps={self.steps}: {wanted}")

    @cached_property
    def offered(self) -> dict[str, Mapping[str, Any]]:
        """The schemas of the arguments, by the names of the tools that can be called."""
        return {
            tool.name: close_arguments(args) if self.closed else args
            for tool in self.tools
            if self.only in (None, tool.name) and (args := offered_args(tool, self.steps)) is not None
        }

    def references(self, tool: str) -> Mapping[str, str | None]:
        """Return the tool's step references: the argument, and the property that it fills."""
        return next(candidate.step_references for candidate in self.tools if candidate.name == tool)

    def generator(self, tool: str) -> ValueGenerator:
        """Return the generator of a tool's arguments."""
        return ValueGenerator(self.offered[tool])

    def valid(self) -> st.SearchStrategy[Any]:
        """Return valid values, keys in declared order."""
        return _valid_calls(self)

    def errors(self, value: Any) -> tuple[str, ...]:
        """Return the validator's errors, one line each; empty if the value is valid."""
        return validate_call(value, self.tools, steps=self.steps, closed=self.closed).errors

    def concerns(self, finding: Finding, value: Any) -> bool:
        """Return whether the finding is about the called tool."""
        return isinstance(value, dict) and finding.tool == value.get("name")


@st.composite
def _valid_calls(draw: st.DrawFn, pool: PoolSubject) -> Any:
    name = draw(st.sampled_from(list(pool.offered)))
    arguments = pool.generator(name).value(draw, [pool.offered[name]])
    for reference in pool.references(name).keys() & arguments.keys():
        arguments[reference] = draw(st.sampled_from(pool.steps))
    call = {"name": name, "arguments": arguments}
    assume(not pool.errors(call))
    return call


class SchemaSubject:
    """The values of one schema, which a grammar should accept if they are valid."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema

    def __repr__(self) -> str:
        return "<schema>"

    @cached_property
    def _validator(self) -> Any:
        base: Any = validator_for(self.schema, default=Draft202012Validator)
        checks = {"pattern": _pattern, "multipleOf": _multiple_of}
        exact: Any = extend(base, checks)  # type: ignore[no-untyped-call]  # its stub is bare
        return exact(self.schema, format_checker=FORMAT_CHECKER)

    def generator(self) -> ValueGenerator:
        """Return the generator of the schema's values."""
        return ValueGenerator(self.schema)

    def valid(self) -> st.SearchStrategy[Any]:
        """Return valid values."""
        return _valid_values(self)

    def errors(self, value: Any) -> tuple[str, ...]:
        """Return the validator's errors."""
        return tuple(error.message for error in self._validator.iter_errors(value))

    def concerns(self, finding: Finding, value: Any) -> bool:
        """Return True: there is only one schema."""
        return True


Subject: TypeAlias = PoolSubject | SchemaSubject
"""Values that a grammar should accept, and the errors of those that it should not."""


@st.composite
def _valid_values(draw: st.DrawFn, of: SchemaSubject) -> Any:
    value = of.generator().value(draw, [of.schema])
    assume(not of.errors(value))
    return value


def _pattern(_validator: Any, pattern: str, value: Any, _schema: Any) -> Iterator[ValidationError]:
    """Check a pattern as in ECMA-262: `$` matches only at the end, `\\d` and `\\w` are ASCII."""
    if isinstance(value, str) and not re.search(_END.sub(r"\1\\Z", pattern), value, re.ASCII):
        yield ValidationError(f"{value!r} does not match {pattern!r}")


_END = re.compile(r"((?<!\\)(?:\\\\)*)\$(?=$|\)|\|)")


def _multiple_of(_validator: Any, divisor: Any, value: Any, _schema: Any) -> Iterator[ValidationError]:
    """Check in exact decimals: 0.3 is a multiple of 0.1, but not in floats."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return
    if (Fraction(str(value)) / Fraction(str(divisor))).denominator != 1:
        yield ValidationError(f"{value!r} is not a multiple of {divisor!r}")
