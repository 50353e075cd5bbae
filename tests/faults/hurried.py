"""Gateways that are in a hurry, with a clock that can be set: children of a prepared process, see `hurry`."""

import signal
import struct
from collections.abc import Mapping
from pathlib import Path

from tests.scenarios.gateway import Process


class Hurried(Process):
    """A gateway whose pauses and patience are short. In its environment stands which of its `lives` it is (LIFE)."""

    lives = 0

    async def launch(self) -> None:
        """Starts without waiting for it."""
        if not self._clock_file.exists():
            self.set_clock(0.0)
        self.lives += 1
        await super().launch()

    def _environment(self) -> dict[str, str]:
        return {**super()._environment(), "LIFE": str(self.lives)}

    def _changes(self) -> Mapping[str, str]:
        return {"changes": "tests.faults.hurry", "clock": str(self._clock_file)}

    @property
    def _clock_file(self) -> Path:
        return self.root / "clock"

    def set_clock(self, ahead: float) -> None:
        """Sets its clock so many seconds ahead of ours (below 0: behind), while it runs too."""
        with self._clock_file.open("r+b" if self._clock_file.exists() else "wb") as file:
            file.write(struct.pack("d", ahead))

    @property
    def pid(self) -> int:
        """Of the process that runs, or ran last."""
        assert self.process is not None
        return self.process.pid

    def freeze(self) -> None:
        """SIGSTOP."""
        self.signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT."""
        self.signal(signal.SIGCONT)
