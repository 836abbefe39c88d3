//! The changes of a real process to the disk, step by step, from its strace.

use std::path::Component;

use super::disk::{Node, ROOT};
use super::trace::Call;

use super::*;

/// The changes of a disk that a power cut can separate.
#[derive(Clone, Debug)]
pub struct Log {
    /// The durable initial state, and room for later files.
    pub start: Disk,
    pub acts: Vec<Act>,
}

impl Log {
    /// The output of the process up to a step.
    pub fn marks(&self, until: usize) -> Vec<String> {
        let mark = |act: &Act| if let Act::Mark(said) = act { Some(said.clone()) } else { None };
        self.acts[..until].iter().filter_map(mark).collect()
    }

    /// The disk if nothing is lost.
    pub fn end(&self) -> Disk {
        let mut disk = self.start.clone();
        self.acts.iter().for_each(|act| disk.apply(act, Fate::Kept));
        disk
    }
}

#[derive(Clone, Copy, Debug)]
struct Open {
    inode: Inode,
    is_append: bool,
    offset: usize,
}

struct Tape<'a> {
    root: &'a Path,
    now: Disk,
    open: HashMap<i64, Open>,
    made: Vec<Node>,
    acts: Vec<Act>,
}

/// Reads a trace of a process that worked below `root`, where `start` had been before.
pub fn read(root: &Path, start: Disk, trace: &str) -> Log {
    let made = Vec::new();
    let mut tape = Tape { root, now: start.clone(), open: HashMap::new(), made, acts: Vec::new() };
    for call in trace::calls(trace) {
        if let Some(said) = call.mark() {
            tape.acts.push(Act::Mark(said));
        } else if call.result >= 0 {
            tape.follow(&call);
        }
    }
    let mut start = start;
    for node in tape.made {
        start.add(node);
    }
    Log { start, acts: tape.acts }
}

