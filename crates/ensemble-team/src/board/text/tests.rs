use super::*;
use proptest::prelude::*;
use serde_json::json;

fn parse(source: &str) -> YamlText {
    YamlText::parse(source, Path::new("state.yaml")).unwrap_or_else(|e| panic!("{e}\n{source}"))
}

fn error(source: &str) -> String {
    YamlText::parse(source, Path::new("state.yaml")).map(|_| ()).unwrap_err().to_string()
}

fn edit(source: &str, change: impl FnOnce(&mut Value)) -> String {
    let text = parse(source);
    let mut value = text.value();
    change(&mut value);
    text.update(&value, Path::new("state.yaml")).unwrap().source().to_owned()
}

const BOARD: &str = r#"# Ours.
version: 1   # the format

tasks:
  # the first
  - id: task-1  # do not rename
    status: UNCLAIMED   # a comment
    depends_on: [task-0, "task-9"]  # both
    scope: |  # long
      One.

      Two.

    # about x
    x_unknown: {a: 1, b: [x, # in flow
      y]}
    base_commit: 0012345
agents:
"#;

#[test]
fn unchanged_parts_keep_their_bytes() {
    let source = BOARD;
    let changed = edit(source, |v| {
        v["tasks"][0]["status"] = json!("CLAIMED");
        v["tasks"][0]["depends_on"] = json!([]);
    });
    let expected = source.replace("UNCLAIMED ", "CLAIMED ").replace("[task-0, \"task-9\"]", "[]");
    assert_eq!(changed, expected);
}

#[test]
fn added_and_removed_entries_follow_the_layout() {
    let changed = edit(BOARD, |v| {
        v["tasks"][0]["scope"] = json!("One.\n\nThree.\n");
        v["tasks"][0]["x_unknown"] = Value::Null;
        v["tasks"][0]["depends_on"] = json!(["a".repeat(60), "b".repeat(60)]);
        v["tasks"][0]["history"] = json!([{ "time": "2026-01-01T00:00:00Z", "event": "created" }]);
        v["tasks"].as_array_mut().unwrap().push(json!({ "id": "task-2", "priority": 1 }));
        v["agents"] = json!({ "coder-1": { "role": "coder", "note": "yes" } });
        v["version"] = json!(2);
    });
    let (a, b) = ("a".repeat(60), "b".repeat(60));
    let expected = format!(
        r#"# Ours.
version: 2   # the format

tasks:
  # the first
  - id: task-1  # do not rename
    status: UNCLAIMED   # a comment
    depends_on: # both
      - {a}
      - {b}
    scope: | # long
      One.

      Three.

    # about x
    x_unknown: null # in flow
    base_commit: 0012345
    history:
      - {{ time: "2026-01-01T00:00:00Z", event: created }}
  - id: task-2
    priority: 1
agents:
  coder-1:
    role: coder
    note: "yes"
"#
    );
    assert_eq!(changed, expected);
    let shorter = edit(BOARD, |v| drop(v["tasks"][0].as_object_mut().unwrap().remove("scope")));
    assert!(shorter.contains("# both\n    # long\n"));
}

#[test]
fn scalars_round_trip() {
    let read = |text: &str| parse(&format!("a: {text}\n")).value()["a"].clone();
    for text in ["0012345", "12e4567", "1.10", "+1", "0x1F", ".inf", "1_000", "2026-01-01", "yes"] {
        assert_eq!(read(text), json!(text), "{text}");
    }
    let values = [json!(1), json!(-3), json!(1.5), json!(null)];
    assert_eq!(["1", "-3", "1.5", "~"].map(read), values);
    for text in
        ["1", "", " a ", "a: b", "#x", "- a", "true", "~", "\u{1b}[2J", "a\tb", "\u{2028}", "é 😀"]
    {
        assert_eq!(read(&render::flow(&json!(text))), json!(text), "{text:?}");
    }
}

