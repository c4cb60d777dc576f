# A command: this file is uploaded for it alone, with the variables that the lines above set, and removed before the
# command begins. The first bytes on stderr, or on the terminal, are $sign and what became of it; they are for hutch.
rm -f -- "$0"
no() { printf '%s%s:%s;' "$sign" "$1" "$2" >&2; exit "$1"; }
if [ $terminal = yes ]; then
	(setsid sh -c "$watch" watch $$ $mark </dev/null >/dev/null 2>&1 &)
else
	(setsid sh -c "$watch" watch $$ $mark </dev/null 2>/dev/null &)
fi
ulimit -x $mark 2>/dev/null || ulimit -w $mark 2>/dev/null || prlimit --pid $$ --locks=$mark:$mark 2>/dev/null || no 125 "it cannot be marked"
cd -- "$dir" 2>/dev/null || no 124 "there is no such directory"
set -f
denied=
case $program in
*/*)
	[ -e "$program" ] || no 127 "there is no such file"
	[ ! -d "$program" ] || no 126 "it is a directory"
	[ -x "$program" ] || no 126 "it is not executable"
	;;
*)
	found= left=$search:
	while [ -z "$found" ] && [ -n "$left" ]; do
		at=${left%%:*} left=${left#*:}
		at=${at:-.}/$program
		if [ -f "$at" ]; then
			if [ -x "$at" ]; then found=$at; else denied=yes; fi
		fi
	done
	[ -n "$found" ] || [ -z "$denied" ] || no 126 "it is not executable"
	[ -n "$found" ] || no 127 "it is nowhere in PATH"
	;;
esac
# A group and session of its own, unless it leads one already: a terminal's session, or another daemon's way of starting.
own=
read -r s < /proc/$$/stat
s=${s##*) }
set -- $s
[ "$3" = $$ ] || own=setsid
printf '%s0:;' "$sign" >&2
