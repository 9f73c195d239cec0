"""A model's own chat template, with the fallbacks of `template_roles` for missing roles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gbnf.errors import ToolFormatError
from gbnf.prompts.control_tokens import make_escaper, strings_removed_by
from gbnf.prompts.messages import Message
from gbnf.tool_formats.template import TemplateRenderer
from gbnf_server.backends.image_messages import refuse_images
from gbnf_server.backends.reasoning import (
    append_reasoning,
    close_reasoning,
    find_reasoning_tags,
    split_reasoning_message,
)
from gbnf_server.backends.template_roles import (
    TemplateRoles,
    adapt_messages,
    escape_texts,
    native_roles,
    probe_roles,
)
from gbnf_server.backends.tool_formats import find_tool_format
from gbnf_server.llama.native import NativeModel
from gbnf_server.system.errors import (
    ChatTemplateError,
    ConversationRefusedError,
    ModelLoadError,
    RequestNotSupportedError,
)

_CHATML = (  # llama.cpp's own choice for models without a template
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


class ChatTemplate:
    """Render conversations to prompts that end where the answer begins."""

    def __init__(self, model: NativeModel) -> None:
        source = model.metadata.get("tokenizer.chat_template", _CHATML)
        self.reasoning_tags = find_reasoning_tags(source)
        self._escape = make_escaper(model.control_token_texts | strings_removed_by(source))
        try:
            self._renderer = TemplateRenderer(source, bos_token=model.begin_text, eos_token=model.end_text)
            self.tool_format = find_tool_format(source, model.begin_text, model.end_text)
            self._roles = self._probe()
        except (ToolFormatError, ChatTemplateError) as error:
            raise ModelLoadError(f"the chat template of {model.path} fails: {error}") from None

    def prompt(
        self,
        messages: Sequence[Message],
        *,
        constrained: bool,
        tools: Sequence[Mapping[str, Any]] = (),
        reasoning: bool = False,
        native: bool = False,
    ) -> str:
        """Return the prompt of an answer; if `native`, of one in the template's tool-call format.

        With reasoning if it is asked for, or after that of the last message; otherwise a constrained answer
        has none.
        """
        refuse_images(messages, "a model in this process")
        if tools and self.tool_format is None:
            raise RequestNotSupportedError(
                "the model's chat template", "tools", "Describe them in a message."
            )
        roles = native_roles(self._roles, self.tool_format) if tools else self._roles
        shown, begun = split_reasoning_message(adapt_messages(messages, roles, self._escape))
        tools = escape_texts(tools, self._escape)
        tags = None if begun is None else self.reasoning_tags
        try:
            if self.tool_format is not None and native:
                prompt = self.tool_format.prompt(shown, tools, reasoning=reasoning or tags is not None)
            else:
                prompt = self._render(shown, thinking=reasoning or tags is not None)
        except (ChatTemplateError, ToolFormatError) as error:
            raise ConversationRefusedError(error) from None
        if begun is not None and tags is not None:
            return append_reasoning(prompt, begun, tags)
        return close_reasoning(prompt) if constrained and not (reasoning or tools) else prompt

    def _render(self, messages: Sequence[Message], *, thinking: bool = False) -> str:
        try:
            return self._renderer.render(messages, enable_thinking=thinking)
        except ToolFormatError as error:
            raise ChatTemplateError(str(error)) from None

    def _probe(self) -> TemplateRoles:
        probing = probe_roles()
        try:
            messages = next(probing)
            while True:
                try:
                    rendered = self._render(messages)
                except ChatTemplateError as error:
                    messages = probing.throw(error)
                else:
                    messages = probing.send(rendered)
        except StopIteration as found:
            roles: TemplateRoles = found.value
            return roles
