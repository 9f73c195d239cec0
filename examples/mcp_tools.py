"""Can a local model use the tools of an MCP server?

pip install 'gbnf-toolkit[run,mcp]' && python examples/mcp_tools.py

The server is `gbnf mcp` with the bundled tools, for which the demonstration model is trained. Any other is a
command line, too, such as "npx -y @modelcontextprotocol/server-filesystem notes".
"""

import shlex
import sys
import tempfile

from gbnf_server import Context, InProcess, Planner
from gbnf_server.executors import Workspace
from gbnf_server.llama.demo_model import model_path
from gbnf_server.mcp import mcp_tools

with tempfile.TemporaryDirectory() as folder:
    server = shlex.join([sys.executable, "-m", "gbnf_server", "mcp", "--workspace", folder])
    with mcp_tools(server) as mcp, InProcess(model_path(), threads=1) as model:
        print(len(mcp.tools), "tools:", ", ".join(each.name for each in mcp.tools))
        planner = Planner(lambda: mcp.tools, model, context=Context(Workspace(folder)))
        run = planner.run("create a folder trips")
for step in run.steps:
    print(step.call, "→", step.result)
print(run.outcome, run.answer)
