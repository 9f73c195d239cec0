"""What a model is, by its name, its chat template and its size: one value, which its backend makes once.

No other module asks what a model is called, how large it is or with which prompts it was trained.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from gbnf.errors import ToolFormatError
from gbnf.prompts.messages import PromptStyle
from gbnf.tool_formats import ToolFormat, detect
from gbnf.tool_formats.template import template_variables
from gbnf_server.backends.reasoning import ReasoningTags, find_reasoning_tags

SMALL_MODEL = 1_000_000_000
"""A model with fewer parameters confuses many tools more often than the ranking misses the right one."""

SMALL_NATIVE_MODEL = 3_000_000_000
"""Parameters below which a model that calls in the format of its chat template is small."""

_DEMO_MODEL_NAME = re.compile(r"(?:.*[/\\])?gbnf-planner-demo(?::[^/:]*|\.gguf)?")
_DEMO_MODEL_TEMPLATE = re.compile(r"\{#-?\s*gbnf-planner-demo\s*-?#\}")


@dataclass(frozen=True, slots=True)
class ModelTraits:
    """How a model is asked, and what a request to it may ask for.

    `prompt_style`: the style of the system prompt that suits it. `answers_by_call_only`: it is trained on the
    bundled tools, and its answers are calls, too. `parameters`: the number of its weights, None if it is
    unknown. `tool_format`: the format of tool calls in its chat template, None if the template has none or is
    unknown. `reasoning_tags`: the tags of its reasoning, for a backend that continues a `reasoning_message`.
    `template_variables`: those of the chat template that requests may set, None if the template is unknown.
    `takes_evidence`: whether its backend takes evidence, which helps it to call tools that it is not trained
    on. `traces`: whether a request may ask for a trace; `gives_logprobs`: for log-probabilities and
    `probabilities`.
    """

    prompt_style: PromptStyle = "full"
    answers_by_call_only: bool = False
    parameters: int | None = None
    tool_format: ToolFormat | None = None
    reasoning_tags: ReasoningTags | None = None
    template_variables: frozenset[str] | None = frozenset()
    takes_evidence: bool = False
    traces: bool = False
    gives_logprobs: bool = True

    def is_small(self, *, native: bool) -> bool:
        """Return whether it is known to be too small to choose among tools that it is not trained on.

        `native`: it calls them in the format of its chat template.
        """
        limit = SMALL_NATIVE_MODEL if native else SMALL_MODEL
        return not self.answers_by_call_only and self.parameters is not None and self.parameters < limit


def model_traits(
    name: str,
    template: str | None = "",
    begin: str = "",
    end: str = "",
    *,
    prompt_style: PromptStyle | None = None,
    parameters: int | None = None,
    in_process: bool = False,
    gives_logprobs: bool = True,
) -> ModelTraits:
    """Return the traits of a model with this name and chat template, None if that is unknown.

    The demonstration model is known by its `name`, which after a folder and before a tag or `.gguf` is
    exactly the bundled model's, or by a comment with that name, which begins its chat template. `begin`,
    `end`: the texts of the tokens that begin and end a sequence. `prompt_style`: by default "minimal" for the
    demonstration model, otherwise "full". `in_process`: its backend chooses the tokens itself.
    """
    source = template or ""
    is_demo = bool(_DEMO_MODEL_NAME.fullmatch(name) or _DEMO_MODEL_TEMPLATE.match(source))
    return ModelTraits(
        prompt_style=prompt_style or ("minimal" if is_demo else "full"),
        answers_by_call_only=is_demo,
        parameters=parameters,
        tool_format=find_tool_format(source, begin, end) if source else None,
        reasoning_tags=find_reasoning_tags(source),
        template_variables=None if template is None else template_variables(source),
        takes_evidence=in_process and not is_demo,
        traces=in_process,
        gives_logprobs=gives_logprobs,
    )


@lru_cache(maxsize=32)
def find_tool_format(template: str, bos_token: str = "", eos_token: str = "") -> ToolFormat | None:
    """Return the format of a chat template, None if it has no tools, or they cannot be derived."""
    try:
        return detect(template, bos_token=bos_token, eos_token=eos_token)
    except ToolFormatError:
        return None
