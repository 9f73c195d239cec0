"""Can a LangChain agent run on a local model?

gbnf serve &
OPENAI_BASE_URL=http://127.0.0.1:8000/v1 OPENAI_API_KEY=any python examples/langchain_agent.py
"""

from langchain.agents import create_agent
from langchain_openai import ChatOpenAI


def create_dirs(paths: list[str]) -> dict[str, list[str]]:
    """Create folders."""
    print("create_dirs", paths)
    return {"entries": paths}


agent = create_agent(ChatOpenAI(model="local", temperature=0), [create_dirs])
print(agent.invoke({"messages": [("user", "create a folder trips")]})["messages"][-1].text)
