#!/bin/sh
# Counts the project's files, there where they were sent.
set -eu
cd "$HUTCH_WORKSPACE"
find . -name '*.py' > files.txt
echo "$(wc -l < files.txt) Python files"
echo "I am on a machine of E2B, as $(id -un)."
cp files.txt "$HUTCH_OUTPUT/report.txt"
