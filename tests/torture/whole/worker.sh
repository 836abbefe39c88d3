# A worker of the team in a pane: works off its mail, answers pings, leaves when it is asked to. What it does
# with a task follows from the task's number; work.rs has the same rules.
me=$ENSEMBLE_AGENT_ID
. "$HERE/common.sh"

# work ID EPOCH TASK: does a task, and ends it.
work() {
    begin "$3" "$2"
    refused=
    if [[ $got == *'plan: yes'* ]]; then
        [ $((number % 2)) = 0 ] || refused="$E settle $1"
        plan "$task" || { say gave-back "$task" "$epoch" $$; exec 9>&-; e mailbox release "$1" >/dev/null 2>&1; return; }
        say planned "$task" "$epoch" $$
    fi
    # Some take longer than their lease.
    if [ $((number % 9)) = 8 ]; then nap $((LEASE * 2)); else nap 0.$((number % 7 + 2)); fi
    if [ $((number % 7)) = 3 ]; then
        hand failed e report "$task" --status failed --reason "0 of 1 parts (0%) are done, see README:1" --summary "$me has done 0 of 1 parts (0%), see README:1"
    elif [ $((number % 11)) = 5 ]; then
        hand blocked e report "$task" --status blocked --reason "0 of 1 keys (0%) are in README:1" --summary "$me has done 0 of 1 parts (0%), see README:1"
    elif [[ $task = m* ]] && [ $((number % 4)) = 0 ]; then
        hand success e settle "$1" --epoch "$epoch"
    else
        hand success e report "$task" --status success --summary "$me has done 1 of 1 parts (100%), see README:1"
    fi
}

# Rejects every third request, agrees to the others, and begins nothing more.
leave() {
    if [ $((RANDOM % 3)) = 0 ] && [[ $got != *'team is going down'* ]]; then
        e request answer "$1" --reject --reason "there is work" >/dev/null 2>&1
        return
    fi
    e request answer "$1" --approve >/dev/null 2>&1 || return
    say agreed "$1" 0 $$
    now
    got=$(e recv --json 2>/dev/null)
    [[ $got != *'"type":"task"'* ]] || say after-agreed "$(pick task_id)" "$(pick epoch)" $$
    exit 0
}

say up - 0 $$
while [ ! -e "$STOP" ]; do
    asking=$(stat -c '%i %z' ".ensemble/ready/$me.ping" 2>/dev/null)
    if [ "$asking" != "$answered" ] && read -r _ worker attempt 2>/dev/null <".ensemble/ready/$me.ping"; then
        # Some answer late.
        [ $((RANDOM % 4)) != 0 ] || nap 3
        e agent pong "$worker" "$attempt" >/dev/null 2>&1 && answered=$asking
    fi
    now
    got=$(e recv --json 2>/dev/null)
    # Nudges are typed lines.
    [ -n "$got" ] || { read -r -t 0.4 _; continue; }
    id=$(pick id) at=$(pick epoch)
    case $(pick type) in
    task) work "$id" "$at" "$(pick task_id)" ;;
    shutdown_request) leave "$(pick request_id)" ;;
    *) e settle "$id" >/dev/null 2>&1 ;;
    esac
done
