"""Escape the names of control tokens in text, so that no tokenizer produces a control token from it.

The first character of a name becomes a JSON escape: `<|im_end|>` is sent as `\\u003c|im_end|>`. In JSON that
is the same value, since such a name occurs only inside strings; in other text, a model that copies it into a
call still writes the same value. All other text is unchanged (`a < b`, HTML, links), and escaping twice
changes nothing.

The vocabulary of a server is unknown, so every common form of such names is escaped. `make_escaper` also
takes the names of a known vocabulary or template.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TypeAlias

Escape: TypeAlias = Callable[[str], str]

_WORDS = (
    r"s|bos|eos|eod|pad|unk|mask|gmask|smask|cls|sep|sop|eop|eot|eom|eoa|eoh|bot|sys|\w{1,40}_token|\w{1,40}_of_\w{1,40}",
    r"think(?:ing)?|thought|tools?|tool_?calls?|tool_\w{1,40}|available_tools|arg_(?:key|value)|functions?",
    r"function=[^<>\s\\]{1,60}|system|assistant|user|im_\w{1,40}|fim[_-]\w{1,40}|(?:image|video|audio)\w{0,40}",
    r"vision_\w{1,40}|__media\w{0,40}|(?:special|extra_id|extra|control|locid|loc)_\d{1,6}",
    r"(?:unused|reserved|dummy|placeholder)_?\w{0,40}|gh_stars|repo_?name|filename|file_sep|empty_output",
    r"(?:jupyter|issue|commit|longcat|hy)_\w{1,40}|(?:seed|mm|minimax|atem):\w{1,40}",
)
_UPPER = (
    r"INST|THINK|ARGS|IMG|AUDIO|BOS|EOS|UNK|CLS|SEP|[a-z]?MASK|PAD\d{0,6}|PREFIX|MIDDLE|SUFFIX",
    r"[A-Z]{1,40}(?:_[A-Z\d]{1,40}){1,6}|(?:unused|control_|extra_id_)\d{1,6}",
)
_FORMS = (
    # <|im_end|>, <｜User｜>, <turn|>, <|turn>
    r"<(?=[|｜]|/?[^\s<>|｜\"\\]{1,60}[|｜]>"
    # <s>, </s>, <start_of_turn>, <tool_call>
    rf"|/?(?i:{'|'.join(_WORDS)})>"
    # <begin▁of▁sentence>, <<SYS>>, <[begin]>, <]image[>
    r"|/?\w{0,40}▁[\w▁]{0,60}>|</?SYS>|[\[\]][^\s<>\\]{1,60}[\[\]]>"
    # <PRE>, but not HTML's <pre>
    r"|(?:PRE|SUF|MID|EOT)>)"
    # [INST], [TOOL_CALLS], [|assistant|]
    rf"|\[(?=[|｜]|/?(?:{'|'.join(_UPPER)})\])"
    # [e~[, ]~b], ]~!b[
    r"|\[(?=e~\[)|\](?=~!?b[\[\]])"
)
_KNOWN = re.compile(_FORMS)


def escape_control_tokens(text: str) -> str:
    """Return the text with everything escaped that has the form of a control token's name."""
    return _KNOWN.sub(_escaped, text)


def make_escaper(names: Iterable[str]) -> Escape:
    """Return `escape_control_tokens` for a model whose control tokens also have these names."""
    others = sorted({name for name in names if name and not _KNOWN.match(name)}, key=len, reverse=True)
    if not others:
        return escape_control_tokens
    exact = (f"{re.escape(name[0])}(?={re.escape(name[1:])})" for name in others)
    both = re.compile("|".join([_FORMS, *exact]))
    return lambda text: both.sub(_escaped, text)


def control_tokens_in(template: str) -> frozenset[str]:
    """Return possible control tokens in the source of a chat template: tags that are not plain words."""
    return frozenset(_TAG.findall(template))


def strings_removed_by(template: str) -> frozenset[str]:
    """Return the strings that a chat template removes from contents: what is left may form a name.

    `<s/no_think>` becomes a name when the template removes `/no_think`, as some do.
    """
    return frozenset(match["word"] for match in _REMOVAL.finditer(template))


_TAG = re.compile(r"</?(?=[^<>]*[^A-Za-z<>/-])[^<>\s{}()'\"\\]{1,60}>")
_REMOVAL = re.compile(r"""replace\(\s*(['"])(?P<word>[^'"\\\s]+)\1\s*,\s*(['"])\3\s*\)""")


def _escaped(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be")
    return "".join(f"\\u{units[index]:02x}{units[index + 1]:02x}" for index in range(0, len(units), 2))
