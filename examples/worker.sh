#!/bin/sh
# worker.sh QUEUE MAILBOX HOLDER COMMAND [ARGUMENT...]: a whole worker, made of mv and sed; see PROTOCOL.md.
# COMMAND reads a message's body ($held is its file) and prints what it has done. If it fails, the message is given
# back for DELAY seconds; if it has an `attempt`, its sender tries again and gets a report instead.
set -fu; umask 077; export held= # LEASE=n asks for n seconds, IDLE=exit ends the worker when there is no work
queue=${1%/} box=${1%/}/mailbox/$2 ready=${1%/}/../.ensemble/ready agent=$2 me=$3; shift 3
(cd "$box" && mkdir -p new front cur done dead lease ../../tmp ../../reports) || exit 1
put() { cat >"$queue/tmp/${1##*/}.$me.$$" && mv "$queue/tmp/${1##*/}.$me.$$" "$1"; } # FILE: stores stdin, whole
# setting NAME DEFAULT: a number in the mailbox's settings. field NAME DEFAULT [FILE]: a field of an envelope.
setting() { sed -n "s/^$1: *\([0-9][0-9]*\) *\(#.*\)*$/\1/p" "$box/mailbox.yaml" 2>/dev/null | grep . || echo "$2"; }
field() { value=$(sed -n "/^body:/q;/^$1: */{s///;s/^\"\(.*\)\"$/\1/;p;q;}" "${3:-$held}"); echo "${value:-$2}"; }
body() { sed '/^body:/,$!d;/^body: *|/d;s/^body: *//;/^\.\.\.$/d;s/^  //' "$held"; }
is_whole() { [ -f "$held" ] && [ ! -h "$held" ] && [ "$(field version 1)" -le 1 ] && [ "$(tail -n 1 "$held")" = ... ]; }
is_expired() { expr "$(field expires_at 9)" \<= "$now" >/dev/null; }
# may_begin FILE: not while the team is paused, and no task that waits for a plan, or for the approval of its plan.
is_stopped() { ls "$queue/../.ensemble" "$queue/../.liza" 2>/dev/null | grep -Eqx 'PAUSE|CHECKPOINT|ABORT'; }
may_begin() {
    task=$(field task_id '' "$1" 2>/dev/null) gate=$queue/gates/$task@$me.yaml
    if is_stopped; then return 1; elif [ ! -e "$gate" ] && [ ! -e "$queue/gates/$task@.yaml" ]; then return; fi
    grep -q '^outcome: "*approved' "$queue/requests/$(field request_id - "$gate")/decision.yaml"
} 2>/dev/null
# kind FILE: work; notice, an automatic message, which is read and never answered; or other, work that may not begin, a
# step, a request or an unknown type, which stays where it is. A file that cannot be read is taken, and buried.
kind() {
    [ -f "$1" ] && [ ! -h "$1" ] || { echo work; return; }
    case $(field type message "$1" 2>/dev/null) in
    message | task | dispatch.instruction) if may_begin "$1"; then echo work; else echo other; fi ;;
    *_response | report.* | mail.* | request.* | board.* | step.* | steps.*) echo notice ;;
    *) echo other ;; esac
}
# waiting: FILE ID EPOCH of each message that is due, the most urgent first, then the oldest.
waiting() {
    now=$(date +%s)999 name='\([A-Za-z0-9_][A-Za-z0-9._-]*\)' n='\([0-9]\{1,17\}\)'
    ls "$box/front" | sed -n "/@[et]0[0-9]/d;s/^$name@p\([0-9]\)@e$n@t$n\.yaml$/\2 \1 \3 \4 &/p" |
        sort -k1,1nr -k2,2 | while read -r _ id e t file; do
        [ "$t" -gt "$now" ] || echo "front/$file $id $((e + 1))"
    done
    ls -tr "$box/new" 2>/dev/null | sed -n "s/^$name\.yaml$/new\/& \1 1/p"
}
# pong: answers the ping of a controller that has work, by a file: MAILBOX@ATTEMPT.pong.
pong() { { read -r _ _ try <"$ready/$agent.ping"; } 2>/dev/null && : >"$ready/$agent@$try.pong"; }
# take: prints ID EPOCH. Of all who try for a message, one rename succeeds: that is the ack.
take() {
    waiting | while read -r file id e; do
        [ "$(kind "$box/$file")" != other ] || continue
        mv "$box/$file" "$box/cur/$id@$me@$e.yaml" 2>/dev/null && echo "$id $e" && break
    done
}
# bury REASON: makes the message a dead letter. The lock keeps others from moving it backwards meanwhile.
bury() {
    (flock 9; ls "$held" >/dev/null 2>&1 && printf 'reason: "%s"\nat: "%s"\nholder: "%s"\nepoch: %s\n' \
        "$1" "$now" "$me" "$epoch" | put "$dead@reason.yaml" && mv "$held" "$dead.yaml") 9>>"$box/gate.lock"
}
# release: gives the message back; after its last attempt, counted from a redrive, it is buried.
release() {
    old=$(sed -n '/^epoch: /{s///;h;};/^redriven: true/{x;p;}' "$dead@reason.yaml" 2>/dev/null)
    tries=$((epoch - ${old:-0})) at=${DELAY:-0} priority=$(field priority 0 | grep '^[0-9]$' || echo 0)
    [ "$tries" -lt "$(setting attempts_max 5)" ] || { bury "released after $tries attempts"; return; }
    [ "$at" -eq 0 ] || at=$(($(date +%s) + at))000
    flock -s "$box/gate.lock" mv "$held" "$box/front/$id@p$priority@e$epoch@t$at.yaml"
}
# report STATUS [REASON]: settles with a report. Its `output` is stdin, its `summary` says who, how many and where.
report() {
    task=$(expr "X$(field task_id "$id")" : 'X\([A-Za-z0-9_][A-Za-z0-9._-]\{0,63\}\)$') || task=$id
    file=reports/$task-completed.yaml count=$((2 - $#)) try=$(field attempt '' | grep -x '[0-9]*')
    { printf '%s: "%s"\n' task_id "$task" worker_id "$me" message_id "$id" status "$1" completed_at "$now" \
        summary "$me has done $count of 1 messages ($((count * 100))%), see ${queue##*/}/$file:7" \
        ${2:+failure_reason "$2"}
      [ -z "$try" ] || echo "attempt: $try"
      echo 'output: |2'; tr -d '\000-\010\013-\037\177' | sed 's/^/  /'; echo ...; } | put "$queue/$file" && settle
}
settle() { mv "$held" "$box/done/$id.yaml" 2>/dev/null || [ -e "$box/done/$id.yaml" ]; } # or the watcher has done it
while pong; got=$(take); do
    [ "$got" ] || { [ "${IDLE-}" != exit ] || exit 0; if [ -t 0 ]; then read -r got; else sleep 1; fi; continue; }
    id=${got% *} epoch=${got#* } now=$(date -u +%Y-%m-%dT%H:%M:%S.000Z) out=$queue/tmp/$me.$$
    held=$box/cur/$id@$me@$epoch.yaml lease=$box/lease/$id@$epoch.yaml dead=$box/dead/$id
    [ -z "${LEASE-}" ] || printf 'sequence: 1\nlease_seconds: %d\n' "$LEASE" | put "$lease"
    if ! is_whole; then bury 'malformed: cut, newer, or not a file'; elif is_expired; then bury expired
    elif [ "$(kind "$held")" = notice ]; then body && mv "$held" "$box/done/$id.yaml"
    elif body | "$@" >"$out"; then [ -e "$held" ] && report success <"$out"
    elif code=$?; [ "$(field attempt '' 2>/dev/null)" ]; then report failed "its command ended with code $code" <"$out"
    else release; fi || echo "worker.sh: the lease of $id@$epoch is over" >&2
    rm -f "$lease" "$out"
done
