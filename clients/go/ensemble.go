// Package ensemble is a client of the Ensemble queue protocol, version 1, in one file without dependencies.
//
//	queue := ensemble.Queue{Root: "queue", Power: true}
//	queue.Send("worker-1", "Count the lines of src/.\n", ensemble.Fields{"from": "dispatch", "type": "task"})
//	for message, err := queue.Receive("worker-1", "worker-1"); message != nil && err == nil; {
//		fmt.Println(message.Body)
//		queue.Settle(message.Lease)
//		message, err = queue.Receive("worker-1", "worker-1")
//	}
//
// PROTOCOL.md specifies what is on disk. An envelope that is not in the canonical form becomes a dead letter.
package ensemble

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"
)

const (
	bodyBytesMax, envelopeBytesMax, headerBytesMax = 61_440, 65_536, 256
	nameForm, numberForm                           = `[A-Za-z0-9_][A-Za-z0-9._-]{0,63}`, `(0|[1-9][0-9]{0,18})`
)

var (
	newForm   = regexp.MustCompile(`^(` + nameForm + `)\.yaml$`)
	frontForm = regexp.MustCompile(`^(` + nameForm + `)@p([0-9])@e` + numberForm + `@t` + numberForm + `\.yaml$`)
	nameWhole = regexp.MustCompile(`^` + nameForm + `$`)
	number    = regexp.MustCompile(`^` + numberForm + `$`)
	uuid7     = regexp.MustCompile(`^([0-9a-f]{8})-([0-9a-f]{4})-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	word      = regexp.MustCompile(`^([A-Za-z][A-Za-z0-9._-]*|[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})$`)
	yamlWord  = regexp.MustCompile(`(?i)^(true|false|yes|no|on|off|null|y|n)$`)
	special   = regexp.MustCompile("[\x00-\x1f\x7f\u0080-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ufffe\uffff]")
	line      = regexp.MustCompile(`^(\w+): (.+)$`)
	request   = regexp.MustCompile(`\.(request|remind-.*)$`)
	receipts  = [][2]string{{"new", "stored"}, {"front", "stored"}, {"cur", "acked"}, {"done", "settled"}, {"dead", "dead"}, {"front", "stored"}}
	order     = strings.Fields("version id type from to created_at correlation_id causation_id task_id attempt priority expires_at source attachment_sha256 attachment_bytes body_length body_sha256")
)

// Fields is an envelope without its body: texts and uint64 numbers.
type Fields map[string]any

// Lease names one delivery of one message. Its operations are refused once another delivery has begun.
type Lease struct {
	Mailbox, ID, Holder string
	Epoch               uint64
}

// Message is a received message.
type Message struct {
	Lease  Lease
	Body   string
	Fields Fields
}

// Error is a refused operation. Code is one of the words that conformance/README.md lists.
type Error struct{ Code, Text string }

func (e Error) Error() string { return e.Text }

// Queue is a queue. Without Power, a power cut may lose what was stored.
type Queue struct {
	Root  string
	Power bool
}

// Send stores a message and returns its id. The same chosen "id" is stored once.
func (q Queue) Send(to, body string, given Fields) (string, error) {
	box, err := q.box(to)
	if err != nil {
		return "", err
	}
	_, chosen := given["id"]
	fields := Fields{"id": NewID(), "type": "message", "from": "unknown", "to": to, "priority": uint64(0)}
	for key, value := range given {
		fields[key] = value
	}
	content, err := encode(fields, body)
	if err != nil {
		return "", err
	}
	id := fields["id"].(string)
	target := filepath.Join(box, "new", id+".yaml")
	if fields["priority"] != uint64(0) {
		target = filepath.Join(box, "front", fmt.Sprintf("%s@p%d@e0@t0.yaml", id, fields["priority"]))
	}
	capacity := small(filepath.Join(box, "mailbox.yaml"), "capacity", 0)
	if !chosen && capacity == 0 {
		return id, q.write(target, content, q.Power)
	}
	return id, locked(box, syscall.LOCK_EX, func() error {
		if stored, _ := find(box, id); stored != "" {
			known, text, err := decode(stored, id)
			if err == nil && (known["type"] != fields["type"] || text != body) {
				return Error{"conflict", "another message has the id " + id}
			}
			return first(err, q.sync(stored), q.sync(filepath.Dir(stored)))
		}
		if capacity > 0 && uint64(len(waiting(box, 1<<62))) >= capacity {
			overflow := filepath.Join(box, "overflow.yaml")
			note := fmt.Sprintf("refused: %d\nlast_at: %q\nlast_from: %q\n", small(overflow, "refused", 0)+1, stamp(), fields["from"])
			return first(q.write(overflow, []byte(note), false), Error{"full", "the mailbox " + to + " has no room"})
		}
		return q.write(target, content, q.Power)
	})
}

// Receive takes the next due message, if there is one. Unreadable and expired ones become dead letters.
func (q Queue) Receive(mailbox, holder string) (*Message, error) {
	box, err := q.box(mailbox)
	if err != nil || !nameWhole.MatchString(holder) {
		return nil, first(err, Error{"invalid", holder + " is no name"})
	}
	for _, next := range waiting(box, uint64(time.Now().UnixMilli())) {
		lease := Lease{mailbox, next.id, holder, next.epoch + 1}
		held := filepath.Join(box, "cur", lease.file())
		if err := os.Rename(next.path, held); errors.Is(err, fs.ErrNotExist) {
			continue // Another consumer has it.
		} else if err != nil {
			return nil, err
		}
		fields, body, err := decode(held, lease.ID)
		reason := "expired"
		if err == nil {
			if at, isSet := fields["expires_at"]; !isSet || parsed(at).After(time.Now()) {
				return &Message{lease, body, fields}, nil
			}
		} else if errors.Is(err, fs.ErrNotExist) {
			continue // This process stood still, and its lease is over.
		} else if !errors.As(err, &Error{}) {
			return nil, err
		} else {
			reason = "malformed: " + err.Error()
		}
		if err := q.DeadLetter(lease, reason); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// Settle marks the work as done. A request that has no decision is refused.
func (q Queue) Settle(lease Lease) error {
	box, err := q.box(lease.Mailbox)
	asked := filepath.Join(q.Root, "requests", request.ReplaceAllString(lease.ID, ""))
	if exists(filepath.Join(asked, "request.yaml")) && !exists(filepath.Join(asked, "decision.yaml")) {
		return Error{"refused", "the request " + lease.ID + " has no decision"}
	}
	if err = first(err, move(box, lease, "done/"+lease.ID+".yaml")); err == nil {
		err = q.sync(filepath.Join(box, "done"))
	}
	return err
}

// Release gives a message back. After its last attempt it becomes a dead letter.
func (q Queue) Release(lease Lease, delay time.Duration) error {
	box, err := q.box(lease.Mailbox)
	if err != nil {
		return err
	}
	attempts, reason := lease.Epoch, filepath.Join(box, "dead", lease.ID+"@reason.yaml")
	if text, _ := os.ReadFile(reason); bytes.Contains(text, []byte("\nredriven: true")) {
		attempts -= small(reason, "epoch", 0)
	}
	if attempts >= small(filepath.Join(box, "mailbox.yaml"), "attempts_max", 5) {
		return q.DeadLetter(lease, fmt.Sprintf("released after %d attempts", attempts))
	}
	return locked(box, syscall.LOCK_SH, func() error {
		fields, _, err := decode(filepath.Join(box, "cur", lease.file()), lease.ID)
		if err != nil {
			return lease.lostIf(err)
		}
		due := int64(0)
		if delay > 0 {
			due = time.Now().Add(delay).UnixMilli()
		}
		return move(box, lease, fmt.Sprintf("front/%s@p%d@e%d@t%d.yaml", lease.ID, fields["priority"], lease.Epoch, due))
	})
}

// Extend lets the lease run for so many seconds from now.
func (q Queue) Extend(lease Lease, seconds uint64) error {
	box, err := q.box(lease.Mailbox)
	held, side := filepath.Join(box, "cur", lease.file()), lease.side(box)
	if err != nil || !exists(held) {
		return first(err, lease.lostIf(fs.ErrNotExist))
	}
	note := fmt.Sprintf("sequence: %d\nlease_seconds: %d\n", small(side, "sequence", 0)+1, seconds)
	if err := q.write(side, []byte(note), false); err != nil || exists(held) {
		return err
	}
	return first(os.Remove(side), lease.lostIf(fs.ErrNotExist))
}

// DeadLetter gives a message up, with a reason for people.
func (q Queue) DeadLetter(lease Lease, reason string) error {
	box, err := q.box(lease.Mailbox)
	if err != nil {
		return err
	}
	text := []rune(special.ReplaceAllString(reason, ""))
	if len(text) > 1000 {
		text = text[:1000]
	}
	note := fmt.Sprintf("reason: %s\nat: %q\nholder: %q\nepoch: %d\nredriven: false\n", quoted(string(text)), stamp(), lease.Holder, lease.Epoch)
	return locked(box, syscall.LOCK_EX, func() error {
		if !exists(filepath.Join(box, "cur", lease.file())) {
			return lease.lostIf(fs.ErrNotExist)
		}
		err := q.write(filepath.Join(box, "dead", lease.ID+"@reason.yaml"), []byte(note), q.Power)
		if err = first(err); err == nil {
			err = move(box, lease, "dead/"+lease.ID+".yaml")
		}
		return first(err, q.sync(filepath.Join(box, "dead")))
	})
}

// State is the receipt of a message: stored, acked, settled, dead or unknown.
func (q Queue) State(mailbox, id string) (string, error) {
	box, err := q.box(mailbox)
	if err != nil {
		return "", err
	}
	_, receipt := find(box, id)
	return receipt, nil
}

func (q Queue) box(mailbox string) (string, error) {
	box := filepath.Join(q.Root, "mailbox", mailbox)
	if !nameWhole.MatchString(mailbox) {
		return "", Error{"invalid", mailbox + " is no name"}
	}
	for _, place := range []string{q.Root, box} {
		if found, err := os.Lstat(place); err != nil || !found.IsDir() || found.Mode()&0o002 != 0 {
			return "", Error{"refused", place + " is no directory, or every user may write to it"}
		}
	}
	for _, state := range []string{"new", "front", "cur", "done", "dead", "lease", "../../tmp"} {
		if err := os.MkdirAll(filepath.Join(box, state), 0o700); err != nil {
			return "", err
		}
	}
	return box, nil
}

func (q Queue) write(target string, content []byte, durable bool) error {
	file, err := os.CreateTemp(filepath.Join(q.Root, "tmp"), filepath.Base(target)+".*") // Its mode is 0600.
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	if err == nil && durable {
		err = file.Sync()
	}
	if err = first(err, file.Close()); err == nil {
		err = os.Rename(file.Name(), target)
	}
	if err != nil {
		return first(err, os.Remove(file.Name()))
	}
	if durable {
		return q.sync(filepath.Dir(target))
	}
	return nil
}

func (q Queue) sync(path string) error {
	if !q.Power {
		return nil
	}
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	return first(file.Sync(), file.Close())
}

func (l Lease) file() string { return fmt.Sprintf("%s@%s@%d.yaml", l.ID, l.Holder, l.Epoch) }

func (l Lease) side(box string) string {
	return filepath.Join(box, "lease", fmt.Sprintf("%s@%d.yaml", l.ID, l.Epoch))
}

func (l Lease) lostIf(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return Error{"lease_lost", fmt.Sprintf("%s is not held by %s in delivery %d", l.ID, l.Holder, l.Epoch)}
	}
	return err
}

func move(box string, lease Lease, target string) error {
	if err := os.Rename(filepath.Join(box, "cur", lease.file()), filepath.Join(box, target)); err != nil {
		return lease.lostIf(err)
	}
	os.Remove(lease.side(box)) // There is none, most often.
	return nil
}

func locked(box string, kind int, action func() error) error {
	gate, err := os.OpenFile(filepath.Join(box, "gate.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer gate.Close()
	for err = syscall.EINTR; err == syscall.EINTR; { // Signals of the runtime interrupt the wait.
		err = syscall.Flock(int(gate.Fd()), kind)
	}
	if err != nil {
		return err
	}
	return action()
}

type candidate struct {
	path, id             string
	priority, epoch, age uint64
}

func waiting(box string, now uint64) []candidate {
	var all []candidate
	for _, state := range []struct {
		name string
		form *regexp.Regexp
	}{{"front", frontForm}, {"new", newForm}} {
		var found []candidate
		entries, _ := os.ReadDir(filepath.Join(box, state.name))
		for _, entry := range entries {
			match := append(state.form.FindStringSubmatch(entry.Name()), "0", "0", "0")
			if len(match) > 3 && atoi(match[4]) <= now {
				next := candidate{filepath.Join(box, state.name, match[0]), match[1], atoi(match[2]), atoi(match[3]), 0}
				if digits := uuid7.FindStringSubmatch(next.id); digits != nil {
					next.age, _ = strconv.ParseUint(digits[1]+digits[2], 16, 64)
				} else if info, err := entry.Info(); err == nil {
					next.age = uint64(info.ModTime().UnixMilli())
				}
				found = append(found, next)
			}
		}
		sort.Slice(found, func(i, j int) bool {
			a, b := found[i], found[j]
			return a.priority > b.priority || a.priority == b.priority && a.age < b.age
		})
		all = append(all, found...)
	}
	return all
}

// find looks along the way of a message. The last look finds what was released without a lock.
func find(box, id string) (path, receipt string) {
	for _, state := range receipts {
		entries, _ := os.ReadDir(filepath.Join(box, state[0]))
		for _, entry := range entries {
			if name := entry.Name(); name == id+".yaml" || state[0] != "dead" && strings.HasPrefix(name, id+"@") {
				return filepath.Join(box, state[0], name), state[1]
			}
		}
	}
	return "", "unknown"
}

func encode(fields Fields, body string) ([]byte, error) {
	fields["version"], fields["body_length"] = uint64(1), uint64(len(body))
	fields["body_sha256"] = fmt.Sprintf("%x", sha256.Sum256([]byte(body)))
	if fields["created_at"] == nil {
		fields["created_at"] = stamp()
	}
	if !within(fields) {
		return nil, Error{"invalid", "a name, a header, a time or a number is not within its limits"}
	}
	var out strings.Builder
	for _, key := range order {
		switch value := fields[key].(type) {
		case uint64:
			fmt.Fprintf(&out, "%s: %d\n", key, value)
		case string:
			if !word.MatchString(value) || yamlWord.MatchString(value) {
				value = quoted(value)
			}
			fmt.Fprintf(&out, "%s: %s\n", key, value)
		}
	}
	rows := strings.Split(strings.TrimSuffix(body, "\n"), "\n")
	exact := strings.TrimSpace(body) != "" && !strings.HasSuffix(body, "\n\n")
	for at, row := range rows {
		exact = exact && (row == "" || strings.TrimSpace(row) != "") && !special.MatchString(strings.ReplaceAll(row, "\t", ""))
		if row != "" {
			rows[at] = "  " + row
		}
	}
	if exact {
		form := map[bool]string{true: "|2+", false: "|2-"}[strings.HasSuffix(body, "\n")]
		fmt.Fprintf(&out, "body: %s\n%s\n...\n", form, strings.Join(rows, "\n"))
	} else {
		fmt.Fprintf(&out, "body: %s\n...\n", quoted(body))
	}
	if len(body) > bodyBytesMax || out.Len() > envelopeBytesMax {
		return nil, Error{"too_large", fmt.Sprintf("the body has %d bytes", len(body))}
	}
	return []byte(out.String()), nil
}

// decode reads a canonical envelope.
func decode(path, id string) (Fields, string, error) {
	if info, err := os.Lstat(path); err != nil || !info.Mode().IsRegular() {
		return nil, "", first(err, Error{"malformed", "it is no regular file"})
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, "", err
	}
	broken := func(why string) (Fields, string, error) { return nil, "", Error{"malformed", why} }
	text := "\n" + string(content)
	head, rest, isBody := strings.Cut(text, "\nbody: ")
	form, block, _ := strings.Cut(strings.TrimSuffix(rest, "...\n"), "\n")
	if !isBody || !utf8.ValidString(text) || len(content) > envelopeBytesMax || !strings.HasSuffix(rest, "\n...\n") {
		return broken("it is too large, or not canonical")
	}
	rows, body := strings.SplitAfter(block, "\n"), ""
	if form == "|2+" || form == "|2-" {
		for _, row := range rows[:len(rows)-1] {
			if row != "\n" && !strings.HasPrefix(row, "  ") {
				return broken("a row of the body is not indented")
			}
			body += strings.TrimPrefix(row, "  ")
		}
		if form == "|2-" {
			body = strings.TrimSuffix(body, "\n")
		}
	} else if block != "" || !strings.HasPrefix(form, `"`) || json.Unmarshal([]byte(form), &body) != nil {
		return broken("the body is not canonical")
	}
	fields, seen := Fields{"version": uint64(1), "id": id, "type": "message", "from": "unknown", "to": "unknown", "priority": uint64(0)}, map[string]bool{}
	for _, row := range strings.Split(head, "\n")[1:] {
		match, text := line.FindStringSubmatch(row), ""
		if match == nil || seen[match[1]] {
			return broken("a field is doubled, or not canonical")
		}
		seen[match[1]] = true
		switch value := match[2]; {
		case number.MatchString(value):
			fields[match[1]] = atoi(value)
		case word.MatchString(value):
			fields[match[1]] = value
		case value[0] == '"' && json.Unmarshal([]byte(value), &text) == nil:
			fields[match[1]] = text
		default:
			return broken("a field is not canonical")
		}
	}
	length, digest := fields["body_length"], fields["body_sha256"]
	if length != nil && length != uint64(len(body)) || digest != nil && digest != fmt.Sprintf("%x", sha256.Sum256([]byte(body))) {
		return broken("the body was cut or altered")
	}
	if fields["version"] != uint64(1) || fields["id"] != id || !within(fields) {
		return broken("the version is newer, the id is another one, or a field is not within its limits")
	}
	return fields, body, nil
}

