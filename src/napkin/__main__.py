"""`python -m napkin` and the `napkin` command."""

from __future__ import annotations

import gc
import sys


def main() -> int:
    """Run the command line; return its exit status."""
    gc.set_threshold(100_000, 20, 20)  # a short process makes many objects that live until its end
    try:
        from napkin.cli import main as run

        return run(sys.argv[1:])
    except KeyboardInterrupt:  # while the command line itself was being loaded
        return 130
    finally:
        gc.freeze()  # the interpreter's last collections would look at every object again, to free what ends anyway


if __name__ == "__main__":
    sys.exit(main())
