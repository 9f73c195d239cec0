"""Images from files are known by their bytes."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image as Pillow

from gbnf_server.system.errors import SetupError
from gbnf_server.system.image_files import read_image


@pytest.mark.parametrize("kind", ["png", "jpeg", "gif", "webp", "bmp"])
def test_an_image_is_what_its_bytes_say(tmp_path: Path, kind: str) -> None:
    Pillow.new("RGB", (3, 2), "red").save(tmp_path / "frame.bin", kind)
    image = read_image(tmp_path / "frame.bin")
    assert image.media_type == f"image/{kind}"
    assert image.data == (tmp_path / "frame.bin").read_bytes()


def test_a_file_that_is_not_an_image_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "frame.png").write_text("no")
    with pytest.raises(SetupError, match="not a PNG"):
        read_image(tmp_path / "frame.png")
    with pytest.raises(SetupError, match="cannot be read: No such file"):
        read_image(tmp_path / "none.png")
