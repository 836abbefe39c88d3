//! Real PostgreSQL servers for tests, each on a free loopback port with its own data directory. A server is
//! stopped by its pid, and with the test program, however that ends.
#![allow(dead_code, unreachable_pub, reason = "each test program uses a part of it")]

#[path = "ports.rs"]
#[allow(
    clippy::duplicate_mod,
    clippy::allow_attributes,
    reason = "one program starts servers of both kinds"
)]
mod ports;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use ports::reserved_port;

/// How long a server may take to answer; far above what a loaded machine needs.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK_INTERVAL: Duration = Duration::from_millis(10);
/// PostgreSQL does not run as root.
const UNPRIVILEGED: u32 = 65534;
const USER: &str = "ensemble";
/// Runs a server until the standard input ends, as it does when the test program ends. `$1` is removed then.
const KEEPER: &str = r#"
    remove=$1; shift
    "$@" </dev/null >/dev/null 2>&1 &
    read -r _
    kill -QUIT $!
    wait $!
    [ -z "$remove" ] || rm -rf "$remove"
"#;

/// Where a server listens and keeps its data. It may run or not.
pub struct Cluster {
    pub port: u16,
    data: PathBuf,
    /// Removed by the keeper, in the place of a directory that this program would remove.
    removed: Option<PathBuf>,
    keeper: Mutex<Option<Child>>,
    _owned: Option<tempfile::TempDir>,
}

impl Cluster {
    /// The server of all tests that do not harm it; ends with the program.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<Cluster> = OnceLock::new();
        SHARED.get_or_init(|| {
            let home = tempfile::tempdir().unwrap().keep();
            Self::begin(&home, Some(home.clone()), None)
        })
    }

    pub fn start() -> Self {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().to_owned();
        Self::begin(&path, None, Some(home))
    }

    fn begin(home: &Path, removed: Option<PathBuf>, owned: Option<tempfile::TempDir>) -> Self {
        if rustix::process::getuid().is_root() {
            std::os::unix::fs::chown(home, Some(UNPRIVILEGED), Some(UNPRIVILEGED)).unwrap();
        }
        let data = home.join("data");
        let mut initdb = program("initdb");
        initdb.args(["-N", "-A", "trust", "-E", "UTF8", "--locale", "C", "-U", USER, "-D"]);
        let made = initdb.arg(&data).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let port = reserved_port();
        let cluster = Self { port, data, removed, keeper: Mutex::default(), _owned: owned };
        cluster.run();
        cluster
    }

    /// Lets in only who proves to know the password, over TLS. `ca.pem` in the directory has the certificate.
    pub fn guard(&self, password: &str, home: &Path) {
        let query = format!("ALTER USER {USER} PASSWORD '{password}'");
        asked(&self.address(), "none", &query);
        let (certificate, key) = (home.join("ca.pem"), home.join("key.pem"));
        let mut openssl = Command::new("openssl");
        openssl.args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]);
        openssl.args(["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]);
        openssl.args(["-addext", "basicConstraints=critical,CA:FALSE"]);
        openssl.arg("-keyout").arg(&key).arg("-out").arg(&certificate);
        assert!(openssl.output().unwrap().status.success());
        let write = |name: &str, content: &[u8]| {
            use std::os::unix::fs::PermissionsExt as _;
            let file = self.data.join(name);
            fs::write(&file, content).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
            if rustix::process::getuid().is_root() {
                std::os::unix::fs::chown(&file, Some(UNPRIVILEGED), Some(UNPRIVILEGED)).unwrap();
            }
        };
        write("server.crt", &fs::read(certificate).unwrap());
        write("server.key", &fs::read(key).unwrap());
        write(
            "pg_hba.conf",
            b"hostssl all all 127.0.0.1/32 scram-sha-256\nhostssl all all ::1/128 scram-sha-256\n",
        );
        let settings = fs::read_to_string(self.data.join("postgresql.conf")).unwrap();
        write("postgresql.conf", format!("{settings}\nssl = on\n").as_bytes());
        self.kill();
        self.run();
    }

    /// Starts it; its port and its data are those of before.
    pub fn run(&self) {
        let postgres = program("postgres");
        let mut keeper = Command::new("sh");
        keeper
            .args(["-c", KEEPER, "keeper"])
            .arg(self.removed.as_deref().unwrap_or_else(|| Path::new("")));
        keeper.arg(postgres.get_program()).args(postgres.get_args()).arg("-D").arg(&self.data);
        keeper.args(["-p", &self.port.to_string(), "-k", ""]);
        // No test cuts the power.
        for setting in ["listen_addresses=127.0.0.1", "fsync=off", "max_connections=300"] {
            keeper.args(["-c", setting]);
        }
        let log = File::create(self.data.with_file_name("keeper.log")).unwrap();
        keeper.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(log);
        *self.keeper.lock().unwrap() = Some(keeper.spawn().expect("there is a shell"));
        let start = Instant::now();
        while !self.is_ready() {
            assert!(start.elapsed() < PATIENCE, "a server on port {} answers", self.port);
            std::thread::sleep(LOOK_INTERVAL);
        }
    }

    /// Whether the server's own file says that it is ready.
    fn is_ready(&self) -> bool {
        let told = fs::read_to_string(self.data.join("postmaster.pid")).unwrap_or_default();
        told.lines().nth(7).is_some_and(|state| state.trim() == "ready")
    }

    /// Ends it at once, as a crash does, with all connections.
    pub fn kill(&self) {
        kill_process(self.pid(), Signal::QUIT).unwrap();
        self.stop();
        let _ = fs::remove_file(self.data.join("postmaster.pid"));
    }

    fn pid(&self) -> Pid {
        let told = fs::read_to_string(self.data.join("postmaster.pid")).unwrap();
        Pid::from_raw(told.lines().next().unwrap().parse().unwrap()).unwrap()
    }

    /// Its connections stay open, and nothing answers, until the guard is dropped.
    pub fn freeze(&self) -> Frozen {
        let query = "SELECT pid FROM pg_stat_activity WHERE application_name = 'ensemble'";
        let connections = asked(&self.address(), "none", query);
        let pids = connections.lines().map(|pid| Pid::from_raw(pid.parse().unwrap()).unwrap());
        let frozen = Frozen(std::iter::once(self.pid()).chain(pids).collect());
        frozen.signal(Signal::STOP);
        frozen
    }

    /// Ends the keeper, and the server with it.
    fn stop(&self) {
        if let Some(mut keeper) = self.keeper.lock().unwrap().take() {
            drop(keeper.stdin.take());
            keeper.wait().unwrap();
        }
    }

    /// The address of the cluster's database.
    pub fn address(&self) -> String {
        self.address_at(self.port)
    }

    pub fn address_at(&self, port: u16) -> String {
        format!("postgres://{USER}@127.0.0.1:{port}/postgres")
    }
}

