"""``python -m gateway``: the guard against shadowed packages first, then the command line."""

import io
import signal
import sys


def main() -> int:
    """Runs the command line; returns the exit code (0 ok, 1 found problems, 2 cannot run)."""
    # Ctrl-C ends the process at once until coroutines run. As an exception, modules that are being imported may swallow
    # it: pydantic does, and prints a traceback.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not where it is to be ignored
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        for stream in (sys.stdin, sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="replace")  # in a terminal that knows no Chinese, better ? than a traceback
        from gateway.shadow import shadowed

        problem = shadowed()
        if problem:
            print(problem, file=sys.stderr)
            return 2
        from gateway.command_line.cli import run_command

        return run_command(sys.argv[1:])
    except KeyboardInterrupt:
        return 0


if __name__ == "__main__":
    sys.exit(main())
