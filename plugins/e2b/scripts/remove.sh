# As the user. Removes what is at PATH and follows no link at its end; a directory only with RECURSIVE = yes.
# PATH RECURSIVE
set -u
p=$(printf '%b.' "$1"); p=${p%.}
fail() { code=$1; shift; echo "$*" >&2; exit "$code"; }
[ -e "$p" ] || [ -L "$p" ] || fail 44 "there is nothing"
if [ -L "$p" ] || [ ! -d "$p" ]; then
	rm -f -- "$p"
	exit
fi
[ "$2" = yes ] || fail 46 "it is a directory"
rm -rf -- "$p" 2>/dev/null && exit
# Directories that their owner closed to itself.
find "$p" -type d ! -perm -700 -exec chmod u+rwx {} \; 2>/dev/null
while find "$p" -type d ! -perm -700 2>/dev/null | grep -q .; do
	find "$p" -type d ! -perm -700 -exec chmod u+rwx {} \; 2>/dev/null || break
done
rm -rf -- "$p"
