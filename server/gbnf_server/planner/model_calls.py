"""What a run asks of its model: calls, reasoning before them, and an answer from the results.

Invariants: the prompt of a step is compacted before it exceeds the context; a salvaged answer is requested
once, without tools.

Free reasoning takes two model calls rather than one grammar for both, so that endless reasoning is ended by
its own limit, and the call still has all of its tokens: first unconstrained reasoning, then the constrained
call. A backend that renders the prompt itself puts the reasoning between the reasoning tags of its chat
template; with other backends it is a message of plain text.
"""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Callable, Generator, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from math import inf
from typing import Any, TypeAlias, TypeVar

from gbnf.errors import GbnfError
from gbnf.prompts.descriptions import declare_purpose
from gbnf.prompts.messages import Message, native_system_prompt
from gbnf.protocols.protocol import AnswerFormat
from gbnf.protocols.readers import AnswerReader, SpokenText, Unread
from gbnf.requests.evidence import Evidence
from gbnf.requests.ranking import is_about
from gbnf.tools import FINAL_ANSWER, Tool
from gbnf.tools.tool import localized
from gbnf_server.backends.answer import unfinished
from gbnf_server.backends.base import MAX_ALTERNATIVES, MAX_LOGPROBS, Completion, Request, ToolChoice
from gbnf_server.backends.call_odds import call_odds, means_text, odds_request
from gbnf_server.backends.reasoning import reasoning_grammar, reasoning_message
from gbnf_server.planner import salvage
from gbnf_server.planner.compaction import compacted, next_compaction
from gbnf_server.planner.events import (
    CallModel,
    Effect,
    Event,
    HistoryCompacted,
    ModelCalled,
    Purpose,
    Run,
    SalvagedAnswer,
    SalvageStarted,
    Step,
    WarningRaised,
)
from gbnf_server.planner.options import ResolvedOptions
from gbnf_server.planner.run_state import OfferedTools, RunState
from gbnf_server.planner.small_models.preference import (
    FEW,
    GREETING,
    choice_grammar,
    is_clear,
    preference,
    read_choice,
)
from gbnf_server.planner.small_models.requested_tools import choice_scores, said_choice
from gbnf_server.planner.tool_offer import declared_tools, select, system_message
from gbnf_server.system.errors import ContextOverflowError, ConversationRefusedError, MalformedTextError

Clock: TypeAlias = Callable[[], datetime]
_Value = TypeVar("_Value")
Part: TypeAlias = Generator[Effect | Event, Any, _Value]
"""A part of a run in progress: yields effects and events, returns its value."""

LEAST_SECONDS = 0.05
"""Less than this is not worth a generation, and timers are less exact."""
_SALVAGE_SHARE = 0.1
"""The part of `max_seconds` that is added for a salvaged answer."""
_THINK = {
    "en": (
        "Before the next call, think: what is still missing, which one tool brings it, and with which "
        "arguments? Answer in a few sentences of plain text, without the call."
    ),
    "it": (
        "Prima della prossima chiamata rifletti: che cosa manca ancora, quale strumento lo porta e con quali "
        "argomenti? Rispondi in poche frasi di testo semplice, senza la chiamata."
    ),
}
_NOW_CALL = {"en": "Now write the next call.", "it": "Ora scrivi la prossima chiamata."}


