"""The protocols: native, JSON, one call by a JSON Schema, a server's own calls, calls in text, and in lines.

In a reasoning field, the first property of a call, `{"thought": "…", "name": …}`, reasoning is part of the
grammar, so that it works with every backend that takes one. It is removed before the call is validated.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar

from gbnf import Grammar, compile_pool
from gbnf.calls import FinalAnswer, ToolCall, parse_tool_calls, render_tool_calls
from gbnf.calls.parsing.lenient_json import load_complete
from gbnf.calls.validation import validate_call
from gbnf.compiler.automaton_rules import words_expr
from gbnf.compiler.grammar import CompiledRules
from gbnf.compiler.layout import Whitespace
from gbnf.compiler.pool import compile_tools, pool_tools
from gbnf.compiler.primitives import RESERVED
from gbnf.compiler.rules import RuleTable, Scope
from gbnf.dialects import call_schema
from gbnf.grammar import ir
from gbnf.grammar.ir import Ref, Rules, alt, char_class, literal, repeat, seq
from gbnf.grammar.passes import run_passes
from gbnf.prompts.messages import Message
from gbnf.protocols.protocol import CallProtocol, Offered, ParsedCall, UnreadableCallError, for_template
from gbnf.protocols.readers import (
    CALL_MARK,
    REASONING_KEY,
    AnswerInText,
    AnswerReader,
    SpokenText,
    StringMember,
    TextCalls,
    WholeJsonCall,
    without_fences,
)
from gbnf.regular.ecma262 import search
from gbnf.schema_caches import schema_cache
from gbnf.strict_json import InvalidJsonError, parse_json
from gbnf.tool_formats import ArgumentsDelta, CallEnded, CallStarted, Delta, ToolFormat, text_calls
from gbnf.tool_formats.streaming import TextCallDeltas
from gbnf.tool_formats.tool_format import part_options
from gbnf.tools import ASK_USER, FINAL_ANSWER, Tool


class _ToolMessages(CallProtocol):
    """Calls are entries of `tool_calls`, and their outcomes messages of the role "tool"."""

    declares_tools: ClassVar[bool] = True

    def call_message(self, call: Mapping[str, Any], number: int) -> Message:
        """Return the message of a call, or of the final answer."""
        if call["name"] == FINAL_ANSWER.name and not self.answers_by_call:
            return {"role": "assistant", "content": call["arguments"]["message"]}
        function = {"name": call["name"], "arguments": dict(call["arguments"])}
        native = {"id": _call_id(number), "type": "function", "function": function}
        return {"role": "assistant", "content": "", "tool_calls": [native]}

    def outcome_message(self, content: str, name: str, number: int) -> Message:
        """Return the message of a call's result or error."""
        return {"role": "tool", "content": content, "tool_call_id": _call_id(number), "name": name}

    def refused_messages(
        self, text: str, call: Mapping[str, Any] | None, error: str, number: int
    ) -> tuple[Message, Message]:
        """Return the messages of a refused text, and of the error."""
        if call is not None and call["name"] != FINAL_ANSWER.name:
            return self.call_message(call, number), self.outcome_message(error, call["name"], number)
        refused, _ = super().refused_messages(text, call, error, number)
        return refused, {"role": "user", "content": error}


