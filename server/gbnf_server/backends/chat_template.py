"""A model's own chat template, with the fallbacks of `template_roles` for missing roles."""

from __future__ import annotations

from collections.abc import Sequence

import jinja2

from gbnf.prompts.control_tokens import make_escaper, strings_removed_by
from gbnf.prompts.messages import Message
from gbnf_server.backends.image_messages import refuse_images
from gbnf_server.backends.reasoning import (
    append_reasoning,
    close_reasoning,
    find_reasoning_tags,
    split_reasoning_message,
)
from gbnf_server.backends.template_roles import TemplateRoles, adapt_messages, probe_roles
from gbnf_server.errors import BackendError, ChatTemplateError, ModelLoadError
from gbnf_server.inference.bindings import Jinja2ChatFormatter, llama_cpp
from gbnf_server.inference.native import NativeModel

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
            self._formatter = Jinja2ChatFormatter(
                template=source,
                eos_token=model.token_text(llama_cpp.llama_vocab_eos(model.vocabulary)),
                bos_token=model.token_text(llama_cpp.llama_vocab_bos(model.vocabulary)),
            )
            self._roles = self._probe()
        except (jinja2.TemplateError, ChatTemplateError) as error:
            raise ModelLoadError(f"the chat template of {model.path} fails: {error}") from None

    def prompt(self, messages: Sequence[Message], *, constrained: bool) -> str:
        """Return the prompt of an answer: without reasoning, or after that of the last message."""
        refuse_images(messages, "a model in this process")
        shown, reasoning = split_reasoning_message(adapt_messages(messages, self._roles, self._escape))
        tags = None if reasoning is None else self.reasoning_tags
        try:
            prompt = self._render(shown, thinking=tags is not None)
        except ChatTemplateError as error:
            raise BackendError(f"the model's chat template refuses the conversation: {error}") from None
        if reasoning is not None and tags is not None:
            return append_reasoning(prompt, reasoning, tags)
        return close_reasoning(prompt) if constrained else prompt

    def _render(self, messages: Sequence[Message], *, thinking: bool = False) -> str:
        try:
            return str(self._formatter(messages=list(messages), enable_thinking=thinking).prompt)
        except (jinja2.TemplateError, ArithmeticError, LookupError, TypeError, ValueError) as error:
            raise ChatTemplateError(str(error)) from error  # templates may raise anything

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
