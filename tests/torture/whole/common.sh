# Read by every scripted agent of this test, with its name in $me. E is the program; JOURNALS and LOCKS are
# directories on another disk. A line of a journal is one write: SECONDS VERB AGENT TASK EPOCH PID WORD...,
# with the seconds since boot, which no process sets.

say() { read -r up _ </proc/uptime; echo "$up $1 $me ${*:2}" >>"$JOURNALS/$me"; }

# Runs the program, or waits, without the lock of the work.
e() { "$E" "$@" 9>&-; }
nap() { sleep "$1" 9>&-; }
now() { read -r asked _ </proc/uptime; }

# The first member of this name in the object in $got.
pick() { grep -o "\"$1\":\"\{0,1\}[^\",}]*" <<<"$got" | head -n 1 | sed 's/^[^:]*:"\{0,1\}//'; }

# begin TASK EPOCH: the work begins now; it was asked for at $asked. The lock tells of another process at the
# same work, and the kernel gives it back whatever ends this process.
begin() {
    task=$1 epoch=$2 number=${1##*[!0-9]}
    say begin "$task" "$epoch" $$ "$asked"
    exec 9<>"$LOCKS/$task"
    if flock -n 9; then echo "$me $epoch $$" >"$LOCKS/$task"; else say beside "$task" "$epoch" $$ "$(cat "$LOCKS/$task")"; fi
}

# hand STATUS COMMAND...: the work is over, and its result is handed in. Busy, as on a full disk, is tried again.
hand() {
    say hand "$task" "$epoch" $$ "$1"
    exec 9>&-
    for _ in {1..120}; do
        told=$("${@:2}" 2>&1 >/dev/null)
        code=$?
        [ $code = 75 ] || break
        nap 0.5
    done
    if [ $code = 0 ]; then say end "$task" "$epoch" $$ ok; else say end "$task" "$epoch" $$ "refused $code ${told//$'\n'/ }"; fi
}

# plan TASK: submits plans until one is approved; fails if that takes too long. $refused is a command that must
# be refused as long as none is.
plan() {
    for _ in {1..60}; do
        case $(e request list --json 2>/dev/null | grep "\"from\":\"$me\".*\"task_id\":\"$1\"") in
        *'"state":"approved"'*) return 0 ;;
        *'"state":"pending"'*)
            [ -z "$refused" ] || { $refused >/dev/null 2>&1 9>&-; say hasty "$1" "$epoch" $$ $?; refused=; }
            nap 0.5
            ;;
        *)
            say plan "$1" "$epoch" $$
            e request plan - --task "$1" --to conductor <<<"1. do $1" >/dev/null 2>&1 || nap 0.5
            ;;
        esac
        [ ! -e "$STOP" ] || return 1
    done
    return 1
}
