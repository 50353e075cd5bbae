"""Prints the accuracy per class, by rules and examples alone and with a scripted classifier, and what went wrong."""

import asyncio
import logging
import statistics
import sys
import time

from agents.similarity import Similarity
from tests.bench.intents.scoring import Labelled, Scripted, labelled, outcomes, shipped_agents, table


async def _report(messages: list[Labelled], details: bool) -> None:
    ways = (
        ("rules and examples alone", None),
        ("with a classifier that is always right", Scripted(messages)),
        ("with a classifier that fails for one in twenty", Scripted(messages, errs_every=20)),
    )
    for title, model in ways:
        found = await outcomes(messages, model)
        print(f"\n{title}" + (f" (asked {model.asked} times)" if model else ""))
        print("\n".join(table(found)))
        if details:
            for each in found:
                if not each.right:
                    print(f"  {each.message.kind}: {each.message.text!r} -> {each.route.agent} ({each.route.reason})")


def _pace(messages: list[Labelled]) -> None:
    samples = {name: (*each.intents.examples, each.description) for name, each in shipped_agents().items()}
    similarity = Similarity(samples)
    seconds = []
    for each in messages:
        began = time.perf_counter()
        similarity.clearest(each.text)
        seconds.append(time.perf_counter() - began)
    print(f"\nsimilarity: median {statistics.median(seconds) * 1e3:.2f} ms, worst {max(seconds) * 1e3:.2f} ms")


if __name__ == "__main__":
    logging.getLogger("sanqiao").setLevel(logging.ERROR)  # scripted failures are meant
    everything = labelled()
    print(f"{len(everything)} messages")
    asyncio.run(_report(everything, "--details" in sys.argv))
    _pace(everything)
