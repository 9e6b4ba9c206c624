"""What the reader of a table should know but no column holds, on stderr: what was left out, and why."""

import sys


def note(text: str) -> None:
    print(f"bench: {' '.join(text.split())[:400]}", file=sys.stderr, flush=True)
