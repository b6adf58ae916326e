//! An archive in a file: written, on the disk, and vouched for by its manifest, before anything is deleted.

use std::{
    ffi::OsString,
    fs::{self, File, Metadata, OpenOptions, TryLockError},
    io::{self, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

use mongodb::bson::{Bson, DateTime, RawDocumentBuf};
use tracing::warn;

use super::{
    form::Form,
    manifest::{Batch, Header, Manifest, sha256},
};
use crate::error::{Code, Error, Refusal, Result};

/// What a crash leaves behind the last batch is a batch at most. More is no crash.
const MOST_LEFT_BY_A_CRASH: u64 = 512 * 1024 * 1024;

/// The file itself, if this is a link to it: the manifest stands beside that.
pub(crate) fn named(path: &Path) -> Result<PathBuf> {
    match fs::symlink_metadata(path) {
        Ok(it) if it.is_symlink() => fs::canonicalize(path).map_err(failed("following the link", path)),
        _ => Ok(path.to_owned()),
    }
}

/// The manifest beside an archive.
pub(crate) fn manifest_path(path: &Path) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(".manifest");
    name.into()
}

pub(crate) fn failed<E: Into<Box<dyn std::error::Error + Send + Sync>>>(
    doing: &str,
    path: &Path,
) -> impl FnOnce(E) -> Error + use<E> {
    let action = format!("{doing} {}", path.display());
    move |source| Error::Archive { action, source: source.into() }
}

/// What stands in an archive file behind the last batch that its manifest vouches for.
#[derive(Debug)]
pub(super) struct Behind {
    /// What can be read of it, and how many documents that is.
    pub(super) whole: Vec<u8>,
    pub(super) documents: u64,
    /// How many bytes follow of what was not written to its end.
    pub(super) cut_off: u64,
}

impl Behind {
    pub(super) fn read(mut data: &File, path: &Path, manifest: &Manifest, form: &Form) -> Result<Self> {
        let (end, length) = (manifest.end(), data.metadata().map_err(failed("reading", path))?.len());
        let is = |what: String| Err(failed("opening", path)(what));
        if length < end {
            return is(format!("it has {length} bytes, and its manifest tells of {end}"));
        }
        if length - end > MOST_LEFT_BY_A_CRASH {
            return is(format!(
                "it has {length} bytes, and its manifest tells of {end}: more is missing than a crash can leave out"
            ));
        }
        let mut whole = Vec::new();
        data.seek(SeekFrom::Start(end)).map_err(failed("reading", path))?;
        data.read_to_end(&mut whole).map_err(failed("reading", path))?;
        let length = whole.len();
        let (bytes, rows) = match form.whole(&whole) {
            Ok(whole) => whole,
            Err(at) => {
                return is(format!(
                    "it is damaged at byte {}, beyond what its manifest tells of, and goes on behind that; nothing of it is \
                     changed. Bring back the newest copy of both files, or name another file to archive to",
                    end + at as u64
                ));
            }
        };
        whole.truncate(bytes);
        let head = u64::from(end == 0 && !form.holds_everything());
        Ok(Self { whole, documents: rows.saturating_sub(head), cut_off: (length - bytes) as u64 })
    }
}

/// An archive file that is open for writing, by nobody else.
#[derive(Debug)]
pub(super) struct ArchiveFile {
    path: PathBuf,
    data: File,
    beside: PathBuf,
    lines: File,
    manifest: Manifest,
    header: Header,
}

impl ArchiveFile {
    /// Opens the file or makes it, and sees to it that it ends where the manifest says.
    ///
    /// # Errors
    ///
    /// Refused if the file is another archive, or none. Nothing is changed then.
    pub(super) fn open(path: &Path, header: Header) -> Result<Self> {
        let path = &*named(path)?;
        let beside = manifest_path(path);
        let there = fs::metadata(path).ok();
        let refuse = |why: &str| Err(Refusal::new(Code::InvalidOptions, format!("{} {why}", path.display())).into());
        if there.as_ref().is_some_and(|it| !it.is_file()) {
            return refuse("is no file");
        }
        let empty = there.is_none_or(|it| it.len() == 0);
        if !empty && !beside.exists() {
            return refuse("has no manifest beside it, so that nobody knows what it holds; name another file");
        }
        let opened = |path: &Path| OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
        let mut lines = opened(&beside).map_err(failed("opening", &beside))?;
        lock(&lines, &beside, path)?;
        let mut text = Vec::new();
        lines.read_to_end(&mut text).map_err(failed("reading", &beside))?;
        let manifest = Manifest::parse(&text).map_err(failed("reading", &beside))?;
        match &manifest.header {
            None if !empty => return refuse("has an empty manifest beside it; name another file"),
            Some(own) if *own != header => {
                return refuse(&format!(
                    "is the archive of {}.{} in the format {}; name another file",
                    own.database,
                    own.collection,
                    own.form.name()
                ));
            }
            _ => {}
        }
        if manifest.end() > 0 && empty {
            return Err(failed("opening", path)(format!(
                "it is gone or empty, and its manifest tells of {} documents in it",
                manifest.documents()
            )));
        }
        let data = opened(path).map_err(failed("opening", path))?;
        // By another name it has another manifest.
        lock(&data, path, path)?;
        let mut file = Self { path: path.to_owned(), data, beside, lines, manifest, header };
        file.take_up()?;
        Ok(file)
    }

    /// Cuts off lines and rows whose writing was cut off. Whole documents behind the last batch stay and become one: whatever
    /// became of the manifest, nothing that can be read is thrown away.
    ///
    /// # Errors
    ///
    /// If it is damaged in another place than its end. Nothing is changed then.
    fn take_up(&mut self) -> Result<()> {
        let behind = Behind::read(&self.data, &self.path, &self.manifest, &self.header.form)?;
        self.lines.set_len(self.manifest.whole).map_err(failed("writing", &self.beside))?;
        if self.manifest.header.is_none() {
            let line = self.manifest.begin(&self.header);
            self.write_line(&line)?;
        }
        if !behind.whole.is_empty() || behind.cut_off > 0 {
            warn!(
                file = %self.path.display(), documents = behind.documents, cut_off = behind.cut_off,
                "the archive ends in what a crash left of a batch, or its manifest is an older one"
            );
        }
        let end = self.manifest.end() + behind.whole.len() as u64;
        self.data.set_len(end).map_err(failed("writing", &self.path))?;
        if !behind.whole.is_empty() {
            self.commit(&behind.whole, behind.documents, None)?;
        }
        self.data.sync_all().map_err(failed("writing", &self.path))?;
        sync_directory(&self.path)
    }

    /// Writes the documents so that they last, and says which were not written, and why.
    ///
    /// # Errors
    ///
    /// If it is not certain that they last. The file is of no use any more then, until it is opened again.
    pub(super) fn append(&mut self, documents: &[RawDocumentBuf], at: DateTime) -> Result<Vec<(usize, String)>> {
        let mut rows = Vec::new();
        if self.manifest.end() == 0 {
            rows = self.header.form.head().map_err(failed("writing", &self.path))?;
        }
        let (mut count, mut unwritten) = (0, Vec::new());
        for (number, document) in documents.iter().enumerate() {
            match self.header.form.row(document) {
                Ok(row) => {
                    rows.extend(row);
                    count += 1;
                }
                Err(why) => unwritten.push((number, why)),
            }
        }
        if count > 0 {
            let packed = self.header.form.pack(rows).map_err(failed("writing", &self.path))?;
            self.commit(&packed, count, Some(at))?;
        }
        Ok(unwritten)
    }

    /// Notes which of the last documents were not deleted.
    pub(super) fn not_deleted(&mut self, ids: &[Bson]) -> Result<()> {
        let line = self.manifest.not_deleted(ids);
        self.write_line(&line)
    }

    fn commit(&mut self, packed: &[u8], documents: u64, at: Option<DateTime>) -> Result<()> {
        let offset = self.manifest.end();
        let written = write_at(&mut self.data, offset, packed);
        written.map_err(failed("writing", &self.path))?;
        let batch =
            Batch { offset, bytes: packed.len() as u64, documents, sha256: sha256(packed), not_deleted: Vec::new() };
        let line = self.manifest.add(batch, at);
        self.write_line(&line)?;
        for (open, path) in [(&self.data, &self.path), (&self.lines, &self.beside)] {
            let named = fs::metadata(path).and_then(|named| Ok(same_file(&named, &open.metadata()?)));
            if !named.map_err(failed("looking at", path))? {
                return Err(failed("writing", path)("another file was put in its place meanwhile"));
            }
        }
        Ok(())
    }

    fn write_line(&mut self, line: &str) -> Result<()> {
        let offset = self.manifest.whole - line.len() as u64;
        write_at(&mut self.lines, offset, line.as_bytes()).map_err(failed("writing", &self.beside))
    }
}

/// Writes so that it lasts.
fn write_at(file: &mut File, offset: u64, bytes: &[u8]) -> io::Result<()> {
    file.seek(SeekFrom::Start(offset))?;
    file.write_all(bytes)?;
    file.sync_data()
}

/// Locks one of the two files of the archive.
fn lock(open: &File, own: &Path, path: &Path) -> Result<()> {
    match open.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(failed("opening", path)("another pass or process is writing it")),
        Err(TryLockError::Error(error)) => return Err(failed("locking", own)(error)),
    }
    // Whoever had it before may have put another in its place.
    let named = fs::metadata(own).and_then(|named| Ok(same_file(&named, &open.metadata()?)));
    match named {
        Ok(true) => Ok(()),
        _ => Err(failed("opening", own)("another file was put in its place meanwhile")),
    }
}

#[cfg(unix)]
fn same_file(one: &Metadata, other: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

/// Elsewhere an open file keeps its name.
#[cfg(not(unix))]
fn same_file(_: &Metadata, _: &Metadata) -> bool {
    true
}

/// A file that was made lasts once its directory does.
#[cfg(unix)]
fn sync_directory(path: &Path) -> Result<()> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(directory).and_then(|directory| directory.sync_all()).map_err(failed("making", path))
}

#[cfg(not(unix))]
fn sync_directory(_: &Path) -> Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests;
