//! Reads what a page shows.

use std::collections::BTreeMap;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    Run(Shown),
    /// Commands that keep the terminal, each in its own one.
    Open(Vec<Shown>),
    File {
        name: String,
        content: String,
    },
    NotRun(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Shown {
    pub(super) line: usize,
    pub(super) command: String,
    pub(super) code: i32,
    pub(super) output: Vec<String>,
}

pub(super) fn steps(text: &str) -> Result<Vec<Step>, String> {
    let mut steps = Vec::new();
    let mut comment = None;
    let mut lines = text.lines().enumerate();
    while let Some((at, line)) = lines.next() {
        // What a command prints may have fences itself, which are shorter than the one around it.
        let info = line.trim_start_matches('`');
        let fence = &line[..line.len() - info.len()];
        if fence.len() < 3 {
            if !line.trim().is_empty() {
                comment = line.strip_prefix("<!-- ").and_then(|rest| rest.strip_suffix(" -->"));
            }
            continue;
        }
        let block: Vec<&str> =
            lines.by_ref().map(|(_, line)| line).take_while(|line| *line != fence).collect();
        let said = comment.take();
        if let Some(name) = said.and_then(|said| said.strip_prefix("file: ")) {
            steps.push(Step::File { name: name.to_owned(), content: block.join("\n") + "\n" });
        } else if let Some(reason) = said.and_then(|said| said.strip_prefix("not run: ")) {
            steps.push(Step::NotRun(reason.to_owned()));
        } else if said == Some("each in its own terminal") {
            let mut opened = Vec::new();
            commands(at + 2, &block, &mut opened)?;
            let shown = opened.into_iter().filter_map(|step| match step {
                Step::Run(shown) => Some(shown),
                _ => None,
            });
            steps.push(Step::Open(shown.collect()));
        } else if info == "console" {
            commands(at + 2, &block, &mut steps)?;
        }
    }
    Ok(steps)
}

fn commands(first: usize, block: &[&str], steps: &mut Vec<Step>) -> Result<(), String> {
    let mut current: Option<Shown> = None;
    let mut goes_on = false;
    for (line, text) in (first..).zip(block) {
        if let Some(command) = text.strip_prefix("$ ") {
            steps.extend(current.take().map(Step::Run));
            let (command, output) = (command.to_owned(), Vec::new());
            goes_on = command.ends_with('\\');
            current = Some(Shown { line, command, code: 0, output });
        } else {
            let shown = current.as_mut().ok_or_else(|| format!("{line}: no command yet"))?;
            let more = if goes_on { Some(*text) } else { text.strip_prefix("> ") };
            match more {
                Some(more) => {
                    shown.command += &format!("\n{more}");
                    goes_on = more.ends_with('\\');
                }
                None => shown.output.push((*text).to_owned()),
            }
        }
        if let Some(shown) = &mut current
            && let Some((_, code)) = shown.command.rsplit_once("# exit code ")
        {
            shown.code = code.trim().parse().map_err(|_| format!("{line}: `{code}` is no code"))?;
        }
    }
    steps.extend(current.take().map(Step::Run));
    Ok(())
}

/// Ids as the page writes them, with what they are in this run.
pub(super) type Ids = BTreeMap<String, String>;

/// How many bytes of `text` are an id at its start.
fn id_length(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    if bytes.first() == Some(&b'%') {
        let digits = bytes[1..].iter().take_while(|b| b.is_ascii_digit()).count();
        return (digits > 0).then_some(1 + digits);
    }
    let dashes = [8, 13, 18, 23];
    let is_uuid = bytes.len() >= 36
        && bytes[..36].iter().enumerate().all(|(at, byte)| match dashes.contains(&at) {
            true => *byte == b'-',
            false => byte.is_ascii_hexdigit(),
        });
    is_uuid.then_some(36)
}

pub(super) fn with_ids(command: &str, ids: &Ids) -> String {
    ids.iter().fold(command.to_owned(), |command, (shown, real)| command.replace(shown, real))
}

/// How many bytes of `text` are a time at its start: `3s`, `4m 59s`, `352ms`, `04:45:12`.
fn time_length(text: &str) -> Option<usize> {
    let digits = |text: &str| text.bytes().take_while(|b| b.is_ascii_digit() || *b == b'.').count();
    let bytes = text.as_bytes();
    let clock =
        |at: usize, byte: &u8| if at % 3 == 2 { *byte == b':' } else { byte.is_ascii_digit() };
    if bytes.len() >= 8 && bytes[..8].iter().enumerate().all(|(at, byte)| clock(at, byte)) {
        return Some(8);
    }
    let mut length = 0;
    loop {
        let rest = &text[length..];
        let part = rest.strip_prefix(' ').filter(|_| length > 0).unwrap_or(rest);
        let number = digits(part);
        let unit = part[number..].chars().take_while(|c| c.is_alphabetic()).collect::<String>();
        if number == 0 || !["ms", "µs", "s", "m", "h"].contains(&unit.as_str()) {
            return (length > 0).then_some(length);
        }
        length += rest.len() - part.len() + number + unit.len();
    }
}

/// How many bytes of `text` are the unique beginning of an id at its start: `019aa8f2-6a2e`, or longer.
fn short_id_length(text: &str) -> Option<usize> {
    let is_part = |c: char| c.is_ascii_hexdigit() || c == '-';
    let length = text.chars().take_while(|c| is_part(*c)).count();
    let is_id = (13..36).contains(&length) && text[..length].find('-') == Some(8);
    is_id.then_some(length)
}

/// A line without what differs between two runs: times, short ids, and the widths of columns.
fn normalized(line: &str) -> String {
    let line = line.replace("just now", "0s ago");
    let (mut rest, mut out) = (line.trim_end(), String::new());
    while let Some(c) = rest.chars().next() {
        let is_start = !out.ends_with(|c: char| c.is_alphanumeric() || c == '-');
        let (length, shown) = match (time_length(rest), short_id_length(rest)) {
            (Some(length), _) if is_start => (length, "<time>".to_owned()),
            (_, Some(length)) if is_start => (length, "<id>".to_owned()),
            _ if c == ' ' && out.ends_with("  ") => (1, String::new()),
            _ => (c.len_utf8(), c.to_string()),
        };
        out += &shown;
        rest = &rest[length..];
    }
    out
}

/// Whether these are the lines that a page shows; ids that are new are then known.
pub(super) fn is_shown(shown: &[String], printed: &[&str], ids: &mut Ids) -> bool {
    let Some((first, rest)) = shown.split_first() else { return printed.is_empty() };
    if first == "…" {
        return (0..=printed.len()).any(|skip| is_shown(rest, &printed[skip..], ids));
    }
    let Some((line, others)) = printed.split_first() else { return false };
    let mut with_these = ids.clone();
    if is_line(&normalized(first), &normalized(line), &mut with_these)
        && is_shown(rest, others, &mut with_these)
    {
        *ids = with_these;
        return true;
    }
    false
}

fn is_line(shown: &str, printed: &str, ids: &mut Ids) -> bool {
    if shown.is_empty() {
        return printed.is_empty();
    }
    if let Some(rest) = shown.strip_prefix('…') {
        let mut starts = printed.char_indices().map(|(at, _)| at).chain([printed.len()]);
        return starts.any(|at| is_line(rest, &printed[at..], ids));
    }
    if let Some(length) = id_length(shown) {
        let (name, rest) = shown.split_at(length);
        let Some(length) = id_length(printed) else { return false };
        let (real, others) = printed.split_at(length);
        return ids.entry(name.to_owned()).or_insert_with(|| real.to_owned()) == real
            && is_line(rest, others, ids);
    }
    let mut characters = shown.chars();
    let next = characters.next();
    printed.chars().next() == next
        && is_line(characters.as_str(), &printed[next.map_or(0, char::len_utf8)..], ids)
}

#[test]
fn a_line_is_compared_without_its_times_short_ids_and_widths() {
    let is_same = |one: &str, other: &str| normalized(one) == normalized(other);
    assert!(is_same("019aa8f2-6a2e  waits  3s", "019aa8f3-77b1-7  waits    4m 59s"));
    assert!(is_same("(352ms) ago, at 04:45:12", "(1.2s) ago, at 23:00:01"));
    assert!(is_same("gem answered, just now", "gem answered, 1m 2s ago"));
    assert!(!is_same("step 3 waits", "step 4 waits"));
    assert!(!is_same("3 more", "3s more") && !is_same("id 7f", "id 019aa8f2-6a2e"));
    assert_eq!(normalized("extend x 30m   (yours"), "extend x <time>  (yours");
}

#[test]
fn a_page_is_read_and_compared_as_it_is_shown() {
    let text = "Put this there:\n<!-- file: a.yaml -->\n```yaml\na: 1\n```\n\n<!-- not run: it takes \
                hours -->\n```console\n$ sleep 9999\n```\n```console\n$ one \\\n    two\nout\n$ three   # exit \
                code 1\n```\n";
    let steps = steps(text).unwrap();
    assert_eq!(steps[0], Step::File { name: "a.yaml".to_owned(), content: "a: 1\n".to_owned() });
    assert_eq!(steps[1], Step::NotRun("it takes hours".to_owned()));
    let (Step::Run(one), Step::Run(three)) = (&steps[2], &steps[3]) else { panic!("{steps:?}") };
    assert_eq!((one.command.as_str(), one.output[0].as_str()), ("one \\\n    two", "out"));
    assert_eq!((three.code, three.line), (1, 15));

    let (shown_id, real) =
        ("019aa8f2-6a2e-7c41-9a55-0d6c1f3b8e77", "019aa8f2-0000-7c41-9a55-0d6c1f3b8e77");
    let mut ids = Ids::new();
    let shown = [format!("{shown_id} in %3"), "…".to_owned(), "took … ms".to_owned()];
    let printed = format!("{real} in %17");
    assert!(is_shown(&shown, &[&printed, "x", "took 12 ms"], &mut ids));
    assert_eq!(with_ids(&format!("settle {shown_id} %3"), &ids), format!("settle {real} %17"));
    assert!(!is_shown(&shown, &[&printed, "took 12 s"], &mut ids.clone()));
    assert!(!is_shown(&shown[..1], &[&format!("{shown_id} in %17")], &mut ids), "another id");
}
