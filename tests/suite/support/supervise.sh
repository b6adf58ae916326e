# Runs a command until standard input ends, then kills it and removes its directory.
#
#   sh -c "$(cat supervise.sh)" supervise DIRECTORY COMMAND [ARGUMENT...]
#
# The test process holds the other end of standard input. The kernel closes it
# however that process ends, SIGKILL included, which no destructor and no
# signal handler of the test process could promise.
directory=$1
shift

# Only the end of input may end this script: an interrupt from the terminal is
# meant for the test process.
trap '' HUP INT TERM

exec 3<&0
"$@" >"$directory/log" 2>&1 </dev/null 3<&- &
pid=$!

# The file `exit` says that the process has been reaped: from then on its
# number may belong to somebody else.
(
    cat <&3 >/dev/null
    [ -e "$directory/exit" ] || kill -KILL "$pid"
) 2>/dev/null &
watcher=$!
exec 3<&-

wait "$pid"
echo "$?" >"$directory/exit"
wait "$watcher"
rm -rf "$directory"
