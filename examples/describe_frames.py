"""Can a local model say what a camera sees, every few seconds?

pip install 'gbnf-toolkit[run,images]' && python examples/describe_frames.py

The frames are image files, in place of a camera: `--folder DIR`, or four of one colour. `--server URL` of a
llama-server with a model with vision (`--mmproj`) sees them. Any other model calls `describe_frame`, which
measures them and recognises nothing. For a real camera, let `frames` save the present frame as a file, with
`cv2.VideoCapture(0).read()` and `cv2.imwrite`, or `ffmpeg -f v4l2 -i /dev/video0 -frames:v 1 frame.png`.
"""

import argparse
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from PIL import Image

from gbnf import load_manifests, load_tools, tool
from gbnf_server import Context, InProcess, LlamaServer, Planner, PlannerOptions
from gbnf_server.executors import Workspace
from gbnf_server.planner import Exchange
from gbnf_server.system.folders import describe_frame_manifest
from gbnf_server.system.image_files import read_image
from gbnf_server.system.model_files import SMOLLM2_ADAPTER, smollm2_path

KEPT = 2  # earlier frames that the model is told of


@tool(effect="write")
def overlay_text(text: str) -> str:
    """Show a line of text over the picture."""
    print(f"[overlay] {text}")
    return text


def frames(folder: Path | None, made_in: Path) -> Iterator[Path]:
    """Yield each frame as a file."""
    if folder is not None:
        yield from sorted(path for path in folder.iterdir() if path.suffix in {".png", ".jpg", ".jpeg"})
        return
    for colour in ("black", "blue", "orange", "white"):
        path = made_in / f"{colour}.png"
        Image.new("RGB", (64, 48), colour).save(path)
        yield path


parser = argparse.ArgumentParser()
parser.add_argument("--folder", type=Path, help="folder of image files")
parser.add_argument("--server", help="URL of a llama-server; default: SmolLM2 in this process")
parser.add_argument("--seconds", type=float, default=3, help="between two frames")
given = parser.parse_args()
with (
    tempfile.TemporaryDirectory() as made,
    tempfile.TemporaryDirectory() as workspace,
    LlamaServer(given.server) if given.server else InProcess(smollm2_path(), lora=SMOLLM2_ADAPTER) as model,
):
    has_vision = model.info().takes_images
    tools = load_tools([overlay_text, *(() if has_vision else load_manifests(describe_frame_manifest()))])
    required = tuple(each.name for each in tools)  # a frame is described before its text is shown
    options = PlannerOptions(required=required, terminal=("overlay_text",), max_steps=4)
    planner = Planner(tools, model, options, context=Context(Workspace(workspace)))
    history: list[Exchange] = []
    for number, frame in enumerate(frames(given.folder, Path(made))):
        time.sleep(given.seconds if number else 0)
        name = shutil.copy(frame, Path(workspace, f"frame{frame.suffix}")).name
        which = "the image" if has_vision else f"the image {name}"
        request = f"describe {which} in a few words, and show them with overlay_text"
        images = [read_image(frame)] if has_vision else []
        run = planner.run(request, images=images, history=history[-KEPT:])
        history.append(Exchange.of(run))
        print(f"{frame.name}: {run.outcome}", run.error or "")
