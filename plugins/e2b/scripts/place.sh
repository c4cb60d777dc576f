# As the user. Unpacks the workspace, unless there is no archive, and lists it as list.sh does.
# BASE WORKSPACE ARCHIVE(yes or -) PRUNE…
set -u
base=$1 w=$2 archive=$3
shift 3
cd "$w" || exit 1
[ "$archive" = - ] || tar -xpzf "$base/base.tgz" --no-same-owner -C "$w" --strip-components=1 workspace || exit 1
