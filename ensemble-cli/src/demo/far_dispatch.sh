# Dispatch of the demo on two hosts: sends tasks to the other host and collects the reports.
again() { while "$@"; [ $? -eq 75 ]; do sleep 0.2; done 2>> "$DEMO/errors"; }
n=1
while [ "$n" -le "$TASKS" ]; do
    again "$ENSEMBLE" send --as dispatch --to "worker-$((n % 2 + 1))" --type task --id "task-$n" --task "task-$n" -m "do $n"
    n=$((n + 1))
done
take() {
    while :; do
        out=$("$ENSEMBLE" recv --json --as dispatch 2>> "$DEMO/errors")
        case $? in
            0) ;;
            75) sleep 0.2; continue ;;
            *) return ;;
        esac
        id=$(printf '%s' "$out" | sed 's/^{"id":"\([^"]*\)".*/\1/')
        again "$ENSEMBLE" settle --as dispatch "$id"
        printf '%s\n' "$id" >> "$DEMO/reports"
    done
}
take
while IFS= read -r line; do take; done
