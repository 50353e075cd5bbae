"""What lanes remember of their agents: kept in the inbox's database, the newest at hand."""

from collections import OrderedDict

from gateway.inbox import Inbox
from gateway.router import LaneState
from memory.conversation import LaneKey

_AT_HAND = 5_000


class LaneStates:
    """Reads through to the inbox; a lane's own worker and its commands are the only writers."""

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox
        self._known: OrderedDict[LaneKey, LaneState] = OrderedDict()

    async def get(self, lane: LaneKey) -> LaneState:
        """What the lane remembers; an empty state for a new one."""
        state = self._known.get(lane)
        if state is None:
            state = await self._inbox.lane_state(lane)
            self.keep(lane, state)
        return state

    async def set(self, lane: LaneKey, state: LaneState) -> None:
        """Replaces what the lane remembers, on disk and at hand."""
        await self._inbox.set_lane_state(lane, state)
        self.keep(lane, state)

    def forget(self, user: str) -> None:
        """Drops what is at hand of a person's lanes; the inbox drops its own."""
        for lane in [lane for lane in self._known if lane.user == user]:
            del self._known[lane]

    def keep(self, lane: LaneKey, state: LaneState) -> None:
        """Takes over a state that is already on disk."""
        self._known[lane] = state
        self._known.move_to_end(lane)
        while len(self._known) > _AT_HAND:
            self._known.popitem(last=False)
