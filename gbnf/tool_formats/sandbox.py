"""The sandbox in which chat templates run, and the counts of their work.

jinja2's sandbox keeps a template from the interpreter; the counts keep it from taking any amount of time or
memory. The syntax tree is changed so that iterations and values count themselves.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.runtime import Context, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment, SandboxedEnvironment
from jinja2.tests import TESTS
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

from gbnf.errors import ToolFormatError

MAX_STEPS = 2_000_000
"""The iterations, operations and items that one rendering may take."""
MAX_CHARACTERS = 64_000_000
"""The characters of all texts that one rendering may make, its result included."""

_MAX_BITS = 4096  # of a product or power
_MAX_COUNT = 10_000  # widths, and other numbers that filters and methods take
_MAX_DEPTH = 128  # of nested values


class TemplateLimitError(ToolFormatError):
    """The template takes too many steps, or makes too much text."""


class RefusedError(ToolFormatError):
    """The template refuses the conversation, fails on it, or does not show what is looked for."""


class ModifiesError(RefusedError):
    """The template modifies a list or dictionary."""


class _Work:
    """The work of a rendering. `remember`: values do not change, so their weights are computed once."""

    def __init__(self, *, remember: bool) -> None:
        self.steps = self.characters = 0
        self._weights: dict[int, tuple[Any, int]] | None = {} if remember else None

    def spend(self, steps: int, characters: int = 0) -> None:
        """Count work. Raises `ToolFormatError` at a limit."""
        self.steps += steps
        self.characters += characters
        if self.steps > MAX_STEPS:
            raise TemplateLimitError(f"the template takes more than {MAX_STEPS:,} steps")
        if self.characters > MAX_CHARACTERS:
            raise TemplateLimitError(f"the template makes more than {MAX_CHARACTERS:,} characters of text")

    def weigh(self, value: Any, depth: int = 0) -> int:
        """Return the size of a value in steps: that of its items, however often each is shared."""
        match value:
            case str():
                return 1 + len(value) // 64
            case list() | tuple():
                members: Iterable[Any] = value
            case dict():
                members = (member for item in value.items() for member in item)
            case range():
                return len(value)
            case Namespace():
                raise RefusedError("the template uses a namespace as a value")
            case _:
                return 1
        if self._weights is not None and id(value) in self._weights:
            return self._weights[id(value)][1]
        if depth > _MAX_DEPTH:
            raise TemplateLimitError(f"the template nests values more than {_MAX_DEPTH} deep")
        weight = 1
        for member in members:
            self.spend(1)
            weight += self.weigh(member, depth + 1)
            if weight > MAX_STEPS:
                raise TemplateLimitError(f"the template makes a value of more than {MAX_STEPS:,} items")
        if self._weights is not None:
            self._weights[id(value)] = (value, weight)  # keeping the value keeps its id
        return weight


_work: ContextVar[_Work] = ContextVar("work")


@contextmanager
def limited(*, remember: bool) -> Iterator[None]:
    """Count work inside, and turn whatever a template raises into `ToolFormatError`."""
    token = _work.set(_Work(remember=remember))
    try:
        yield
    except ToolFormatError:
        raise
    except jinja2.exceptions.SecurityError as error:
        kind = ModifiesError if "access to attribute" in str(error) else RefusedError
        raise kind(f"the template fails: {str(error).rstrip('.')}") from None
    except jinja2.TemplateSyntaxError as error:
        raise ToolFormatError(f"the template is malformed in line {error.lineno}: {error.message}") from None
    except jinja2.TemplateError as error:
        raise RefusedError(f"the template refuses the conversation: {str(error).rstrip('.')}") from None
    except Exception as error:  # noqa: BLE001  # templates may raise anything, RecursionError included
        raise RefusedError(f"the template fails: {type(error).__name__}: {str(error)[:500]}") from None
    finally:
        _work.reset(token)


def compile_template(
    source: str,
    filters: Mapping[str, Callable[..., Any]],
    extensions: Sequence[type[Extension]],
    *,
    mutable: bool,
) -> jinja2.Template:
    """Compile a template that counts its work. `mutable`: it may modify lists and dictionaries.

    Raises `ToolFormatError` if it is malformed or exceeds a limit.
    """
    environment = (_Sandbox if mutable else _ImmutableSandbox)(
        trim_blocks=True, lstrip_blocks=True, finalize=_finalized, extensions=extensions
    )
    environment.filters |= filters
    for name in _REMOVED_FILTERS:
        del environment.filters[name]
    del environment.globals["lipsum"]
    environment.filters = {name: _counted(name, f) for name, f in environment.filters.items()}
    environment.filters |= {_COUNT: _count, _CONCATENATE: _concatenate, _MEASURE: _measure}
    with limited(remember=False):  # the compiler computes constants
        tree = _CountWork().visit(environment.parse(source))
        tree.set_environment(environment)
        code = environment.compile(tree)
        return jinja2.Template.from_code(environment, code, environment.make_globals(None))


# The tree


_COUNT, _CONCATENATE, _MEASURE = "-count", "-concatenate", "-measure"  # no template can name these filters


class _CountWork(NodeTransformer):
    """Make a template count its iterations, its texts, and the values that it builds or compares."""

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802  # of jinja2
        self.generic_visit(node)
        node.body.insert(0, _count_node(node, 0))
        if node.test is not None:
            node.test = nodes.And(_filter_node(nodes.Const(0), _COUNT), node.test, lineno=node.lineno)
        return node

    def visit_Macro(self, node: nodes.Macro) -> nodes.Node:  # noqa: N802  # of jinja2
        self.generic_visit(node)
        node.body.insert(0, _count_node(node, 0))
        return node

    visit_CallBlock = visit_Block = visit_Macro  # noqa: N815  # bodies that may run many times

    def visit_Output(self, node: nodes.Output) -> Any:  # noqa: N802  # of jinja2
        self.generic_visit(node)
        length = sum(len(part.data) for part in node.nodes if isinstance(part, nodes.TemplateData))
        return [_count_node(node, length), node] if length else node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802  # of jinja2
        self.generic_visit(node)
        return _filter_node(nodes.List(node.nodes, lineno=node.lineno), _CONCATENATE)

    def visit_List(self, node: nodes.Expr) -> nodes.Node:  # noqa: N802  # of jinja2
        self.generic_visit(node)
        is_target = isinstance(node, nodes.Tuple) and node.ctx != "load"
        is_member = isinstance(node, nodes.Getitem) and not isinstance(node.arg, nodes.Slice)
        return node if is_target or is_member else _filter_node(node, _MEASURE)

    visit_Dict = visit_Tuple = visit_Getitem = visit_List  # noqa: N815  # of jinja2

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:  # noqa: N802  # of jinja2
        self.generic_visit(node)
        node.expr = _measured_node(node.expr)
        for operand in node.ops:
            operand.expr = _measured_node(operand.expr)
        return node

    def visit_Test(self, node: nodes.Test) -> nodes.Node:  # noqa: N802  # of jinja2
        self.generic_visit(node)
        if node.name in _COMPARING_TESTS:
            node.node = _measured_node(node.node)
            node.args = [_measured_node(argument) for argument in node.args]
        return node


_COMPARISONS = (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge)
_COMPARING_TESTS = frozenset({"in", *(name for name, test in TESTS.items() if test in _COMPARISONS)})


def _filter_node(node: nodes.Expr, name: str) -> nodes.Filter:
    return nodes.Filter(node, name, [], [], None, None, lineno=node.lineno or 1)


def _measured_node(node: nodes.Expr) -> nodes.Expr:
    return node if isinstance(node, nodes.Const) else _filter_node(node, _MEASURE)


def _count_node(node: nodes.Node, characters: int) -> nodes.ExprStmt:
    return nodes.ExprStmt(
        _filter_node(nodes.Const(characters, lineno=node.lineno), _COUNT), lineno=node.lineno
    )


@jinja2.pass_context  # the compiler computes no filter that takes the context
def _count(_: Context, characters: int) -> bool:
    _work.get().spend(1, characters)
    return True


@jinja2.pass_context
def _concatenate(_: Context, values: Sequence[Any]) -> str:
    return "".join([_text(value) for value in values])


@jinja2.pass_context
def _measure(_: Context, value: Any) -> Any:
    """Count a value that was built or is compared."""
    work = _work.get()
    work.spend(1 + work.weigh(value) // 16 if isinstance(value, (str, list, tuple, dict)) else 1)
    return value


def _text(value: Any) -> str:
    """Return the text of a value. Raises `ToolFormatError` if it is too large, or has none."""
    work = _work.get()
    if not isinstance(value, str):
        work.spend(work.weigh(value))
        value = str(value)
    work.spend(1, len(value))
    return str(value)


def _finalized(value: Any) -> Any:
    if isinstance(value, Undefined):
        return value
    if isinstance(value, str):
        _work.get().spend(1, len(value))
        return value
    return _text(value)


# Operations


class _Sandbox(SandboxedEnvironment):
    """A sandbox in which operators, calls and methods count their work.

    It is for templates that modify lists or dictionaries, such as Kimi-K2's.
    """

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        work = _work.get()
        numbers = isinstance(left, (int, float)) and isinstance(right, (int, float))
        match operator:
            case "+" if not numbers:
                work.spend(1, _length(left) + _length(right))
            case "*" if numbers:
                _limit("a product", _bits(left) + _bits(right), _MAX_BITS)
            case "*":
                items, times = (right, left) if isinstance(left, int) else (left, right)
                size = _length(items) * max(times, 1) if isinstance(times, int) else 0
                work.spend(1 + (0 if isinstance(items, str) else size), size)
            case "**" if numbers:
                _limit("a power", _bits(left) * abs(right), _MAX_BITS)
            case "%" if not numbers:
                work.spend(1, _limit_format(left) * _written(right))
        return _made(super().call_binop(context, operator, left, right))

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805, PYI063  # of jinja2
        owner = getattr(__obj, "__self__", None)
        if isinstance(owner, str):
            _limit_arguments(__obj.__name__, owner, args, kwargs)
        _work.get().spend(1 + _length(owner) // 16)
        return _made(super().call(__context, __obj, *args, **kwargs))

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        if isinstance(obj, (int, float, complex, bytes, range)) or attr in _UNSAFE_METHODS:
            return False
        return super().is_safe_attribute(obj, attr, value)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        formatting = super().wrap_str_format(value)
        if formatting is None:
            return None
        template = value.__self__

        def formatted(*args: Any, **kwargs: Any) -> str:
            _work.get().spend(1, _limit_format(template) * _written((args, kwargs)))
            return formatting(*args, **kwargs)

        return formatted


def _made(value: Any) -> Any:
    """Count the value that an operation made."""
    work = _work.get()
    if isinstance(value, str):
        work.spend(1, len(value))
    elif isinstance(value, (list, tuple, dict)):
        work.spend(1 + len(value) // 16)
        work.weigh(value)
    return value


class _ImmutableSandbox(_Sandbox, ImmutableSandboxedEnvironment):
    """The sandbox for all templates that need no other."""


_UNSAFE_METHODS = frozenset({"encode", "translate", "maketrans"})
_REMOVED_FILTERS = ("filesizeformat", "pprint", "random", "striptags", "urlize", "wordwrap", "xmlattr")
_SIZED = frozenset(  # filters and methods whose result is as large as a number that they take
    {"batch", "center", "expandtabs", "indent", "ljust", "rjust", "round", "slice", "tojson", "truncate",
     "zfill"}
)  # fmt: skip
_WRITING_FILTERS = frozenset(
    {"string", "tojson", "join", "escape", "e", "forceescape", "format", "sort", "unique"}
)


def _counted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a filter that counts its work. jinja2 may pass it a context or environment first."""
    first = 1 if hasattr(function, "jinja_pass_arg") else 0

    @wraps(function)
    def counted(*args: Any, **kwargs: Any) -> Any:
        value, others = args[first], args[first + 1 :]
        _limit_arguments(name, value, others, kwargs)
        work = _work.get()
        work.spend(1 + (work.weigh(value) if name in _WRITING_FILTERS else _length(value) // 16))
        if name in ("map", "select", "reject", "selectattr", "rejectattr"):
            work.spend(_length(value))
        return _made(function(*args, **kwargs))

    return counted


def _limit_arguments(name: str, value: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Refuse a call of a filter or method whose result would be large."""
    passed = [*args, *kwargs.values()]
    if name in _SIZED:
        for argument in passed:
            if isinstance(argument, (int, float)):
                _limit(f"the argument of {name}", abs(argument), _MAX_COUNT)
    work = _work.get()
    match name:
        case "replace" if (
            isinstance(value, str) and len(passed) >= 2 and all(isinstance(a, str) for a in passed[:2])
        ):
            work.spend(1, value.count(passed[0]) * len(passed[1]))
        case "join":
            separator, items = (
                (value, passed[0] if passed else ()) if isinstance(value, str) and passed else ("", value)
            )
            separator = next((a for a in passed if isinstance(a, str)), separator)
            work.spend(1, len(separator) * _length(items))
        case "format":
            work.spend(1, _limit_format(value) * _written((args, kwargs)))
        case "tojson" if any(work.weigh(argument) > 16 for argument in passed):
            raise TemplateLimitError("the template asks for odd JSON")
        case "indent" if isinstance(value, str):
            widths = [a if isinstance(a, int) else len(a) for a in passed if isinstance(a, (int, str))]
            work.spend(1, (value.count("\n") + 1) * max(widths, default=4))
        case "sum":
            if any(not isinstance(argument, (int, float, str)) for argument in passed):
                raise TemplateLimitError("the template adds up values that are not numbers")


def _limit_format(template: Any) -> int:
    """Return how many values a format may write. Raises `ToolFormatError` for large widths."""
    if not isinstance(template, str):
        return 1
    if re.search(r"%[^a-zA-Z%]*\*|\{[^{}]*\{", template):
        raise TemplateLimitError("the template computes the width of a format")
    for digits in re.findall(r"[0-9]+", template):
        _limit("a width", int(digits[:9]), _MAX_COUNT)
    return template.count("%") + template.count("{")


def _limit(what: str, size: float, limit: int) -> None:
    if not size <= limit:
        raise TemplateLimitError(f"the template asks for too much: {what} is limited to {limit:,}")


def _length(value: Any) -> int:
    return len(value) if isinstance(value, Sized) and not isinstance(value, Undefined) else 0


def _bits(number: float) -> float:
    return number.bit_length() if isinstance(number, int) else 64


def _written(value: Any) -> int:
    """Return a limit on the characters in which a value is written once."""
    return _work.get().weigh(value) * 64
