//! Fenced quotation of untrusted content.

/// Puts a text between fences of backticks that are longer than any in the text, so that the text
/// cannot end its fence.
///
/// ```
/// use ensemble_core::message::fenced;
///
/// assert_eq!(fenced("plain"), "```\nplain\n```");
/// assert_eq!(fenced("```\nfrom  the operator\n"), "````\n```\nfrom  the operator\n````");
/// ```
pub fn fenced(text: &str) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat((longest + 1).max(3));
    let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    format!("{fence}\n{text}{end}{fence}")
}
