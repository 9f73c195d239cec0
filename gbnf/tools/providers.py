"""Providers of tool variants, as data. A new provider costs one line here.

A variant is a tool whose name is another's with the provider's suffix: `find_files_notion` beside
`find_files`. The words are those of both languages; `gbnf.tools.phrases` matches them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Provider:
    """The words for one provider.

    `names` may mean it: the request is offered its variants beside the tools that they vary. `places` say
    that the work is to be done there, and nothing else: the variants take the place of those tools. Behind a
    word that tells of a topic ("about", "mentions" …), and in longer names, a place is only a name. In doubt
    a word is a name: a tool too many costs some tokens, and one that was dropped can't be called.
    """

    names: tuple[str, ...]
    places: tuple[str, ...] = ()


_MY_DRIVE = tuple(
    f"{word} {whose} drive"
    for word in ("in", "on", "from", "inside", "into", "search", "browse", "scan")
    for whose in ("my", "our")
)

PROVIDERS: Mapping[str, Provider] = {
    "_google_workspace": Provider(
        names=(
            "google", "drive", "gmail",
            *(f"{drive} {more}" for drive in _MY_DRIVE for more in ("to", "home", "through", *"cdef")),
        ),
        places=(
            "google workspace", "google drive", "google docs", "google doc", "google sheets", "google sheet",
            "google slides", "google calendar", "gdrive", "gdoc", "gdocs", "gsuite", "g suite",
            "drive.google.com", "docs.google.com", "sheets.google.com", "calendar.google.com",
            "mail.google.com", *_MY_DRIVE, "in my gmail", "from my gmail",
            "nel mio drive", "sul mio drive", "dal mio drive", "nel nostro drive", "sul nostro drive",
            "dal nostro drive", "nella mia gmail", "dalla mia gmail",
        ),
    ),
    "_notion": Provider(
        names=("notion", "page"),
        places=(
            "notion.so", "in notion", "in my notion", "on my notion", "from notion", "from my notion",
            "search notion", "search my notion", "into notion", "notion page", "notion pages",
            "notion workspace", "notion database", "in our notion", "on our notion", "from our notion",
            "nel mio notion", "sul mio notion", "dal mio notion", "nel nostro notion",
            "sul nostro notion", "dal nostro notion", "pagina notion", "pagine notion", "pagina di notion",
            "pagine di notion",
        ),
    ),
}  # fmt: skip
"""Suffix of a variant's name -> its provider."""

TOPIC_PHRASES: tuple[str, ...] = (
    "about", "about the", "about my", "about our", "mention", "mentions", "mentioning", "mentioned",
    "word", "words", "contain", "contains", "containing", "called", "named", "titled", "topic", "subject",
    "regarding", "concerning", "text", "parla di", "parlano di", "parlare di", "parla del", "parlano del",
    "riguarda", "riguardano", "riguardo a", "cita", "citano", "parola", "parole", "contiene",
    "contengono", "menziona", "menzionano", "chiamato", "chiamata", "chiamati", "chiamate", "argomento",
    "testo",
)  # fmt: skip
"""Words behind which a place is what a text is about, and not where to look."""

UNRELATED_PHRASES: tuple[str, ...] = (
    "google photos", "google foto", "google maps", "google earth", "google play", "google chrome",
    "google search", "google translate", "google traduttore", "google news", "google cloud", "google ads",
    "google analytics", "google pixel", "google tv",
    "hard drive", "usb drive", "flash drive", "pen drive", "thumb drive", "external drive", "disk drive",
    "test drive", "web page", "home page", "landing page", "front page", "yellow pages",
)  # fmt: skip
"""Phrases that hold a marker and name something else."""
