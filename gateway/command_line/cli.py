"""The command line: arguments in, exit codes out (0 ok, 1 found problems, 2 cannot run)."""

import argparse
import json
import os
import sqlite3
import stat
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gateway.command_line import interruptible
from gateway.command_line.argument_parser import ArgumentParser
from gateway.command_line.check import check
from gateway.command_line.terminal_text import printable
from gateway.config.live_settings import LiveSettings
from gateway.config.problems import ConfigProblems
from gateway.config.settings import load_settings
from gateway.console.auth import TokenUnusable
from gateway.server import ListenFailed
from gateway.storage.database import DatabaseUnusable
from gateway.workspace_lock import WorkspaceError
from memory.errors import StoreError

_PLANNED = {"knowledge": "管理知识库文档"}


def run_command(arguments: Sequence[str]) -> int:
    """Parses `arguments` and runs the command they name."""
    args, extra = _parser().parse_known_args(arguments)
    if args.command in _PLANNED:
        print(f"{args.command}：暂不可用（not available yet）", file=sys.stderr)
        return 2
    if extra:
        print(f"不认识的参数：{' '.join(extra)}；用 -h 查看用法", file=sys.stderr)
        return 2
    os.umask(0o077)
    if args.command == "check":
        return check(args.config, os.environ, sys.stdout, workspace=args.workspace, online=args.online)
    try:
        settings = load_settings(args.config, os.environ)
    except ConfigProblems as problems:
        for problem in problems.problems:
            print(problem, file=sys.stderr)
        return 2
    live = LiveSettings(args.config, os.environ, settings)
    code = 2
    try:
        code = _with_settings(args, live)
    except* KeyboardInterrupt:
        code = 0
    except* (WorkspaceError, ListenFailed, TokenUnusable, StoreError, DatabaseUnusable) as group:
        _explain(group, "{}")
    except* (OSError, sqlite3.Error) as group:
        _explain(group, f"无法运行：{{}}；请检查工作目录 {args.workspace} 的权限与磁盘空间")
    return code


def _explain(error: BaseException, form: str) -> None:
    """One line for each error of a group."""
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            _explain(each, form)
    else:
        print(form.format(error), file=sys.stderr)


def _with_settings(args: argparse.Namespace, live: LiveSettings) -> int:
    _private(args.workspace)
    match args.command:
        case "run":
            from gateway.command_line.serving import serve

            return serve(live, args.config, args.workspace)
        case "chat":
            from gateway.command_line.terminal import chat

            return chat(live, args.workspace, agent=args.agent, message=args.message)
        case "window":
            return _window(args, live)
        case "repair":
            from gateway.command_line.repair import repair

            return interruptible.run(repair(live, args.workspace, args.conversations))
        case "forget":
            from gateway.command_line.forget import forget

            return interruptible.run(forget(live, args.workspace, args.user))
        case _:
            return interruptible.run(_conversations(args))


def _private(workspace: Path) -> None:
    """Makes the folder, for its owner only; one that others may enter is closed to them, or remarked.

    Raises WorkspaceError, OSError.
    """
    try:
        workspace.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise WorkspaceError(f"工作目录 {workspace} 处已有文件；请用 --workspace 指定一个目录") from None
    except OSError as error:
        raise WorkspaceError(f"工作目录 {workspace} 无法建立（{error.strerror}）；请检查路径和权限") from error
    mode = workspace.stat().st_mode
    if not mode & 0o077:
        return
    try:
        if mode & stat.S_ISVTX:
            raise PermissionError  # a folder for everybody, such as /tmp: not ours to close
        workspace.chmod(stat.S_IMODE(mode) & ~0o077)
    except OSError:
        print(
            f"工作目录 {workspace} 允许其他用户进入，没能改为 0700；请换一个目录，或由其所有者修改权限", file=sys.stderr
        )


