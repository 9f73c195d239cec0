"""Can an agent of pydantic-ai run on a local model?

gbnf serve &
OPENAI_BASE_URL=http://127.0.0.1:8000/v1 OPENAI_API_KEY=any python examples/pydantic_ai_agent.py
"""

from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel


def create_dirs(paths: list[str]) -> dict[str, list[str]]:
    """Create folders."""
    print("create_dirs", paths)
    return {"entries": paths}


agent = Agent(OpenAIChatModel("local"), tools=[create_dirs], model_settings={"temperature": 0})
print(agent.run_sync("create a folder trips").output)
