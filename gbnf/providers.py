"""Providers of tool variants, as data. A new provider costs one line here.

A variant is a tool whose name is another's with the provider's suffix: `find_files_notion` beside
`find_files`. Words of both languages that people name the provider by; `gbnf.markers` matches them.
"""

from __future__ import annotations

from collections.abc import Mapping

PROVIDERS: Mapping[str, tuple[str, ...]] = {
    "_google_workspace": (
        "google", "google workspace", "google drive", "google docs", "google sheets", "google calendar",
        "drive", "gmail", "gdrive", "gdoc", "gdocs", "gsuite", "g suite",
    ),
    "_notion": ("notion", "notion.so", "page"),
}  # fmt: skip
"""Suffix -> markers."""

FOREIGN_PHRASES: tuple[str, ...] = (
    "google photos", "google foto", "google maps", "google earth", "google play", "google chrome",
    "google search", "google translate", "google traduttore", "google news", "google cloud", "google ads",
    "google analytics", "google pixel", "google tv",
    "hard drive", "usb drive", "flash drive", "pen drive", "thumb drive", "external drive", "disk drive",
    "test drive", "web page", "home page", "landing page", "front page", "yellow pages",
)  # fmt: skip
"""Phrases that hold a marker and name something else."""
