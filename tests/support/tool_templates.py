"""Chat templates with tools for the models of `support.models`, one for each way to write arguments."""

from __future__ import annotations

_BEGIN = (
    "{% if tools %}<|system|>Tools:{% for tool in tools %}\n{{ tool | tojson }}{% endfor %}<|end|>{% endif %}"
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% if m.tool_calls %}"
)
_END = (
    "{% endif %}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% if enable_thinking is false %}<think>\n\n</think>\n\n"
    "{% endif %}{% endif %}"
)
JSON_IN_TAGS = (
    _BEGIN + "{% for c in m.tool_calls %}{% if not loop.first or m.content %}\n{% endif %}"
    '<tool_call>\n{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}\n'
    "</tool_call>{% endfor %}" + _END
)
ELEMENTS = (
    _BEGIN + "{% for c in m.tool_calls %}<tool_call>\n<function={{ c.function.name }}>\n"
    "{% for key, value in c.function.arguments.items() %}<parameter={{ key }}>\n"
    "{{ value if value is string else value | tojson }}\n</parameter>\n{% endfor %}"
    "</function>\n</tool_call>{% endfor %}" + _END
)
WITH_IDS = (
    "{% if tools %}<|system|>{{ tools | tojson }}<|end|>{% endif %}{% for m in messages %}"
    "{% if m.tool_calls %}<|assistant|>[TOOL_CALLS] [{% for c in m.tool_calls %}"
    "{% if c.id | length != 9 %}{{ raise_exception('an id has nine characters') }}{% endif %}"
    '{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}, "id": "{{ c.id }}"}'
    "{% if not loop.last %}, {% endif %}{% endfor %}]<|end|>"
    "{% elif m.role == 'tool' %}<|tool|>{{ m.tool_call_id }}:{{ m.content }}<|end|>"
    "{% else %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
TEMPLATES = {"JSON in tags": JSON_IN_TAGS, "elements": ELEMENTS, "with ids": WITH_IDS}
