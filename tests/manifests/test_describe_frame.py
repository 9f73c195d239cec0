"""An image in words: what is measured, on images that are made here."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageDraw

from gbnf import compile_pool, load_manifests
from gbnf_server.executors import run_executor
from gbnf_server.planner.step_references import fill_references
from gbnf_server.system.errors import ExecutorError
from gbnf_server.system.folders import describe_frame_manifest, manifests_path
from support.executors import bundled_tools, module, world

[FRAME] = load_manifests(describe_frame_manifest())


def describe(root: Path, image: Image.Image, name: str = "frame.png", **options: Any) -> dict[str, Any]:
    image.save(root / name, **options)
    found: dict[str, Any] = module("describe_frame").run({"path": name}, world(root))
    return found


def chequered() -> Image.Image:
    image = Image.new("L", (120, 80), 0)
    draw = ImageDraw.Draw(image)
    for x in range(0, 120, 8):
        for y in range(0, 80, 8):
            if (x + y) // 8 % 2:
                draw.rectangle((x, y, x + 7, y + 7), fill=255)
    return image


@pytest.mark.parametrize(
    ("image", "facts", "words"),
    [
        (
            Image.new("RGB", (64, 64), "black"),
            {"uniform": True, "dark": 1.0, "colours": ["black"]},
            "mostly dark",
        ),
        (Image.new("RGB", (30, 90), "white"), {"uniform": True, "bright": 1.0, "colours": ["white"]}, "tall"),
        (Image.new("RGB", (90, 30), (220, 30, 30)), {"uniform": True, "colours": ["red"]}, "wide"),
        (Image.new("RGBA", (9, 9), (0, 0, 0, 0)), {"bright": 1.0, "colours": ["white"]}, "mostly bright"),
        (Image.new("1", (1, 1)), {"width": 1, "height": 1, "dark": 1.0}, "about square"),
        (chequered(), {"uniform": False, "width": 120, "height": 80}, "high contrast"),
        (chequered(), {}, "many edges"),
        (Image.linear_gradient("L"), {"uniform": False, "brightness": 128}, "no edges"),
    ],
)
def test_descriptions_of_images(
    tmp_path: Path, image: Image.Image, facts: dict[str, Any], words: str
) -> None:
    found = describe(tmp_path, image)
    assert {key: found[key] for key in facts} == facts
    [said] = found["entries"]
    assert words in said
    assert said.startswith("PNG image, ")


@given(st.tuples(st.integers(0, 255), st.integers(0, 255), st.integers(0, 255)), st.integers(1, 40))
def test_one_colour_is_uniform_whatever_it_is(colour: tuple[int, int, int], side: int) -> None:
    image = Image.new("RGB", (side, side), colour)
    executor = module("describe_frame")
    assert [share for _, share in executor._colours(image)] == [1.0]
    light = executor._light(image)
    assert (light["deviation"], light["edges"]) == (0, 0)
    assert light["mean"] == image.convert("L").getpixel((0, 0))


def test_a_turned_photo_is_described_upright(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by a quarter
    found = describe(tmp_path, Image.new("RGB", (40, 20)), "photo.jpg", exif=exif)
    assert (found["width"], found["height"]) == (20, 40)


@pytest.mark.parametrize(
    ("data", "said"),
    [(b"no image at all", "is no image"), (b"", "is no image"), (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "image")],
)
def test_what_is_no_image(tmp_path: Path, data: bytes, said: str) -> None:
    (tmp_path / "frame.png").write_bytes(data)
    with pytest.raises(ExecutorError, match=said):
        module("describe_frame").run({"path": "frame.png"}, world(tmp_path))


@pytest.mark.slow
def test_a_bomb_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    packed = io.BytesIO()
    Image.new("1", (20_000, 20_000)).save(packed, "PNG")
    (tmp_path / "bomb.png").write_bytes(packed.getvalue())
    with pytest.raises(ExecutorError, match="more than 64,000,000 pixels"):
        module("describe_frame").run({"path": "bomb.png"}, world(tmp_path))


def test_it_stays_out_of_the_pool_until_it_is_asked_for() -> None:
    assert "describe_frame" not in bundled_tools()
    tools = load_manifests([manifests_path(), describe_frame_manifest()])
    assert {tool.name for tool in tools} == {*bundled_tools(), "describe_frame"}
    assert compile_pool([FRAME], final_answer=True, steps=(1,)).exact


@pytest.mark.slow
def test_a_planner_that_sees_nothing_asks_the_front_end(tmp_path: Path) -> None:
    """Find the frame, describe it by reference, in the process that tools run in."""
    Image.new("RGB", (64, 48), "black").save(tmp_path / "frame.png")
    context = world(tmp_path)
    found = run_executor(bundled_tools()["find_files"], {"base_path": ".", "pattern": "*.png"}, context)
    arguments = fill_references(FRAME, {"from_step": 1}, {1: found["entries"]})
    said = run_executor(FRAME, arguments, context)
    assert "mostly dark; uniform" in said["entries"][0]
    assert json.loads(json.dumps(said)) == said
