# As the user. Unpacks the archive that arrived at FROM into the directory PATH, which is made when it is missing.
# FROM SIZE SHA256 PATH
set -u
from=$1 size=$2 sum=$3
p=$(printf '%b.' "$4"); p=${p%.}
fail() { code=$1; shift; rm -f "$from"; echo "$*" >&2; exit "$code"; }
[ "$(stat -c %s "$from")" = "$size" ] && [ "$(sha256sum < "$from")" = "$sum  -" ] || fail 42 "it is damaged"
[ ! -e "$p" ] || [ -d "$p" ] || fail 47 "it is no directory"
mkdir -p "$p" || fail 1 "it cannot be made"
cd "$p" || fail 1 "it cannot be entered"
tar -xpzf "$from" --no-same-owner || fail 1 "it cannot be unpacked"
rm -f "$from"
