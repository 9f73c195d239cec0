"""Does Anthropic's tool runner work with a local model?

gbnf serve &
ANTHROPIC_BASE_URL=http://127.0.0.1:8000 ANTHROPIC_API_KEY=any python examples/anthropic_client.py
"""

from anthropic import Anthropic, beta_tool


@beta_tool
def create_dirs(paths: list[str]) -> str:
    """Create folders."""
    print("create_dirs", paths)
    return f'{{"entries": ["{paths[0]}"]}}'


with Anthropic() as client:
    runner = client.beta.messages.tool_runner(
        model="local",
        max_tokens=100,
        messages=[{"role": "user", "content": "create a folder trips"}],
        tools=[create_dirs],
        extra_body={"temperature": 0},
    )
    last = runner.until_done()
print(last.stop_reason, "".join(block.text for block in last.content if block.type == "text"))
