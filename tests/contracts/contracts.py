#!/usr/bin/env python3
"""Contracts that a compiler does not check. `contracts.py NAME ROOT [BUILD]` runs one; `contracts.py self-test` shows that each
fails when its rule is broken. Standard library only.
"""
import pathlib
import sys

sys.dont_write_bytecode = True  # the source tree stays as it is

from build_rules import include_refusal, library_output, self_contained, weak_symbols, zoo_initialisers
from docs_skeletons import docs_skeletons
from out_of_tree import out_of_tree
from source_rules import (architecture_names, ascii_only, file_length, header_comment, layer_order, no_sessions, property_checks,
                          readmes)

CHECKS = {f.__name__.replace("_", "-"): f for f in (
    layer_order, file_length, architecture_names, header_comment, ascii_only, readmes, property_checks, no_sessions,
    library_output, weak_symbols, zoo_initialisers, include_refusal, self_contained, docs_skeletons, out_of_tree)}


def main():
    name = sys.argv[1]
    if name == "self-test":
        from self_test import self_test
        problems = list(self_test(CHECKS))
    else:
        build = pathlib.Path(sys.argv[3]).resolve() if len(sys.argv) > 3 else None
        problems = list(CHECKS[name](pathlib.Path(sys.argv[2]).resolve(), build))
    for problem in problems:
        print(problem)
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
