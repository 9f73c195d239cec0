"""Can a small local model call my Python functions?

pip install 'gbnf-toolkit[run]' && python examples/own_tools.py
"""

import sys
import tempfile

from gbnf import load_tools, tool
from gbnf_server import Context, InProcess, Planner, PlannerOptions
from gbnf_server.executors import Workspace
from gbnf_server.system.model_files import SMOLLM2_ADAPTER, smollm2_path


@tool(effect="read")
def count_words(text: str) -> int:
    """Count the words of a text."""
    return len(text.split())


@tool(effect="read")
def convert_temperature(degrees: float, to: str) -> str:
    """Convert a temperature to celsius or fahrenheit."""
    converted = (degrees - 32) / 1.8 if to.lower().startswith("c") else degrees * 1.8 + 32
    return f"{converted:.1f} degrees {to}"


request = sys.argv[1] if len(sys.argv) > 1 else "how many words are in 'good morning everybody'?"
options = PlannerOptions(terminal=("count_words", "convert_temperature"))  # the result is the answer
with (
    tempfile.TemporaryDirectory() as folder,
    InProcess(smollm2_path(), lora=SMOLLM2_ADAPTER, threads=1) as model,
):
    tools = load_tools([count_words, convert_temperature])
    run = Planner(tools, model, options, context=Context(Workspace(folder))).run(request)
for step in run.steps:
    print(step.call, "→", step.result)
print(run.outcome, run.answer)
