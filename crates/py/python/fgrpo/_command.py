"""The command ``fgrpo``, which runs inside the extension module."""

import signal
import sys

from . import _native


def main() -> int:
    """Run the command line of this process and return its exit code: 0 success, 1 failure, 2 bad input."""
    # Python would handle Ctrl-C only after the command, at its next instruction. If a shell or nohup made the process ignore
    # Ctrl-C, it remains ignored.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    return _native.run_command(["fgrpo", *sys.argv[1:]])
