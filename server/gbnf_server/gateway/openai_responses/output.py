"""The output items of a response, and the events in which each is streamed.

An item begins (`response.output_item.added`), grows by deltas, and ends (`response.output_item.done`). Events
are dicts without `sequence_number`, which the reply adds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias

Event: TypeAlias = dict[str, Any]
Status: TypeAlias = Literal["in_progress", "completed", "incomplete"]


class OutputItem(ABC):
    """An item of the output. `index`: its place there; `pieces`: its deltas."""

    def __init__(self, index: int, item_id: str) -> None:
        self.index, self.item_id = index, item_id
        self.pieces: list[str] = []
        self.status: Status = "in_progress"

    @property
    def text(self) -> str:
        """What the deltas so far join to."""
        return "".join(self.pieces)

    def begin(self) -> Iterator[Event]:
        """Yield the events before the first delta."""
        yield {"type": "response.output_item.added", "output_index": self.index, "item": self._started()}
        yield from self._begin_part()

    def add(self, text: str) -> Event:
        """Add a delta, and return its event."""
        self.pieces.append(text)
        return self._delta(text)

    def end(self, status: Status) -> Iterator[Event]:
        """Yield the events after the last delta."""
        self.status = status
        yield from self._end_part()
        yield {"type": "response.output_item.done", "output_index": self.index, "item": self.item()}

    @abstractmethod
    def item(self) -> dict[str, Any]:
        """Return the item as it is now."""

    @abstractmethod
    def _started(self) -> dict[str, Any]: ...

    @abstractmethod
    def _delta(self, text: str) -> Event: ...

    def _begin_part(self) -> Iterator[Event]:
        yield from ()

    @abstractmethod
    def _end_part(self) -> Iterator[Event]: ...

    def _at(self, kind: str) -> Event:
        return {"type": kind, "item_id": self.item_id, "output_index": self.index}


class MessageOutput(OutputItem):
    """The text of an answer. `logprobs`: of its tokens, which are known at its end."""

    logprobs: Sequence[Mapping[str, Any]] = ()

    def item(self) -> dict[str, Any]:
        """Return the message with its text."""
        return self._message([self._part(self.text)])

    def _started(self) -> dict[str, Any]:
        return self._message([])

    def _message(self, content: list[dict[str, Any]]) -> dict[str, Any]:
        message = {"type": "message", "id": self.item_id, "role": "assistant", "status": self.status}
        return {**message, "content": content}

    def _part(self, text: str) -> dict[str, Any]:
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": [*self.logprobs]}

    def _begin_part(self) -> Iterator[Event]:
        yield {**self._at("response.content_part.added"), "content_index": 0, "part": self._part("")}

    def _delta(self, text: str) -> Event:
        delta = self._at("response.output_text.delta")
        return {**delta, "content_index": 0, "delta": text, "logprobs": []}

    def _end_part(self) -> Iterator[Event]:
        text = self.text
        done = self._at("response.output_text.done")
        yield {**done, "content_index": 0, "text": text, "logprobs": [*self.logprobs]}
        yield {**self._at("response.content_part.done"), "content_index": 0, "part": self._part(text)}


class ReasoningOutput(OutputItem):
    """The model's reasoning, whole: as its content, or as the summary if the client asks for one."""

    def __init__(self, index: int, item_id: str, *, as_summary: bool) -> None:
        super().__init__(index, item_id)
        self._member, self._name = (
            ("summary", "reasoning_summary") if as_summary else ("content", "reasoning")
        )
        self._type = "summary_text" if as_summary else "reasoning_text"
        self._position = {"summary_index" if as_summary else "content_index": 0}
        self._part_event = "reasoning_summary_part" if as_summary else "content_part"

    def item(self) -> dict[str, Any]:
        """Return the item with its reasoning."""
        return {**self._started(), "status": self.status, self._member: [self._part(self.text)]}

    def _started(self) -> dict[str, Any]:
        return {"type": "reasoning", "id": self.item_id, "summary": []}

    def _part(self, text: str) -> dict[str, Any]:
        return {"type": self._type, "text": text}

    def _begin_part(self) -> Iterator[Event]:
        yield {**self._at(f"response.{self._part_event}.added"), **self._position, "part": self._part("")}

    def _delta(self, text: str) -> Event:
        return {**self._at(f"response.{self._name}_text.delta"), **self._position, "delta": text}

    def _end_part(self) -> Iterator[Event]:
        text = self.text
        yield {**self._at(f"response.{self._name}_text.done"), **self._position, "text": text}
        yield {**self._at(f"response.{self._part_event}.done"), **self._position, "part": self._part(text)}


class CallOutput(OutputItem):
    """A call of a function."""

    def __init__(self, index: int, item_id: str, call_id: str, namespace: str | None, name: str) -> None:
        super().__init__(index, item_id)
        self._call = {"type": "function_call", "id": item_id, "call_id": call_id, "name": name}
        if namespace is not None:
            self._call["namespace"] = namespace

    def item(self) -> dict[str, Any]:
        """Return the call with its arguments."""
        return {**self._call, "arguments": self.text, "status": self.status}

    def _started(self) -> dict[str, Any]:
        return self.item()

    def _delta(self, text: str) -> Event:
        return {**self._at("response.function_call_arguments.delta"), "delta": text}

    def _end_part(self) -> Iterator[Event]:
        yield {**self._at("response.function_call_arguments.done"), "arguments": self.text}
