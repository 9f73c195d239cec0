"""Does my program with OpenAI's package get valid calls from a local model?

gbnf serve &
OPENAI_BASE_URL=http://127.0.0.1:8000/v1 OPENAI_API_KEY=any python examples/openai_client.py

Nothing else of the program changes. `parse` reads arguments that always fit the model.
"""

from openai import OpenAI, pydantic_function_tool
from pydantic import BaseModel


class CreateFolders(BaseModel):
    """Create folders."""

    paths: list[str]


with OpenAI() as client:
    completion = client.chat.completions.parse(
        model="local",
        messages=[{"role": "user", "content": "create a folder trips"}],
        tools=[pydantic_function_tool(CreateFolders, name="create_dirs")],
        tool_choice="required",
        temperature=0,
    )
for call in completion.choices[0].message.tool_calls or ():
    print(call.function.name, repr(call.function.parsed_arguments))
