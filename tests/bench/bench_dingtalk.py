"""1,000 DingTalk conversations at once, each with a model that takes 5 s: run by hand, prints figures.

    python -m tests.bench.bench_dingtalk [--conversations 1000] [--model-seconds 5]

The gateway runs in this process, platform and model in another. Exit code 1 when a bound is missed: acknowledgement
p99 below 1 s, all answered within the model's time + 3 s, loop lag below 100 ms.
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil

from gateway.command_line.serving import settle
from tests.platforms.dingtalk_gateway import FakeDingTalk
from tests.platforms.model_server import ModelServer
from tests.scenarios.gateway import Inside
from tests.waiting import until

ACK_P99, ANSWER_MARGIN, LAG = 1.0, 3.0, 0.1


async def platform(conversations: int, model_seconds: float) -> None:
    """The other process: prints where it listens, waits for a line, pushes everything, prints what it saw."""
    async with FakeDingTalk() as ding, ModelServer() as model:
        model.delay = lambda messages: model_seconds
        print(json.dumps({"ding": ding.base, "model": model.base_url}), flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        await ding.wait_connected()
        started = time.monotonic()
        frames = [ding.chat(f"问题{n}", conversation=f"cid{n}==", staff=f"s{n}") for n in range(conversations)]
        numbers = [await ding.push(frame) for frame in frames]
        pushed = time.monotonic() - started
        await until(lambda: len(ding.replies) >= conversations, timeout=model_seconds + 60)
        answered = sorted(reply.at - started for reply in ding.replies)
        acks = {ack.id: ack.at for ack in ding.acks}
        late = sorted(acks[number] - ding.pushed[number] for number in numbers)
        right = sorted(reply.text for reply in ding.replies) == sorted(f"答复：问题{n}" for n in range(conversations))
        told = {
            "pushed_seconds": pushed,
            "ack_p50": at(late, 0.5),
            "ack_p99": at(late, 0.99),
            "ack_max": late[-1],
            "first_answer": answered[0],
            "last_answer": answered[-1],
            "answers": len(answered),
            "right": right,
            "model_most_running": model.most_running,
        }
        print(json.dumps(told), flush=True)


def at(ordered: Sequence[float], share: float) -> float:
    """The value below which this share of them lies."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


async def lag(samples: list[float]) -> None:
    """How late the loop runs what is due, every 5 ms."""
    while True:
        before = time.monotonic()
        await asyncio.sleep(0.005)
        samples.append(time.monotonic() - before - 0.005)


async def measure(conversations: int, model_seconds: float) -> dict[str, Any]:
    """The gateway's side."""
    arguments = ("--conversations", str(conversations), "--model-seconds", str(model_seconds), "--platform")
    other = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.bench.bench_dingtalk",
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert other.stdin is not None
    assert other.stdout is not None
    try:
        places = json.loads(await other.stdout.readline())
        fake = FakeDingTalk()
        account = {"client-id": fake.client_id, "client-secret": fake.client_secret}
        entry = {"enabled": True, **account, "api-base-url": places["ding"], "oapi-base-url": places["ding"]}
        over = {"channels": {"dingtalk": entry}, "models": {"main": {"max-concurrency": max(conversations, 1)}}}
        model: Any = SimpleNamespace(base_url=places["model"])
        samples: list[float] = []
        with tempfile.TemporaryDirectory() as root:
            async with Inside(Path(root), model, over):
                settle()  # as `gateway run` does
                sampler = asyncio.create_task(lag(samples))
                spent = time.process_time()
                other.stdin.write(b"go\n")
                told: dict[str, Any] = json.loads(await other.stdout.readline())
                spent = time.process_time() - spent
                sampler.cancel()
    finally:
        if other.returncode is None:
            other.kill()
        await other.wait()
    samples.sort()
    lags = {"loop_lag_p99": at(samples, 0.99), "loop_lag_max": samples[-1]}
    machine = {"cpu_seconds": spent, "load_average": os.getloadavg()[0], "cores": os.cpu_count()}
    return {**told, **lags, "rss_mib": psutil.Process().memory_info().rss / 2**20, **machine}


def main() -> int:
    """Prints the figures; 1 when a bound is missed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--conversations", type=int, default=1000)
    parser.add_argument("--model-seconds", type=float, default=5.0)
    parser.add_argument("--platform", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.platform:
        asyncio.run(platform(given.conversations, given.model_seconds))
        return 0
    told = asyncio.run(measure(given.conversations, given.model_seconds))
    for name, value in told.items():
        print(f"{name:20} {value:.3f}" if isinstance(value, float) else f"{name:20} {value}")
    good = (
        told["right"]
        and told["ack_p99"] < ACK_P99
        and told["last_answer"] < given.model_seconds + ANSWER_MARGIN
        and told["loop_lag_max"] < LAG
    )
    print("within bounds" if good else "a bound is missed")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
