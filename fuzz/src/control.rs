//! Output of a tmux server to a control client, and one observation of a pane.

use ensemble_tmux::fuzzing::{CONTROL_LIMITS, ControlAnswer, control_answers, pane_snapshot};

/// A block holds the lines between its `%begin` and the end with the same numbers, and limits hold.
pub fn check(data: &[u8]) {
    let answers = control_answers(data);
    let (line_bytes_max, lines_max) = CONTROL_LIMITS;
    for answer in &answers {
        let ControlAnswer::Block { lines, .. } = answer else { continue };
        assert!(lines.len() <= lines_max);
        // An invalid UTF-8 byte becomes a character of three bytes.
        assert!(lines.iter().all(|line| line.len() <= 3 * line_bytes_max));
        if let Some((height, shown)) = pane_snapshot(lines) {
            assert_eq!(height, shown, "a screen of another height than it says");
        }
    }
    assert_eq!(answers, expected(data));
    let lines: Vec<String> = String::from_utf8_lossy(data).lines().map(str::to_owned).collect();
    if let Some((height, shown)) = pane_snapshot(&lines) {
        assert_eq!(height, shown, "a screen of another height than it says");
    }
}

/// The same result computed another way: with all lines in memory, and with lookahead.
fn expected(data: &[u8]) -> Vec<ControlAnswer> {
    let (line_bytes_max, lines_max) = CONTROL_LIMITS;
    let cut =
        |line: &[u8]| String::from_utf8_lossy(&line[..line.len().min(line_bytes_max)]).into_owned();
    let lines: Vec<String> = data.split(|byte| *byte == b'\n').map(cut).collect();
    let (mut answers, mut at) = (Vec::new(), 0);
    while at < lines.len() {
        if let Some(tag) = lines[at].strip_prefix("%begin ") {
            let (end, error) = (format!("%end {tag}"), format!("%error {tag}"));
            let Some(length) = lines[at + 1..].iter().position(|l| *l == end || *l == error) else {
                break;
            };
            let inner = &lines[at + 1..at + 1 + length];
            if tag.ends_with(" 1") || tag == "1" {
                let kept = inner.iter().take(lines_max).cloned().collect();
                let failed = lines[at + 1 + length] == error;
                answers.push(ControlAnswer::Block { failed, lines: kept });
            }
            at += length + 2;
            continue;
        }
        if let Some(reason) = lines[at].strip_prefix("%exit") {
            answers.push(ControlAnswer::Exit(reason.trim().to_owned()));
        }
        at += 1;
    }
    answers
}
