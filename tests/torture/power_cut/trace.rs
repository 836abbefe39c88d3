//! Reads what strace has seen: which calls of a process have changed, or synced, what is on disk.

use super::*;

/// Options of strace. It prints strings whole, in hexadecimal digits.
pub const SHOWN: &str = "trace=openat,open,creat,close,write,writev,pwrite64,pwritev,pwritev2,ftruncate,\
    truncate,fallocate,fsync,fdatasync,syncfs,sync,sync_file_range,rename,renameat,renameat2,link,linkat,\
    symlink,symlinkat,unlink,unlinkat,mkdir,mkdirat,rmdir,dup,dup2,dup3,fcntl,lseek,copy_file_range,\
    sendfile,splice,chdir,statx,newfstatat,stat";

/// A path below this is examined to pass a note to the reader of the trace.
pub const MARK: &str = "/power-cut-mark/";

#[derive(Clone, Debug)]
pub struct Call {
    pub name: String,
    pub arguments: Vec<String>,
    /// Negative if it failed.
    pub result: i64,
}

impl Call {
    pub fn text(&self, at: usize) -> String {
        String::from_utf8(self.bytes(at)).unwrap_or_else(|_| panic!("{self:?}: not UTF-8"))
    }

    pub fn bytes(&self, at: usize) -> Vec<u8> {
        unquoted(&self.arguments[at])
    }

    pub fn number(&self, at: usize) -> i64 {
        let text = self.arguments[at].as_str();
        text.parse().unwrap_or_else(|_| panic!("{self:?}: {text} is no number"))
    }

    /// Everything that a call like `writev` writes.
    pub fn vector(&self, at: usize) -> Vec<u8> {
        self.arguments[at].split("iov_base=").skip(1).flat_map(unquoted).collect()
    }

    pub fn has(&self, at: usize, flag: &str) -> bool {
        self.arguments.get(at).is_some_and(|flags| flags.split('|').any(|one| one == flag))
    }

    /// A note that a process leaves in the trace by looking for a missing file.
    pub fn mark(&self) -> Option<String> {
        let at = match self.name.as_str() {
            "statx" | "newfstatat" => 1,
            "stat" => 0,
            _ => return None,
        };
        // Some examine what is open, and give no path.
        let is_path = self.arguments[at].starts_with('"');
        is_path.then(|| self.text(at))?.strip_prefix(MARK).map(str::to_owned)
    }
}

/// The bytes between the first two quotes: `"\x2f\x61"`.
fn unquoted(quoted: &str) -> Vec<u8> {
    let inside = quoted.split('"').nth(1).unwrap_or_else(|| panic!("{quoted} is no string"));
    assert!(!quoted.contains("\"..."), "strace has cut a string");
    let digits = inside.split("\\x").skip(1);
    digits.map(|two| u8::from_str_radix(two, 16).expect("hexadecimal digits")).collect()
}

/// All calls of a process, in the order of their ends. A call without an end was interrupted by the
/// end of the process, and no caller saw its result.
pub fn calls(trace: &str) -> Vec<Call> {
    let mut begun: HashMap<&str, String> = HashMap::new();
    let mut calls = Vec::new();
    for line in trace.lines() {
        let Some((thread, rest)) = line.split_once(' ') else { continue };
        let rest = rest.trim_start();
        if let Some(first) = rest.strip_suffix(" <unfinished ...>") {
            begun.insert(thread, first.to_owned());
        } else if rest.starts_with("<... ") {
            let second = rest.split_once(" resumed>").expect("a call goes on").1;
            let first = begun.remove(thread).expect("a call that goes on has begun");
            calls.extend(call(&(first + second)));
        } else {
            calls.extend(call(rest));
        }
    }
    calls
}

/// `name(argument, argument) = result`; anything else (a signal, the end) is not a call.
fn call(line: &str) -> Option<Call> {
    let (name, rest) = line.split_once('(')?;
    let (arguments, result) = rest.rsplit_once(" = ")?;
    let arguments = arguments.trim_end().strip_suffix(')')?;
    let result = result.split(' ').next()?.parse().ok()?;
    Some(Call { name: name.to_owned(), arguments: split(arguments), result })
}

/// At the commas that are in no bracket. In strings there are none.
fn split(arguments: &str) -> Vec<String> {
    let (mut parts, mut depth) = (vec![String::new()], 0);
    for character in arguments.chars() {
        match character {
            '[' | '{' => depth += 1,
            ']' | '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(String::new());
                continue;
            }
            _ => {}
        }
        parts.last_mut().expect("a part").push(character);
    }
    parts.into_iter().map(|part| part.trim().to_owned()).collect()
}

#[test]
fn a_trace_is_read_as_it_was_written() {
    let trace = "7  write(3, \"\\x61\\x2c\", 2) = 2\n8  writev(4, [{iov_base=\"\\x62\", iov_len=1}, \
        {iov_base=\"\\x63\", iov_len=1}], 2 <unfinished ...>\n7  fsync(3 <unfinished ...>\n\
        8  <... writev resumed>) = 2\n7  <... fsync resumed>) = -1 EIO (Input/output error)\n\
        7  +++ exited with 0 +++\n";
    let calls = calls(trace);
    let names: Vec<&str> = calls.iter().map(|call| call.name.as_str()).collect();
    assert_eq!(names, ["write", "writev", "fsync"]);
    assert_eq!((calls[0].bytes(1), calls[1].vector(1)), (b"a,".to_vec(), b"bc".to_vec()));
    assert_eq!((calls[0].number(2), calls[2].result), (2, -1));
}