/// The processes of a server that pause.
pub struct Frozen(Vec<Pid>);

impl Frozen {
    fn signal(&self, signal: Signal) {
        for pid in &self.0 {
            let _ = kill_process(*pid, signal);
        }
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        self.signal(Signal::CONT);
    }
}

/// A name of a team that follows from a directory.
pub fn team_of(home: &Path) -> String {
    home.file_name().unwrap().to_str().unwrap().replace('.', "t")
}

/// The answer of the server's own client to a query about the tables of a team.
pub fn asked(address: &str, team: &str, query: &str) -> String {
    let mut psql = Command::new("psql");
    psql.env("PGOPTIONS", format!("-c search_path=\"ensemble_{team}\""))
        .args(["-AtX", "-c", query]);
    let asked = psql.arg(address).output().expect("psql comes with the server");
    assert!(asked.status.success(), "{query}: {}", String::from_utf8_lossy(&asked.stderr));
    String::from_utf8(asked.stdout).unwrap().trim_end().to_owned()
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A program of the server, as a user that may run it. Debian's directories for them are on no user's PATH.
fn program(name: &str) -> Command {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let found = versions.map(|version| version.path().join("bin").join(name));
    let path = found.filter(|path| path.exists()).max().unwrap_or_else(|| PathBuf::from(name));
    if !rustix::process::getuid().is_root() {
        return Command::new(path);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid", &UNPRIVILEGED.to_string(), "--regid", &UNPRIVILEGED.to_string()]);
    command.arg("--clear-groups").arg(path);
    command
}
