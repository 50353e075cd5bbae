"""Whether messages reach the right agent, measured on labelled ones: ``python -m tests.bench.intents``."""
