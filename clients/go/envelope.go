package ensemble

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

const (
	bodyBytesMax, envelopeBytesMax, headerBytesMax = 61_440, 65_536, 256

	name     = `[A-Za-z0-9_][A-Za-z0-9._-]{0,63}`
	number   = `(?:0|[1-9][0-9]{0,18})`
	uuid     = `[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}`
	word     = `[A-Za-z][A-Za-z0-9._-]*|` + uuid
	jsonText = `"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"`
	controls = `\x00-\x09\x0b-\x1f\x7f-\x{9f}\x{61c}\x{200e}\x{200f}\x{2028}-\x{202e}` + unseen
	unseen   = `\x{2066}-\x{2069}\x{feff}\x{fffe}\x{ffff}`
	block    = `\|2([+-])\n((?:(?:  .*)?\n)*)`
	keys     = `version id type from to created_at correlation_id causation_id task_id attempt
		priority expires_at source traceparent attachment_sha256 attachment_bytes body_length body_sha256`
)

var (
	nameForm = regexp.MustCompile(`^` + name + `$`)
	uuid7    = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f-]{16}$`)
	field    = regexp.MustCompile(`^(\w+): (` + number + `|` + word + `|` + jsonText + `)$`)
	bodyForm = regexp.MustCompile(`^(?:` + block + `|(` + jsonText + `)\n)\.\.\.\n$`)
	bare     = regexp.MustCompile(`^(?:` + word + `)$`)
	yamlWord = regexp.MustCompile(`(?i)^(?:true|false|yes|no|on|off|null|y|n)$`)
	special  = regexp.MustCompile(`[\n` + controls + `]`)
	odd      = regexp.MustCompile(`\A\z|\n\z|(?m:^[ \t]+$)|[` + controls + `]`)
	setting  = regexp.MustCompile(`(?m)^(\w+): *(?:([0-9]+) *(?:#.*)?$|"?([^"\n]*))`)
	passes   = regexp.MustCompile(`^(.*_(request|response)|(report|mail|request|board|steps?)\..*)$`)
	rowStart = regexp.MustCompile(`(?m)^(.)`)
)

// Fields is an envelope without its body: strings and ints.
type Fields map[string]any

// Error is a refused operation. Code is one of the words that conformance/README.md lists.
type Error struct{ Code, Text string }

func (e Error) Error() string { return e.Text }

// NewID makes a UUIDv7. Those of one process sort by creation, unless its clock is set back.
func NewID() string {
	random, now := make([]byte, 10), time.Now().UnixNano()
	must(rand.Read(random))
	all := fmt.Sprintf("%012x7%03xa%x", now/1e6, now%1e6*4096/1e6, random)
	return strings.Join([]string{all[:8], all[8:12], all[12:16], all[16:20], all[20:32]}, "-")
}

// encode writes the canonical form of an envelope.
func encode(fields Fields, body string) string {
	fields["version"], fields["body_length"], fields["body_sha256"] = 1, len(body), digest(body)
	if fields["created_at"] == nil {
		fields["created_at"] = stamp()
	}
	fields.check()
	head := ""
	for _, key := range strings.Fields(keys) {
		if value := fields[key]; value != nil {
			head += key + ": " + scalar(value) + "\n"
		}
	}
	rows := strings.TrimSuffix(body, "\n")
	form := map[bool]string{true: "|2-\n", false: "|2+\n"}[rows == body]
	form += rowStart.ReplaceAllString(rows, "  $1")
	if odd.MatchString(rows) {
		form = quoted(body)
	}
	content := head + "body: " + form + "\n...\n"
	isLarge := len(body) > bodyBytesMax || len(content) > envelopeBytesMax
	refuseIf(isLarge, "too_large", fmt.Sprintf("the body has %d bytes", len(body)))
	return content
}

// decode reads a canonical envelope.
func decode(path, id string) (Fields, string) {
	info := must(os.Lstat(path))
	isFile := info.Mode().IsRegular() && info.Size() <= envelopeBytesMax
	refuseIf(!isFile, "malformed", "it is no regular file, or too large")
	content := string(must(os.ReadFile(path)))
	head, rest, _ := strings.Cut("\n"+content, "\nbody: ")
	parts := bodyForm.FindStringSubmatch(rest)
	refuseIf(parts == nil || !utf8.ValidString(content), "malformed", "it is cut, or not canonical")
	body := strings.ReplaceAll("\n"+parts[2], "\n  ", "\n")[1:]
	if parts[1] == "-" {
		body = strings.TrimSuffix(body, "\n")
	} else if parts[3] != "" {
		body = fmt.Sprint(value(parts[3]))
	}
	fields := defaults(id)
	fields["body_length"], fields["body_sha256"] = len(body), digest(body)
	for _, row := range strings.Split(head, "\n")[1:] {
		match := field.FindStringSubmatch(row)
		isOnce := match != nil && strings.Count(head, "\n"+match[1]+": ") == 1
		refuseIf(!isOnce, "malformed", "a field is doubled, or not canonical")
		fields[match[1]] = value(match[2])
	}
	isWhole := fields["body_length"] == len(body) && fields["body_sha256"] == digest(body)
	refuseIf(!isWhole, "malformed", "the body was cut or altered")
	isOurs := fields["version"] == 1 && fields["id"] == id
	refuseIf(!isOurs, "malformed", "the version is newer, or the id is another one")
	fields.check()
	return fields, body
}

// taskOf is the task of a message that waits for a plan; none of a broken one, a dead letter.
func taskOf(path, id string) (task string) {
	defer func() { _ = recover() }()
	fields, _ := decode(path, id)
	if text, isText := fields["task_id"].(string); isText {
		task = text
	}
	if passes.MatchString(fmt.Sprint(fields["type"])) {
		task = ""
	}
	return task
}

func defaults(id string) Fields {
	fields := Fields{"version": 1, "id": id, "type": "message", "priority": 0}
	fields["from"], fields["to"] = "unknown", "unknown"
	return fields
}

func (f Fields) check() {
	for _, key := range []string{"id", "type", "from", "to"} {
		refuseIf(!nameForm.MatchString(fmt.Sprint(f[key])), "invalid", key+" is no name")
	}
	for _, key := range []string{"correlation_id", "causation_id", "task_id", "source"} {
		text, isText := f[key].(string)
		isFine := isText && text != "" && len(text) <= headerBytesMax && !special.MatchString(text)
		refuseIf(f[key] != nil && !isFine, "invalid", key+" is empty, too long, or not printable")
	}
	for _, key := range []string{"created_at", "expires_at"} {
		_, err := time.Parse(time.RFC3339, fmt.Sprint(f[key]))
		refuseIf(f[key] != nil && err != nil, "invalid", key+" is no time with an offset")
	}
	priority, isNumber := f["priority"].(int)
	attempt, isInt := f["attempt"].(int)
	isWithin := isNumber && priority >= 0 && priority <= 9 && (isInt || f["attempt"] == nil) &&
		attempt >= 0 && attempt <= math.MaxUint32
	refuseIf(!isWithin, "invalid", "the priority or the attempt is not within its limits")
}

// value is what the text of a field means.
func value(text string) any {
	var decoded string
	if number, err := strconv.Atoi(text); err == nil {
		return number
	} else if json.Unmarshal([]byte(text), &decoded) == nil {
		return decoded
	}
	return text
}

func scalar(value any) string {
	text, isText := value.(string)
	if !isText || bare.MatchString(text) && !yamlWord.MatchString(text) {
		return fmt.Sprint(value)
	}
	return quoted(text)
}

func quoted(text string) string {
	var out strings.Builder
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	check(encoder.Encode(text))
	escape := func(c string) string { return fmt.Sprintf(`\u%04x`, []rune(c)[0]) }
	return special.ReplaceAllStringFunc(strings.TrimSuffix(out.String(), "\n"), escape)
}

// isStored says whether a message is stored already. What a power cut has torn is set aside. A file
// that is missing has moved.
func (q Queue) isStored(box, id string, fields Fields, body string) (is bool, err error) {
	defer caught(&err, Lease{})
	stored := find(box, id)
	if stored == "" {
		return false, nil
	}
	old := must(read(stored))
	if len(old) == 0 || old[0] == 0 || old[len(old)-1] == 0 {
		if filepath.Base(filepath.Dir(stored)) == "done" {
			return true, nil
		}
		check(os.Rename(stored, filepath.Join(box, "dead", id+"@double."+NewID())))
		return false, fs.ErrNotExist
	}
	known, text := decode(stored, id)
	isSame := known["type"] == fields["type"] && text == body
	refuseIf(!isSame, "conflict", "another message has the id "+id)
	q.sync(stored)
	q.sync(filepath.Dir(stored))
	return true, nil
}

// read reads a regular file, and nothing of another one: a read of a pipe could wait forever.
func read(path string) ([]byte, error) {
	info, err := os.Lstat(path)
	if err != nil || !info.Mode().IsRegular() {
		return nil, err
	}
	return os.ReadFile(path)
}

// small reads a small file of settings, a reason or a lease.
func small(path string) map[string]string {
	content, _ := read(path)
	found := map[string]string{"attempts_max": "5"}
	for _, match := range setting.FindAllStringSubmatch(string(content), -1) {
		found[match[1]] = match[2] + match[3] // A comment may follow a number.
	}
	return found
}

// isUndecided says whether a message asks for a decision that is not made.
func (q Queue) isUndecided(path, id string) bool {
	asked := small(path)["correlation_id"]
	if !nameForm.MatchString(asked) {
		asked = id
	}
	decision := filepath.Join(q.Root, "requests", asked, "decision.yaml")
	return strings.HasSuffix(small(path)["type"], "_request") && !exists(decision)
}

func age(path, id string) (millis int64) {
	if uuid7.MatchString(id) {
		millis, _ = strconv.ParseInt(id[:8]+id[9:13], 16, 64)
	} else if info, err := os.Lstat(path); err == nil {
		millis = info.ModTime().UnixMilli()
	}
	return millis
}

func atoi(digits string) int { n, _ := strconv.Atoi(digits); return n }

func digest(body string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(body))) }

func stamp() string { return time.Now().UTC().Format("2006-01-02T15:04:05.000Z") }

// failure is a panic that an exported function turns into its error.
type failure struct{ error }

func check(err error) {
	if err != nil {
		panic(failure{err})
	}
}

func must[T any](value T, err error) T {
	check(err)
	return value
}

func refuseIf(is bool, code, text string) {
	if is {
		panic(failure{Error{code, text}})
	}
}

// caught ends each exported function. A missing file means that the lease is lost.
func caught(err *error, lease Lease) {
	problem := recover()
	if failed, isOurs := problem.(failure); isOurs {
		*err = failed.error
	} else if problem != nil {
		panic(problem)
	}
	if lease.ID != "" && errors.Is(*err, fs.ErrNotExist) {
		text := fmt.Sprintf("%s is not held by %s in delivery %d", lease.ID, lease.Holder, lease.Epoch)
		*err = Error{"lease_lost", text}
	}
}
