"""Description of an image by measurements, for models without vision.

It recognises no objects. It measures, on a copy of at most 256 pixels a side: brightness (mean of the luma, 0
to 255), contrast (its standard deviation), the share of dark and of bright pixels, edges (mean gradient), and
the most frequent colours. An executor that asks a vision model has the same interface: a path as argument,
texts in `entries`.
"""

from __future__ import annotations

import io
import warnings
from typing import TYPE_CHECKING, Any

from gbnf_server.executors import ExecutorError

if TYPE_CHECKING:
    from PIL.Image import Image

    from gbnf_server.executors import Context

LIMIT = 32 * 1024 * 1024
"""Maximum size of a file, in bytes."""

PIXELS = 64_000_000
"""Maximum of an image: larger ones are likely decompression bombs."""

_SIDE = 256
_DARK, _BRIGHT = 40, 215
_COLOURS = {
    "black": (0, 0, 0), "dark grey": (64, 64, 64), "grey": (128, 128, 128), "light grey": (192, 192, 192),
    "white": (255, 255, 255), "red": (220, 30, 30), "dark red": (110, 15, 15), "orange": (240, 140, 30),
    "brown": (120, 75, 35), "yellow": (240, 225, 50), "green": (40, 160, 60), "dark green": (15, 75, 30),
    "cyan": (60, 200, 210), "blue": (40, 80, 220), "dark blue": (15, 30, 100), "light blue": (140, 190, 240),
    "purple": (130, 50, 170), "pink": (240, 140, 180), "beige": (230, 210, 170),
}  # fmt: skip


def run(arguments: dict[str, Any], context: Context) -> dict[str, Any]:
    """Describe the image at `path`."""
    path = arguments["path"]
    image, kind = _opened(path, context.workspace.read(path, limit=LIMIT))
    width, height = image.size
    colours = _colours(image)
    light = _light(image)
    words = ", ".join(f"{name} {share:.0%}" for name, share in colours[:3])
    said = [
        f"{kind} image, {width} × {height} pixels, {_shape(width, height)}",
        f"{_brightness(light)}; {_contrast(light)}; {_edges(light['edges'])}",
        f"colours: {words}",
    ]
    return {
        "entries": [". ".join(said) + "."],
        "width": width,
        "height": height,
        "brightness": round(light["mean"]),
        "contrast": round(light["deviation"]),
        "dark": round(light["dark"], 2),
        "bright": round(light["bright"], 2),
        "uniform": light["deviation"] < 4,
        "colours": [name for name, _ in colours[:3]],
    }


def _opened(path: str, data: bytes) -> tuple[Image, str]:
    """Return the image, upright, in RGB over white, and the name of its format."""
    try:
        from PIL import Image, ImageOps, UnidentifiedImageError  # noqa: PLC0415  # an optional extra
    except ImportError:
        raise ExecutorError("images need Pillow: pip install 'gbnf-toolkit[images]'") from None
    Image.MAX_IMAGE_PIXELS = PIXELS
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            image = Image.open(io.BytesIO(data))
            kind = image.format or "unknown"
            upright = ImageOps.exif_transpose(image).convert("RGBA")
    except UnidentifiedImageError:
        raise ExecutorError(f"'{path}' is no image") from None
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise ExecutorError(f"'{path}' has more than {PIXELS:,} pixels") from None
    except (OSError, ValueError, SyntaxError, Warning) as error:  # Pillow's plugins raise any of them
        raise ExecutorError(f"'{path}' is a broken image: {error}") from None
    ground = Image.new("RGBA", upright.size, "white")
    return Image.alpha_composite(ground, upright).convert("RGB"), kind


def _light(image: Image) -> dict[str, float]:
    from PIL import ImageFilter, ImageStat  # noqa: PLC0415  # few runs need it

    grey = image.convert("L")
    grey.thumbnail((_SIDE, _SIDE))
    stat, counts = ImageStat.Stat(grey), grey.histogram()
    width, height = grey.size
    edges = 0.0
    if min(width, height) > 2:  # the filter leaves the border as it is
        inner = grey.filter(ImageFilter.FIND_EDGES).crop((1, 1, width - 1, height - 1))
        edges = ImageStat.Stat(inner).mean[0]
    return {
        "mean": stat.mean[0],
        "deviation": stat.stddev[0],
        "dark": sum(counts[:_DARK]) / sum(counts),
        "bright": sum(counts[_BRIGHT:]) / sum(counts),
        "edges": edges,
    }


def _colours(image: Image) -> list[tuple[str, float]]:
    """Return names of colours and the share of the pixels nearest to each, the largest first."""
    small = image.copy()
    small.thumbnail((64, 64))
    shares: dict[str, float] = {}
    pixels = small.getcolors(64 * 64) or []
    total = sum(count for count, _ in pixels)
    for count, pixel in pixels:
        name = min(_COLOURS, key=lambda each: _distance(_COLOURS[each], pixel))
        shares[name] = shares.get(name, 0.0) + count / total
    return sorted(shares.items(), key=lambda item: (-item[1], item[0]))


def _distance(first: tuple[int, int, int], second: Any) -> float:
    """Return the distance of two colours, weighted roughly as in human vision."""
    red, green, blue = (a - b for a, b in zip(first, second, strict=True))
    return float(2 * red * red + 4 * green * green + 3 * blue * blue)


def _shape(width: int, height: int) -> str:
    if abs(width - height) * 20 < max(width, height):
        return "about square"
    return "wide" if width > height else "tall"


def _brightness(light: dict[str, float]) -> str:
    if light["dark"] > 0.8:
        return "mostly dark"
    if light["bright"] > 0.8:
        return "mostly bright"
    mean = light["mean"]
    return "rather dark" if mean < 85 else "rather bright" if mean > 170 else "of medium brightness"


def _contrast(light: dict[str, float]) -> str:
    deviation = light["deviation"]
    if deviation < 4:
        return "uniform, perhaps an empty or covered frame"
    return "low contrast" if deviation < 25 else "high contrast" if deviation > 70 else "medium contrast"


def _edges(mean: float) -> str:
    return (
        "no edges" if mean < 1 else "few edges" if mean < 10 else "many edges" if mean > 30 else "some edges"
    )
