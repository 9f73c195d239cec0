"""Read image files; their type is determined from the first bytes, not from the name."""

from __future__ import annotations

import os
from pathlib import Path

from gbnf.prompts.messages import Image
from gbnf_server.system.errors import SetupError

_SIGNATURES: tuple[tuple[bytes, str], ...] = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"BM", "image/bmp"),
)


def read_image(path: str | os.PathLike[str]) -> Image:
    """Return the image in a file: PNG, JPEG, GIF, WebP or BMP. Raises SetupError."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise SetupError(f"the image {os.fspath(path)!r} cannot be read: {error.strerror or error}") from None
    kind = media_type(data)
    if kind is None:
        raise SetupError(f"{os.fspath(path)!r} is not a PNG, JPEG, GIF, WebP or BMP file; convert it")
    return Image(data, kind)


def media_type(data: bytes) -> str | None:
    """Return the media type of the bytes, such as "image/png"; None if unknown."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for signature, kind in _SIGNATURES if data.startswith(signature)), None)
