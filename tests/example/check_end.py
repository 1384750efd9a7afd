"""`python -m tests.example.check_end`: check what `demo --json` printed, on standard input, against all catalogs."""

from __future__ import annotations

import json
import sys

import django

if __name__ == "__main__":
    django.setup()
    from tests.example.test_demo import GROUPS, check_end

    check_end(json.load(sys.stdin), GROUPS)
    print("the demo ended as it should")
