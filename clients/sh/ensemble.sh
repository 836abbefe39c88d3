# A client of the Ensemble queue protocol, version 1, in POSIX shell: read it with `.`, and call it.
#
#   queue=queue; . ensemble.sh
#   printf 'Count the lines of src/.\n' | ensemble_send worker-1 dispatch task 0 task_id='"task-1"'
#   while ensemble_receive worker-1 worker-1 && [ "$id" ]; do
#       cat "$body"; ensemble_settle worker-1 "$id" worker-1 "$epoch"
#   done
#
# A function that is refused returns 1. It sets $error to a word of conformance/README.md and
# $detail to a text. PROTOCOL.md specifies what is on disk. An envelope that is not in the canonical
# form becomes a dead letter. A shell cannot sync a directory: a power cut may take back what was
# stored. Needs flock, sha256sum and iconv. The command `ensemble recv --wait 60s` waits for mail.
set -fu; umask 077; export LC_ALL=C
name='[A-Za-z0-9_][A-Za-z0-9._-]{0,63}' number='(0|[1-9][0-9]{0,18})' attempts_default=5
stamp_form='"?[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+(Z|[+-][0-9]{2}:[0-9]{2})"?'
id= epoch= error= detail=
body=${TMPDIR:-/tmp}/ensemble.$$.body fields=${TMPDIR:-/tmp}/ensemble.$$.fields
trap 'rm -f "$body" "$fields"' EXIT

fail() { error=$1 detail=$2; return 1; }
is() { printf '%s\n' "$2" | grep -Eqx "$1"; } # FORM TEXT
millis() { now=$(date +%s%3N); is '[0-9]+' "$now" || now=$(date +%s)000; echo "$now"; }
digest() { sha256sum <"$body" | cut -c1-64; }
stamp() { date -u +%Y-%m-%dT%H:%M:%S.000Z; }
# setting KEY DEFAULT FILE: a field of a small file of settings, a reason or a lease.
# A comment may follow a number.
setting() { [ -f "$3" ] &&
    sed -nE "s/^($1: *[0-9]+) *(#.*)?$/\1/;s/^$1: *\"?([^\"]*)\"?$/\1/p" "$3" 2>/dev/null |
    grep . || echo "$2"; }
