# As root. Sends SIGNAL to every process of a command, which are known by a mark that they all inherit: an otherwise unused
# resource limit (file locks), which nobody but root can raise again. With KILL it goes on until none is left, or two
# seconds long. MARK "all" means the processes of all commands. The file JOB, if it is still there, was never begun.
# SIGNAL MARK JOB(or -)
signal=$1 mark=$2
[ "$3" = - ] || rm -f -- "$3"
all() {
	if [ "$mark" = all ]; then
		grep -L '^Max file locks  *unlimited' /proc/[0-9]*/limits 2>/dev/null
	else
		grep -l "^Max file locks  *$mark  " /proc/[0-9]*/limits 2>/dev/null
	fi
}
n=0
while [ $n -lt 200 ]; do
	found=
	for f in $(all); do
		q=${f#/proc/} q=${q%/limits}
		read -r s 2>/dev/null < "/proc/$q/stat" || continue
		case ${s##*) } in Z* | X*) ;; *) found="$found $q" ;; esac
	done
	[ -n "$found" ] || exit 0
	kill -"$signal" $found 2>/dev/null
	[ "$signal" = KILL ] || exit 0
	n=$((n + 1))
	sleep 0.01
done
exit 1