@dataclass(frozen=True)
class NativeCalls(_ToolMessages):
    """The format of the model's chat template, which declares the tools.

    A call is an entry of `tool_calls`, and its outcome a message of the role "tool" with the call's id; a
    text that is no call is answered by the user, since templates refuse an outcome without a call.
    `answers_by_call`: for a model that is trained on the planner's prompts. `reasoning`: the template is
    asked for reasoning.
    """

    tool_format: ToolFormat
    answers_by_call: bool = False
    reasoning: bool = False
    name: ClassVar[str] = "native"

    @property
    def has_ids(self) -> bool:
        """Whether the model writes an id for each call."""
        return self.tool_format.has_ids

    @property
    def call_begin(self) -> str:
        """The marker of the format."""
        return self.tool_format.marker

    def constraint(self, offered: Offered) -> Grammar:
        """Return the grammar of an answer: calls, or a text if the final answer is one."""
        tools = (*offered.tools, *((ASK_USER,) if offered.ask_user else ()))
        by_text = offered.answer and not self.answers_by_call
        return self.tool_format.grammar(
            tools,
            tool_choice=("auto" if tools else "none") if by_text else "required",
            parallel=offered.parallel,
            final_answer=offered.answer and self.answers_by_call,
            reasoning=self.reasons_first,
            steps=offered.steps,
            property_order=offered.property_order,
            other_calls=offered.other_calls,
            max_depth=offered.max_depth,
        )

    def prose(self) -> Grammar:
        """Return the grammar of a text that does not begin like a call."""
        return self.tool_format.prose_grammar()

    @property
    def reasons_first(self) -> bool:
        """Whether the template is asked for reasoning, and its format has it."""
        return self.reasoning and self.tool_format.reasoning is not None

    def reader(self, offered: Offered) -> AnswerReader:
        """Return a reader of the calls and the text of an answer."""
        in_prose = not offered.other_calls
        return self.tool_format.stream(offered.tools, reasoning=self.reasons_first, in_prose=in_prose)

    def answer_reader(self, tools: Sequence[Tool] = ()) -> AnswerReader:
        """Return a reader of an answer in which one call is made."""
        return super().answer_reader() if self.answers_by_call else self.reader(Offered(()))

    def read(
        self, text: str, tools: Sequence[Tool], *, steps: Sequence[int] = (), truncated: bool = False
    ) -> ParsedCall:
        """Read a whole text, where a text without a call is the final answer."""
        result = self.tool_format.parse(text, tools, truncated=truncated, reasoning=self.reasons_first)
        if isinstance(result, FinalAnswer):
            return ParsedCall(_final_answer(result.content), result.reasoning)
        if not result.calls:
            raise UnreadableCallError("; ".join(invalid.error for invalid in result.invalid))
        repairs = tuple(map(str, result.repairs))
        return ParsedCall(result.calls[0].as_call(), result.reasoning, repairs, preface=result.preface)

    def messages(self, messages: Sequence[Message], prompt: str) -> tuple[Message, ...]:
        """Return a client's conversation as the chat template takes it."""
        return for_template(messages, self.tool_format.id_pattern)


@dataclass(frozen=True)
class JsonCalls(CallProtocol):
    """Calls as JSON, the project's own format, for models whose chat template has none.

        {"name": "tool", "arguments": {…}}      one call; further ones on lines of their own
        any text that does not begin like one   the answer

    Calls in code blocks, in lists and with other keys are read, too (`gbnf.tool_formats.text_calls`). Models
    that are trained to answer with a tool may also write a call of `final_answer`, whose message is the text.

    `is_constrained`: by a grammar, rather than by the prompt only. `answers_by_call`: each answer is one
    call. `also_final_answer`: of a text, which may also be written as a call of `final_answer`.
    `reasoning_field`: the first property of a call is reasoning.
    """

    is_constrained: bool = True
    answers_by_call: bool = True
    also_final_answer: bool = False
    reasoning_field: bool = False
    whitespace: Whitespace = "default"
    name: ClassVar[str] = "json"

    def constraint(self, offered: Offered) -> Grammar | None:
        """Return the grammar of an answer."""
        if not self.is_constrained:
            return None
        if not self.answers_by_call:
            return json_grammar(offered, also_final_answer=self.also_final_answer)
        grammar = compile_pool(
            offered.tools,
            final_answer=offered.answer,
            ask_user=offered.ask_user,
            steps=offered.steps,
            whitespace=self.whitespace,
            property_order=offered.property_order,
            max_depth=offered.max_depth,
        )
        return with_reasoning_grammar(grammar) if self.reasoning_field else grammar

    def reader(self, offered: Offered) -> AnswerReader:
        """Return a reader of the calls and the text of an answer."""
        in_prose = not offered.other_calls
        return JsonCallStream(offered.tools, final_answer=self.also_final_answer, in_prose=in_prose)


@dataclass(frozen=True)
class SchemaCalls(CallProtocol):
    """One call as JSON by a JSON Schema, for servers that take no grammar.

    `clamp`: numbers out of their bounds, which not every server enforces, are moved to them.
    """

    reasoning_field: bool = False
    clamp: bool = False
    name: ClassVar[str] = "json"

    def constraint(self, offered: Offered) -> Mapping[str, Any]:
        """Return the schema of an answer."""
        built_in = (
            *((ASK_USER,) if offered.ask_user else ()),
            *((_answer(offered),) if offered.answer else ()),
        )
        schema = call_schema((*offered.tools, *built_in), steps=offered.steps)
        return with_reasoning_schema(schema) if self.reasoning_field else schema

    def reader(self, offered: Offered) -> AnswerReader:
        """Return a reader of the call."""
        return WholeJsonCall(_answer(offered).name if offered.answer else None)

    def read(
        self, text: str, tools: Sequence[Tool], *, steps: Sequence[int] = (), truncated: bool = False
    ) -> ParsedCall:
        """Read a whole text, in which one call is made; see `CallProtocol`."""
        parsed = super().read(text, tools, steps=steps, truncated=truncated)
        if not self.clamp or not isinstance(parsed.call, dict):
            return parsed
        reasoning, call = pop_reasoning(parsed.call) if self.reasoning_field else ("", parsed.call)
        return repaired_call(call, tools, steps, clamp=True, reasoning=reasoning)


