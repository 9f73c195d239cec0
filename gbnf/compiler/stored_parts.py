"""Compiled tools as bytes: an entry of a `PartCache`, and back.

An entry is a checksum of its key and its content, then a line of JSON with all that linking needs (the text,
the names of the rules, the names that they refer to, the findings), then the productions as JSON, which are
decoded when something reads them. JSON, so that no entry can make its reader run code.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import astuple
from hashlib import blake2b
from typing import Any

from gbnf.compiler.grammar import CompiledRules
from gbnf.errors import GbnfError
from gbnf.findings import Finding
from gbnf.grammar.ir import Alt, CharClass, Expr, Literal, Ref, Repeat, Seq

_CHECKSUM_SIZE = 16
#: Expressions that nest more deeply are not stored: decoding them might overflow Python's stack.
_MAX_NESTING = 200

_REF, _SEQ, _ALT, _REPEAT, _CLASS, _NEGATED = range(6)


def encode_part(key: str, part: CompiledRules, findings: Sequence[Finding]) -> bytes | None:
    """Return an entry for compiled rules and the findings on them; None if they nest too deeply."""
    try:
        productions = [_encoded(expr, _MAX_NESTING) for expr in part.productions.values()]
    except _TooDeepError:
        return None
    head = [part.text, list(part.names), sorted(part.needs), [astuple(finding) for finding in findings]]
    content = f"{_encode(head)}\n{_encode(productions)}".encode("ascii")
    return _checksum(key, content) + content


def decode_part(key: str, entry: bytes) -> tuple[CompiledRules, tuple[Finding, ...]] | None:
    """Return the rules and the findings of an entry; None if it is damaged, or was put under another key."""
    content = entry[_CHECKSUM_SIZE:]
    if _checksum(key, content) != entry[:_CHECKSUM_SIZE]:
        return None
    head, _, productions = content.partition(b"\n")
    text, names, needs, findings = json.loads(str(head, "ascii"))

    def decoded() -> dict[str, Expr]:
        return dict(zip(names, map(_decoded, json.loads(str(productions, "ascii"))), strict=True))

    part = CompiledRules(text, names, needs, decoded)
    return part, tuple([Finding(*fields) for fields in findings])


def _checksum(key: str, content: bytes) -> bytes:
    hashed = blake2b(key.encode(errors="surrogatepass"), digest_size=_CHECKSUM_SIZE)
    hashed.update(content)
    return hashed.digest()


_encode = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode


class _TooDeepError(GbnfError):
    pass


def _encoded(expr: Expr, levels: int) -> Any:
    """Return an expression as JSON: a literal as a string, others as arrays that begin with their kind."""
    if type(expr) is Literal:
        return expr.text
    if type(expr) is Ref:
        return (_REF, expr.name)
    if type(expr) is CharClass:
        return (_NEGATED if expr.negated else _CLASS, *expr.ranges)
    if not levels:
        raise _TooDeepError
    if type(expr) is Repeat:
        return (_REPEAT, _encoded(expr.item, levels - 1), expr.minimum, expr.maximum)
    assert isinstance(expr, Seq | Alt)
    return (_SEQ if type(expr) is Seq else _ALT, *[_encoded(item, levels - 1) for item in expr.items])


def _decoded(encoded: Any) -> Expr:
    if type(encoded) is str:
        return Literal(encoded)
    kind, *parts = encoded
    if kind == _REF:
        return Ref(parts[0])
    if kind in (_SEQ, _ALT):
        return (Seq if kind == _SEQ else Alt)(tuple([_decoded(part) for part in parts]))
    if kind == _REPEAT:
        return Repeat(_decoded(parts[0]), parts[1], parts[2])
    return CharClass(tuple([(low, high) for low, high in parts]), negated=kind == _NEGATED)
