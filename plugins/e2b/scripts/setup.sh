# As root, once, before anything runs. Looks for the tools, makes the directories, takes the archive over, and unpacks what
# commands may only read.
# BASE USER WORKSPACE OUTPUT ARCHIVE(or -) SIZE SHA256 [MEMBER TARGET]…
set -u
base=$1 user=$2 w=$3 output=$4 archive=$5 size=$6 sum=$7
shift 7
fail() { code=$1; shift; echo "$*" >&2; exit "$code"; }
none=
for t in cat chmod chown env find grep gzip id mkdir mv rm sed setsid sha256sum sleep stat tar xargs; do
	command -v "$t" >/dev/null || none="$none $t"
done
(ulimit -x 7 || ulimit -w 7) 2>/dev/null || command -v prlimit >/dev/null || none="$none prlimit"
tar --version 2>/dev/null | grep -q GNU || none="$none GNU-tar"
find / -maxdepth 0 -printf '' 2>/dev/null || none="$none GNU-find"
[ -z "$none" ] || fail 41 "$none"
id -u "$user" >/dev/null 2>&1 || fail 48 "$user"
mkdir -p "$base/jobs" "$w" "$output" || fail 1 "make the directories"
chmod 711 "$base" "$base/jobs"
mkdir -p -m 700 "$base/jobs/$user"
# Where all users share one number there is nobody to give them to.
chown "$user" "$base/jobs/$user" "$w" "$output" 2>/dev/null
chmod 755 "$w" "$output"
[ "$archive" != - ] || exit 0
damaged() { rm -f "$archive"; fail 42 "$*"; }
[ "$(stat -c %s "$archive")" = "$size" ] || damaged "its size is $(stat -c %s "$archive") and not $size"
[ "$(sha256sum < "$archive")" = "$sum  -" ] || damaged "its hash is another one"
mv -f "$archive" "$base/base.tgz" && chmod 644 "$base/base.tgz" || fail 1 "move the archive"
while [ $# -gt 1 ]; do
	mkdir -p "$2" && tar -xpzf "$base/base.tgz" --no-same-owner -C "$2" --strip-components=1 "$1" && chmod 555 "$2" || fail 1 "unpack $1"
	shift 2
done