@dataclass(frozen=True)
class CallsInText(CallProtocol):
    """Calls in any common syntax in a text, read with repairs; a text without one is the final answer.

    `lines`: the prompt requests the line protocol, rather than JSON. `reasoning_field`: as in `JsonCalls`.
    `clamp`: see `gbnf.calls.repair_call`.
    """

    lines: bool = False
    reasoning_field: bool = False
    clamp: bool = False
    is_constrained = False
    reads_truncated: ClassVar[bool] = True

    @property
    def name(self) -> str:
        """Which syntax the prompt requests."""
        return "lines" if self.lines else "text"

    def constraint(self, offered: Offered) -> None:
        """Return None: the prompt only requests calls."""

    def reader(self, offered: Offered) -> AnswerReader:
        """Return a reader of the calls in a text, and of the text around them."""
        return TextCalls(offered.tools, required=not offered.answer, parallel=offered.parallel)

    def answer_reader(self, tools: Sequence[Tool] = ()) -> AnswerReader:
        """Return a reader of an answer in which one call is made: of the prose before it, too."""
        return AnswerInText(tools)

    def read(
        self, text: str, tools: Sequence[Tool], *, steps: Sequence[int] = (), truncated: bool = False
    ) -> ParsedCall:
        """Read the first call in a text, repaired to fit its tool's schema (`gbnf.calls.repair`).

        `truncated`: the token limit ended the text, which matters if the call had not ended before, or is
        surrounded by prose.
        """
        step = parse_tool_calls(text, tools)
        if isinstance(step, FinalAnswer):
            if (alone := _only_arguments(step.content, tools)) is not None:
                return repaired_call(alone, tools, steps, clamp=self.clamp)
            if truncated:
                raise UnreadableCallError(
                    "the text did not end within the limit of tokens; write a shorter one"
                )
            if not step.content.strip():
                raise UnreadableCallError("the text is empty; write a call, or an answer")
            taken = "answer: took a text without a call for the final answer"
            return ParsedCall(_final_answer(step.content.strip()), "", (*map(str, step.repairs), taken))
        if not step.calls:
            raise UnreadableCallError("; ".join(invalid.error for invalid in step.invalid))
        call = step.calls[0]
        # lines, and a bare name, have no end mark: only the backend reports that they were truncated
        endless = step.syntax == "yaml" or (step.syntax == "call" and not call.arguments)
        if call.truncated or (truncated and endless):
            raise UnreadableCallError("the call was cut and not executed; write a shorter one")
        if truncated and step.inside_prose:
            raise UnreadableCallError(
                "the text was cut, and its call may be a thought of many; write the call alone"
            )
        reasoning, others = pop_reasoning(call.extra) if self.reasoning_field else ("", call.extra)
        expected = bool(reasoning) and not others  # which the parser reports as ignored
        repairs = [str(repair) for repair in step.repairs if not (expected and repair.kind == "extra")]
        repairs += _left_out(len(step.calls) - 1)
        parsed = repaired_call(call, tools, steps, clamp=self.clamp, reasoning=reasoning, repairs=repairs)
        return replace(parsed, preface=step.preface)

    def call_message(self, call: Mapping[str, Any], number: int) -> Message:
        """Return the message of a call in the requested syntax."""
        if not self.lines:
            return super().call_message(call, number)
        text = render_tool_calls(ToolCall("", call["name"], dict(call["arguments"])), "yaml")
        return {"role": "assistant", "content": text}


def server_calls_text(calls: Iterable[tuple[str, str]]) -> str:
    """Return the text of a server's calls: of each the name, and the text of its arguments, unchanged."""
    written = (
        (json.dumps(name), (text.strip() or "{}").replace(CALL_MARK, "\u241e")) for name, text in calls
    )
    return "".join(f'{CALL_MARK}{{"name": {name}, "arguments": {text}}}\n' for name, text in written)


