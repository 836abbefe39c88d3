# A worker of steps, outside of every pane: `steps.sh NAME`.
me=$1
. "$HERE/common.sh"
export ENSEMBLE_AGENT_ID=$me
say up - 0 $$

# submit STATUS REST: reports the step.
submit() {
    e step submit --epoch "$epoch" - <<<"{\"task_id\": \"$queue\", \"step_index\": $index, \"agent\": \"$me\", \"status\": \"$1\", $2}"
}
while [ ! -e "$STOP" ]; do
    now
    got=$(e step next --json 2>/dev/null)
    [ -n "$got" ] || { nap 0.5; continue; }
    queue=$(pick task_id) index=$(pick step_index)
    begin "$queue.$index" "$(pick epoch)"
    number=${queue#s}
    if [ $(((number + index) % 8)) = 7 ]; then
        for _ in $(seq $((LEASE * 2))); do e step heartbeat "$queue" "$index" >/dev/null 2>&1; nap 1; done
    else
        nap 0.$((number % 6 + 2))
    fi
    case $got in
    *'fails once'*) if [ "$(pick attempt)" = 1 ]; then status=failure; else status=success; fi ;;
    *'is blocked'*) status=blocked ;;
    *) status=success ;;
    esac
    case $status in
    failure) hand failure submit failure '"summary": "1 of 1 tests failed"' ;;
    blocked) hand blocked submit blocked '"blockers": ["no key"]' ;;
    *) hand success submit success '"summary": "1 of 1 done"' ;;
    esac
    # The mail says again what the tool says.
    mail=$(e recv --json 2>/dev/null) && [ -n "$mail" ] && { got=$mail; e settle "$(pick id)" >/dev/null 2>&1; }
done