#[test]
fn hostile_files_are_rejected_with_line_and_column_in_the_words_of_their_author() {
    let cases = [
        ("a:\n\tb: 1\n", "tab: use blanks"),
        ("```yaml\na: 1\n```\n", "leave out code fences"),
        ("a: x: y\n", "has a `: ` inside of a text"),
        ("a: *b* c\n", "put the text into quotes"),
        ("a: {b: 1\n", "bracket that is not closed"),
        ("a: &x 1\nb: *x\n", "line 1, column"),
        ("a: *x\n", "line 1, column"),
        ("a:\n\tb: 1\n", "line 2, column"),
        ("a: 1\na: 2\n", "`a` appears twice"),
        ("a: {b: 1, b: 2}\n", "`b` appears twice"),
        ("a: !!str 1\n", "tags are not allowed"),
        ("<<: {a: 1}\n", "merge keys"),
        ("a: 1\n---\nb: 1\n", "a second document"),
        ("[a, b]\n", "must be a mapping"),
        ("just text\n", "must be a mapping"),
        ("", "is empty"),
        ("# nothing\n", "is empty"),
        ("{a: 1}: b\n", "a key must be plain text"),
        ("a: [\n", "line 1, column"),
        ("a: \"\u{0}\"\n", "line 1, column"),
        ("a: x\u{1b}y\n", "line 1, column"),
    ];
    for (source, expected) in cases {
        let error = error(source);
        assert!(error.contains(expected), "{source:?}: {error}");
        assert!(error.starts_with("state.yaml: "), "{source:?}: {error}");
    }
    assert!(error(&format!("a: \"{}\"\n", "x".repeat(1_000_000))).contains("the limit is 65536"));
    assert!(error(&format!("a: |\n  {}\n", "x\n  ".repeat(500_000))).contains("the limit is"));
    assert!(error(&format!("a: {}\n", "[".repeat(20) + &"]".repeat(20))).contains("nested deeper"));
    assert!(error(&"{a: ".repeat(16_000)).contains("line 1"));
    assert!(error(&format!("a: [{}]\n", "1,".repeat(NODES_MAX + 1))).contains("more than"));
}

#[test]
fn unknown_layouts_are_rejected_and_never_mangled() {
    let text = parse("a: 1\n? b\n: 2\n");
    let mut value = text.value();
    value["b"] = json!(3);
    match text.update(&value, Path::new("state.yaml")) {
        Ok(new) => assert_eq!(new.value(), value),
        Err(error) => assert!(error.to_string().contains("cannot be changed"), "{error}"),
    }
}

/// Reproducible decisions from a seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
    fn once_in(&mut self, sides: u64) -> bool {
        self.roll(sides) == 0
    }
    fn scalar(&mut self) -> Value {
        match self.roll(12) {
            0 => Value::Null,
            1 => json!(self.roll(2) == 0),
            2 => json!(self.roll(1000)),
            3 => json!("two\nlines\n"),
            4 => json!("two\n\nparts"),
            5 => json!("# no comment: [x], {y} \"quoted\" 'single'"),
            6 => json!("é 😀 - a: b"),
            7 => json!(""),
            8 => json!("x ".repeat(60)),
            _ => json!(format!("word-{}", self.roll(9))),
        }
    }
    fn value(&mut self, depth: u64) -> Value {
        match self.roll(if depth == 0 { 1 } else { 4 }) {
            1 => (0..self.roll(4)).map(|_| self.value(depth - 1)).collect(),
            2 | 3 => self.object(depth),
            _ => self.scalar(),
        }
    }
    fn object(&mut self, depth: u64) -> Value {
        let keys = ["id", "status", "when", "scope", "x y", "yes", "1"];
        let mut fields = Map::new();
        for _ in 0..self.roll(5) {
            let key = keys[self.roll(7) as usize].to_owned();
            fields.insert(key, self.value(depth - 1));
        }
        Value::Object(fields)
    }
    fn change(&mut self, value: &mut Value, depth: u64) {
        match value {
            Value::Object(fields) if !fields.is_empty() && !self.once_in(4) => {
                let at = self.roll(fields.len() as u64) as usize;
                let key = fields.keys().nth(at).cloned().unwrap_or_default();
                match self.roll(5) {
                    0 => drop(fields.shift_remove(&key)),
                    1 => drop(fields.shift_insert(at, format!("new-{at}"), self.value(2))),
                    _ => self.change(&mut fields[&key], depth + 1),
                }
            }
            Value::Array(items) if !items.is_empty() && !self.once_in(4) => match self.roll(4) {
                0 => items.push(self.value(2)),
                1 => drop(items.remove(0)),
                _ => {
                    let at = self.roll(items.len() as u64) as usize;
                    self.change(&mut items[at], depth + 1);
                }
            },
            _ if depth == 0 => *value = self.object(2),
            _ => *value = self.value(2),
        }
    }
}

/// Writes a value in the layouts of different people, with comments in every possible place.
struct Hand {
    dice: Dice,
    out: String,
    count: u32,
}

