"""A model's own chat template, with the fallbacks of `conversation` for the roles that it lacks."""

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
    """Renders conversations to prompts that end where the answer begins."""

    def __init__(self, model: NativeModel) -> None:
        source = model.metadata.get("tokenizer.chat_template", _CHATML)
        #: Where the model's thoughts begin and end, None for one that does not think aloud.
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
            raise ModelLoadError(f"{model.path} has a chat template that cannot be used: {error}") from None

    def prompt(self, messages: Sequence[Message], *, constrained: bool) -> str:
        """The prompt of an answer: without thoughts, or behind those that the last message begins."""
        refuse_images(messages, "a model in this process")
        said, begin = split_reasoning_message(adapt_messages(messages, self._roles, self._escape))
        thinks = begin is not None and self.reasoning_tags is not None
        try:
            prompt = self._render(said, thinking=thinks)
        except ChatTemplateError as error:
            raise BackendError(f"the model's chat template refuses the conversation: {error}") from None
        if begin is not None and self.reasoning_tags is not None:
            return append_reasoning(prompt, begin, self.reasoning_tags)
        return close_reasoning(prompt) if constrained else prompt

    def _render(self, messages: Sequence[Message], *, thinking: bool = False) -> str:
        try:
            return str(self._formatter(messages=list(messages), enable_thinking=thinking).prompt)
        except (jinja2.TemplateError, ArithmeticError, LookupError, TypeError, ValueError) as error:
            raise ChatTemplateError(str(error)) from error  # templates raise whatever they like

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
