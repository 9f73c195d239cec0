"""The configuration file: defaults for options, as `gbnf.toml`.

    model = "models/Qwen3-4B-Q4_K_M.gguf"      # for every command with --model
    manifests = ["my-tools"]
    mcp = ["npx -y @modelcontextprotocol/server-memory"]

    [run]                                      # for one command
    max-steps = 20

    [providers]                                # of tools such as find_files_dropbox, for the pool filter
    _dropbox = { names = ["dropbox"], places = ["in my dropbox"] }

Keys are names of options without dashes in front; `_` may stand for `-`. Invariants: an option of the command
line replaces that of the file, and one that names a model, or tools, replaces all that do; paths are relative
to the file; an unknown key is an error; `--yes` cannot be set, since approval is a person's; a file of
another user is never used, since it names programs to run.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NoReturn, get_args, get_origin

import typer

from gbnf.errors import suggestion
from gbnf_server.cli.output import say
from gbnf_server.cli.python_source import python_target
from gbnf_server.system.errors import InputError, SetupError
from gbnf_server.system.folders import config_folder
from gbnf_server.system.model_files import SMOLLM2

if TYPE_CHECKING:
    from gbnf.tools.providers import Provider

CONFIG_VARIABLE = "GBNF_CONFIG"
FILE_NAME = "gbnf.toml"
_PATHS = frozenset({"manifests", "workspace", "out", "image", "vocab"})
_PATHS_OR_OTHER = frozenset({"model", "tools", "mcp", "schema"})
"""Options whose values are paths if they exist: otherwise they are names, commands or URLs."""
_NAME_A_MODEL = frozenset({"model", "hf", "server", "backend"})
_OF_ANOTHER_PLACE = frozenset({"api-key", "server-api-key", "ctx-size", "gpu-layers", "threads"})
"""Options that belong to the configured model or server, and not to another server."""
_OF_CLIENTS: dict[tuple[str, ...], frozenset[str]] = {("serve",): frozenset({"api-key"})}
"""Options that are about a command's own clients, so that no server replaces them."""
_NAME_TOOLS = frozenset({"manifests", "tools", "mcp"})
_OVERRIDE = (
    (_NAME_TOOLS, _NAME_TOOLS),
    (_NAME_A_MODEL, _NAME_A_MODEL),
    (frozenset({"server", "backend"}), _OF_ANOTHER_PLACE),
)
"""Options, and those of the file that do not apply beside one of them on the command line."""
_NEVER = frozenset({"help", "version", "yes"})
_providers: ContextVar[Mapping[str, Provider]] = ContextVar("_providers")
"""Those of the configuration file of the running command line."""


def find_config_file() -> Path | None:
    """Return the configuration file, None if there is none.

    It is $GBNF_CONFIG (empty: no file), otherwise the first `gbnf.toml` in the current folder and those above
    it, otherwise the one in the user's configuration folder. Raises InputError if the variable names no file,
    SetupError for a file of another user.
    """
    chosen = os.environ.get(CONFIG_VARIABLE)
    if chosen is not None:
        if chosen and not Path(chosen).is_file():
            raise InputError(f"${CONFIG_VARIABLE} is {chosen}, which is not a file. Correct or unset it.")
        return Path(chosen).absolute() if chosen else None
    start = Path.cwd()
    candidates = [place / FILE_NAME for place in (start, *start.parents)]
    candidates.append(config_folder() / FILE_NAME)
    file = next((path for path in candidates if path.is_file()), None)
    if file is not None and file.stat().st_uid not in {os.getuid(), 0}:
        raise SetupError(
            f"{file} belongs to another user, and may name programs to run. Remove it, or ignore it with "
            f"{CONFIG_VARIABLE}= in the environment."
        )
    return file


def apply_config(context: typer.Context, arguments: Sequence[str]) -> None:
    """Load the configuration file, as defaults for the commands below this context.

    Say which file it is, if it sets an option of the invoked command: it may name programs to run. Raises
    InputError for an invalid file.
    """
    _providers.set({})
    path = find_config_file()
    if path is None:
        return
    options = {argument[2:].partition("=")[0] for argument in arguments if argument.startswith("--")}
    reader = _ConfigReader(path)
    content = reader.content()
    _providers.set(dict(reader.providers(content.pop("providers", {}))))
    overridden = frozenset(option for names, others in _OVERRIDE if options & names for option in others)
    context.default_map = reader.defaults(content, context.command, overridden)
    if context.invoked_subcommand in context.default_map:
        say(f"config: {path}")


