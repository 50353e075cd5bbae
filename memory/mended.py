"""What became of one file that was checked and, where need be, mended."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class Outcome(StrEnum):
    """What was found, and done about it."""

    SOUND = "sound"
    TORN = "torn"
    ADOPTED = "adopted"
    DAMAGED = "damaged"
    UNREADABLE = "unreadable"
    NO_FILE = "no-file"
    LEFTOVER = "leftover"
    MISSING = "missing"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mended:
    """One file by its path in the workspace; where the original (or what was cut off) was `kept`, if anywhere.

    `items` is how many are in it now, `unreadable` how many places were not readable and are only in `kept`, `not_utf8`
    how many items were saved in another charset, `cut` how many bytes were cut off its end. `error` says why nothing could be done.
    """

    path: str
    outcome: Outcome
    items: int = 0
    unreadable: int = 0
    not_utf8: int = 0
    cut: int = 0
    kept: str = ""
    error: str = ""

    @property
    def lost(self) -> bool:
        """Whether something is not in its place any more, or may not be."""
        return self.outcome not in (Outcome.SOUND, Outcome.ADOPTED, Outcome.LEFTOVER)

    def __str__(self) -> str:
        """For admins, in Chinese."""
        charset = f"，其中 {self.not_utf8} 条不是 UTF-8（多半是 GBK），已尽量读出，请核对" if self.not_utf8 else ""
        kept = f"，原样保存在 {self.kept}" if self.kept else ""
        match self.outcome:
            case Outcome.SOUND:
                said = f"完好，{self.items} 条"
            case Outcome.TORN:
                said = f"末尾有写到一半的内容，切去 {self.cut} 字节{kept}；余下 {self.items} 条"
            case Outcome.ADOPTED:
                said = f"有人写过或改过，已补全每条的 meta，共 {self.items} 条{charset}{kept}"
            case Outcome.DAMAGED:
                said = f"有 {self.unreadable} 处无法读出，已移走；余下 {self.items} 条{charset}{kept}"
            case Outcome.UNREADABLE:
                said = f"没有一条读得出，已移走{kept}"
            case Outcome.NO_FILE:
                said = f"不是普通的文件或目录，已移走{kept}"
            case Outcome.LEFTOVER:
                said = "改写中断时留下的临时文件，已删去（原文件未动）"
            case Outcome.MISSING:
                said = "没有这个会话；用 conversations 查看有哪些会话"
            case Outcome.FAILED:
                said = f"未能检查：{self.error}"
        return f"{self.path}：{said}"


def report(found: Sequence[Mended], *, every: bool) -> list[str]:
    """What was done, a line for each file that was not sound (or for `every` one), and the sum."""
    lines = [str(each) for each in found if every or each.outcome is not Outcome.SOUND]
    sound = sum(each.outcome is Outcome.SOUND for each in found)
    lost = sum(each.lost for each in found)
    lines.append(f"检查了 {len(found)} 个文件：{sound} 个完好，{lost} 个有内容被切去、移走或未能检查")
    return lines
