# A worker of steps in the demo on two hosts: does what the next step says, and reports it.
# A server that is away for a moment answers 75: the same is tried again.
again() { while "$@"; [ $? -eq 75 ]; do sleep 0.2; done 2>> "$DEMO/errors"; }
field() { printf '%s' "$out" | sed -n "s/.*\"$1\":\([0-9]*\).*/\1/p"; }
while :; do
    out=$("$ENSEMBLE" step next --as "$1" --wait 2s --json 2>> "$DEMO/errors")
    case $? in
        0) ;;
        3) continue ;;
        75) sleep 0.2; continue ;;
        *) exit 1 ;;
    esac
    step=$(field step_index)
    echo "$1 does step $step"
    printf '{"task_id": "release", "step_index": %s, "agent": "%s", "status": "success", "summary": "done"}\n' \
        "$step" "$1" > "$DEMO/report-$1.json"
    again "$ENSEMBLE" step submit --as "$1" -f "$DEMO/report-$1.json" --epoch "$(field epoch)"
done