@dataclass(frozen=True)
class ServerCalls(_ToolMessages, CallsInText):
    """The tool calls of the server's own API, which declares the tools; otherwise as `CallsInText`."""

    name: ClassVar[str] = "server"
    answers_by_call = False

    def answer_reader(self, tools: Sequence[Tool] = ()) -> AnswerReader:
        """Return a reader of the text of an answer."""
        return SpokenText(CALL_MARK)

    def read(
        self, text: str, tools: Sequence[Tool], *, steps: Sequence[int] = (), truncated: bool = False
    ) -> ParsedCall:
        """Read the first call, repaired to fit its tool's schema. Invalid JSON is not repaired."""
        content, *written = text.split(CALL_MARK)
        if not written:
            return super().read(content, tools, steps=steps, truncated=truncated)
        if truncated:
            raise UnreadableCallError("the call was truncated and not executed; write a shorter one")
        try:
            call = parse_json(written[0])
        except InvalidJsonError as error:
            raise UnreadableCallError(f"the arguments of the call are not JSON: {error}") from None
        call_object = call if isinstance(call, dict) else {}
        if call_object.keys() != {"name", "arguments"} or not isinstance(call_object["arguments"], dict):
            raise UnreadableCallError("the arguments of the call are not one JSON object")
        parsed = repaired_call(call, tools, steps, clamp=self.clamp, repairs=_left_out(len(written) - 1))
        return replace(parsed, preface=content.strip())

    def refused_messages(
        self, text: str, call: Mapping[str, Any] | None, error: str, number: int
    ) -> tuple[Message, Message]:
        """Return the messages of a refused text, and of the error."""
        return super().refused_messages(text.replace(CALL_MARK, "\n"), call, error, number)


def _left_out(count: int) -> list[str]:
    return [f"ignored: left out {count} more calls; one is made at a time"] if count else []


def repaired_call(
    call: Mapping[str, Any] | ToolCall,
    tools: Sequence[Tool],
    steps: Sequence[int],
    *,
    clamp: bool,
    reasoning: str = "",
    repairs: Iterable[str] = (),
) -> ParsedCall:
    """Return a call with arguments that fit its tool's schema, as far as that is possible."""
    from gbnf.calls.repair import repair_call  # noqa: PLC0415  # constrained calls need no repair

    repaired = repair_call(call, tools, steps=steps, clamp=clamp)
    thought = {REASONING_KEY: reasoning} if reasoning else {}
    return ParsedCall(thought | repaired.call, "", (*repairs, *map(str, repaired.coercions)))


def _only_arguments(text: str, tools: Sequence[Tool]) -> dict[str, Any] | None:
    """Return the call of the only tool that is possible, if a text is its arguments in JSON."""
    value = load_complete(without_fences(text)) if len(tools) == 1 and tools[0] != FINAL_ANSWER else None
    call = {"name": tools[0].name, "arguments": value} if tools else {}
    return call if isinstance(value, dict) and value and validate_call(call, tools).ok else None


def _answer(offered: Offered) -> Tool:
    """Return the tool of the final answer, under another name if an offered tool has its name."""
    name = FINAL_ANSWER.name
    while any(tool.name == name for tool in offered.tools):
        name += "_"
    return FINAL_ANSWER if name == FINAL_ANSWER.name else replace(FINAL_ANSWER, name=name)


def _final_answer(message: str) -> dict[str, Any]:
    return {"name": FINAL_ANSWER.name, "arguments": {"message": message}}


def _call_id(number: int) -> str:
    return f"call{number:05d}"  # nine letters and digits, as Mistral's templates require


MAX_REASONING_LENGTH = 300
"""Maximum characters of reasoning in a field."""

_CHARACTER = ir.char_class('"\\', (0x00, 0x1F), (0x7F, 0x7F), negated=True)
_SPACE = ir.optional(ir.literal(" "))
_MEMBER = ir.seq(
    ir.literal(f'"{REASONING_KEY}":'), _SPACE,
    ir.literal('"'), ir.repeat(_CHARACTER, 1, MAX_REASONING_LENGTH), ir.literal('",'), _SPACE,
)  # fmt: skip


