"""``python -m gateway``: the guard against shadowed packages first, then the command line."""

import sys


def main() -> int:
    """Runs the command line; returns the exit code (0 ok, 1 found problems, 2 cannot run)."""
    from gateway.shadow import shadowed

    problem = shadowed()
    if problem:
        print(problem, file=sys.stderr)
        return 2
    from gateway.cli import run_command

    return run_command(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
