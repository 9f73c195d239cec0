"""A plugin of the command `llm` (https://llm.datasette.io): models that a grammar constrains: `gbnf/NAME`.

They are smollm2, if it is installed, and those of `gbnf-models.toml` in the folder of `llm`'s settings. Its
keys are the options with which `gbnf` commands name a model.

    [qwen]
    model = "models/Qwen3-4B-Q4_K_M.gguf"      # relative to the file
    [desk]
    server = "http://127.0.0.1:8080"

Schemas and tools are enforced by the engine of the gateway. `llm` loads this module for all of its commands,
so it imports the rest when a model is used.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import llm
from llm.parts import StreamEvent, TextPart, ToolCallPart, ToolResultPart
from pydantic import Field, TypeAdapter, ValidationError

if TYPE_CHECKING:
    from gbnf.prompts.messages import Message
    from gbnf_server.backends.base import Backend
    from gbnf_server.gateway.engine import Engine

FILE_NAME = "gbnf-models.toml"


@llm.hookimpl  # type: ignore[untyped-decorator]  # mypy skips llm
def register_models(register: Callable[[llm.Model], None]) -> None:
    """Register the models, without loading them. Raises ClickException for a file that is not TOML."""
    from gbnf_server.system.model_files import SMOLLM2, has_smollm2

    file = Path(llm.user_dir()) / FILE_NAME
    try:
        tables = tomllib.loads(file.read_bytes().decode()) if file.exists() else {}
    except (OSError, ValueError) as error:
        raise click.ClickException(f"{file}: {error}") from None
    bundled = {SMOLLM2: {"model": SMOLLM2}} if has_smollm2() else {}
    for name, table in (bundled | tables).items():
        if not isinstance(table, dict):
            raise click.ClickException(f"{file}: {name}: must be a table, as [{name}], got {table!r:.80}.")
        register(GbnfModel(name, table, file))


class GbnfModel(llm.Model):  # type: ignore[misc]  # mypy skips llm
    """A model in this process or behind a server. `table`: the options that name it, in `file`."""

    can_stream = supports_schema = supports_tools = True

    class Options(llm.Options):  # type: ignore[misc]  # mypy skips llm
        """How an answer is sampled; the defaults are those of llama.cpp."""

        temperature: float | None = Field(None, ge=0, description="Sampling temperature; 0 is greedy.")
        max_tokens: int | None = Field(None, ge=1, description="Maximum tokens of an answer.")
        seed: int | None = Field(None, ge=0, lt=2**32, description="Seed. Default: random.")

    def __init__(self, name: str, table: dict[str, Any], file: Path) -> None:
        self.model_id = f"gbnf/{name}"
        self._table, self._file, self._where = table, file, f"{file}: {name}"

    def execute(
        self,
        prompt: llm.Prompt,
        stream: bool,
        response: llm.Response,
        conversation: llm.Conversation | None,
    ) -> Iterator[str | StreamEvent]:
        """Yield the text of an answer as it comes; its calls are the response's. Raises GbnfError."""
        from gbnf.strict_json import parse_json
        from gbnf.tool_formats import ArgumentsDelta, CallStarted, ReasoningDelta, TextDelta
        from gbnf_server.gateway.answers import Finished
        from gbnf_server.gateway.chat import ChatRequest, FunctionTool, JsonSchema, Sampling
        from gbnf_server.system.event_loop import shared_loop

        engine, backend = self._opened
        request = ChatRequest(
            self.model_id,
            tuple(message for given in prompt.messages for message in _messages(given)),
            tuple(
                FunctionTool(tool.name, tool.description or "", tool.input_schema) for tool in prompt.tools
            ),
            output=JsonSchema(prompt.schema, param="schema") if prompt.schema else None,
            sampling=Sampling.given(**prompt.options.model_dump()),
            reasoning=None,
            stream=stream,
        )
        calls: list[tuple[CallStarted, list[str]]] = []
        for event in shared_loop().iterate(engine.answer(request, backend)):
            match event:
                case TextDelta(text):
                    yield text
                case ReasoningDelta(text):
                    yield StreamEvent("reasoning", text)
                case CallStarted():
                    calls.append((event, []))
                case ArgumentsDelta(_, piece):
                    calls[-1][1].append(piece)
                case Finished(reason, usage, enforcement):
                    response.set_usage(input=usage.prompt_tokens, output=usage.completion_tokens)
                    if reason == "length" and (calls or prompt.schema):
                        limit = usage.completion_tokens
                        raise llm.ModelError(f"the answer is truncated after {limit} tokens: -o max_tokens N")
                    if enforcement.invalid:
                        raise llm.ModelError(f"the answer is invalid: {'; '.join(enforcement.invalid)}")
        for call, pieces in calls:
            response.add_tool_call(llm.ToolCall(call.name, parse_json("".join(pieces) or "{}"), call.id))

    @cached_property
    def _opened(self) -> tuple[Engine, Backend]:
        """The model, which is loaded for the first answer. Raises ModelError for a table, and GbnfError."""
        from gbnf.errors import suggestion
        from gbnf_server.cli.model_options import ModelSource
        from gbnf_server.gateway.engine import Engine

        fields = ModelSource.__dataclass_fields__
        options: dict[str, Any] = {}
        for key, value in self._table.items():
            name = {"ctx-size": "context_size"}.get(key, key.replace("-", "_"))
            if name not in fields:
                raise llm.ModelError(f"{self._where}: unknown option {key!r}.{suggestion(key, fields)}")
            path = self._file.parent / Path(str(value)).expanduser()
            options[name] = str(path) if name in {"model", "lora"} and path.is_file() else value
        try:
            source = TypeAdapter(ModelSource).validate_python(options)
        except ValidationError as error:
            raise llm.ModelError(f"{self._where}: {error}") from None
        source.check()
        return Engine(retries=1), source.open()


def _messages(message: llm.Message) -> Iterator[Message]:
    """Yield a message of `llm` as those of a request: each result of a tool is one."""
    text = "\n".join(part.text for part in message.parts if isinstance(part, TextPart))
    request_message: Message = {"role": message.role, "content": text}
    calls = []
    for part in message.parts:
        identifier = getattr(part, "tool_call_id", None) or ""
        if isinstance(part, ToolResultPart):
            yield {"role": "tool", "content": part.output, "name": part.name, "tool_call_id": identifier}
        elif isinstance(part, ToolCallPart):
            function = {"name": part.name, "arguments": part.arguments}
            calls.append({"id": identifier, "type": "function", "function": function})
    if calls:
        request_message["tool_calls"] = calls
    if message.role != "tool":
        yield request_message
