# As root. Tells of everything below the workspace, except what PRUNE names at its top, in records of three parts, each
# ended by a NUL: type, permissions, size, inode, times of change; path; target of a link.
# WORKSPACE PRUNE…
set -u
w=$1
shift
cd "$w" || exit 1
for p; do set -- "$@" -path "./$p" -prune -o; shift; done
find . -mindepth 1 "$@" -printf '%y %m %s %i %T@ %C@\0%P\0%l\0'
