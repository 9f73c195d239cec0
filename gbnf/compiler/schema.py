"""Compile one JSON Schema."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, get_args

from gbnf.compiler.grammar import CompiledRules, Grammar, link
from gbnf.compiler.layout import CompileOptions, PropertyOrder, Whitespace
from gbnf.compiler.notations import JSON, Notation
from gbnf.compiler.primitives import RESERVED, primitives
from gbnf.compiler.rules import RuleTable, Scope
from gbnf.errors import InvalidArgumentError, SchemaError, is_rust_panic
from gbnf.grammar.ir import EMPTY_LANGUAGE, Expr, Literal, Rules
from gbnf.grammar.passes import drop_unreachable, run_passes
from gbnf.grammar.stacks import MAX_STACKS, nesting_products, takes_many_stacks
from gbnf.schema.document import Document, lone_surrogate
from gbnf.schema.models import json_schema_of
from gbnf.schema.nullable import without_null
from gbnf.work_limits import limit_work

if TYPE_CHECKING:
    from gbnf.compiler.lowering import Lowering


def compile_schema(
    schema: Mapping[str, Any] | bool | type[Any],
    *,
    whitespace: Whitespace = "default",
    max_depth: int | None = None,
    closed: bool | None = None,
    property_order: PropertyOrder = "any",
    bounded_digits: bool = True,
) -> Grammar:
    """Compile the grammar of the JSON texts that satisfy a JSON Schema, or that a pydantic model accepts.

    Properties come in any order; large objects also accept an optional one of them twice, which is reported,
    and more than eight required ones come in the schema's order only. With `property_order="declared"`, all
    properties do: objects of any size are exact then, and valid ones in another order are refused. See
    `gbnf.compiler.layout` for `whitespace`. Without `max_depth`, recursive schemas become recursive rules. If
    `closed`, an object that declares properties but not `additionalProperties` allows no others. By default,
    those of a JSON Schema are open, as in the standard, and those of a Python type are closed. Numbers have
    at most 39 digits before the decimal point and 20 after it; with `bounded_digits=False`, integers and
    fractions may have any number of digits.

    `schema` may also be any other type that pydantic validates, such as a dataclass.

    Raises SchemaError if the schema is malformed, or if no value satisfies it, and InvalidArgumentError for a
    type that has no JSON Schema.
    """
    if type(schema) is not dict and not isinstance(
        schema, Mapping | list | tuple | str | float | int | None
    ):  # JSON values are not types
        schema, closed = json_schema_of(schema), closed is not False
    options = CompileOptions(whitespace, max_depth, bool(closed), property_order, bounded_digits)
    check_options(options)
    with compilation(schema):
        rules, lowering = compile_document(Document(schema, closed=options.closed), options)
        if rules.productions[rules.root] == EMPTY_LANGUAGE:
            reason = lowering.reason or "it requires itself without end"
            raise SchemaError("", f"no JSON value satisfies the schema: {reason}")
        findings = (*without_null("", schema), *lowering.report)
        return link([CompiledRules.of(rules)], findings, options.whitespace, options.digits)


def compile_document(
    document: Document,
    options: CompileOptions,
    prefix: str = "",
    *,
    tool: str = "",
    overrides: Mapping[str, Expr] = MappingProxyType({}),
    notation: Notation = JSON,
) -> tuple[Rules, Lowering]:
    """Return the rules of a document, for which llama.cpp's engine keeps a bounded number of stacks.

    With a `prefix`, the names of the rules begin with it, and their start symbol is `args` and the prefix.
    For `overrides` see `Lowering`. Alternatives that begin alike are merged if they take too many stacks
    otherwise. Raises SchemaError where even the merged rules do.
    """
    from gbnf.compiler.lowering import Lowering  # noqa: PLC0415  # not needed where all tools are cached

    # Few schemas need the second, merging run. It lowers all of the document again, with as much work as the
    # first: merging a union makes unions of what is inside it, which have no rule in the first run.
    for merges in (False, True):
        with limit_work() if merges else nullcontext():
            table = RuleTable(RESERVED if prefix else RESERVED - {"root"})
            start = table.reserve(*(("args", prefix) if prefix else ("root",)))
            lowering = Lowering(document, options, table, tool, overrides, notation, merges)
            lowering.root(start, Scope(table, (prefix,) if prefix else ()))
        before = Rules(table.productions, start.name)
        unions = nesting_products(before.references, lowering.unions) if lowering.unions else {}
        rules = run_passes(before)
        if not unions or rules.productions[rules.root] == EMPTY_LANGUAGE:
            return rules, lowering
        shared = {"fromStep": Literal("1"), **primitives(options.whitespace, options.digits)}
        linked = Rules({**shared, **rules.productions}, rules.root)
        if not takes_many_stacks(drop_unreachable(linked), unions):
            return rules, lowering
    problem = (
        f"its alternatives begin with the same text and are inside each other, so llama.cpp would follow "
        f"more than {MAX_STACKS:,} derivations at once"
    )
    hint = "Tell the alternatives apart where they begin, as with a tag in the first property or item."
    raise SchemaError("", problem, hint)


@contextmanager
def compilation(schema: Any) -> Iterator[None]:
    """Limit the work of the compilation inside, and translate its errors.

    Raises SchemaError for a schema that is nested too deeply, or that contains a lone surrogate.
    """
    try:
        with limit_work():
            yield
    except ValueError:
        pointer = lone_surrogate(schema)
        if pointer is None:
            raise
        problem = "a string in it contains a lone surrogate, which is not a character"
        raise SchemaError(pointer, problem, "Write the whole character, or remove it.") from None
    except BaseException as error:
        if not isinstance(error, RecursionError) and not is_rust_panic(error):
            raise
        problem = "a value, a key or a chain of references in it is nested too deeply to be compiled"
        raise SchemaError("", problem, "Shorten it, or leave it to the validator.") from None


_CHOICES = {"whitespace": get_args(Whitespace), "property_order": get_args(PropertyOrder)}


def check_options(options: CompileOptions) -> None:
    """Raise InvalidArgumentError for an unknown layout or order, or a depth below 0."""
    for name, values in _CHOICES.items():
        if getattr(options, name) not in values:
            text = f"{name}={getattr(options, name)!r} is none of {', '.join(values)}"
            raise InvalidArgumentError(text)
    if options.max_depth is not None and options.max_depth < 0:
        raise InvalidArgumentError(f"max_depth={options.max_depth} is below 0")
