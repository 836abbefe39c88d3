//! Pictures of terminals for the documentation, as SVG: written only if `ENSEMBLE_WRITE_PICTURES` names a directory.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use crate::bed::SaidText as _;

/// Size of a character, in pixels.
const CELL: (usize, usize) = (8, 17);
/// Space around the text, in pixels.
const MARGIN: usize = 14;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Look {
    colour: Option<&'static str>,
    is_bold: bool,
    is_faint: bool,
    is_reversed: bool,
}

/// Writes a picture of a screen, as `tmux capture-pane -e -p` prints it.
pub(crate) fn keep(name: &str, title: &str, screen: &str, columns: usize) {
    if let Some(place) = std::env::var_os("ENSEMBLE_WRITE_PICTURES") {
        let svg = svg(title, screen, columns);
        fs::write(Path::new(&place).join(format!("{name}.svg")), svg).unwrap();
    }
}

fn svg(title: &str, screen: &str, columns: usize) -> String {
    let mut out = start(title, (columns, screen.trim_end().lines().count()));
    drawn(&mut out, screen);
    out.push_str("</svg>\n");
    out
}

fn start(title: &str, (columns, lines): (usize, usize)) -> String {
    let (width, height) = (columns * CELL.0 + 2 * MARGIN, lines * CELL.1 + 2 * MARGIN);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
         role=\"img\" aria-label=\"{}\" font-family=\"ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace\" \
         font-size=\"13\">\n<rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#14171a\"/>\n",
        escaped(title)
    )
}

fn drawn(out: &mut String, screen: &str) {
    let mut look = Look::default();
    for (row, line) in screen.trim_end().lines().enumerate() {
        let y = MARGIN + row * CELL.1;
        for (column, text) in pieces(line, &mut look) {
            piece(out, &text.1, &text.0, MARGIN + column * CELL.0, y);
        }
    }
}

fn piece(out: &mut String, look: &Look, text: &str, x: usize, y: usize) {
    let length = text.chars().count() * CELL.0;
    let (mut fill, mut back) = (look.colour.unwrap_or("#e8eaec"), None);
    if look.is_faint {
        fill = "#9aa5ad";
    }
    if look.is_reversed {
        back = Some(fill);
        fill = "#14171a";
    }
    if let Some(back) = back {
        let _ = writeln!(
            out,
            "<rect x=\"{x}\" y=\"{y}\" width=\"{length}\" height=\"{}\" fill=\"{back}\"/>",
            CELL.1
        );
    }
    if text.trim().is_empty() {
        return;
    }
    let weight = if look.is_bold { " font-weight=\"700\"" } else { "" };
    let _ = writeln!(
        out,
        "<text x=\"{x}\" y=\"{}\" textLength=\"{length}\" fill=\"{fill}\"{weight} xml:space=\"preserve\">{}</text>",
        y + 13,
        escaped(text),
    );
}

/// The pieces of a line with their columns. The look continues in the next line.
fn pieces(line: &str, look: &mut Look) -> Vec<(usize, (String, Look))> {
    let (mut all, mut column, mut text) = (Vec::new(), 0, String::new());
    let mut chars = line.chars();
    let mut flush = |text: &mut String, column: &mut usize, look: &Look| {
        if !text.is_empty() {
            let length = text.chars().count();
            all.push((*column, (std::mem::take(text), look.clone())));
            *column += length;
        }
    };
    while let Some(c) = chars.next() {
        if c != '\x1b' {
            text.push(c);
            continue;
        }
        flush(&mut text, &mut column, look);
        let sequence: String = chars.by_ref().skip(1).take_while(|c| *c != 'm').collect();
        match sequence.strip_prefix("38;5;") {
            Some(number) => look.colour = indexed(number),
            None => sequence.split(';').for_each(|code| apply(look, code)),
        }
    }
    flush(&mut text, &mut column, look);
    all
}

fn indexed(number: &str) -> Option<&'static str> {
    match number {
        "1" | "9" => Some("#ff7b72"),
        "2" | "10" => Some("#57c785"),
        "3" | "11" => Some("#e3b341"),
        "4" | "12" => Some("#79b8ff"),
        "5" | "13" => Some("#d2a8ff"),
        "6" | "14" => Some("#76e3ea"),
        _ => None,
    }
}

fn apply(look: &mut Look, code: &str) {
    match code {
        "" | "0" => *look = Look::default(),
        "1" => look.is_bold = true,
        "2" => look.is_faint = true,
        "7" => look.is_reversed = true,
        "22" => (look.is_bold, look.is_faint) = (false, false),
        "27" => look.is_reversed = false,
        "31" | "32" | "33" | "34" | "35" | "36" => look.colour = indexed(&code[1..]),
        "91" | "92" | "93" | "94" | "95" | "96" => look.colour = indexed(&code[1..]),
        "39" => look.colour = None,
        _ => {}
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;")
}

#[test]
fn a_screen_becomes_pieces_of_text_in_their_places() {
    let drawn = svg("a & b", "plain \x1b[1;31mred <x>\x1b[0m end\n\x1b[7mback\x1b[27m", 20);
    drawn.has(["aria-label=\"a &amp; b\""]);
    drawn.has(["x=\"62\" y=\"27\" textLength=\"56\" fill=\"#ff7b72\" font-weight=\"700\""]);
    drawn.has([">red &lt;x></text>", "<rect x=\"14\" y=\"31\" width=\"32\""]);
}
