# As root. Packs the directory PATH into the file TO, and prints its size and hash. With a LIST, a file of names each ended
# by a NUL, only those are packed, in their order, and LIST is removed.
# TO PATH [LIST SIZE]
set -u
to=$1 list=${3-}
p=$(printf '%b.' "$2"); p=${p%.}
[ -z "$list" ] || trap 'rm -f "$list"' EXIT
fail() { code=$1; shift; rm -f "$to"; echo "$*" >&2; exit "$code"; }
[ -z "$list" ] || [ "$(stat -c %s "$list")" = "$4" ] || fail 42 "the list is damaged"
[ -e "$p" ] || [ -L "$p" ] || fail 44 "there is nothing"
[ ! -L "$p" ] && [ -d "$p" ] || fail 47 "it is no directory"
cd "$p" || fail 1 "it cannot be entered"
umask 077
export LC_ALL=C
if [ -z "$list" ]; then
	set -- --sort=name .
else
	set -- --no-recursion --null --verbatim-files-from --files-from="$list"
fi
# 1 says that a file changed while it was read.
tar -cf "$to" -I 'gzip -1' -S --format=posix --hard-dereference --warning=no-file-ignored "$@"
code=$?
[ $code -le 1 ] || fail 1 "tar ended with $code"
stat -c %s "$to" && sha256sum < "$to"
