"""Pools and grammars for engines that do not read llama.cpp's GBNF.

`json_schema` builds one JSON Schema of a pool's calls, for servers that accept nothing else; `xgrammar` and
`lark` translate any grammar.

Invariant: a call is valid in all dialects of a pool, or in none.
"""

from gbnf.dialects.json_schema import call_schema, schema_violation
from gbnf.dialects.xgrammar import xgrammar_text

__all__ = ["call_schema", "schema_violation", "xgrammar_text"]
