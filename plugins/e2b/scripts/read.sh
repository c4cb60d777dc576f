# As root. Prints the size of the regular file at PATH in a line, and the file, to which no symbolic link may lead.
# PATH
set -u
p=$(printf '%b.' "$1"); p=${p%.}
fail() { code=$1; shift; echo "$*" >&2; exit "$code"; }
set -f
rest=${p#/} at=
while [ -n "$rest" ]; do
	at=$at/${rest%%/*}
	[ ! -L "$at" ] || fail 45 "it is, or lies behind, a symbolic link"
	case $rest in */*) rest=${rest#*/} ;; *) rest= ;; esac
done
[ -e "$p" ] || fail 44 "there is nothing"
[ -f "$p" ] || fail 45 "it is no regular file"
stat -c %s "$p" && exec cat < "$p"
