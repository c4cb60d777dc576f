# As the user. Puts the file that arrived at FROM to PATH, in one step; it keeps the permissions of what was there.
# FROM SIZE SHA256 PATH
set -u
from=$1 size=$2 sum=$3
p=$(printf '%b.' "$4"); p=${p%.}
fail() { code=$1; shift; rm -f "$from" "${new-}"; echo "$*" >&2; exit "$code"; }
[ "$(stat -c %s "$from")" = "$size" ] && [ "$(sha256sum < "$from")" = "$sum  -" ] || fail 42 "it is damaged"
mode=644
if [ -L "$p" ]; then fail 45 "it is a symbolic link"
elif [ -d "$p" ]; then fail 45 "it is a directory"
elif [ -e "$p" ]; then
	[ -f "$p" ] || fail 45 "it is no regular file"
	mode=$(stat -c %a "$p")
fi
dir=${p%/*}
[ -d "$dir/" ] || fail 44 "there is no directory $dir"
new=$dir/.hutch-put-${from##*/}
(umask 077; cat < "$from" > "$new") || fail 1 "it cannot be written"
chmod "$mode" "$new" && mv -fT "$new" "$p" || fail 1 "it cannot be moved into place"
rm -f "$from"
