#!/bin/sh
# The adapter of `ensemble admin conformance` (conformance/README.md). Usage: adapter.sh QUEUE
queue=$1; . "${0%/*}/ensemble.sh"
# raw KEY: its JSON.
raw() { printf '%s\n' "$call" | sed -nE "s/.*\"$1\":(\"([^\"\\\\]|\\\\.)*\"|[0-9]+).*/\1/p"; }
get() { raw "$1" | sed 's/^"//;s/"$//'; }
# members: the fields of the received envelope as members of an object.
members() {
    sed -nE '/^(id|epoch|holder): /d;s/^([a-z_]+): ([0-9]+|".*")$/,"\1":\2/p;t
        s/^([a-z_]+): (.*)$/,"\1":"\2"/p' "$fields"
    for pair in 'type:"message"' 'from:"unknown"' 'to:"unknown"' priority:0; do
        grep -q "^${pair%%:*}: " "$fields" || printf ',"%s":%s' "${pair%%:*}" "${pair#*:}"
    done
}
perform() {
    mailbox=$(get mailbox) i=$(get id) file=$(get body_file)
    set -- "$mailbox" "$i" "$(get holder)" "$(get epoch)"
    case $(get op) in
    send) priority=$(get priority | grep . || echo 0)
        set -- "$mailbox" "$(get from)" "$(get type)" "$priority" ${i:+"id=$i"}
        for key in task_id correlation_id; do
            [ -z "$(raw $key)" ] || set -- "$@" "$key=$(raw $key)"
        done
        ensemble_send "$@" <"$file" && printf ',"id":"%s"' "$id" ;;
    receive) ensemble_receive "$mailbox" "$3" || return 1
        [ -z "$id" ] || { cp "$body" "$file" && { members | tr -d '\n'
            printf ',"id":"%s","holder":"%s","epoch":%s' "$id" "$holder" "$epoch"; }; } ;;
    settle) ensemble_settle "$@" ;;
    release) ensemble_release "$@" "$(get delay_ms)" ;;
    extend) ensemble_extend "$@" "$(get seconds)" ;;
    dead_letter) ensemble_dead_letter "$@" "$(get reason)" ;;
    state) printf ',"state":"%s"' "$(ensemble_state "$mailbox" "$i")" ;;
    esac
}
echo '{"client":"shell","durability":"process","locks":"flock"}'
while read -r call; do
    if perform >"$fields.answer"; then printf '{"ok":true%s}\n' "$(cat "$fields.answer")"
    else printf '{"ok":false,"error":"%s","detail":"%s"}\n' "${error:-io}" "$detail"; fi
    rm -f "$fields.answer"
done