func within(fields Fields) bool {
	for _, key := range []string{"id", "type", "from", "to"} {
		if name, isText := fields[key].(string); !isText || !nameWhole.MatchString(name) {
			return false
		}
	}
	for _, key := range []string{"correlation_id", "causation_id", "task_id", "source"} {
		text, isText := fields[key].(string)
		if fields[key] != nil && (!isText || text == "" || len(text) > headerBytesMax || special.MatchString(text)) {
			return false
		}
	}
	for _, key := range []string{"created_at", "expires_at"} {
		if fields[key] != nil && parsed(fields[key]).IsZero() {
			return false
		}
	}
	priority, isNumber := fields["priority"].(uint64)
	attempt, isAttempt := fields["attempt"].(uint64)
	return isNumber && priority <= 9 && (fields["attempt"] == nil || isAttempt && attempt < 1<<32)
}

// NewID makes a UUIDv7.
func NewID() string {
	var random [10]byte
	rand.Read(random[:])
	now := time.Now().UnixNano()
	digits := fmt.Sprintf("%012x7%03xa%x", now/1e6, now%1e6*4096/1e6, random)[:32]
	return strings.Join([]string{digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]}, "-")
}

func quoted(text string) string {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.Encode(text)
	escape := func(c string) string { r, _ := utf8.DecodeRuneInString(c); return fmt.Sprintf(`\u%04x`, r) }
	return special.ReplaceAllStringFunc(strings.TrimSuffix(out.String(), "\n"), escape)
}

// small reads a number of a small file of settings, a reason or a lease.
func small(path, key string, missing uint64) uint64 {
	text, _ := os.ReadFile(path)
	if match := regexp.MustCompile(`(?m)^` + key + `: *([0-9]+)`).FindSubmatch(text); match != nil {
		return atoi(string(match[1]))
	}
	return missing
}

func parsed(stamp any) time.Time {
	text, _ := stamp.(string)
	at, _ := time.Parse(time.RFC3339, text)
	return at
}

func stamp() string { return time.Now().UTC().Format("2006-01-02T15:04:05.000Z") }

func atoi(digits string) uint64 { n, _ := strconv.ParseUint(digits, 10, 64); return n }

func exists(path string) bool { _, err := os.Lstat(path); return err == nil }

func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