impl Hand {
    fn comment(&mut self) -> String {
        self.count += 1;
        format!("# comment {}: - [x", self.count)
    }
    fn above(&mut self, indent: usize) {
        if self.dice.once_in(5) {
            let comment = self.comment();
            self.out += &format!("{}{comment}\n", " ".repeat(indent));
        }
        if self.dice.once_in(6) {
            self.out.push('\n');
        }
    }
    fn end(&mut self) {
        if self.dice.once_in(4) {
            let comment = self.comment();
            self.out += &format!("  {comment}");
        }
        self.out.push('\n');
    }
    fn behind(&mut self, value: &Value, indent: usize) {
        let flows = self.dice.once_in(3);
        match value {
            Value::Object(fields) if !fields.is_empty() && !flows => {
                self.end();
                self.fields(fields, indent + 2);
            }
            Value::Array(items) if !items.is_empty() && !flows => {
                self.end();
                let indent = if self.dice.once_in(2) { indent } else { indent + 2 };
                self.items(items, indent);
            }
            Value::String(text) if text.contains('\n') && !flows => {
                let mark = if text.ends_with('\n') { "|" } else { "|-" };
                self.out += &format!(" {mark}");
                self.end();
                for line in text.trim_end_matches('\n').split('\n') {
                    let lead = if line.is_empty() { String::new() } else { " ".repeat(indent + 3) };
                    self.out.push_str(&format!("{lead}{line}\n"));
                }
                if self.dice.once_in(3) {
                    self.out.push('\n');
                }
            }
            Value::Null if flows => self.end(),
            Value::String(text) if flows && !text.contains('\n') => {
                self.out.push_str(&format!("   '{}'", text.replace('\'', "''")));
                self.end();
            }
            value => {
                self.out.push_str(&format!(" {}", render::flow(value)));
                self.end();
            }
        }
    }
    fn fields(&mut self, fields: &Map<String, Value>, indent: usize) {
        for (at, (key, value)) in fields.iter().enumerate() {
            // The first entry may be behind a dash.
            if at > 0 || self.out.is_empty() || self.out.ends_with('\n') {
                self.above(indent);
                self.out.push_str(&" ".repeat(indent));
            }
            self.out.push_str(&format!("{}:", render::flow(&json!(key))));
            self.behind(value, indent);
        }
    }
    fn items(&mut self, items: &[Value], indent: usize) {
        for item in items {
            self.above(indent);
            self.out.push_str(&format!("{}-", " ".repeat(indent)));
            match item {
                Value::Object(fields) if !fields.is_empty() && self.dice.once_in(2) => {
                    self.out.push(' ');
                    self.fields(fields, indent + 2);
                }
                // A list in a list must be indented.
                Value::Array(items) if !items.is_empty() => {
                    self.end();
                    self.items(items, indent + 2);
                }
                item => self.behind(item, indent),
            }
        }
    }
}

/// A file in a random layout with its value, and its value after some changes.
fn scene(seed: u64) -> (String, Value, Value) {
    let mut dice = Dice(seed | 1);
    let before = match dice.object(4) {
        Value::Object(fields) if fields.is_empty() => json!({ "tasks": [{ "id": "a" }] }),
        other => other,
    };
    let mut hand = Hand { dice, out: String::new(), count: 0 };
    hand.fields(before.as_object().unwrap(), 0);
    let mut after = before.clone();
    for _ in 0..=hand.dice.roll(4) {
        hand.dice.change(&mut after, 0);
    }
    if after == json!({}) {
        after = json!({ "version": 1 });
    }
    (hand.out, before, after)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn edits_have_the_new_value_and_lose_nothing(seed: u64) {
        let (source, before, after) = scene(seed);
        let text = parse(&source);
        prop_assert_eq!(text.value(), before, "{}", source);
        let new = text.update(&after, Path::new("state.yaml"));
        let new = new.unwrap_or_else(|e| panic!("{e}\n--- from\n{source}--- to {after}\n---{}", change::splice(&text, &after)));
        // Parse the text alone.
        let again = parse(new.source());
        prop_assert_eq!(again.value(), after);
        prop_assert_eq!(again.comments(), text.comments());
        let same = again.update(&again.value(), Path::new("x")).unwrap();
        prop_assert_eq!(same.source(), again.source());
    }
}

#[test]
fn crlf_and_missing_final_newline_are_supported() {
    let crlf = BOARD.replace('\n', "\r\n");
    let changed = edit(&crlf, |v| {
        v["tasks"][0]["status"] = json!("CLAIMED");
        v["tasks"][0]["scope"] = json!("new\ntext\n");
        v["tasks"][0]["x_more"] = json!(1);
    });
    assert!(changed.contains("status: CLAIMED   # a comment\r\n"), "{changed}");
    assert_eq!(parse(&changed).value()["tasks"][0]["scope"], "new\ntext\n");
    let changed = edit("a: 1 # x\nb: |\n  text", |v| v["c"] = json!(["d"]));
    assert_eq!(changed, "a: 1 # x\nb: |\n  text\nc: [d]\n");
    let changed = edit("\u{feff}a: 1\n", |v| v["a"] = json!("b"));
    assert_eq!(parse(&changed).value(), json!({ "a": "b" }));
    let changed = edit("---\na: {b: 1}\n...\n# end\n", |v| v["a"]["c"] = json!("x\ny"));
    assert_eq!(parse(&changed).value(), json!({ "a": { "b": 1, "c": "x\ny" } }));
    let changed = edit("{a: 1, b: [2]} # c\n", |v| v["a"] = json!(2));
    assert_eq!(parse(&changed).comments(), ["# c"]);
}
