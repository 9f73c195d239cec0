"""The same pool, written for engines that don't read llama.cpp's GBNF.

`json_schema` writes the union of a pool's calls as one JSON Schema, for servers that take nothing else;
`xgrammar` writes any grammar in the part of GBNF that xgrammar reads as llama.cpp does. What must stay true:
each dialect is made from the pool that `compile_pool` is made from, and says the same of every call.
"""

from gbnf.dialects.json_schema import call_schema, schema_text, schema_violation
from gbnf.dialects.xgrammar import xgrammar_text

__all__ = ["call_schema", "schema_text", "schema_violation", "xgrammar_text"]
