//! Command lines of the clients' adapters, and the programs that they need.

use std::sync::{Mutex, PoisonError};

use super::*;

/// A Node that strips types.
const NODE: &str = "node@22";
const NODE_FLAGS: &str = "--experimental-strip-types --disable-warning=ExperimentalWarning";
/// Two tests must not install at once.
static INSTALLING: Mutex<()> = Mutex::new(());

fn adapter(path: &str) -> String {
    format!("'{}'", root().join("clients").join(path).display())
}

pub(crate) fn python() -> String {
    format!("python3 {}", adapter("python/adapter.py"))
}

pub(crate) fn shell() -> String {
    format!("dash {}", adapter("sh/adapter.sh"))
}

pub(crate) fn python_worker() -> String {
    format!("python3 {}", adapter("python/worker.py"))
}

pub(crate) fn typescript() -> Option<String> {
    Some(format!("{} {}", node()?, adapter("typescript/adapter.mts")))
}

pub(crate) fn typescript_worker() -> Option<String> {
    Some(format!("{} {}", node()?, adapter("typescript/worker.mts")))
}

/// `None`, with a line that says so, if there is no Node that strips types.
fn node() -> Option<String> {
    let strips = |node: &str| {
        let mut node = Command::new(node);
        node.args(NODE_FLAGS.split(' ')).args([
            "--input-type=module-typescript",
            "-e",
            "0 as number",
        ]);
        node.stderr(Stdio::null()).status().is_ok_and(|status| status.success())
    };
    let node = match strips("node") {
        true => "node".to_owned(),
        false => from_npm().filter(|node| strips(node))?,
    };
    Some(format!("'{node}' {NODE_FLAGS}"))
}

fn from_npm() -> Option<String> {
    let _installing = INSTALLING.lock().unwrap_or_else(PoisonError::into_inner);
    let dir = place(&NODE.replace('@', "-"));
    let node = dir.join("node_modules/node/bin/node");
    if !node.exists() {
        std::fs::create_dir_all(&dir).unwrap();
        let run = |words: &[&str]| Command::new("npm").current_dir(&dir).args(words).output();
        let installed = run(&["init", "-y"]).and_then(|_| run(&["install", "--silent", NODE]));
        if !installed.is_ok_and(|output| output.status.success()) || !node.exists() {
            let is_required = std::env::var("ENSEMBLE_TEST_CLIENTS").is_ok_and(|v| v == "required");
            assert!(!is_required, "npm cannot install {NODE}");
            println!("skipped: there is no Node that strips types");
            return None;
        }
    }
    Some(node.to_string_lossy().into_owned())
}

pub(crate) fn go() -> Option<String> {
    built_by_go("adapter")
}

pub(crate) fn go_worker() -> Option<String> {
    built_by_go("worker")
}

/// `None`, with a line that says so, without a Go toolchain.
fn built_by_go(package: &str) -> Option<String> {
    let _installing = INSTALLING.lock().unwrap_or_else(PoisonError::into_inner);
    let program = place("go").join(package);
    let mut build = Command::new("go");
    build
        .current_dir(root().join("clients/go"))
        .args(["build", "-o"])
        .arg(&program)
        .arg(format!("./{package}"));
    match build.output() {
        Ok(output) => {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            Some(format!("'{}'", program.display()))
        }
        Err(_) => {
            println!("skipped: there is no Go toolchain");
            None
        }
    }
}

fn place(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("clients").join(name)
}
