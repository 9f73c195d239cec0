"""Render a chat template as Hugging Face's `apply_chat_template` does, whatever the template contains.

Templates come with models, so they are untrusted: they run in jinja2's sandbox, and their work is counted.
Every iteration, macro call, operation and filter counts steps, every text that they make counts characters;
`ToolFormatError` ends a template that exceeds either limit. Nothing is timed, so the same template fails in
every process, or in none.

The environment follows transformers' `utils/chat_template_utils.py`: `trim_blocks`, `lstrip_blocks`, loop
controls, the tag `generation`, `tojson` without HTML escapes, `raise_exception`, `strftime_now`.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import jinja2
from jinja2.ext import Extension
from jinja2.meta import find_undeclared_variables
from jinja2.parser import Parser

from gbnf.errors import ToolFormatError
from gbnf.schema_caches import schema_cache
from gbnf.tool_formats.sandbox import ModifiesError, RefusedError, compile_template, limited

MAX_SOURCE = 1_000_000
"""The characters of a template."""


class TemplateRenderer:
    """A chat template, ready to render.

    Raises `ToolFormatError` if the template is malformed, and from `render` if it refuses the messages, fails
    or exceeds a limit.
    """

    def __init__(self, source: str, *, bos_token: str = "", eos_token: str = "") -> None:
        if len(source) > MAX_SOURCE:
            raise ToolFormatError(f"the template has more than {MAX_SOURCE:,} characters")
        self.source = source
        self.eos_token = eos_token
        self._tokens = {"bos_token": bos_token, "eos_token": eos_token}
        self._mutable = False
        self._template = _compiled(source, mutable=False)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        now: datetime | None = None,
        **variables: Any,
    ) -> str:
        """Return the text of a conversation.

        `tools`: in OpenAI's form; a template that fails without them gets an empty list. `now`: the time for
        `strftime_now`, the present one if None. `variables`: more variables of the template, such as
        `enable_thinking`.
        """
        all_variables = {
            **self._tokens,
            "messages": list(messages),
            "tools": list(tools) if tools else None,
            "add_generation_prompt": add_generation_prompt,
            "raise_exception": _raise_exception,
            "strftime_now": lambda text: _strftime(now or datetime.now().astimezone(), text),
            **variables,
        }
        try:
            return self._run(all_variables)
        except RefusedError:
            if tools:
                raise
            return self._run({**all_variables, "tools": []})

    def _run(self, variables: Mapping[str, Any]) -> str:
        if not self._mutable:
            try:
                return self._run_once(variables)
            except ModifiesError:
                self._mutable = True
                self._template = _compiled(self.source, mutable=True)
        copied = copy.deepcopy({name: variables[name] for name in ("messages", "tools")})
        return self._run_once({**variables, **copied})

    def _run_once(self, variables: Mapping[str, Any]) -> str:
        with limited(remember=not self._mutable):
            return "".join(self._template.generate(variables))


OWN_VARIABLES = frozenset(
    ("messages", "tools", "add_generation_prompt", "continue_final_message", "bos_token", "eos_token")
) | frozenset(("raise_exception", "strftime_now", "functions", "datetime", "now", "self"))
"""Variables of templates that only their renderer sets."""


@schema_cache(maxsize=8)
def template_variables(source: str) -> frozenset[str]:
    """Return the variables of a template that a request may set; none of one that is malformed."""
    environment = jinja2.Environment(extensions=[_GenerationTag, jinja2.ext.loopcontrols])  # noqa: S701  # renders nothing
    try:
        return frozenset(find_undeclared_variables(environment.parse(source))) - OWN_VARIABLES
    except (jinja2.TemplateError, RecursionError):
        return frozenset()


@schema_cache(maxsize=8)  # the format is detected by several renderers
def _compiled(source: str, *, mutable: bool) -> jinja2.Template:
    filters: dict[str, Callable[..., Any]] = {"tojson": _tojson, "from_json": json.loads}
    extensions = [_GenerationTag, jinja2.ext.loopcontrols]
    return compile_template(source, filters, extensions, mutable=mutable)


# What Hugging Face gives its templates


def _raise_exception(message: str) -> None:
    raise jinja2.TemplateError(message)


def _strftime(now: datetime, text: str) -> str:
    if len(text) > 100 or re.search(r"%[^a-zA-Z%]*[0-9]", text):  # widths
        raise RefusedError("the template asks for an odd form of date")
    return now.strftime(text)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
        default=_listed,
    )


def _listed(value: Any) -> list[Any]:
    """Return the items of what a filter such as `map` gives: llama.cpp's templates write those as JSON."""
    if isinstance(value, Iterator):
        return list(value)
    raise RefusedError(f"the template writes a value of type {type(value).__name__} as JSON")


class _GenerationTag(Extension):
    """`{% generation %}…{% endgeneration %}`: marks what the model wrote; here it is just its body."""

    tags = {"generation"}  # noqa: RUF012  # as the base class has it

    def parse(self, parser: Parser) -> Any:
        """Return the nodes between the tags."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)