named() { is "$name" "$1" || fail invalid "$1 is no name"; } # TEXT
# open_box MAILBOX: sets $box. Refuses a directory that every user may write to; makes missing ones.
open_box() {
    named "$1" || return 1
    box=$queue/mailbox/$1
    for place in "$queue" "$box"; do
        [ -d "$place" ] && [ ! -h "$place" ] && ! ls -ld "$place" | grep -q '^d.......w' ||
            fail refused "$place is no directory, or every user may write to it" || return 1
    done
    [ -d "$box/lease" ] && [ -d "$queue/tmp" ] ||
        (cd "$box" && mkdir -p new front cur done dead lease ../../tmp)
}
# put FILE: stores stdin, whole.
put() {
    temporary=$queue/tmp/${1##*/}.$$.$(millis)
    { cat >"$temporary" && mv "$temporary" "$1"; } 2>/dev/null ||
        { rm -f "$temporary"; fail io "cannot write $1"; }
}
# is_there FILE: also if it is a link that leads nowhere.
is_there() { [ -e "$1" ] || [ -h "$1" ]; }
lost() { fail lease_lost "$id is not held by $holder in delivery $epoch"; }

# unescape: the text of a JSON string on stdin.
unescape() {
    awk '{ text = substr($0, 2, length($0) - 2); out = ""
        while (at = index(text, "\\")) {
            printf "%s", substr(text, 1, at - 1)
            c = substr(text, at + 1, 1); text = substr(text, at + 2)
            if (c == "u") {
                code = hex(substr(text, 1, 4)); text = substr(text, 5)
                if (code >= 55296 && code < 56320) {
                    low = hex(substr(text, 3, 4)) - 56320; text = substr(text, 7)
                    code = 65536 + (code - 55296) * 1024 + low }
                put(code)
            } else printf "%s", (at = index("ntrbf", c)) ? substr("\n\t\r\b\f", at, 1) : c
        }
        printf "%s", text }
    function hex(digits, value, i) { value = 0
        for (i = 1; i <= 4; i++)
            value = value * 16 + index("0123456789abcdef", tolower(substr(digits, i, 1))) - 1
        return value }
    function put(c) {
        if (c < 128) printf "%c", c
        else if (c < 2048) printf "%c%c", 192 + int(c / 64), 128 + c % 64
        else if (c < 65536) printf "%c%c%c", 224 + int(c / 4096), tail(c / 64), tail(c)
        else printf "%c%c%c%c", 240 + int(c / 262144), tail(c / 4096), tail(c / 64), tail(c) }
    function tail(c) { return 128 + int(c) % 64 }'
}
# form FILE: how a body is written: `+` or `-` for a block that is exact, or else a JSON string.
form() {
    od -An -v -tu1 "$1" | awk '{ for (i = 1; i <= NF; i++) b[++n] = $i }
    END { exact = n > 0 && !(b[n] == 10 && (n == 1 || b[n-1] == 10))
        text = "\""; begin = 1; all = 1; blank = 1
        for (i = 1; i <= n; i++) {
            c = b[i]; d = b[i+1]; e = b[i+2]
            if (c == 10) { if (i > begin && blank) exact = 0; begin = i + 1; blank = 1 }
            else if (c != 32 && c != 9) { blank = 0; all = 0 }
            code = c < 32 || c == 127 ? c : c == 194 && d < 160 ? d : 0
            if (c == 216 && d == 156) code = 1564
            if (c == 226 && d == 128) odd = e == 142 || e == 143 || e >= 168 && e <= 174
            else if (c == 226 && d == 129) odd = e >= 166 && e <= 169
            else odd = c == 239 && (d == 187 && e == 191 || d == 191 && e >= 190)
            if (odd) code = (c - 224) * 4096 + (d - 128) * 64 + e - 128
            if (code || c == 0) {
                text = text sprintf("\\u%04x", code); i += (c >= 194) + (c >= 224)
                if (c != 10 && c != 9) exact = 0
            }
            else if (c == 34 || c == 92) text = text sprintf("\\%c", c)
            else text = text sprintf("%c", c)
        }
        if (n >= begin && blank || all) exact = 0
        print exact ? (b[n] == 10 ? "+" : "-") : text "\"" }'
}
# check: whether the fields on stdin, `key: value` in lines, are canonical and within their limits.
check() {
    cat >"$fields.check"; text='"([^"\\]|\\["\\/bfnrtu])*"'
    word='[A-Za-z][A-Za-z0-9._-]*|[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}'
    ! grep -Evq "^[A-Za-z0-9_]+: ($text|$word|$number)$" "$fields.check" &&
        ! cut -d: -f1 "$fields.check" | sort | uniq -d | grep -q . &&
        ! grep -E '^(id|type|from|to): ' "$fields.check" | grep -Evq "^[a-z]+: \"?$name\"?$" &&
        ! grep -E '^(created_at|expires_at): ' "$fields.check" |
            grep -Evq "^[a-z_]+: $stamp_form$" &&
        ! grep -E '^priority: ' "$fields.check" | grep -Evq ' [0-9]$' &&
        ! grep -E '^attempt: ' "$fields.check" | grep -Evq ' [0-9]{1,10}$' &&
        ! grep -E '^(correlation_id|causation_id|task_id|source): ' "$fields.check" |
            grep -Eq '\\([bfnrt]|u00[01]|u007f)|: ""$|: "?[^"]{257}'
    checked=$?; rm -f "$fields.check"; return $checked
}
# rows FILE: the lines between the first one of the body and the end mark.
rows() { sed -n '/^body: /,$p' "$1" | sed '1d;$d'; }
# decode FILE ID: puts body and fields into the files $body and $fields; else sets $detail.
decode() {
    detail='it is no regular file'; [ -f "$1" ] && [ ! -h "$1" ] || return 1
    detail='it is too large, not UTF-8, or has no end mark'
    [ "$(wc -c <"$1")" -le 65536 ] && iconv -f UTF-8 -t UTF-8 "$1" >/dev/null 2>&1 &&
        [ "$(tail -n 1 "$1")" = ... ] || return 1
    detail='the body is not canonical' how=$(sed -n '/^body: /{s///p;q;}' "$1")
    sed '/^body: /,$d' "$1" >"$fields"
    case $how in
    '|2'[+-]) ! rows "$1" | grep -Evq '^(  |$)' || return 1
        rows "$1" | sed 's/^  //' |
            if [ "$how" = '|2+' ]; then cat
            else awk 'NR > 1 { print "" } { printf "%s", $0 }'; fi >"$body" ;;
    '"'*'"') [ -z "$(rows "$1")" ] || return 1
        printf '%s\n' "$how" | unescape >"$body" ;;
    *) return 1 ;;
    esac || return 1
    detail='a field is doubled, not canonical, or not within its limits'
    check <"$fields" || return 1
    detail='the version is newer, the id is another one, or the body was altered'
    [ "$(setting version 1 "$fields")" -le 1 ] && [ "$(setting id "$2" "$fields")" = "$2" ] &&
        [ "$(setting body_length "$(($(wc -c <"$body")))" "$fields")" -eq "$(wc -c <"$body")" ] &&
        [ "$(setting body_sha256 "$(digest)" "$fields")" = "$(digest)" ]
}
# by_age: sorts `PRIORITY EPOCH ID FILE` lines on stdin, and adds the age behind the priority.
by_age() {
    uuid7='([0-9a-f]{8})-([0-9a-f]{4})-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}'
    sed -E "s/^([0-9]) ([0-9]+) ($uuid7) /\1 \4\5 \2 \3 /" | while read -r priority age e i file; do
        if [ -z "$file" ]; then # The id is none that has an age.
            file=$i i=$e e=$age
            age=$(printf '%012x' "$(stat -c %Y "$box/$file" 2>/dev/null || echo 0)000"); fi
        echo "$priority $age $e $i $file"
    done | sort -k1,1nr -k2,2
}
# waiting NOW: `PRIORITY AGE EPOCH ID FILE` of each message that is due, in the order of receipt.
waiting() {
    form="^($name)@p([0-9])@e$number@t$number\.yaml$"
    ls -A "$box/front" | sed -nE "s/$form/\2 \3 \1 front\/& \4/p" |
        awk -v now="$1" '$5 <= now + 0 { print $1, $2, $3, $4 }' | by_age
    ls -A "$box/new" | sed -nE "s/^($name)\.yaml$/0 0 \1 new\/&/p" | by_age
}
# find_message ID: prints the file of a message, as `STATE/NAME`. The last look finds what was
# released without a lock.
find_message() {
    for state in new front cur done dead front; do
        form=$(echo "$1" | sed 's/\./\\./g')
        found=$(ls -A "$box/$state" | grep -F "$1" |
            sed -nE "/@reason\.yaml$/d;/^$form(@.*)?\.yaml$/p" | head -n 1)
        [ -z "$found" ] || { echo "$state/$found"; return; }
    done
}
new_id() {
    digits=$(printf '%012x' "$(millis)")7$(od -An -N10 -tx1 /dev/urandom | tr -d ' \n')
    echo "$digits" | sed -E 's/^(.{8})(.{4})(.{4}).(.{3})(.{12}).*/\1-\2-\3-a\4-\5/'
}

