"""The tools of a client as `Tool` values. In their schemas, this project's own keywords mean nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gbnf import Finding, Tool
from gbnf.schema.keywords import SchemaPath, map_subschemas
from gbnf.tools.loosening import loosened_argument_schema
from gbnf.tools.manifest_checks import nests_deeper
from gbnf_server.gateway.chat import FunctionTool
from gbnf_server.web.errors import HttpError

_MAX_DEPTH = 60
"""How deeply a schema may be nested: it is rewritten and checked recursively."""
NOT_ENFORCED = frozenset({"unenforced", "loosened", "left_out"})
"""The kinds of findings because of which a grammar accepts what a schema forbids."""

_OWN_KEYWORDS = frozenset({"requires_one_of", "runtime_resolved", "fills"})


def opened(tools: Iterable[Tool], findings: Iterable[Finding]) -> tuple[Tool, ...]:
    """Return the tools, those that a finding says are left out of a grammar with any arguments."""
    errors = {finding.tool: finding for finding in findings if finding.kind == "left_out"}
    return tuple(_open_tool(tool, errors[tool.name]) if tool.name in errors else tool for tool in tools)


def client_tool(given: FunctionTool) -> Tool:
    """Return the tool. What of its schema cannot be read is left out, with a finding."""
    # too deep: None is no schema, so any arguments are accepted
    schema = None if nests_deeper(given.parameters, _MAX_DEPTH) else given.parameters
    args, findings = loosened_argument_schema(given.name, schema)
    return Tool(
        given.name,
        descriptions={"en": given.description},
        args=_without_own_keywords(args),
        findings=findings,
    )


def _open_tool(tool: Tool, error: Finding) -> Tool:
    reason = f"the schema cannot be compiled, so any arguments are accepted: {error.reason}"
    finding = Finding(tool.name, error.pointer, error.keyword, "loosened", reason)
    args = {"type": "object", "additionalProperties": True}
    return Tool(tool.name, descriptions=tool.descriptions, args=args, findings=(*tool.findings, finding))


def _without_own_keywords(args: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema without the keywords of manifests, and without step references."""
    plain = _plain(args)
    properties = {
        # the integer `from_step` refers to a step, unless its type is written as a list
        name: {**schema, "type": ["integer"]}
        if isinstance(schema, Mapping) and schema.get("type") == "integer"
        else schema
        for name, schema in plain.get("properties", {}).items()
    }
    return {**plain, "properties": properties} if properties else plain


def _plain(schema: Any) -> Any:
    if not isinstance(schema, Mapping):
        return schema

    def below(_path: SchemaPath, member: Any) -> Any:
        return _plain(member)

    return {key: value for key, value in map_subschemas(schema, below).items() if key not in _OWN_KEYWORDS}


def strict_problem(given: Iterable[FunctionTool], findings: Iterable[Finding]) -> HttpError | None:
    """Return the error for the first finding about a tool that is strict, None if there is none."""
    params = {tool.name: tool.param for tool in given if tool.strict}
    for finding in findings:
        if finding.tool in params and finding.kind in NOT_ENFORCED:
            return strict_error(finding, params[finding.tool])
    return None


def strict_error(finding: Finding, param: str) -> HttpError:
    """Return the error of a strict schema with a keyword that is not enforced."""
    where = f"{finding.tool}: {finding.pointer or '/'}" if finding.tool else finding.pointer or "/"
    problem = f"strict: {finding.keyword!r} at {where} cannot be enforced: {finding.reason}."
    hint = "Remove the keyword, or do not ask for strict."
    return HttpError(400, f"{problem} {hint}", "unenforceable_schema", f"{param}{finding.pointer}")
