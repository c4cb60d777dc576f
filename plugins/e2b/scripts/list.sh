# As root. Lists, zipped, everything below the directory PATH, except what PRUNE names at its top, in records of three
# parts, each ended by a NUL: type, permissions, size, inode, times of change; path; target of a link. The last record is
# "end" and find's own word for how it went.
# PATH PRUNE…
set -u
p=$(printf '%b.' "$1"); p=${p%.}
shift
fail() { code=$1; shift; echo "$*" >&2; exit "$code"; }
[ -e "$p" ] || [ -L "$p" ] || fail 44 "there is nothing"
[ ! -L "$p" ] && [ -d "$p" ] || fail 47 "it is no directory"
cd "$p" || fail 1 "it cannot be entered"
for name; do
	set -- "$@" -path "./$name" -prune -o
	shift
done
{
	find . -mindepth 1 "$@" -printf '%y %m %s %i %T@ %C@\0%P\0%l\0'
	printf 'end %s\0\0\0' $?
} | gzip -1
