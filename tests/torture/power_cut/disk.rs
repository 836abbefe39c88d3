//! A file system in memory: names and contents apart, as a power cut tears them apart.

use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::rc::Rc;

use super::*;

/// Which file or directory, no matter what its name is.
pub type Inode = usize;
pub const ROOT: Inode = 0;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Node {
    Directory(BTreeMap<String, Inode>),
    File(Vec<u8>),
}

/// One step that changes a disk, or says something of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// A new name of a new file or directory.
    Add {
        at: Entry,
        inode: Inode,
    },
    Remove {
        at: Entry,
    },
    /// Both names change at once, as in every file system with a journal.
    Rename {
        from: Entry,
        to: Entry,
    },
    Write {
        inode: Inode,
        offset: usize,
        bytes: Vec<u8>,
    },
    Resize {
        inode: Inode,
        bytes: usize,
    },
    /// For a file: its writes. For a directory: its names.
    Sync(Inode),
    /// A line printed by the process, for instance an acknowledgement.
    Mark(String),
}

pub type Entry = (Inode, String);

/// The result of a write that was not synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Kept,
    Lost,
    /// The first half of it; of a change of size, nothing.
    Half,
    /// The file has its new size, and zeroes where the content should be.
    Zeroes,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Disk {
    nodes: Vec<Rc<Node>>,
}

impl Disk {
    /// Everything on disk below a directory, except names that `skip` selects.
    pub fn read(root: &Path, skip: fn(&str) -> bool) -> Self {
        let mut disk = Self::default();
        disk.read_directory(root, skip);
        disk
    }

    fn read_directory(&mut self, path: &Path, skip: fn(&str) -> bool) -> Inode {
        let inode = self.add(Node::Directory(BTreeMap::new()));
        let mut entries = BTreeMap::new();
        for entry in fs::read_dir(path).expect("a directory") {
            let entry = entry.expect("an entry");
            let name = entry.file_name().into_string().expect("a name in UTF-8");
            if skip(&name) {
                continue;
            }
            let child = if entry.file_type().expect("a type").is_dir() {
                self.read_directory(&entry.path(), skip)
            } else {
                self.add(Node::File(fs::read(entry.path()).expect("a file")))
            };
            entries.insert(name, child);
        }
        self.nodes[inode] = Rc::new(Node::Directory(entries));
        inode
    }

    pub fn add(&mut self, node: Node) -> Inode {
        self.nodes.push(Rc::new(node));
        self.nodes.len() - 1
    }

    pub fn node(&self, inode: Inode) -> &Node {
        &self.nodes[inode]
    }

    pub fn is_directory(&self, inode: Inode) -> bool {
        matches!(self.node(inode), Node::Directory(_))
    }

    pub fn child(&self, (directory, name): &Entry) -> Option<Inode> {
        match self.node(*directory) {
            Node::Directory(entries) => entries.get(name).copied(),
            Node::File(_) => None,
        }
    }

    fn entries(&mut self, directory: Inode) -> &mut BTreeMap<String, Inode> {
        match Rc::make_mut(&mut self.nodes[directory]) {
            Node::Directory(entries) => entries,
            Node::File(_) => panic!("inode {directory} is a file"),
        }
    }

    fn content(&mut self, file: Inode) -> &mut Vec<u8> {
        match Rc::make_mut(&mut self.nodes[file]) {
            Node::File(content) => content,
            Node::Directory(_) => panic!("inode {file} is a directory"),
        }
    }

    /// Does one step as it was meant, or as much of it as its fate says.
    pub fn apply(&mut self, act: &Act, fate: Fate) {
        match act {
            _ if fate == Fate::Lost => {}
            Act::Add { at: (directory, name), inode } => {
                self.entries(*directory).insert(name.clone(), *inode);
            }
            Act::Remove { at: (directory, name) } => {
                self.entries(*directory).remove(name);
            }
            Act::Rename { from, to } => {
                let inode =
                    self.entries(from.0).remove(&from.1).expect("what was renamed is there");
                self.entries(to.0).insert(to.1.clone(), inode);
            }
            Act::Write { inode, offset, bytes } => {
                let (whole, half) = (bytes.len(), bytes.len() / 2);
                let kept = if fate == Fate::Half { half } else { whole };
                let content = self.content(*inode);
                let end = offset + kept;
                content.resize(content.len().max(end), 0);
                if fate == Fate::Zeroes {
                    content[*offset..end].fill(0);
                } else {
                    content[*offset..end].copy_from_slice(&bytes[..kept]);
                }
            }
            Act::Resize { inode, bytes } if fate != Fate::Half => {
                self.content(*inode).resize(*bytes, 0);
            }
            Act::Resize { .. } | Act::Sync(_) | Act::Mark(_) => {}
        }
    }

    /// Everything below the root: path and content, `None` for a directory.
    pub fn tree(&self) -> BTreeMap<String, Option<&[u8]>> {
        let mut tree = BTreeMap::new();
        let mut left = vec![(String::new(), ROOT)];
        while let Some((path, inode)) = left.pop() {
            match self.node(inode) {
                Node::File(content) => drop(tree.insert(path, Some(content.as_slice()))),
                Node::Directory(entries) => {
                    let below =
                        |(name, child): (&String, &Inode)| (format!("{path}/{name}"), *child);
                    left.extend(entries.iter().map(below));
                    tree.insert(path, None);
                }
            }
        }
        tree
    }

    pub fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.tree().hash(&mut hasher);
        hasher.finish()
    }

    /// Makes it real, in an empty directory.
    pub fn write(&self, root: &Path) {
        for (path, content) in self.tree() {
            let at = root.join(path.trim_start_matches('/'));
            match content {
                None if path.is_empty() => {}
                None => fs::create_dir(at).expect("a directory"),
                Some(content) => fs::write(at, content).expect("a file"),
            }
        }
    }
}