def configured_providers() -> Mapping[str, Provider]:
    """Return the providers of the package and those of the configuration file, which replace equal ones."""
    from gbnf.tools.providers import PROVIDERS

    return {**PROVIDERS, **_providers.get({})}


def config_schema(application: Any) -> dict[str, Any]:
    """Return the JSON Schema of a configuration file, for editors. `application`: the command `gbnf`.

    An option with `_` for `-` is a pattern, so that editors propose the other one only. A key that is the
    name of an option and of a command may be either.
    """
    definitions: dict[str, Any] = {}
    words = {"type": "array", "items": {"type": "string", "pattern": "\\S"}}
    phrases = {
        "type": "object",
        "additionalProperties": False,
        "properties": {"names": words, "places": words},
    }
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "The configuration file of gbnf-toolkit",
        **_table_schema(application, (), definitions),
    }
    schema["properties"]["providers"] = {
        "description": "Providers of tool variants, by the suffix of their tools: phrases that name each.",
        "type": "object",
        "additionalProperties": {**phrases, "anyOf": [{"required": ["names"]}, {"required": ["places"]}]},
    }
    return {**schema, "$defs": dict(sorted(definitions.items()))}


def _table_schema(command: Any, path: tuple[str, ...], definitions: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a command's table, and add those of its options to `definitions`."""
    declared: dict[str, list[Any]] = {}
    below: Mapping[str, Any] = getattr(command, "commands", {})
    pending = [(command, path)]
    while pending:
        inner, place = pending.pop(0)
        pending += [(child, (*place, name)) for name, child in getattr(inner, "commands", {}).items()]
        for name, option in (_options(inner) if place else {}).items():
            schema = _option_schema(option, name)
            key = name if definitions.setdefault(name, schema) == schema else ".".join((*place, name))
            definitions[key] = schema
            reference = {"$ref": f"#/$defs/{key}"}
            if reference not in declared.setdefault(name, []):
                declared[name].append(reference)
    other = {name.replace("-", "[-_]"): found for name, found in declared.items() if "-" in name}
    for name, child in below.items():
        declared.setdefault(name, []).append(_table_schema(child, (*path, name), definitions))

    def either(found: list[Any]) -> Any:
        return found[0] if len(found) == 1 else {"anyOf": found}

    schema = {
        "type": "object",
        "additionalProperties": False,
        "properties": {name: either(found) for name, found in sorted(declared.items())},
    }
    patterns = {f"^{name}$": either(found) for name, found in sorted(other.items())}
    return schema | ({"patternProperties": patterns} if patterns else {})


def _option_schema(option: Any, name: str) -> dict[str, Any]:
    """Return what `_ConfigReader` accepts for an option, of what click then accepts."""
    description = {"description": (option.help or "").replace("\n", " ")}
    if option.is_flag and not option.multiple:
        return {**description, "type": "boolean"}
    annotation = option.type_descriptor.annotation
    kinds = [each for outer in (annotation, *get_args(annotation)) for each in (outer, *get_args(outer))]
    is_text = name in _PATHS | _PATHS_OR_OTHER | _NAME_A_MODEL
    number = "integer" if int in kinds else "number"
    value: dict[str, Any] = {"type": "string" if is_text else ["string", number]}
    if choices := next((get_args(each) for each in kinds if get_origin(each) is Literal), ()):
        value = {"enum": [*choices]}
    bounds = {"minimum": option.min, "maximum": option.max}
    value |= {key: bound for key, bound in bounds.items() if bound is not None}
    if option.multiple:
        return {**description, "anyOf": [value, {"type": "array", "items": value}]}
    return {**description, **value}


@dataclass(frozen=True, slots=True)
class _ConfigReader:
    path: Path

    def defaults(
        self,
        table: Mapping[str, Any],
        command: Any,
        overridden: frozenset[str],
        path: tuple[str, ...] = (),
        inherited: Mapping[str, tuple[str, Any]] = MappingProxyType({}),
    ) -> dict[str, Any]:
        """Return the defaults of the command at `path`, and of those below it, as click takes them.

        `table`: its own; `inherited`: from the tables above, by option their keys and values.
        """
        settings = dict(inherited)
        below: Mapping[str, Any] = getattr(command, "commands", {})
        for name, value in table.items():
            key, option = ".".join((*path, name)), name.replace("_", "-")
            if isinstance(value, dict):
                self._check(name, below, key, "command")
            else:
                self._check(option, _all_options(command, path), key, "option")
                other = settings.get(option, (key,))[0]
                if other != key and other in {".".join((*path, member)) for member in table}:
                    self._fail(key, f"is the same option as {other}. Keep one of them.")
                settings[option] = key, value
        left_out = overridden - _OF_CLIENTS.get(path, frozenset())
        options = _options(command) if path else {}
        defaults: dict[str, Any] = {
            option.name: self._value(option, name, *settings[name])
            for name, option in options.items()
            if name in settings and name not in left_out
        }
        for name, inner in below.items():
            own = table.get(name)
            own = own if isinstance(own, dict) else {}  # or an option of the same name
            if values := self.defaults(own, inner, overridden, (*path, name), settings):
                defaults[name] = values
        return defaults

    def content(self) -> dict[str, Any]:
        """Return the tables of the file. Raises InputError."""
        try:
            return tomllib.loads(self.path.read_bytes().decode("utf-8-sig"))
        except OSError as error:
            raise InputError(f"{self.path} cannot be read: {error.strerror}.") from None
        except (ValueError, RecursionError) as error:  # no UTF-8, no TOML
            raise InputError(f"{self.path}: invalid TOML: {error}. See https://toml.io.") from None

    def providers(self, table: Any) -> Iterator[tuple[str, Provider]]:
        """Yield the suffix and the phrases of each provider. Raises InputError."""
        for suffix, phrases in table.items() if isinstance(table, dict) else [("", table)]:
            lists = phrases if isinstance(phrases, dict) else {"": phrases}
            items = lists.values()
            words = [*chain.from_iterable(item if isinstance(item, list) else [None] for item in items)]
            is_text = [isinstance(word, str) and bool(word.strip()) for word in words]
            if not suffix or not words or not all(is_text) or not lists.keys() <= {"names", "places"}:
                example = '_dropbox = { names = ["dropbox"], places = ["in my dropbox"] }'
                self._fail(f"providers.{suffix}", f"must be as in {example}, got {phrases!r:.80}.")
            from gbnf.tools.providers import Provider  # no command without providers waits for its imports

            yield suffix, Provider(tuple(lists.get("names", ())), tuple(lists.get("places", ())))

    def _check(self, name: str, allowed: Collection[str], key: str, kind: str) -> None:
        """Raise InputError for an unknown name."""
        if name not in allowed:
            hint = suggestion(name, sorted(allowed)) or (
                f" Use one of {', '.join(sorted(allowed))}." if allowed else ""
            )
            self._fail(key, f"unknown {kind} {name!r}.{hint}")

    def _value(self, option: Any, name: str, key: str, value: Any) -> Any:
        """Return the value of a key as click takes it. Raises InputError for one of another type."""
        if option.multiple:
            return [self._scalar(name, key, item) for item in (value if isinstance(value, list) else [value])]
        if option.is_flag:
            if not isinstance(value, bool):
                self._fail(key, f"must be true or false, got {value!r}.")
            return value
        return self._scalar(name, key, value)

    def _scalar(self, name: str, key: str, value: Any) -> str:
        is_text = name in _PATHS | _PATHS_OR_OTHER | _NAME_A_MODEL
        if isinstance(value, bool) or not isinstance(value, str if is_text else str | int | float):
            expected = "a string" if is_text else "a string or a number"
            self._fail(key, f"must be {expected}, got {value!r:.80}.")
        path = self.path.parent / Path(str(value)).expanduser()
        file = (python_target(str(path)) or (path,))[0]
        is_path = name in _PATHS or (name in _PATHS_OR_OTHER and Path(file).exists())
        is_path = is_path and (name not in {"model", "vocab"} or value != SMOLLM2)
        return str(path if is_path else value)

    def _fail(self, key: str, problem: str) -> NoReturn:
        raise InputError(f"{self.path}: {key}: {problem}")


def _all_options(command: Any, path: tuple[str, ...]) -> set[str]:
    """Return the names of the options of a command and of those below it; the application itself has none."""
    names = {*_options(command)} if path else set[str]()
    return names.union(
        *(_all_options(child, (*path, name)) for name, child in getattr(command, "commands", {}).items())
    )


def _options(command: Any) -> dict[str, Any]:
    """Return the options of a command that may be set, by name without dashes."""
    return {
        spelling.removeprefix("--"): parameter
        for parameter in command.params
        if parameter.param_type_name == "option"
        for spelling in parameter.opts
        if spelling.startswith("--") and spelling.removeprefix("--") not in _NEVER
    }
