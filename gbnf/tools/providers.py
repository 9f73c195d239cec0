"""Providers of tool variants, as data. To add a provider, add one entry to `PROVIDERS`.

A variant is a tool whose name is that of another with the provider's suffix: `find_files_notion` is a variant
of `find_files`. The phrases are English and Italian; `gbnf.requests.phrases` matches them.
"""

from __future__ import annotations

from dataclasses import dataclass

from gbnf.errors import InvalidArgumentError


@dataclass(frozen=True, slots=True)
class Provider:
    """The phrases for one provider.

    A phrase of `names` may mean the provider: its variants are offered in addition to the tools that they
    vary. A phrase of `places` means that the work is to be done there: its variants replace those tools.
    After a phrase for a topic ("about", "mentions" …), and inside longer names, a place counts only as a
    name. In doubt, use `names`: an unneeded tool costs some tokens, and a dropped one cannot be called.
    """

    names: tuple[str, ...]
    places: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("names", "places"):
            if isinstance(phrases := getattr(self, name), str):
                problem = f"{name} is {phrases!r}; it must be a tuple of phrases: ({phrases!r},)"
                raise InvalidArgumentError(problem)
            object.__setattr__(self, name, tuple(phrases))


_MY_DRIVE = tuple(
    f"{word} {whose} drive"
    for word in ("in", "on", "from", "inside", "into", "search", "browse", "scan")
    for whose in ("my", "our")
)

PROVIDERS: dict[str, Provider] = {
    "_google_workspace": Provider(
        names=(
            "google", "drive", "gmail",
            *(f"{drive} {word}" for drive in _MY_DRIVE for word in ("to", "home", "through", *"cdef")),
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
"""Phrases after which a place is the topic of a text, not where to search."""

UNRELATED_PHRASES: tuple[str, ...] = (
    "google photos", "google foto", "google maps", "google earth", "google play", "google chrome",
    "google search", "google translate", "google traduttore", "google news", "google cloud", "google ads",
    "google analytics", "google pixel", "google tv",
    "hard drive", "usb drive", "flash drive", "pen drive", "thumb drive", "external drive", "disk drive",
    "test drive", "web page", "home page", "landing page", "front page", "yellow pages",
)  # fmt: skip
"""Phrases that contain a provider's name and mean something else."""
