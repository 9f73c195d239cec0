"""Can I use only the grammar, and llama-cpp-python as I do now?

pip install 'gbnf-toolkit[compiled]' && python examples/llama_cpp_python.py
"""

import json

import llama_cpp

from gbnf import compile_schema
from gbnf_server.llama.process_globals import patch_default_model_params
from gbnf_server.system.model_files import smollm2_path

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "born": {"type": "integer", "minimum": 1000, "maximum": 2100},
    },
    "required": ["name", "born"],
    "additionalProperties": False,
}

grammar = compile_schema(SCHEMA)
print("not enforced:", [str(finding) for finding in grammar.report])
patch_default_model_params()  # on CPUs with Intel AMX, many builds of llama.cpp crash without this
model = llama_cpp.Llama(str(smollm2_path()), n_ctx=512, n_threads=1, verbose=False)
answer = model.create_chat_completion(
    [{"role": "user", "content": "Ada Lovelace, born in 1815. Answer in JSON with name and born."}],
    grammar=llama_cpp.LlamaGrammar.from_string(str(grammar), verbose=False),
    max_tokens=60,
    temperature=0,
)
print(json.loads(answer["choices"][0]["message"]["content"]))
model.close()
