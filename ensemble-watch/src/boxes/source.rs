//! How a message names the file that it comes from.

/// The longest `source`, in bytes.
const SOURCE_BYTES_MAX: usize = 200;

/// The field `source` of a message: the path, without control characters, as far as there is room.
pub(crate) fn message_source(path: &str) -> String {
    let mut source = String::with_capacity(path.len());
    for c in path.chars().filter(|c| !c.is_control()) {
        if source.len() + c.len_utf8() > SOURCE_BYTES_MAX {
            break;
        }
        source.push(c);
    }
    source
}