impl Tape<'_> {
    fn follow(&mut self, call: &Call) {
        match call.name.as_str() {
            "openat" => self.open(call, (0, 1), 2),
            "open" => self.open(call, (usize::MAX, 0), 1),
            "close" => drop(self.open.remove(&call.number(0))),
            "dup" | "dup2" | "dup3" => self.dup(call),
            "fcntl" if call.arguments[1].starts_with("F_DUPFD") => self.dup(call),
            "lseek" => {
                if let Some(open) = self.open.get_mut(&call.number(0)) {
                    open.offset = call.result as usize;
                }
            }
            "write" => self.write(call, call.bytes(1), None),
            "writev" => self.write(call, call.vector(1), None),
            "pwrite64" => self.write(call, call.bytes(1), Some(call.number(3) as usize)),
            "ftruncate" => {
                if let Some(open) = self.open.get(&call.number(0)) {
                    let (inode, bytes) = (open.inode, call.number(1) as usize);
                    self.act(Act::Resize { inode, bytes });
                }
            }
            "fsync" | "fdatasync" => {
                if let Some(open) = self.open.get(&call.number(0)) {
                    self.act(Act::Sync(open.inode));
                }
            }
            "rename" => self.rename(self.entry(None, call, 0), self.entry(None, call, 1)),
            "renameat" | "renameat2" => {
                assert!(!call.has(4, "RENAME_EXCHANGE"), "{call:?}");
                self.rename(self.entry(Some(0), call, 1), self.entry(Some(2), call, 3));
            }
            "link" => self.link(self.entry(None, call, 0), self.entry(None, call, 1)),
            "linkat" => self.link(self.entry(Some(0), call, 1), self.entry(Some(2), call, 3)),
            "unlink" | "rmdir" => self.remove(self.entry(None, call, 0)),
            "unlinkat" => self.remove(self.entry(Some(0), call, 1)),
            "mkdir" => self.make_directory(self.entry(None, call, 0)),
            "mkdirat" => self.make_directory(self.entry(Some(0), call, 1)),
            "statx" | "newfstatat" | "stat" | "fcntl" | "chdir" => {}
            _ => self.know_nothing(call),
        }
    }

    /// A call that this model does not know must not touch what it follows.
    fn know_nothing(&self, call: &Call) {
        let is_ours = |argument: &String| {
            argument.parse().is_ok_and(|number: i64| self.open.contains_key(&number))
        };
        assert!(!call.arguments.iter().any(is_ours), "not modelled: {call:?}");
    }

    fn act(&mut self, act: Act) {
        self.now.apply(&act, Fate::Kept);
        self.acts.push(act);
    }

    fn make(&mut self, node: Node) -> Inode {
        self.made.push(node.clone());
        self.now.add(node)
    }

    /// The directory in which the last part of a path is, and that part; `None` if that is not below
    /// the root.
    fn entry(&self, directory: Option<usize>, call: &Call, path: usize) -> Option<Entry> {
        let text = call.text(path);
        let (mut inode, below) = match Path::new(&text).strip_prefix(self.root) {
            Ok(below) => (ROOT, below.to_owned()),
            Err(_) if text.starts_with('/') => return None,
            Err(_) => {
                let held = call.arguments.get(directory?)?.parse().ok()?;
                (self.open.get(&held)?.inode, PathBuf::from(&text))
            }
        };
        let mut names: Vec<String> = Vec::new();
        for part in below.components() {
            match part {
                Component::Normal(name) => names.push(name.to_str()?.to_owned()),
                Component::CurDir => {}
                other => panic!("{other:?} in {text}"),
            }
        }
        let Some(last) = names.pop() else { return Some((inode, ".".to_owned())) };
        for name in names {
            inode = self.now.child(&(inode, name))?;
        }
        Some((inode, last))
    }

    fn open(&mut self, call: &Call, (directory, path): (usize, usize), flags: usize) {
        self.open.remove(&call.result);
        let Some(entry) = self.entry(Some(directory), call, path) else { return };
        let found = if entry.1 == "." { Some(entry.0) } else { self.now.child(&entry) };
        let inode = match found {
            Some(inode) => inode,
            None if call.has(flags, "O_CREAT") => {
                let inode = self.make(Node::File(Vec::new()));
                self.act(Act::Add { at: entry, inode });
                inode
            }
            // Not on the tape: what strace itself, or a shared memory, has made.
            None => return,
        };
        if call.has(flags, "O_TRUNC") && self.now.node(inode) != &Node::File(Vec::new()) {
            self.act(Act::Resize { inode, bytes: 0 });
        }
        let open = Open { inode, is_append: call.has(flags, "O_APPEND"), offset: 0 };
        self.open.insert(call.result, open);
    }

    fn dup(&mut self, call: &Call) {
        match self.open.get(&call.number(0)).copied() {
            Some(open) => drop(self.open.insert(call.result, open)),
            None => drop(self.open.remove(&call.result)),
        }
    }

    fn write(&mut self, call: &Call, mut bytes: Vec<u8>, offset: Option<usize>) {
        let number = call.number(0);
        let Some(open) = self.open.get(&number).copied() else { return };
        let Node::File(content) = self.now.node(open.inode) else { return };
        let end = content.len();
        bytes.truncate(call.result as usize);
        let written = bytes.len();
        let at = offset.unwrap_or(if open.is_append { end } else { open.offset });
        self.act(Act::Write { inode: open.inode, offset: at, bytes });
        if let (None, Some(open)) = (offset, self.open.get_mut(&number)) {
            open.offset = at + written;
        }
    }

    fn rename(&mut self, from: Option<Entry>, to: Option<Entry>) {
        match (from, to) {
            (Some(from), Some(to)) => self.act(Act::Rename { from, to }),
            (None, None) => {}
            outside => panic!("a rename across the root: {outside:?}"),
        }
    }

    fn link(&mut self, from: Option<Entry>, to: Option<Entry>) {
        if let (Some(from), Some(at)) = (from, to) {
            let inode = self.now.child(&from).expect("what is linked is there");
            self.act(Act::Add { at, inode });
        }
    }

    fn remove(&mut self, at: Option<Entry>) {
        if let Some(at) = at.filter(|at| self.now.child(at).is_some()) {
            self.act(Act::Remove { at });
        }
    }

    fn make_directory(&mut self, at: Option<Entry>) {
        if let Some(at) = at {
            let inode = self.make(Node::Directory(Default::default()));
            self.act(Act::Add { at, inode });
        }
    }
}
