# Runs a command until standard input ends, then kills it and removes its directory.
#
#   sh -c "$(cat supervise.sh)" supervise DIRECTORY COMMAND [ARGUMENT...]
#
# The test process holds the other end of standard input. The kernel closes it
# however that process ends, SIGKILL included, which no destructor and no
# signal handler of the test process could promise. Until then a line of it is
# the name of a signal for the command, after which there is a file `sent`; or
# `start`, which runs the command again once it has ended.
directory=$1
shift

# Only the end of input may end this script: an interrupt from the terminal is
# meant for the test process.
trap '' HUP INT TERM

exec 3<&0
run=0
again=true
while $again; do
    run=$((run + 1))
    "$@" >>"$directory/log" 2>&1 </dev/null 3<&- &
    pid=$!

    # The file `exit.1`, of the first run, says that the process has been
    # reaped: from then on its number may belong to somebody else.
    (
        while read -r order; do
            [ "$order" != start ] || exit 0
            [ -e "$directory/exit.$run" ] || kill -"$order" "$pid"
            echo "$order" >"$directory/sent"
        done <&3
        [ -e "$directory/exit.$run" ] || kill -KILL "$pid"
        exit 1
    ) 2>/dev/null &
    watcher=$!

    wait "$pid"
    echo "$?" >"$directory/exit.$run"
    wait "$watcher" || again=false
done
rm -rf "$directory"
