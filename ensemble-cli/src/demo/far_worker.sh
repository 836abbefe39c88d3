# A worker of the demo on two hosts: each line that is typed says that mail may be waiting.
# A server that is away for a moment answers 75: the same is tried again.
again() { while "$@"; [ $? -eq 75 ]; do sleep 0.2; done 2>> "$DEMO/errors"; }
field() { printf '%s' "$out" | sed -n "s/.*\"$1\":\"\([^\"]*\)\".*/\1/p"; }
take() {
    while :; do
        out=$("$ENSEMBLE" recv --json --as "$1" 2>> "$DEMO/errors")
        case $? in
            0) ;;
            75) sleep 0.2; continue ;;
            *) return ;;
        esac
        id=$(printf '%s' "$out" | sed 's/^{"id":"\([^"]*\)".*/\1/')
        task=$(field task_id)
        echo "$1 works on $task"
        again "$ENSEMBLE" send --as "$1" --to dispatch --type report --id "report.$task" --task "$task" "done by $1"
        again "$ENSEMBLE" settle --as "$1" "$id"
    done
}
take "$1"
while IFS= read -r line; do take "$1"; done
