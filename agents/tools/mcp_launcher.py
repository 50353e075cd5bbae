"""Runs the program of an MCP server so that it ends with the gateway, even one that is killed. Linux; a script of its own.

``python -I -S mcp_launcher.py GATEWAY PROGRAM ARGUMENT…`` becomes the program. The kernel sends it SIGTERM when the
gateway (the process with that id) is gone: PR_SET_PDEATHSIG, prctl(2), which lasts over execve(2). A server that keeps
to the protocol ends by itself when its input does; this is for one that does not.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Never returns."""
    gateway, command = int(sys.argv[1]), sys.argv[2:]
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != gateway:  # it was gone before it could be watched
        os._exit(1)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
