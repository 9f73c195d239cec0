import random
from typing import Any

from gbnf_server import Context


def run(arguments: dict[str, Any], context: Context) -> dict[str, Any]:
    sides = arguments.get("sides", 6)
    return {"numbers": [random.randint(1, sides) for _ in range(arguments["count"])]}