@schema_cache(maxsize=64)
def with_reasoning_grammar(grammar: Grammar) -> Grammar:
    """Return a pool's grammar in which each call begins with reasoning."""
    root = grammar.rules.productions["root"]
    assert isinstance(root, ir.Seq)
    opening, *rest = root.items
    assert isinstance(opening, ir.Literal), "a pool's grammar begins with its calls' first key"
    root = ir.seq(ir.literal(opening.text[:1]), _MEMBER, ir.literal(opening.text[1:]), *rest)
    return Grammar(ir.Rules({**grammar.rules.productions, "root": root}), grammar.report, grammar.is_parsed)


def with_reasoning_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a pool's JSON Schema in which each call begins with reasoning."""
    if "anyOf" in schema:
        return {**schema, "anyOf": [with_reasoning_schema(branch) for branch in schema["anyOf"]]}
    reasoning_message = {"type": "string", "minLength": 1, "maxLength": MAX_REASONING_LENGTH}
    return {
        **schema,
        "properties": {REASONING_KEY: reasoning_message, **schema["properties"]},
        "required": [REASONING_KEY, *schema["required"]],
    }


def pop_reasoning(call: Any) -> tuple[str, Any]:
    """Split a call into its reasoning, "" if there is none, and the rest."""
    if isinstance(call, dict) and isinstance(call.get(REASONING_KEY), str):
        return call[REASONING_KEY], {key: value for key, value in call.items() if key != REASONING_KEY}
    return "", call


# no rule of a pool has this name: those of its tools begin with "args"
_CALL = Ref("oneCall")
_SPACES = r"[ \t\r\n]"


@schema_cache(maxsize=512)
def json_grammar(offered: Offered, *, also_final_answer: bool = False) -> Grammar:
    """Compile the grammar of an answer with calls of the tools, or of a text if it may be the final answer.

    `also_final_answer`: a text may also be a call of that built-in tool.
    """
    order, depth = offered.property_order, offered.max_depth
    if not offered.answer:
        pool = compile_pool(offered.tools, property_order=order, max_depth=depth)
        productions = dict(pool.rules.productions)
        call = productions.pop("root")
        root = seq(_CALL, repeat(seq(literal("\n"), _CALL))) if offered.parallel else _CALL
        return Grammar(Rules({"root": root, _CALL.name: call, **productions}), pool.report)
    with_answer = also_final_answer and all(tool.name != FINAL_ANSWER.name for tool in offered.tools)
    tools = pool_tools(offered.tools, with_answer, ask_user=False)
    options, _ = part_options(None, order, depth)
    text, taken = _plain_text(), RESERVED | text_calls.RULES
    compiled = compile_tools(tools, options, False, strict=False, taken=taken | text.names)
    in_text = text_calls.text_call_rules(compiled.tools, parallel=offered.parallel, bare=True)
    others = text_calls.other_object_rules(tuple(tool.name for tool in compiled.tools), ())
    return compiled.link((text, in_text, others), (), options)


@lru_cache(maxsize=1)
def _plain_text() -> CompiledRules:
    """Return the rules of all answers, and of the texts that begin neither like a call nor with a space."""
    table = RuleTable(RESERVED - {"root"} | text_calls.RULES)
    root = table.reserve("root")
    begun = search(f"^{_SPACES}|^{text_calls.BEGINNING}")
    text = words_expr(search("^[^\\0]*$") - begun, Scope(table, ("text",)))
    rest = repeat(char_class(negated=True))
    table.define(root, alt(Ref(text_calls.TEXT_CALLS), seq(Ref(text_calls.OTHER_OBJECT), rest), text))
    return CompiledRules.of(run_passes(Rules(table.productions, root.name)))


class JsonCallStream(TextCallDeltas):
    """Reads an answer of `json_grammar`. `final_answer`: a call of that tool is its message."""

    def __init__(self, tools: Sequence[Tool], *, final_answer: bool, in_prose: bool = False) -> None:
        self._reads_message = final_answer and all(tool.name != FINAL_ANSWER.name for tool in tools)
        super().__init__((*tools, FINAL_ANSWER) if self._reads_message else tools, in_prose=in_prose)
        self._message: StringMember | None = None

    def _advance(self) -> list[Delta]:
        deltas = super()._advance()
        return [other for delta in deltas for other in self._without_final_answer(delta)]

    def _without_final_answer(self, delta: Delta) -> list[Delta]:
        match delta:
            case CallStarted(name=name) if self._reads_message and name == FINAL_ANSWER.name:
                self._message = StringMember(r'\s*\{\s*"message"')
                return []
            case ArgumentsDelta(json_text=piece) if self._message is not None:
                return self._message.feed(piece)
            case CallEnded() if self._message is not None:
                return []
        return [delta]