@dataclass(frozen=True, slots=True)
class ModelCalls:
    """The model calls of one run."""

    clock: Clock
    state: RunState

    @property
    def options(self) -> ResolvedOptions:
        """The options of the run, of which the call format may change."""
        return self.state.options

    def seconds_left(self) -> float:
        """Return the seconds that are left for the run; infinity without a limit."""
        limit = inf if self.options.max_seconds is None else self.options.max_seconds
        return limit + self.state.waited_s - (self.clock() - self.state.started_at).total_seconds()

    def decode(self, offer: OfferedTools) -> Part[tuple[Completion, Step]]:
        """Generate the next call; return the completion, and the step as far as it is known.

        If the history nears the context, or a prompt did not fit, it is compacted first: once for each tier.
        """
        state = self.state
        system = system_message(offer, self.options, state.started_at.date())
        state.system = system["content"]
        yield from self._compact(system)
        while True:
            try:
                return (yield from self._generate(offer, system))
            except ContextOverflowError as error:
                state.meter = state.meter.overflowed(error, self._prompt(system))
                if not (yield from self._compact(system, overflowed=True)):
                    raise

    def choose_tool(self) -> Part[None]:
        """Ask a small model which of many tools a request needs first, unless its words say so."""
        state, options = self.state, self.options
        if state.steps or not (options.asks_first and options.filter and options.dialect == "gbnf"):
            return
        tools = select(state).kept
        if len(tools) > FEW:
            state.lead.choice = said_choice(tools, state)
            state.lead.choice = state.lead.choice or (yield from self._choice(tools, tuple(state.history)))
            state.lead.preference = preference(choice_scores(tools, state), state.lead.choice, options.ranker)

    def _choice(self, tools: tuple[Tool, ...], asked: tuple[Message, ...]) -> Part[Mapping[str, float]]:
        """Ask which of some tools is needed first; return the log-probability of each, by name.

        At most those that fit best, if no more can be scored. {} if it is unknown.
        """
        state, options, pool = self.state, self.options, self.state.order.tools
        scores = choice_scores(tools, state)
        best = sorted(tools, key=lambda tool: -scores.get(tool, 0.0))[:MAX_ALTERNATIVES]
        names = tuple(tool.name for tool in tools if tool in best)
        # the same for all requests, so that they share the prefix
        listed = tuple(tool for tool in pool if len(pool) <= MAX_ALTERNATIVES or tool.name in names)
        declared = tuple(declare_purpose(tool, language=options.language) for tool in listed)
        system: Message = {
            "role": "system",
            "content": native_system_prompt(options.language, today=state.started_at.date(), brief=True),
        }
        try:
            completion, _ = yield from self._ask((system, *asked), choice_grammar(names), "tool", declared)
        except (ConversationRefusedError, ContextOverflowError, MalformedTextError):
            return {}  # by a template that needs arguments, for one
        return read_choice(completion, names)

    def only_prose(self, offer: OfferedTools) -> Part[bool]:
        """Return whether a small model means to answer a request, rather than to call a tool for it."""
        state, options = self.state, self.options
        names = {tool.name for tool in offer.callable}
        if not options.asks_first or FINAL_ANSWER.name not in names:
            return False
        if state.steps or len(names) == 1:
            return state.lead.without_tools
        messages = self._prompt(system_message(offer, options, state.started_at.date()))
        completion, _ = yield from self._ask(messages, None, "choice", declared_tools(offer, options))
        odds = call_odds(completion, options.protocol.call_begin)
        tools = select(state).kept
        about = is_about(state.request, tools if state.lead.choice else offer.own)
        if odds is None or not means_text(odds, about):
            return False
        if not state.lead.choice or about is not False or means_text(odds, None):
            return True
        greeting: Message = {"role": "user", "content": GREETING}
        return not is_clear(state.lead.choice, (yield from self._choice(tools, (greeting,))))

    def _prompt(self, system: Message) -> tuple[Message, ...]:
        state = self.state
        return (
            *([system] if system["content"] else ()),
            *compacted(state.history, state.steps, state.compaction, self.options.language),
        )

    def _compact(self, system: Message, *, overflowed: bool = False) -> Part[bool]:
        """Show less of the history, if that is needed; return whether it was, and is possible."""
        state, options = self.state, self.options
        change = options.compact and next_compaction(
            system, state.history, state.steps, state.compaction, state.meter, options, overflowed=overflowed
        )
        if not change:
            return False
        state.compaction, *tokens = change
        tier, steps = state.compaction.tier, state.compaction.steps
        yield from self.emit(HistoryCompacted(self.clock(), state.number, tier, steps, *tokens))
        return True

    def _generate(self, offer: OfferedTools, system: Message) -> Part[tuple[Completion, Step]]:
        state, options = self.state, self.options
        messages, tools = self._prompt(system), declared_tools(offer, options)
        # without what was refused, which it would repeat, or dates after the request; then with it
        if (
            state.lead.without_tools
            and state.blocked_in_a_row < 2
            and not any(step.fault for step in state.steps)
        ):
            asked = state.history[: len(state.history) - 2 * len(state.steps)]
            messages = (system, *asked[:-1], {**asked[-1], "content": state.query})
        reasoning, thinking_s = "", 0.0
        if options.reasoning == "free" and not options.protocol.reasons_first:
            reasoning, thinking_s, messages = yield from self._think(messages, tools)
        completion, seconds = yield from self._ask(
            messages, offer.grammar, "call", tools, offer.evidence, "auto" if offer.answers else "required"
        )
        if completion.reclaimed:
            yield from self.warn(
                f"step {state.number}: the server returned the call as reasoning, and it was moved back; "
                "disable the server's reasoning parser"
            )
        if completion.grammar_violation is not None:
            yield from self.warn(
                f"step {state.number}: the backend did not enforce the grammar "
                f"({completion.grammar_violation}); update it, or use the call format text"
            )
        if completion.unmatched:
            yield from self.warn(f"the answers were not matched against the grammar: {completion.unmatched}")
        reasoning = reasoning or completion.reasoning
        return completion, Step(
            state.number,
            completion.text,
            model_s=seconds + thinking_s,
            reasoning=reasoning,
            probabilities=completion.probabilities,
        )

    def _think(
        self, messages: tuple[Message, ...], tools: tuple[dict[str, Any], ...]
    ) -> Part[tuple[str, float, tuple[Message, ...]]]:
        """Ask for reasoning first; return it, its seconds, and the messages that ask for the call."""
        tags, language = self.options.model.reasoning_tags, self.options.language
        last = messages[-1]
        asking: Message = {**last, "content": f"{last['content']}\n\n{localized(_THINK, language)}"}
        asked = (*messages[:-1], asking) if tags is None else (*messages, reasoning_message(""))
        grammar = None if tags is None else reasoning_grammar(tags.closing)
        thinking, seconds = yield from self._ask(asked, grammar, "reasoning", tools)
        text = thinking.text if tags is None else thinking.text.removesuffix(tags.closing)
        # that of the backend's own field, then the text
        reasoning = "\n".join(part for part in (thinking.reasoning.strip(), text.strip()) if part)
        if tags is not None:
            return reasoning, seconds, (*messages, reasoning_message(reasoning, closed=True))
        answer: Message = {"role": "assistant", "content": reasoning}
        call: Message = {"role": "user", "content": localized(_NOW_CALL, language)}
        return reasoning, seconds, (*asked, answer, call) if reasoning else messages

    def _ask(
        self,
        messages: tuple[Message, ...],
        grammar: AnswerFormat | None,
        purpose: Purpose,
        tools: tuple[dict[str, Any], ...] = (),
        evidence: Evidence | None = None,
        tool_choice: ToolChoice = "none",
    ) -> Part[tuple[Completion, float]]:
        """Call the model; return the completion, and its seconds."""
        state, options = self.state, self.options
        reasons = purpose == "call" and options.protocol.reasons_first
        max_tokens = options.reasoning_budget if purpose == "reasoning" else options.max_tokens
        seconds_left = self.seconds_left()
        if purpose == "salvage" and options.max_seconds is not None:
            seconds_left = max(seconds_left, 0) + options.max_seconds * _SALVAGE_SHARE
        begun = self.clock()
        request = Request(
            messages,
            grammar,
            tools=tools,
            tool_choice=tool_choice if tools and options.call_format == "server" else None,
            reasoning=reasons,
            max_tokens=max_tokens + options.reasoning_budget if reasons else max_tokens,
            temperature=options.temperature,
            seed=options.seed,
            probabilities=purpose == "tool"
            or (purpose == "call" and (options.probabilities or options.confirm_below > 0)),
            # so that a server which has none is an error, rather than that every value seems sure
            logprobs=MAX_LOGPROBS if purpose == "call" and options.confirm_below > 0 else None,
            evidence=evidence,
            timeout_s=None if options.max_seconds is None else max(seconds_left, LEAST_SECONDS),
        )
        if purpose == "choice":
            request = odds_request(request)
        call, ended = CallModel(request, self._reader(purpose), state.number, purpose), None
        try:
            completion = yield call
        except (GbnfError, CancelledError) as error:
            if not call.pieces:
                raise
            completion, ended = unfinished(call.pieces), error
        assert isinstance(completion, Completion)
        ended_at = self.clock()
        seconds = (ended_at - begun).total_seconds()
        state.meter = state.meter.measured(completion, messages)
        state.tokens.update(asdict(completion.usage))
        odds = call_odds(completion, options.protocol.call_begin) if purpose == "choice" else None
        called = ModelCalled(
            ended_at,
            state.number,
            completion.text,
            completion.finish_reason,
            completion.usage,
            completion.timings,
            seconds,
            completion.reasoning,
            purpose,
            completion.shortened_at,
            completion.repeated,
            None if odds is None else round(odds, 2),
        )
        state.unfinished = None if ended is None else called
        yield from self.emit(called)
        if ended is not None:
            raise ended
        return completion, seconds

    def _reader(self, purpose: Purpose) -> Callable[[], AnswerReader]:
        """Return what reads the part of a text that belongs to the final answer."""
        readers = {
            "call": lambda: self.options.protocol.answer_reader(self.state.described),
            "answer": SpokenText,
            "salvage": SpokenText,
        }
        return readers.get(purpose, Unread)

    def salvage(self, run: Run, *, ask: bool) -> Part[Run]:
        """Build an answer from the results of a run that has none; return the run as it is without results.

        Not while a call waits for approval, since the request is not finished.
        """
        state, options = self.state, self.options
        done = salvage.with_results(run.steps)
        if run.outcome in {"answered", "salvaged"} or not done or state.pending:
            return run
        assert run.error is not None
        numbers = tuple(step.number for step in done)
        yield from self.emit(
            SalvageStarted(self.clock(), state.number, run.outcome, run.error, numbers)  # type: ignore[arg-type]  # an outcome without an answer
        )
        if ask:
            constrained = options.protocol.is_constrained and options.dialect == "gbnf"
            grammar = salvage.text_grammar() if constrained else None
            messages = salvage.messages(run.query, done, options.language)
            try:
                completion, _ = yield from self._ask(messages, grammar, "salvage")
                answer = salvage.read(completion, run.query, done, options.language)
            except GbnfError as error:
                answer = salvage.answer_from_results(done, options.language, f"error: {error}")
        else:
            answer = salvage.answer_from_results(done, options.language, "error: the server is gone")
        return state.finish("salvaged", self.clock(), answer=answer.text, error=run.error, salvage=answer)

    def answer_done(self) -> Part[tuple[Completion, SalvagedAnswer]]:
        """Ask a small model for the answer from the results alone: after its calls, it writes another."""
        state, options = self.state, self.options
        done = salvage.with_results(state.steps)
        changes = any(
            step.name == tool.name and tool.run.effect == "write" for step in done for tool in state.described
        )
        is_constrained, language = options.dialect == "gbnf", options.language
        attempts = [(language, "")]
        if changes and is_constrained:
            # as if it were to give an order: it begins again, with the word that says what it is to tell
            attempts.append((language, localized(salvage.DONE, language)))
        elif language != "en":
            attempts.append(("en", ""))  # it asks for the language of the request
        for language, beginning in attempts:
            asked = salvage.answer_messages(state.query, done, language)
            grammar = salvage.text_grammar(beginning) if is_constrained else None
            completion, _ = yield from self._ask(asked, grammar, "answer")
            answer = salvage.read(completion, state.query, done, language, may_restate=True)
            if answer.error not in {salvage.COPIED, salvage.APOLOGY}:
                break
        if answer.by == "model":
            answer = replace(answer, text=self.with_unread(answer.text))
        return completion, answer

    def with_unread(self, answer: str, least: float = 0.5) -> str:
        """Return an answer with the entries of the last result, of a read, if it says too little of them."""
        done = salvage.with_results(self.state.steps)
        reads = {tool.name for tool in self.state.described if tool.run.effect == "read"}
        is_read = bool(done) and done[-1].name in reads
        return salvage.with_unread(answer, self.state.query, done, least) if is_read else answer

    def emit(self, event: Event) -> Part[None]:
        """Yield an event; errors of its hooks become warnings, each reported once."""
        for hook_error in (yield event) or ():
            yield from self.warn(hook_error)

    def warn(self, message: str) -> Part[None]:
        """Report a problem that does not end the run, once."""
        if message not in self.state.warnings:
            self.state.warnings.append(message)
            # not emitted again for a hook that raises at warnings, which would never end
            self.state.warnings.extend((yield WarningRaised(self.clock(), self.state.number, message)) or ())
