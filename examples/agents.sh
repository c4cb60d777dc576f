#!/bin/sh
# Two agents work on one project. Both read the same files, each writes to a layer of its own, and nothing reaches the
# project until somebody has looked at it and said so. Here both changed one file, in different places: the first one's
# change is applied, and of the second one's the hunk that is its own.
#
#   examples/agents.sh
#   examples/agents.sh podman     # in containers, of the image that examples/podman/image.sh makes
#
# needs: backend
# backends: bwrap podman
# before podman: podman/image.sh
# expect hutch: exit 0
# expect agents: stdout "bob sees nothing of what alice wrote"
# expect agents: stdout "M stack.py"
# expect agents: stderr "conflict: stack.py: it was changed in the project since the sandbox was made, and in the sandbox as well"
# expect agents: stdout "M stack.py (in part)"
# expect agents: stdout "A NOTES.md"
# expect agents: stdout "# A stack of anything."
# expect agents: stdout "return reversed(self._items)"
# expect agents: stderr "to what was before the apply"
set -eu
backend=${1-bwrap}
[ "$backend" != podman ] || export PODMAN_IMAGE="${PODMAN_IMAGE-localhost/hutch-example}"

project=$(mktemp -d)
trap 'hutch rm -f example-alice example-bob >/dev/null; rm -rf "$project"' EXIT
cp "$(dirname "$0")"/project/*.py "$project"

# show prints a command, and runs it.
show() {
	echo "\$ $*"
	"$@"
}

show hutch create --backend "$backend" --workspace "$project" --name example-alice
show hutch create --backend "$backend" --workspace "$project" --name example-bob

show hutch exec example-alice -- sed -i 's/return iter(self._items).*/return reversed(self._items)/' stack.py
show hutch exec example-bob -- sed -i '1i # A stack of anything.' stack.py
echo 'Bob was here.' | show hutch fs write example-bob NOTES.md
show hutch fs grep example-bob reversed || echo "bob sees nothing of what alice wrote"
show hutch ps

show hutch diff example-alice
show hutch apply example-alice

show hutch diff example-bob --stat
show hutch apply example-bob || echo "nothing was applied: both changed stack.py"
show hutch diff example-bob stack.py
show hutch apply example-bob --hunks stack.py:1
show hutch apply example-bob NOTES.md
show cat "$project/stack.py"

show hutch apply --undo example-bob
