# As root. Empties the workspace with KEEP = no, and always the output directory, what the user has in the temporary ones,
# and the directory of jobs. With an archive, looks whether it is still what was sent.
# BASE USER WORKSPACE OUTPUT KEEP(yes or no) SHA256(or -) PRUNE…
set -u
base=$1 user=$2 w=$3 output=$4 keep=$5 sum=$6
shift 6
[ "$keep" = yes ] || [ "$sum" = - ] || [ "$(sha256sum < "$base/base.tgz")" = "$sum  -" ] || exit 42
wipe() { # DIR, and names in it that stay
	d=$1
	shift
	for k; do set -- "$@" ! -name "$k"; shift; done
	find "$d" -mindepth 1 -maxdepth 1 "$@" -exec rm -rf {} + 2>/dev/null && return
	find "$d" -type d ! -perm -700 -exec chmod u+rwx {} \; 2>/dev/null
	find "$d" -mindepth 1 -maxdepth 1 "$@" -exec rm -rf {} +
}
wipe "$base/jobs"
mkdir -p -m 700 "$base/jobs/$user" && chown "$user" "$base/jobs/$user" 2>/dev/null
for t in /tmp /var/tmp /dev/shm; do # what others have there is the template's own
	find $t -mindepth 1 -maxdepth 1 -user "$user" -exec rm -rf {} + 2>/dev/null
done
[ "$keep" = yes ] || { chmod 755 "$w"; wipe "$w" "$@"; }
mkdir -p "$w" "$output" && chmod 755 "$w" "$output" && wipe "$output"
chown "$user" "$w" "$output" 2>/dev/null
exit 0
