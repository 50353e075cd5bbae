"""The tools by the names an agent's file gives them: built in, or a function of the admin's, ``module:function``."""

import asyncio
import importlib
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic import ConfigDict, ValidationError, create_model

from agents.tools.built_in import BUILT_IN
from agents.tools.mcp import is_grant
from agents.tools.tool import Arguments, BadArguments, CallContext, Tool, in_thread

AT_ONCE = 8
"""How many calls of one function of the admin's run at a time; one that never comes back takes a place for good."""

_OWN = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):([A-Za-z_]\w*)", re.ASCII)
_MOST_NAME = 64


class UnknownTool(ValueError):
    """No tool stands behind this name; the message says what to write (Chinese, for admins)."""


def load_tool(name: str) -> Tool:
    """The tool of this name. Imports the module of an own one: blocks. Raises UnknownTool."""
    if name in BUILT_IN:
        return BUILT_IN[name]
    found = _OWN.fullmatch(name)
    if not found:
        raise UnknownTool(f"没有名为 {name} 的工具；可写 {'、'.join(BUILT_IN)}，自己的 模块:函数，或 mcp:服务/工具")
    module, function = found[1], found[2]
    try:
        loaded = getattr(importlib.import_module(module), function, None)
    except ModuleNotFoundError as error:
        raise UnknownTool(
            f"工具 {name} 的模块 {error.name} 找不到；请把它放在配置目录的上一级目录，或装到本程序的环境里"
        ) from None
    except (Exception, SystemExit) as error:  # border: whatever a foreign module does while it is imported
        raise UnknownTool(f"工具 {name} 的模块 {module} 导入时出错（{type(error).__name__}）；请修正它") from None
    if isinstance(loaded, Tool):
        return loaded
    if not callable(loaded):
        raise UnknownTool(f"模块 {module} 里没有可调用的 {function}；请改正 {name}")
    try:
        return _own(function, loaded)
    except Exception as error:  # border: signatures a schema can't be made of
        raise UnknownTool(
            f"工具 {name} 的参数无法说明给模型（{type(error).__name__}）；请给每个参数写上 str、int 这样的类型"
        ) from None


def load_tools(names: Sequence[str]) -> tuple[Tool, ...]:
    """The tools of one agent, in order, but those of MCP servers, which come and go. Raises UnknownTool, also for two
    of the same name."""
    tools: dict[str, Tool] = {}
    for name in dict.fromkeys(names):
        if is_grant(name):
            continue
        tool = load_tool(name)
        if tool.name in tools:
            raise UnknownTool(f"有两个工具都叫 {tool.name}；请删去一个或改名")
        tools[tool.name] = tool
    return tuple(tools.values())


def _own(name: str, function: Callable[..., object]) -> Tool:
    """A tool made of a function: its parameters are the arguments, its docstring the description.

    A parameter annotated `CallContext` is given the context. A plain function runs in a thread of its own.
    """
    signature = inspect.signature(function, eval_str=True)
    context = [each.name for each in signature.parameters.values() if each.annotation is CallContext]
    fields: dict[str, Any] = {}
    for each in signature.parameters.values():
        if each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD, each.POSITIONAL_ONLY):
            raise TypeError(each.name)
        if each.name not in context:
            kind = str if each.annotation is each.empty else each.annotation
            fields[each.name] = (kind, ... if each.default is each.empty else each.default)
    model = create_model(f"{name}_arguments", __config__=ConfigDict(extra="ignore"), **fields)
    schema = _plain(model.model_json_schema())
    schema.pop("description", None)
    places = asyncio.Semaphore(AT_ONCE)

    async def run(call: CallContext, arguments: Arguments) -> str:
        try:
            given = model.model_validate(dict(arguments))
        except ValidationError as error:
            wrong = "、".join(".".join(map(str, each["loc"])) for each in error.errors()[:5])
            raise BadArguments(f"参数不对：{wrong}") from None
        values = {field: getattr(given, field) for field in fields} | dict.fromkeys(context, call)
        if inspect.iscoroutinefunction(function):
            result = await function(**values)
        else:
            await places.acquire()

            def work() -> object:
                return function(**values)

            loop = asyncio.get_running_loop()

            def released() -> object:
                try:
                    return work()
                finally:
                    loop.call_soon_threadsafe(places.release)

            result = await in_thread(released, name)
        if not isinstance(result, str):
            raise TypeError(f"gave {type(result).__name__}, not text")
        return result

    description = inspect.getdoc(function) or name
    return Tool(name[:_MOST_NAME], description, schema, run)


def _plain(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A schema without the titles pydantic puts everywhere; they only cost tokens."""
    made: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "title" and isinstance(value, str):
            continue
        if key == "properties" and isinstance(value, Mapping):
            made[key] = {name: _plain(each) for name, each in value.items()}
        else:
            made[key] = _plain(value) if isinstance(value, Mapping) else value
    return made
