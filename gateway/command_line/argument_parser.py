"""argparse that says what is wrong with the arguments in one Chinese line."""

import argparse
import re
from typing import NoReturn

from gateway.config.problems import close_to

_REQUIRED = re.compile(r"the following arguments are required: (.+)")
_NO_VALUE = re.compile(r"argument ([^:]+): expected .*argument.*")
_NO_CHOICE = re.compile(r"argument [^:]+: invalid choice: '(.*)' \(choose from (.+)\)", re.DOTALL)


class ArgumentParser(argparse.ArgumentParser):
    """Exits with 2 where the arguments are wrong."""

    def error(self, message: str) -> NoReturn:
        """Prints what is wrong, and the remedy."""
        self.exit(2, f"{explained(message)}；用 {self.prog} -h 查看用法\n")


def explained(message: str) -> str:
    """What argparse says of wrong arguments, in the words of an admin."""
    if found := _REQUIRED.fullmatch(message):
        return f"缺少 {found[1]}"
    if found := _NO_VALUE.fullmatch(message):
        return f"{found[1]} 后面缺少值"
    if found := _NO_CHOICE.fullmatch(message):
        names = [name.strip(" '") for name in found[2].split(",")]
        meant = close_to(found[1], names)
        return f"没有 {found[1]} 这个命令（" + (f"是不是 {meant} ？）" if meant else f"可写 {'、'.join(names)}）")
    return f"参数不对（{message}）"
