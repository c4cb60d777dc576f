# As the command's user, beside the command. Waits for its end and then ends all that it left behind. The command's output
# stays open until that is done, so its end is reported only then.
# PID MARK
p=$1 mark=$2 t=0.004
while read -r s < "/proc/$p/stat"; do
	case ${s##*) } in Z* | X*) break ;; esac
	sleep $t
	case $t in 0.004) t=0.01 ;; 0.01) t=0.02 ;; 0.02) t=0.05 ;; *) t=0.1 ;; esac
done
n=0
while [ $n -lt 200 ]; do
	found=
	for f in $(grep -l "^Max file locks  *$mark  " /proc/[0-9]*/limits); do
		q=${f#/proc/} q=${q%/limits}
		read -r s < "/proc/$q/stat" || continue
		case ${s##*) } in Z* | X*) ;; *) found="$found $q" ;; esac
	done
	[ -n "$found" ] || exit 0
	kill -KILL $found
	n=$((n + 1))
	sleep 0.01
done
