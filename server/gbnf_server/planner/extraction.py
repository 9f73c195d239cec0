"""Typed answers: a value of a type from a text, with the probabilities of its parts.

The type is the schema of a tool's arguments, and the planner has only this tool. So the value is a call,
which models are trained to write; the evidence of the text counts; and what a validator refuses is reported
to the model, which tries again. Types are those of pydantic (models, dataclasses, TypedDicts, `Literal`,
enums, unions), or a JSON Schema.

    extraction = extract(Invoice, text, model="smollm2")
    for extraction in extract_many(Invoice, texts, model=…, log="invoices.jsonl"): …
    for invoice in extract_stream(Invoice, text, model=…): …      # partial instances, as they grow
    choice = choose(["spam", "ham"], text, model=…)               # choice.probabilities
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import weakref
from collections.abc import AsyncGenerator, Generator, Iterable, Mapping, Sequence
from contextlib import aclosing, nullcontext
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Generic, Literal, TypeAlias, TypedDict, Unpack, get_origin, overload

from typing_extensions import TypeVar

from gbnf.compiler.pool import compile_pool
from gbnf.errors import SchemaError
from gbnf.findings import Finding
from gbnf.prompts.messages import Image
from gbnf.protocols.field_lines import fits_lines
from gbnf.schema.document import with_local_references
from gbnf.schema.drafts import as_2020_12
from gbnf.schema.models import InstanceReader, json_schema_of
from gbnf.schema.validators import violation
from gbnf.tools import Tool
from gbnf.tools.loosening import build_tool
from gbnf_server.backends.base import Backend, Usage
from gbnf_server.backends.opening import open_model
from gbnf_server.executors import Context, Workspace
from gbnf_server.llama.token_values import ValueProbability
from gbnf_server.planner.events import Run, RunFinished, StepStarted, TextWritten
from gbnf_server.planner.loop import check_request
from gbnf_server.planner.options import CallFormat, PlannerOptions
from gbnf_server.planner.planner import Planner
from gbnf_server.planner.runs.fingerprints import digest
from gbnf_server.planner.runs.run_log import RunLog, RunLogError, Unanswered, in_order
from gbnf_server.planner.spans.values import taken_spans
from gbnf_server.system.errors import (
    AnswerTimeoutError,
    BackendError,
    ExecutorError,
    GbnfServerError,
    ServerResponseError,
)
from gbnf_server.system.event_loop import shared_loop

T = TypeVar("T", default=Any)
Model: TypeAlias = str | Path | Backend | None
"""A GGUF file, "smollm2", the URL of a llama-server, or a backend; by default smollm2."""

ExtractionOutcome: TypeAlias = Literal["invalid", "error", "hang"]
"""Why there is no value; see `ExtractionError`."""

_WRAPPED = "value"


@dataclass(frozen=True, slots=True)
class Attempt:
    """A text of the model, and why it was refused; "" for the one that was accepted."""

    text: str
    problem: str = ""


class ExtractionError(GbnfServerError):
    """No attempt gave a valid value. Fields: `attempts`, and `outcome`.

    `outcome`: "invalid", what the model wrote was refused; "error", the server or a validator failed, or the
    text cannot be asked; "hang", the time limit ended it.
    """

    def __init__(
        self, problem: str, attempts: Sequence[Attempt], outcome: ExtractionOutcome = "invalid"
    ) -> None:
        self.attempts, self.outcome = tuple(attempts), outcome
        super().__init__(problem)


@dataclass(frozen=True, slots=True)
class Extraction(Generic[T]):
    """A value, and what is known of it.

    `json`: the value as the model wrote it. `values`: the probabilities of its enum values, booleans and
    numbers, by JSON Pointer; none from a server that reports no log-probabilities. `usage`: the tokens of all
    attempts; `seconds`: their time. `findings`: what the grammar did not enforce, and a validator checked
    afterwards. `spans`: the part of the text from which a value was read, by JSON Pointer.
    """

    value: T
    json: Any
    values: tuple[ValueProbability, ...] = ()
    usage: Usage = field(default_factory=Usage)
    seconds: float = 0.0
    attempts: tuple[Attempt, ...] = ()
    findings: tuple[Finding, ...] = field(default=(), repr=False)
    spans: Mapping[str, str] = field(default_factory=dict)

    @property
    def probabilities(self) -> dict[str, float]:
        """The probability of each part that has one, by JSON Pointer."""
        return {part.pointer: part.probability for part in self.values}

    @property
    def alternatives(self) -> dict[str, dict[str, float]]:
        """By JSON Pointer, the JSON texts that were possible and their probabilities, where they were few."""
        return {part.pointer: dict(part.alternatives) for part in self.values if part.alternatives}

    def to_json(self) -> dict[str, Any]:
        """Return the value and its probabilities as JSON."""
        return {
            "value": self.json,
            "probabilities": {pointer: round(share, 4) for pointer, share in self.probabilities.items()},
            "spans": dict(self.spans),
            "usage": {key: count for key, count in asdict(self.usage).items() if count},
            "seconds": round(self.seconds, 3),
            "refused": [attempt.problem for attempt in self.attempts if attempt.problem],
        }


@dataclass(frozen=True, slots=True)
class Choice(Generic[T]):
    """The most probable option, and the probability of each; of the written one only from a server."""

    value: T
    probabilities: dict[T, float]


class Extractor(Generic[T]):
    """Extracts values of one type with one model; may be used by several threads and event loops.

    `type_`: see the module. `instructions`: what is wanted beyond the type and its descriptions. `attempts`:
    how often the model may try. `max_tokens`: of an attempt; `max_seconds`: of all. `spans`: dates, times,
    durations and numbers are those that the text has, where it has some; `date_order`: what comes first in
    03/04/2026, by default as the text says. `clamp`: numbers out of their bounds are moved to them, where no
    grammar in GBNF enforces those. `call_format`: how the value is written; by default as a call, or as lines
    if the model's server takes no grammar and the value is scalars and at most one list of them. Raises
    InvalidArgumentError for a type without a JSON Schema, SchemaError for a schema that no value satisfies,
    and what opening the model raises.
    """

    def __init__(
        self,
        type_: type[T] | Mapping[str, Any] | bool | Any,
        model: Model = None,
        *,
        instructions: str = "",
        attempts: int = 3,
        max_tokens: int = 1024,
        max_seconds: float | None = 300.0,
        temperature: float = 0.0,
        seed: int = 0,
        spans: bool = True,
        date_order: Literal["day", "month"] | None = None,
        call_format: CallFormat | None = None,
        clamp: bool = False,
        concurrency: int = 1,
    ) -> None:
        self._target: _Target[T] = _Target.of(type_, instructions)
        tool = self._target.tool
        #: What the grammar does not enforce.
        self.findings = (*tool.findings, *compile_pool([tool], property_order="declared").report)
        self._backend = open_model(model, parallel=concurrency)
        if call_format is None and self._backend.dialect == "none" and fits_lines(tool):
            call_format = "lines"
        folder = mkdtemp(prefix="gbnf-extract-")  # a planner has a workspace
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        options = PlannerOptions(
            max_steps=attempts,
            max_blocked=attempts,
            max_seconds=max_seconds,
            required=(tool.name,),
            terminal=(tool.name,),
            call_format=call_format,
            salvage=False,
            filter=False,
            max_tools=None,
            max_tokens=max_tokens,
            temperature=temperature,
            seed=seed,
            probabilities=self._backend.info().traits.gives_logprobs,
            property_order="declared",
            spans=spans,
            date_order=date_order,
            clamp=clamp,
        )
        self._spans, self._order, self._attempts = spans, date_order, attempts
        #: Whether a value is no object with fields, so that it has the field "value" in a table.
        self.is_wrapped = self._target.is_wrapped
        #: The names of the fields of a value.
        self.fields = tuple(tool.args["properties"])
        context = Context(Workspace(folder))
        self._planner = Planner((tool,), self._backend, options, context=context, resumes=True)
        settings = (attempts, max_tokens, temperature, seed, spans, date_order, clamp, call_format)
        self.fingerprint = digest([tool.fingerprint, *settings, self._backend.name])

    def extract(self, text: str, images: Sequence[Image] = ()) -> Extraction[T]:
        """Return the value that the text describes.

        Raises ExtractionError; BackendError if the server is unreachable, or refuses service; ValueError for
        a blank text.
        """
        return self._result(self._planner.run(text, images=images))

    async def aextract(self, text: str, images: Sequence[Image] = ()) -> Extraction[T]:
        """As `extract`, for an event loop."""
        return self._result(await self._planner.arun(text, images=images))

    async def astream(self, text: str) -> AsyncGenerator[Any]:
        """Yield partial values as they grow, and last the whole one. Raises ExtractionError.

        Of a pydantic model, they are instances that are not validated; fields that are missing are None.
        """
        written, shown, reader = "", None, self._target.reader
        async with aclosing(self._planner.astream(text)) as events:
            async for event in events:
                match event:
                    case StepStarted():
                        written = ""
                    case TextWritten():
                        written += event.text
                        partial_value = self._target.partial(written)
                        if partial_value is not None and partial_value != shown:
                            shown = partial_value
                            yield partial_value if reader is None else reader.partial(partial_value)
                    case RunFinished(run=run):
                        yield self._result(run).value

    async def amany(
        self, texts: Iterable[str], log: Path | str | None = None, concurrency: int = 4
    ) -> AsyncGenerator[Extraction[T] | ExtractionError]:
        """Yield the result of each text, in order, several at a time; see `extract_many`."""
        with nullcontext() if log is None else RunLog(Path(log), partial(self._logged, log)) as results:
            logged = {} if results is None else results.entries
            unanswered = Unanswered(AnswerTimeoutError, ServerResponseError)

            async def result(text: str) -> Extraction[T] | ExtractionError:
                try:
                    check_request(text)
                except ValueError as error:
                    return ExtractionError(str(error), (), "error")
                key = digest(text)
                if records := logged.get(key):  # of an earlier process, each once
                    return self._read(records.pop(0))
                run = await unanswered.result(self._planner.arun(text))
                if isinstance(run, BackendError):
                    hangs = isinstance(run, AnswerTimeoutError)
                    return ExtractionError(str(run), (), "hang" if hangs else "error")
                record = self._record(run)
                if results is not None:
                    results.append({"of": self.fingerprint, "text": key, "result": record})
                return self._read(record)

            async with aclosing(in_order(texts, result, concurrency)) as read:
                async for extraction in read:
                    yield extraction

    def _logged(self, log: Path | str, entry: Any) -> tuple[str, Any]:
        """Return which text an entry of a log is of, and the record."""
        if entry["of"] != self.fingerprint:
            problem = f"{log} has results of another type, model or options. Use those, or another file."
            raise RunLogError(problem)
        _ = entry["result"]["attempts"]
        return entry["text"], entry["result"]

    def _result(self, run: Run) -> Extraction[T]:
        result = self._read(self._record(run))
        if isinstance(result, ExtractionError):
            raise result
        return result

    def _record(self, run: Run) -> dict[str, Any]:
        """Return what is known of a run, as JSON: the fields of an extraction, or of an error."""
        attempts = [asdict(Attempt(step.text, step.error or "")) for step in run.steps]
        last = run.steps[-1] if run.steps else None
        if run.outcome != "answered" or last is None or last.call is None:
            problem = next((step.error for step in reversed(run.steps) if step.error), run.error)
            tried = f"no valid value after {len(attempts)} attempts; the last: " if attempts else ""
            # of a step that the limit has ended, no check has judged the text
            is_ended = (
                len(attempts) < self._attempts or last is None or (last.call is None and last.refusal is None)
            )
            hangs = run.outcome == "exhausted" and is_ended
            outcome = "error" if run.outcome == "failed" else "hang" if hangs else "invalid"
            return {"error": f"{tried}{problem}", "attempts": attempts, "outcome": outcome}
        json_value = self._target.json_value(last.call["arguments"])
        source = self._target.schema, run.query, run.started_at.date(), self._order
        spans = self._spans and taken_spans(json_value, *source)
        return {
            "json": json_value,
            "spans": spans or {},
            "values": [
                asdict(replace(probability, pointer=pointer))
                for probability in last.probabilities
                if (pointer := self._target.pointer(probability.pointer)) is not None
            ],
            "usage": asdict(Usage(run.prompt_tokens, run.completion_tokens, run.cached_tokens)),
            "seconds": run.duration_s,
            "attempts": attempts,
        }

    def _read(self, record: Mapping[str, Any]) -> Extraction[T] | ExtractionError:
        """Return the result of a record."""
        attempts = tuple(Attempt(**attempt) for attempt in record["attempts"])
        if "error" in record:
            return ExtractionError(record["error"], attempts, record.get("outcome", "invalid"))
        values = tuple(ValueProbability(**probability) for probability in record["values"])
        json_value, usage = record["json"], Usage(**record["usage"])
        details = values, usage, record["seconds"], attempts, self.findings, record.get("spans", {})
        try:
            return Extraction(self._target.read(json_value), json_value, *details)
        except ValueError as error:  # a validator may have changed since, or remember what it has seen
            return ExtractionError(str(error), attempts)


class Options(TypedDict, total=False):
    """The model, and the options of `Extractor`."""

    model: Model
    instructions: str
    attempts: int
    max_tokens: int
    max_seconds: float | None
    temperature: float
    seed: int
    spans: bool
    date_order: Literal["day", "month"] | None
    call_format: CallFormat | None
    clamp: bool


@overload
def extract(type_: type[T], text: str, **options: Unpack[Options]) -> Extraction[T]: ...
@overload
def extract(type_: Any, text: str, **options: Unpack[Options]) -> Extraction[Any]: ...
def extract(type_: Any, text: str, **options: Unpack[Options]) -> Extraction[Any]:
    """Return a value of a type from a text. Raises ExtractionError; see `Extractor.extract`.

    The model is kept open for the next call that names it.
    """
    return Extractor[Any](type_, **options).extract(text)


@overload
async def aextract(type_: type[T], text: str, **options: Unpack[Options]) -> Extraction[T]: ...
@overload
async def aextract(type_: Any, text: str, **options: Unpack[Options]) -> Extraction[Any]: ...
async def aextract(type_: Any, text: str, **options: Unpack[Options]) -> Extraction[Any]:
    """As `extract`, for an event loop."""
    return await (await asyncio.to_thread(Extractor[Any], type_, **options)).aextract(text)


def extract_many(
    type_: type[T] | Any,
    texts: Iterable[str],
    *,
    log: Path | str | None = None,
    concurrency: int = 4,
    **options: Unpack[Options],
) -> Generator[Extraction[T] | ExtractionError, None, None]:
    """Yield the result of each text, in order; a text without a valid value gives an ExtractionError.

    `texts` are taken as they are needed, in another thread. `concurrency`: how many at a time. `log`: a file
    of results; after an interruption, the same call reads those that it has, and extracts the others only. If
    the server is unreachable, or refuses service, that BackendError is raised: it is the result of no text.
    """
    extractor = Extractor[Any](type_, concurrency=concurrency, **options)
    return shared_loop().iterate(extractor.amany(texts, log, concurrency))


async def aextract_many(
    type_: type[T] | Any,
    texts: Iterable[str],
    *,
    log: Path | str | None = None,
    concurrency: int = 4,
    **options: Unpack[Options],
) -> AsyncGenerator[Extraction[T] | ExtractionError]:
    """As `extract_many`, for an event loop."""
    extractor = await asyncio.to_thread(Extractor[Any], type_, concurrency=concurrency, **options)
    async with aclosing(extractor.amany(texts, log, concurrency)) as results:
        async for extraction in results:
            yield extraction


def extract_stream(type_: type[T] | Any, text: str, **options: Unpack[Options]) -> Generator[T, None, None]:
    """Yield partial values as they grow, and last the whole one; see `Extractor.astream`."""
    return shared_loop().iterate(Extractor[Any](type_, **options).astream(text))


async def aextract_stream(type_: type[T] | Any, text: str, **options: Unpack[Options]) -> AsyncGenerator[T]:
    """As `extract_stream`, for an event loop."""
    extractor = await asyncio.to_thread(Extractor[Any], type_, **options)
    async with aclosing(extractor.astream(text)) as values:
        async for value in values:
            yield value


def choose(
    choices: Sequence[T] | Any, text: str, *, question: str = "", **options: Unpack[Options]
) -> Choice[T]:
    """Return which of several JSON values fits a text, and the probability of each.

    `choices`: a list of at least two, an enum or a `Literal`. `question`: what is asked of the text.
    """
    chooser = _chooser(choices, question, options)
    return chooser.choice(chooser.extract(text))


async def achoose(
    choices: Sequence[T] | Any, text: str, *, question: str = "", **options: Unpack[Options]
) -> Choice[T]:
    """As `choose`, for an event loop."""
    chooser = await asyncio.to_thread(_chooser, choices, question, options)
    return chooser.choice(await chooser.aextract(text))


class _Chooser(Extractor[T]):
    def choice(self, extraction: Extraction[T]) -> Choice[T]:
        chosen = next((part for part in extraction.values if part.pointer == ""), None)
        if chosen is None:
            return Choice(extraction.value, {})
        shares = chosen.alternatives or ((json.dumps(extraction.json), chosen.probability),)
        probabilities = {self._target.read(json.loads(text)): share for text, share in shares}
        return Choice(next(iter(probabilities)), probabilities)


def _chooser(choices: Any, question: str, options: Options) -> _Chooser[Any]:
    is_list = isinstance(choices, Sequence) and not isinstance(choices, str)
    if is_list and not all(choice is None or isinstance(choice, str | int | float) for choice in choices):
        raise ValueError(f"choices is {choices!r}; they must be strings, numbers, booleans or None")
    if is_list and not 1 < len(set(choices)) == len(choices):
        raise ValueError(f"choices is {choices!r}; it must have at least two values, all different")
    options["instructions"] = question or "Choose the value that fits the text."
    return _Chooser({"title": "choose", "enum": list(choices)} if is_list else choices, **options)


@dataclass(frozen=True, slots=True)
class _Target(Generic[T]):
    """What is extracted. `reader`: makes a value of a JSON value; `is_wrapped`: it is a property `value`."""

    tool: Tool
    reader: Any
    schema: Any
    is_wrapped: bool

    @classmethod
    def of(cls, type_: Any, instructions: str) -> _Target[T]:
        """Return the target of a type; its tool takes the value in an object, unless the type is one."""
        is_schema = isinstance(type_, Mapping | bool)
        schema = type_ if is_schema else json_schema_of(type_)
        declared = schema if isinstance(schema, Mapping) else {}
        called = is_schema and declared.get("title")
        called = called or getattr(get_origin(type_) or type_, "__name__", "") or _WRAPPED
        name = re.sub(r"\W+", "_", str(called), flags=re.ASCII).strip("_")[:40] or _WRAPPED
        is_object = declared.get("type") == "object" and "properties" in declared
        args: Any = {key: value for key, value in declared.items() if key not in {"title", "description"}}
        if not is_object:
            definitions: dict[str, Any] = {}
            try:
                inner = with_local_references(as_2020_12(schema), f"#/properties/{_WRAPPED}")
                definitions = inner.pop("$defs", {}) if isinstance(inner, dict) else {}
            except (SchemaError, RecursionError):  # with an $id, its references stay its own
                inner = {"$id": "urn:gbnf:value", **declared}
            args = {"type": "object", "properties": {_WRAPPED: inner}, "required": [_WRAPPED]}
            args |= {"$defs": definitions} if definitions else {}
        described = str(declared.get("description", ""))
        description = " ".join(filter(None, (described.strip(), instructions.strip())))
        tool = build_tool(
            name,
            description or f"Record the {name} that the text describes.",
            args,
            run={"effect": "write", "repeatable": True},
            extra={},
        )
        reader = None if is_schema else InstanceReader(type_)
        target = cls(tool, reader, schema, not is_object)
        return replace(target, tool=replace(tool, function=target.check))

    def check(self, arguments: Mapping[str, Any], _context: Any) -> dict[str, Any]:
        """Accept the arguments. Raises ExecutorError for those that a validator refuses."""
        try:
            self.read(self.json_value(arguments))
        except ValueError as error:
            raise ExecutorError(str(error)) from None
        return {"accepted": True}

    def json_value(self, arguments: Mapping[str, Any]) -> Any:
        """Return the JSON value in the arguments."""
        return arguments[_WRAPPED] if self.is_wrapped else arguments

    def pointer(self, pointer: str) -> str | None:
        """Return where a part of the call is in the value; None if it is outside."""
        prefix = f"/arguments/{_WRAPPED}" if self.is_wrapped else "/arguments"
        return pointer.removeprefix(prefix) if f"{pointer}/".startswith(f"{prefix}/") else None

    def read(self, json_value: Any) -> T:
        """Return the value. Raises ValueError, which names the field."""
        if self.reader is not None:
            value: T = self.reader.read(json_value)
            return value
        if problem := violation(self.schema, json_value):
            raise ValueError(problem)
        return json_value  # type: ignore[no-any-return]  # a JSON value

    def partial(self, text: str) -> Any:
        """Return the JSON value so far, None if there is none."""
        from pydantic_core import from_json  # noqa: PLC0415  # an extra, and rarely needed

        try:
            call = from_json(text[text.index("{") :].encode(), allow_partial="trailing-strings")
            return self.json_value(call["arguments"])
        except (ValueError, KeyError, TypeError):
            return None