def _window(args: argparse.Namespace, live: LiveSettings) -> int:
    from gateway.snapshot import Snapshots
    from gateway.window_view import as_text, window_view
    from memory.conversation import ConversationId, InvalidId
    from memory.memory import Memory

    try:
        conversation = ConversationId.parse(args.conversation)
    except InvalidId:
        print(f"{args.conversation} 不是会话编号；用 conversations 查看有哪些会话", file=sys.stderr)
        return 2
    snapshots = Snapshots(lambda: live.current)  # imports: not while an event loop runs

    async def look() -> dict[str, Any] | None:
        memory = Memory(args.workspace)
        try:
            return await window_view(conversation, snapshots.now(), memory)
        finally:
            await memory.close()
            await snapshots.close()

    view = interruptible.run(look())
    if view is None:
        print(f"没有会话 {conversation}；用 conversations 查看有哪些会话", file=sys.stderr)
        return 2
    print(printable(json.dumps(view, ensure_ascii=False, indent=2) if args.json else as_text(view)))
    return 0


async def _conversations(args: argparse.Namespace) -> int:
    from memory.conversation import CHANNELS
    from memory.memory import Memory

    if args.channel not in (None, *CHANNELS):
        print(f"没有 {args.channel} 这个渠道；可以是 {'、'.join(CHANNELS)}", file=sys.stderr)
        return 2
    memory = Memory(args.workspace)
    try:
        infos = await memory.scan()
    finally:
        await memory.close()
    shown = [
        info
        for info in sorted(infos, key=lambda info: info.last, reverse=True)
        if args.user in (None, info.id.lane.user) and args.channel in (None, info.id.lane.channel)
    ]
    if args.json:
        rows = [{"id": str(i.id), "turns": i.turns, "last": i.last, "bytes": i.bytes} for i in shown]
        print(printable(json.dumps({"conversations": rows}, ensure_ascii=False, indent=2)))
    else:
        for info in shown:
            last = " ".join(info.last.split())  # a person may have written anything there
            print(printable(f"{info.id}  {info.turns} 条  {last}  {info.bytes} 字节"))
        print(f"共 {len(shown)} 个会话")
    return 0


def _places(config: Path | str, workspace: Path | str) -> ArgumentParser:
    places = ArgumentParser(add_help=False)
    places.add_argument("--config", type=Path, default=config, help="配置目录")
    places.add_argument("--workspace", type=Path, default=workspace, help="工作目录")
    return places


def _parser() -> ArgumentParser:
    environ: Mapping[str, str] = os.environ
    first = _places(Path(environ.get("SANQIAO_CONFIG", "config")), Path(environ.get("SANQIAO_WORKSPACE", "workspace")))
    places = _places(argparse.SUPPRESS, argparse.SUPPRESS)  # behind the command, where they overrule those before it
    parser = ArgumentParser(prog="sanqiao", description="三桥：微信、钉钉、飞书的智能体网关", parents=[first])
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    commands.add_parser("run", parents=[places], help="运行网关，直到 SIGTERM 或 Ctrl-C")
    checking = commands.add_parser("check", parents=[places], help="检查配置，列出所有问题")
    checking.add_argument("--online", action="store_true", help="再连一遍各平台与模型：凭证、IP 白名单、网络")
    chat = commands.add_parser("chat", parents=[places], help="在终端里聊天")
    chat.add_argument("--agent", help="指定智能体")
    chat.add_argument("--message", help="只问这一句，回答后退出")
    window = commands.add_parser("window", parents=[places], help="模型现在会看到的窗口")
    window.add_argument("conversation", metavar="CONVERSATION", help="会话编号")
    window.add_argument("--json", action="store_true", help="输出 JSON")
    conversations = commands.add_parser("conversations", parents=[places], help="列出会话")
    conversations.add_argument("--user", help="只看这个人")
    conversations.add_argument("--channel", help="只看这个渠道")
    conversations.add_argument("--json", action="store_true", help="输出 JSON")
    repair = commands.add_parser("repair", parents=[places], help="检查并修复会话文件与摘要；有内容丢失时退出码为 1")
    repair.add_argument("conversations", metavar="CONVERSATION", nargs="*", help="会话编号；不写就是全部")
    forget = commands.add_parser("forget", parents=[places], help="删除一个人的全部资料，无法恢复")
    forget.add_argument("--user", required=True, metavar="U", help="用户的编号，u 开头，本人可用 /whoami 查看")
    for name, text in _PLANNED.items():
        commands.add_parser(name, parents=[places], help=f"{text}（暂不可用）")
    return parser
