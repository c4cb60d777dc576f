# As the user. Unpacks the workspace, unless there is no archive. The output of list.sh comes after it.
# BASE ARCHIVE(yes or no) WORKSPACE PRUNE…
set -u
base=$1 archive=$2 w=$3
cd "$w" || exit 1
[ "$archive" = no ] || tar -xpzf "$base/base.tgz" --no-same-owner -C "$w" --strip-components=1 workspace || exit 1
