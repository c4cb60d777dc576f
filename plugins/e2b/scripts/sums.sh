# As root. Hashes the files of the workspace whose names, each ended by a NUL, the file LIST holds, in their order, and
# removes LIST. A file that cannot be read has no line.
# WORKSPACE LIST
cd "$1" || exit 1
xargs -0 sha256sum --zero -- < "$2"
rm -f "$2"
exit 0