# ensemble_send MAILBOX FROM TYPE PRIORITY [KEY=JSON...]: stores stdin as a message and sets $id.
# `id=ID` chooses the id. The message that was received stays in $body and $fields.
ensemble_send() {
    open_box "$1" || return 1
    body=$body.sent fields=$fields.sent
    { cat >"$body" || fail io "cannot write $body"; } && send_body "$@"
    sent=$?; rm -f "$body" "$fields" "$fields.content"
    body=${body%.sent} fields=${fields%.sent}; return $sent
}
send_body() {
    to=$1 from=$2 type=$3 priority=$4 chosen= more= id=$(new_id); shift 4
    for pair; do case $pair in
        id=*) id=${pair#id=} chosen=yes ;;
        *) more="$more${pair%%=*}: ${pair#*=}
" ;;
    esac; done
    how=$(form "$body") bytes=$(($(wc -c <"$body"))) content=$fields.content
    [ "$bytes" -le 61440 ] || fail too_large "the body has $bytes bytes" || return 1
    {   printf 'version: 1\nid: "%s"\ntype: "%s"\nfrom: "%s"\n' "$id" "$type" "$from"
        printf 'to: "%s"\ncreated_at: "%s"\n%spriority: %s\n' "$to" "$(stamp)" "$more" "$priority"
        printf 'body_length: %s\nbody_sha256: "%s"\n' "$bytes" "$(digest)"
    } >"$content"
    check <"$content" || fail invalid 'a name, a header or a number is not within its limits' ||
        return 1
    case $how in
    + | -) echo "body: |2$how" && sed 's/^./  &/' "$body" &&
        { [ "$how" = + ] || echo; } && echo ... ;;
    *) printf 'body: %s\n...\n' "$how" ;;
    esac >>"$content" || fail io "cannot write $content" || return 1
    target=$box/new/$id.yaml capacity=$(setting capacity 0 "$box/mailbox.yaml")
    [ "$priority" = 0 ] || target=$box/front/$id@p$priority@e0@t0.yaml
    if [ "$chosen$capacity" = 0 ]; then put "$target" <"$content"
    else store_once 9<>"$box/gate.lock"; fi
}
store_once() {
    flock 9; stored=$(find_message "$id"); at=$box/$stored
    # What a power cut has torn has no first or no last byte. A file that is missing has moved.
    ends=$({ [ -f "$at" ] && head -c 1 "$at" && tail -c 1 "$at"; } 2>/dev/null | tr -d '\0' | wc -c)
    case $stored:$((ends)) in done/*:[01]) return 0 ;; :* | *:2) ;;
    *) mv "$box/$stored" "$box/dead/$id@double.$$.$(millis)" 2>/dev/null && stored= ;; esac
    if [ "$stored" ]; then
        cp "$body" "$content.body"; decode "$box/$stored" "$id" &&
            cmp -s "$body" "$content.body" && [ "$(setting type message "$fields")" = "$type" ]
        same=$?; rm -f "$content.body"
        [ $same = 0 ] || ! is_there "$box/$stored" || fail conflict "another message has the id $id"
    elif [ "$capacity" != 0 ] && [ "$(waiting 9223372036854775807 | wc -l)" -ge "$capacity" ]; then
        refused=$(($(setting refused 0 "$box/overflow.yaml") + 1))
        printf 'refused: %s\nlast_at: "%s"\nlast_from: "%s"\n' "$refused" "$(stamp)" "$from" |
            put "$box/overflow.yaml"
        fail full "the mailbox $to has room for $capacity messages"
    else put "$target" <"$content"; fi
}
# ensemble_receive MAILBOX HOLDER: takes the next due message and sets $id and $epoch; $id is empty
# if there is none. Its body is in the file $body, its other fields in $fields. Broken and expired
# ones become dead letters.
ensemble_receive() {
    open_box "$1" && named "$2" || return 1
    mailbox=$1 holder=$2 list=$fields.list id=; waiting "$(millis)" >"$list"
    while read -r _ _ epoch next entry <&8; do
        epoch=$((epoch + 1)); held=$box/cur/$next@$holder@$epoch.yaml
        ! is_gated "$box/$entry" "$next" take || continue
        mv "$box/$entry" "$held" 2>/dev/null || continue # Another consumer has it.
        if ! decode "$held" "$next"; then
            ensemble_dead_letter "$mailbox" "$next" "$holder" "$epoch" "malformed: $detail"
        elif at=$(setting expires_at '' "$fields")
            [ "$at" ] && [ "$(date -d "$at" +%s)" -lt "$(date +%s)" ]; then # Late, not early.
            ensemble_dead_letter "$mailbox" "$next" "$holder" "$epoch" expired
        else id=$next; break; fi
        id=
    done 8<"$list"
    rm -f "$list"
}
# is_undecided FILE ID: whether a message asks for a decision that is not made.
is_undecided() {
    sed '/^body:/,$d' "$1" >"$fields.ask" 2>/dev/null
    kind=$(setting type message "$fields.ask") asked=$(setting correlation_id "$2" "$fields.ask")
    rm -f "$fields.ask"
    is "$name" "$asked" || asked=$2
    is '.*_request' "$kind" && [ ! -e "$queue/requests/$asked/decision.yaml" ]
}
# is_gated FILE ID TO: whether the plan of a message's task is missing, to `take` or to `settle` it.
# One that is demanded may be made after the task was taken.
is_gated() {
    [ -d "$queue/gates" ] && decode "$1" "$2" || return 1
    task=$(setting task_id '' "$fields")
    [ "$task" ] && ! is '.*_(request|response)|(report|mail|request|board|steps?)\..*' \
        "$(setting type message "$fields")" || return 1
    is "$name" "$task" || task=t-$(printf %s "$task" | sha256sum | cut -c1-40)
    gate=$queue/gates/$task@$holder.yaml demanded=1
    [ "$3" = take ] || [ ! -e "$queue/gates/$task@.yaml" ] || demanded=0
    [ -e "$gate" ] || return $demanded
    asked=$queue/requests/$(setting request_id @ "$gate")
    outcome=$(setting outcome '' "$asked/decision.yaml")
    [ "$outcome" != approved ] &&
        [ "$(setting approve false "$asked/decision.yaml")" != true ] || return 1
    [ "$outcome" != cancelled ] && [ -e "$asked/request.yaml" ] ||
        [ "${asked##*/}" = @ ] || return $demanded
}
# lease MAILBOX ID HOLDER EPOCH: sets $box, $held and $side for the functions below.
lease() {
    open_box "$1" && named "$2" && named "$3" && named "$4" || return 1
    id=$2 holder=$3 epoch=$4 held=$box/cur/$2@$3@$4.yaml side=$box/lease/$2@$4.yaml
}
# move TARGET: renames the held message.
move() { mv "$held" "$box/$1" 2>/dev/null || lost || return 1; rm -f "$side"; }
# ensemble_settle MAILBOX ID HOLDER EPOCH: marks the work as done. A request that has no decision is
# refused, and so is a task whose plan is not approved.
ensemble_settle() {
    lease "$@" || return 1
    ! is_undecided "$held" "$id" || fail refused "the request $id has no decision" || return 1
    ! is_gated "$held" "$id" settle || fail refused "the plan of $id is not approved" || return 1
    move "done/$id.yaml"
}
# ensemble_release MAILBOX ID HOLDER EPOCH [DELAY_MS]: gives a message back. After its last attempt
# it is a dead letter.
ensemble_release() {
    lease "$1" "$2" "$3" "$4" || return 1
    reason=$box/dead/$id@reason.yaml before=0 due=0
    [ "$(setting redriven false "$reason")" = false ] || before=$(setting epoch 0 "$reason")
    tries=$((epoch - before))
    [ "$tries" -lt "$(setting attempts_max $attempts_default "$box/mailbox.yaml")" ] ||
        { ensemble_dead_letter "$1" "$2" "$3" "$4" "released after $tries attempts"; return; }
    [ "${5:-0}" = 0 ] || due=$(($(millis) + $5))
    priority=$(sed -n '/^body:/q;s/^priority: \([0-9]\)$/\1/p' "$held" 2>/dev/null)
    { flock -s 9; move "front/$id@p${priority:-0}@e$epoch@t$due.yaml"; } 9<>"$box/gate.lock"
}
# ensemble_extend MAILBOX ID HOLDER EPOCH SECONDS: lets the lease run for so many seconds from now.
ensemble_extend() {
    is '[1-9][0-9]{0,4}' "$5" && [ "$5" -le 86400 ] ||
        fail invalid 'a lease lasts 1 to 86400 seconds' || return 1
    lease "$1" "$2" "$3" "$4" && { is_there "$held" || lost; } || return 1
    printf 'sequence: %s\nlease_seconds: %s\n' "$(($(setting sequence 0 "$side") + 1))" "$5" |
        put "$side" || fail io "cannot write $side" || return 1
    is_there "$held" || { rm -f "$side"; lost; }
}
# ensemble_dead_letter MAILBOX ID HOLDER EPOCH REASON: gives a message up.
ensemble_dead_letter() {
    lease "$1" "$2" "$3" "$4" || return 1
    text=$(printf %s "$5" | tr -d '\000-\037\177"\\' | cut -c1-1000 | iconv -cf UTF-8 -t UTF-8)
    {   flock 9; is_there "$held" || lost || return 1
        {   printf 'reason: "%s"\nat: "%s"\nholder: "%s"\n' "$text" "$(stamp)" "$holder"
            printf 'epoch: %s\nredriven: false\n' "$epoch"
        } | put "$box/dead/$id@reason.yaml" || fail io 'cannot write the reason' || return 1
        move "dead/$id.yaml"
    } 9<>"$box/gate.lock"
}
# ensemble_state MAILBOX ID: prints the receipt of a message: stored, acked, settled, dead or
# unknown.
ensemble_state() {
    open_box "$1" && named "$2" || return 1
    case $(find_message "$2") in
    new/* | front/*) echo stored ;;
    cur/*) echo acked ;;
    done/*) echo settled ;;
    dead/*) echo dead ;; *) echo unknown ;;
    esac
}
