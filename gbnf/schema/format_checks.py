"""The checks of string formats in validation: those of jsonschema, otherwise of the automata.

The extra `formats` installs the packages with which jsonschema checks eight more formats. Without one of
them, the format's automaton judges, and what its caveat says that only validation refuses is checked here.
For IRIs the automaton always judges: jsonschema needs `rfc3987_syntax`, which takes longer to import than all
other modules together, and refuses characters beyond U+FFFF, which RFC 3987 allows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from jsonschema import Draft202012Validator, FormatChecker
from jsonschema.exceptions import FormatError

_IRIS = frozenset({"iri", "iri-reference"})
_HYPHEN_AT_END = re.compile(r"(?:^|\.)-|-(?:\.|$)")  # of a label, which its encoding hides
_LONGEST_HOSTNAME = 253  # RFC 1035, section 2.3.4, without the lengths of the labels


class _FormatChecker(FormatChecker):
    def check(self, instance: object, format: str) -> None:  # noqa: A002 - the name in jsonschema
        """Raise FormatError if the instance is a string that does not conform to the format."""
        if format in self.checkers and format not in _IRIS:
            super().check(instance, format)
        elif isinstance(instance, str) and not _conforms(format, instance):
            raise FormatError(f"{instance!r} is not a {format!r}")


def _conforms(name: str, text: str) -> bool:
    # most schemas have no such format
    from gbnf.regular.formats import IDN_HOSTNAME, format_language  # noqa: PLC0415

    if name == IDN_HOSTNAME:
        try:
            name, text = "hostname", "" if _HYPHEN_AT_END.search(text) else text.encode("idna").decode()
        except UnicodeError:
            return False
    language, refused = format_language(name), _REFUSED.get(name)
    return language is None or (language.accepts(text) and not (refused and refused(text)))


_REFUSED: Mapping[str, Callable[[str], object]] = {
    "hostname": lambda text: len(text) > _LONGEST_HOSTNAME,
    "relative-json-pointer": re.compile(r"\d+0\d").match,
    "uri-template": re.compile(r"[{,][+#./;?&]?%").search,
}

#: Formats mean in every draft what they mean in 2020-12.
FORMAT_CHECKER = _FormatChecker()
FORMAT_CHECKER.checkers = Draft202012Validator.FORMAT_CHECKER.checkers
