"""``read_profile`` and ``update_profile``: what is known of the person, shared by all agents that talk to them."""

import asyncio
import json
from collections.abc import Mapping

from agents.tools.tool import Arguments, BadArguments, CallContext, Tool, ToolError
from memory.errors import StoreError
from memory.profile import Profile, ProfileTooLarge

_MOST_FIELDS = 20


async def _read(context: CallContext, arguments: Arguments) -> str:
    _direct(context)
    try:
        profile = await asyncio.to_thread(context.profiles.read, context.conversation.lane.user)
    except StoreError as error:
        raise ToolError("资料现在读不到，请稍后再试") from error
    return _told(profile)


async def _update(context: CallContext, arguments: Arguments) -> str:
    _direct(context)
    fields = await _fields(context, _unwrapped(arguments))
    if not fields:
        raise BadArguments('没有可记的内容；例如 {"skills": ["Java", "Spring"], "city": "上海"}')
    user = context.conversation.lane.user
    try:
        profile = await asyncio.to_thread(context.profiles.update, user, fields, context.key, context.generation)
    except ProfileTooLarge as error:
        raise BadArguments(str(error)) from None
    except StoreError as error:
        raise ToolError("资料现在写不了，没有记下") from error
    return f"已更新。{_told(profile)}"


def _direct(context: CallContext) -> None:
    if context.conversation.lane.group:
        raise ToolError("群聊里不读写个人资料，请对方私聊")


def _unwrapped(arguments: Arguments) -> Arguments:
    """The fields themselves; some models put them into one object more."""
    if len(arguments) == 1:
        (name, inner), *_ = arguments.items()
        if name in ("fields", "profile", "updates") and isinstance(inner, Mapping):
            return {str(key): value for key, value in inner.items()}
    return arguments


async def _fields(context: CallContext, arguments: Arguments) -> dict[str, list[str]]:
    """Each field's values, such as may be stored; none for a field that is to go."""
    if len(arguments) > _MOST_FIELDS:
        raise BadArguments(f"一次最多改 {_MOST_FIELDS} 个字段")
    fields: dict[str, list[str]] = {}
    for name, value in arguments.items():
        kept_name = await context.filtered_for_all(name)
        texts = _texts(value)
        values = [kept for text in texts if (kept := await context.filtered_for_all(text)) is not None]
        if kept_name is not None and (values or not texts):
            fields[kept_name] = values
    return fields


def _texts(value: object) -> list[str]:
    if value is None or value == "":
        return []
    if isinstance(value, (list, tuple)):
        return [text for each in value for text in _texts(each)]
    if isinstance(value, Mapping):
        return [f"{name} {text}" for name, each in value.items() for text in _texts(each)]
    if isinstance(value, bool):
        return ["是" if value else "否"]
    return [str(value)]


def _told(profile: Profile) -> str:
    if not profile:
        return "资料是空的。"
    return "现有资料：" + json.dumps({name: list(values) for name, values in profile.items()}, ensure_ascii=False)


READ_PROFILE = Tool(
    name="read_profile",
    description="读出对方的个人资料（技能、城市、经验、期望等），所有智能体共用",
    parameters={"type": "object", "properties": {}},
    run=_read,
    repeatable=True,
    direct_only=True,
)

UPDATE_PROFILE = Tool(
    name="update_profile",
    description=(
        "记下对方亲口说的、以后还有用的个人情况，所有智能体共用。每个字段整个替换原值，列表要写全；写空列表则删去。"
        "只记求职和简历用得到的，不记身份证号、住址、健康、宗教、民族"
    ),
    parameters={
        "type": "object",
        "properties": {
            "skills": {"type": "array", "items": {"type": "string"}, "description": "技能，例如 Java、项目管理"},
            "city": {"type": "string", "description": "所在或期望的城市"},
            "title": {"type": "string", "description": "现在或期望的职位"},
            "experience": {"type": "string", "description": "工作年限和经历，例如 5 年后端"},
            "salary": {"type": "string", "description": "期望月薪，例如 25k"},
            "education": {"type": "string", "description": "学历和专业"},
            "preferences": {"type": "array", "items": {"type": "string"}, "description": "看重什么、不要什么"},
        },
        "additionalProperties": True,
    },
    run=_update,
    repeatable=True,  # the key keeps a change from being made twice
    direct_only=True,
)
