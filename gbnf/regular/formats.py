"""JSON Schema's formats as regular languages, each from the grammar of its standard.

Invariants: a format's language lies within the standard, and within what jsonschema's format checker accepts,
unless its `caveat` says otherwise. Of IRIs it has no check here: see `gbnf.schema.validators`. Dates and
times are as narrow as in the checker: a year is at least 0001 and a second at most 59, so there are no leap
seconds. Formats of other names have no language here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gbnf.regular.automaton import Dfa
from gbnf.regular.ecma262 import search
from gbnf.work_limits import work_cache

IDN_HOSTNAME = "idn-hostname"
"""The format without an automaton: only validation checks it."""


@dataclass(frozen=True, slots=True)
class Format:
    """A format: the pattern of its whole strings, and what that accepts beyond the format, if anything."""

    pattern: str
    caveat: str = ""


@work_cache(maxsize=256)
def format_language(name: str) -> Dfa | None:
    """Return the strings of a format, or None for an unknown format."""
    string_format = FORMATS.get(name)
    return None if string_format is None else search(f"^(?:{string_format.pattern})$")


# Dates and times: RFC 3339, section 5.6, and appendix A for durations.

_LEAP_YEAR = r"(?:\d\d(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)"
_DATE = (
    rf"(?!0000)(?:\d{{4}}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])"
    rf"|(?:0[469]|11)-(?:0[1-9]|[12]\d|30)|02-(?:0[1-9]|1\d|2[0-8]))|{_LEAP_YEAR}-02-29)"
)
_HOUR_MINUTE = r"(?:[01]\d|2[0-3]):[0-5]\d"
_TIME = rf"{_HOUR_MINUTE}:[0-5]\d(?:\.\d+)?(?:[Zz]|[+-]{_HOUR_MINUTE})"
_CLOCK = r"(?:\d+H(?:\d+M(?:\d+S)?)?|\d+M(?:\d+S)?|\d+S)"
_DURATION = rf"P(?:(?:\d+D|\d+M(?:\d+D)?|\d+Y(?:\d+M(?:\d+D)?)?)(?:T{_CLOCK})?|T{_CLOCK}|\d+W)"

# Hosts: RFC 1123 with RFC 1035's bound on labels; RFC 3986, section 3.2.2, for addresses.

_OCTET = r"(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
_IPV4 = rf"{_OCTET}(?:\.{_OCTET}){{3}}"
_GROUP = "[0-9A-Fa-f]{1,4}"
_LAST = f"(?:{_GROUP}:{_GROUP}|{_IPV4})"
_IPV6 = "(?:" + "|".join(
    [
        f"(?:{_GROUP}:){{6}}{_LAST}",
        f"::(?:{_GROUP}:){{5}}{_LAST}",
        *(f"(?:{_GROUP}(?::{_GROUP}){{0,{n}}})?::(?:{_GROUP}:){{{4 - n}}}{_LAST}" for n in range(5)),
        f"(?:{_GROUP}(?::{_GROUP}){{0,5}})?::{_GROUP}",
        f"(?:{_GROUP}(?::{_GROUP}){{0,6}})?::",
    ]
) + ")"  # fmt: skip
_LABEL = "[0-9A-Za-z](?:[0-9A-Za-z-]{0,61}[0-9A-Za-z])?"
_HOSTNAME = rf"{_LABEL}(?:\.{_LABEL})*"

# Mailboxes: RFC 5321, section 4.1.2, and RFC 6531 for other alphabets than Latin.

_ATEXT = "0-9A-Za-z!#$%&'*+/=?^_`{|}~"  # and the hyphen, which is itself when it comes last


def _mailbox(beyond: str) -> str:
    """Return a mailbox, with the characters of `beyond` allowed in names and domains."""
    dot_string = rf"[{_ATEXT}{beyond}-]+(?:\.[{_ATEXT}{beyond}-]+)*"
    quoted = rf'"(?:[ !#-\[\]-~{beyond}]|\\[ -~])*"'
    label = f"[0-9A-Za-z{beyond}](?:[0-9A-Za-z{beyond}-]*[0-9A-Za-z{beyond}])?"
    domain = rf"{label}(?:\.{label})*|\[(?:{_IPV4}|IPv6:{_IPV6})\]"
    return f"(?:{dot_string}|{quoted})@(?:{domain})"


# Identifiers: RFC 3986, appendix A; RFC 3987, section 2.2; RFC 6570, section 2.

_UCS = (
    r"\u00a0-\ud7ff\uf900-\ufdcf\ufdf0-\uffef"
    + "".join(rf"\u{{{plane:x}0000}}-\u{{{plane:x}fffd}}" for plane in range(1, 0xE))
    + r"\u{e1000}-\u{efffd}"
)
_PRIVATE = r"\ue000-\uf8ff\u{f0000}-\u{ffffd}\u{100000}-\u{10fffd}"
_ESCAPED = "%[0-9A-Fa-f]{2}"
_SUBDELIMITERS = "!$&'()*+,;="


class _Identifiers:
    """The patterns of URIs, or of IRIs, whose additional characters are in `ucs` and `private`."""

    def __init__(self, ucs: str = "", private: str = "") -> None:
        plain = f"0-9A-Za-z._~{ucs}{_SUBDELIMITERS}-"  # the hyphen last, where it is itself

        def part(signs: str = "") -> str:
            return f"(?:[{signs}{plain}]|{_ESCAPED})"

        char = part(":@")
        user, name, path = part(":"), part(), f"(?:/{char}*)*"
        future = f"[Vv][0-9A-Fa-f]+\\.[:0-9A-Za-z._~{_SUBDELIMITERS}-]+"
        authority = rf"//(?:{user}*@)?(?:\[(?:{_IPV6}|{future})\]|{name}*)(?::\d*)?{path}"
        absolute, rootless = f"/(?:{char}+{path})?", f"{char}+{path}"
        first = f"{part('@')}+{path}"  # of a relative reference: no colon before the first slash
        tail = f"(?:\\?{part(f':@/?{private}')}*)?(?:#{part(':@/?')}*)?"
        self.identifier = f"[A-Za-z][0-9A-Za-z+.-]*:(?:{authority}|{absolute}|{rootless}|){tail}"
        self.reference = f"{self.identifier}|(?:{authority}|{absolute}|{first}|){tail}"


_URI = _Identifiers()
_IRI = _Identifiers(_UCS, _PRIVATE)

_VARIABLE_CHAR = f"(?:[0-9A-Za-z_]|{_ESCAPED})"
_VARIABLE = rf"{_VARIABLE_CHAR}+(?:\.{_VARIABLE_CHAR}+)*(?::[1-9]\d{{0,3}}|\*)?"
_TEMPLATE = (
    rf"(?:[!#$&'()*+,./0-9:;=?@A-Z[\]_a-z~{_UCS}{_PRIVATE}-]|{_ESCAPED}"
    rf"|\{{[+#./;?&]?{_VARIABLE}(?:,{_VARIABLE})*\}})*"
)

_POINTER = "(?:/(?:[^/~]|~[01])*)*"

# Patterns: ECMA-262, section 22.2.1 with annex B, and flags as others write them.

_REPEATED = r"(?:[*+?]\??)?"
_ATOM = rf"(?:[^()*+?[\\|]|\\[\s\S]|\[(?:[^\]\\]|\\[\s\S])*\]|\(\?[A-Za-z]+\)){_REPEATED}|\|"
_OPENING = r"\((?:\?(?:[:=!]|<[=!]|P?<[A-Za-z_$][\w$]*>|[A-Za-z-]+:))?"


_REGEX = rf"(?:{_ATOM}|{_OPENING}|\){_REPEATED})*"  # in the deepest groups parentheses need not be paired
for _ in range(3):
    _REGEX = rf"(?:{_ATOM}|{_OPENING}{_REGEX}\){_REPEATED})*"

_UNPAIRED = "ranges, escapes, names and the contents of braces are not checked, nor deeper groups than 3"
_UNDECODED = "labels of other alphabets, and those that begin with xn--, are not checked"
_TOO_LONG = "names of more than 253 characters are accepted"
_ESCAPED_NAME = "a variable's name may begin with an escape, which jsonschema's checker rejects"
_ZERO_INSIDE = "a number may contain a zero that isn't last, which jsonschema's checker rejects"

FORMATS: Mapping[str, Format] = {
    "date": Format(_DATE),
    "time": Format(_TIME),
    "date-time": Format(f"{_DATE}[Tt]{_TIME}"),
    "duration": Format(_DURATION),
    "email": Format(_mailbox("")),
    "idn-email": Format(_mailbox(r"\u0080-\u{10ffff}"), _UNDECODED),
    "hostname": Format(_HOSTNAME, f"{_TOO_LONG}, and {_UNDECODED}"),
    "ipv4": Format(_IPV4),
    "ipv6": Format(_IPV6),
    "uri": Format(_URI.identifier),
    "uri-reference": Format(_URI.reference),
    "iri": Format(_IRI.identifier),
    "iri-reference": Format(_IRI.reference),
    "uri-template": Format(_TEMPLATE, _ESCAPED_NAME),
    "uuid": Format("[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"),
    "json-pointer": Format(_POINTER),
    "regex": Format(_REGEX, _UNPAIRED),
    "relative-json-pointer": Format(rf"(?:0|[1-9]\d*)(?:#|{_POINTER})", _ZERO_INSIDE),
}
