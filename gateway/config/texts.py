"""Every fixed text users see, by name; `texts` in the config replaces any of them."""

import re
from collections.abc import Mapping

DEFAULTS: Mapping[str, str] = {
    # greetings and states
    "welcome": "你好，我是 AI 助手。直接发消息就可以开始；发送 /help 查看可用的命令。",
    "thinking": "正在思考，请稍候……",
    "later": "这个问题需要多想一会儿，答复稍后就来；也可以发送「继续」查看。",
    "more": "（未完，发送「继续」查看余下的内容）",
    "stopped": "已停止回答。",
    "merged": "已与后一条消息合并回答。",
    "answer-later": "（回答需要更多时间，完整内容稍后另行送达）",
    "nothing-to-show": "（没有可显示的内容）",
    "restarting": "网关重启中，回答稍后送达。",
    "restarting-saved": "网关正在重启，回答会保存在会话里，请稍后再看。",
    "not-taken": "网关正在重启，这条消息没有收到，请稍后重新发送。",
    # failures
    "failed": "抱歉，刚才出了点问题，请稍后再试。",
    "busy": "现在使用的人较多，请稍后再试。",
    "unavailable": "抱歉，现在暂时无法回答，请稍后再试。",
    "broke-off": "抱歉，回答到一半时连接断开了，请再问一次。",
    "timeout": "抱歉，这次思考的时间太长了，请稍后再试，或把问题说得更具体一些。",
    "waited-too-long": "等待回答超时，请稍后再试。",
    "too-long": "这条内容太长了，请缩短或分几次发送。",
    "refused-by-filter": "抱歉，这条消息含有不能处理的内容，请修改后再发。",
    "refused-by-model": "抱歉，这个问题我无法回答，请换一种说法试试。",
    "more-parts": "（内容较长，仅发送前面的部分；可以请我分段继续）",
    # what cannot be taken
    "unsupported": "暂时无法识别这类消息，请用文字告诉我。",
    "empty": "没有收到文字内容，请把问题写给我。",
    "refused-dm": "抱歉，你还没有使用权限，请联系管理员。",
    "daily-limit": "你今天的用量已经用完，请明天再来。",
    "rate-limited": "发送得太快了，请稍等一分钟再试。",
    # commands
    "help": (
        "可用的命令：\n"
        "/help 查看帮助\n"
        "/agents 查看有哪些智能体\n"
        "/agent 名称 换用指定的智能体，名称可以只写开头，或写它擅长的事\n"
        "/agent auto 恢复自动选择智能体\n"
        "/new 开始新的对话，并恢复自动选择智能体；后面可以接着写问题\n"
        "/stop 停止正在进行的回答\n"
        "/history 查看最近的对话\n"
        "/status 查看当前状态\n"
        "/whoami 查看我的标识\n"
        "/link 把我的另一个账号关联过来，/unlink 取消关联\n"
        "/forget 立即删除我的全部资料"
    ),
    "unknown-command": "没有「{command}」这个命令。发送 /help 查看可用的命令。",
    "rest-unhandled": "命令后面的内容没有处理，需要的话请另发一条。",
    "command-not-alone": "这次没有执行：「{command}」只能单独发送，后面不要写别的内容。",
    "agents": "可用的智能体：\n{agents}\n发送「/agent 名称」换用，例如 /agent {example}",
    "agent-current": "当前的智能体是 {agent}。发送「/agent 名称」换用，发送 /agents 查看全部。",
    "agent-switched": "已换用 {agent}：{description}\n发送「/agent auto」恢复自动选择。",
    "agent-auto": "好的，之后按你说的内容自动选择智能体。",
    "agent-unknown": "没有名为「{name}」的智能体。可用的有：{agents}",
    "new-done": "好的，我们重新开始。之前的对话不会再被引用。",
    "new-not-yours": "群聊共用一段对话，只有管理员或最近提问的人可以重新开始。",
    "nothing-to-stop": "现在没有正在进行的回答。",
    "status": "当前智能体：{agent}\n选择原因：{reason}\n本次对话：{turns} 条\n模型：{model}",
    "whoami": "你的标识：{user}\n平台账号：{platform_user}\n渠道：{channel}",
    "whoami-linked": "已关联的其他账号：{others}",
    "link-code": (
        "你的关联代码：{code}\n"
        "{minutes} 分钟内，用你的另一个账号私聊我，发送这一行：\n"
        "/link {code}\n"
        "关联之后，两边共用个人资料和发送频率，互相查得到私聊的内容，/forget 会一并删除。代码只能用一次，请不要告诉别人。"
    ),
    "link-done": (
        "已关联：两个账号现在算同一个人，共用个人资料，互相查得到私聊的内容，/forget 会一并删除。"
        "如果另一个账号不是你的，请立即发送 /unlink。"
    ),
    "link-already": "这两个账号已经关联。",
    "link-self": "这个代码是给这个账号的，请用你的另一个账号发送它。",
    "link-wrong": "代码不对、已经用过，或者过了时间。请在另一个账号发送 /link，取一个新的。",
    "link-too-often": "试的次数太多，请稍等一分钟再试。",
    "link-direct-only": "关联账号只能在私聊里进行。发到群里的代码已经作废，请私聊我，重新发送 /link。",
    "unlink-done": "已取消关联：这个账号不再和你的其他账号共用资料。",
    "unlink-nothing": "这个账号没有关联其他账号。",
    "history": "最近的对话：\n{history}",
    "history-empty": "还没有对话记录。",
    "forgotten": "已删除你的全部资料：{removed}。",
    "forgotten-nothing": "没有需要删除的资料。",
    "forgotten-waiting": "已按你的要求停止处理，并删除了你的资料。",
}
"""Name → default. What stands in braces is filled in; an own text may use the same names, or fewer."""

_PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")


def placeholders(text: str) -> frozenset[str]:
    """The names in braces that a text asks for."""
    return frozenset(_PLACEHOLDER.findall(text))


class Texts:
    """The fixed texts with an admin's own in place of the defaults."""

    def __init__(self, overrides: Mapping[str, str] | None = None) -> None:
        self._texts = {**DEFAULTS, **(overrides or {})}

    def get(self, name: str, /, **values: object) -> str:
        """The text of that name with `values` put in; a value is never searched for braces itself.

        Raises KeyError for a name that does not exist, or a placeholder that has no value.
        """
        return _PLACEHOLDER.sub(lambda found: str(values[found[1]]), self._texts[name])
