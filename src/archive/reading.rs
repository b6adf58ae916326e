//! What an archive file holds, once all of it was seen to be what was written.

use std::{
    fs::{self, File},
    io::{Read, Seek, SeekFrom},
    path::{Path, PathBuf},
};

use mongodb::bson::RawDocumentBuf;
use tracing::warn;

use super::{
    file::{failed, manifest_path},
    manifest::{Batch, Header, Manifest, sha256},
};
use crate::error::{Code, Refusal, Result};

#[derive(Debug)]
pub(crate) struct ArchiveReader {
    path: PathBuf,
    data: File,
    header: Header,
    batches: Vec<Batch>,
}

impl ArchiveReader {
    /// Reads all of the file, and compares it with its manifest.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let beside = manifest_path(path);
        let text = fs::read(&beside).map_err(failed("reading", &beside))?;
        let manifest = Manifest::parse(&text).map_err(failed("reading", &beside))?;
        let header = manifest.header.clone().ok_or("it is empty").map_err(failed("reading", &beside))?;
        if !header.form.holds_everything() {
            let why = format!("{} holds some fields of each document, and cannot be restored from", path.display());
            return Err(Refusal::new(Code::InvalidOptions, why).into());
        }
        let data = File::open(path).map_err(failed("opening", path))?;
        let length = data.metadata().map_err(failed("reading", path))?.len();
        let end = manifest.end();
        if length < end {
            let why = format!("it has {length} bytes, and its manifest tells of {end}");
            return Err(failed("reading", path)(why));
        }
        if length > end || manifest.whole < text.len() as u64 {
            warn!(
                file = %path.display(), beyond = length - end,
                "the archive ends in what a crash left of a batch, of which nothing was deleted; it is left out"
            );
        }
        let mut reader = Self { path: path.to_owned(), data, header, batches: manifest.batches };
        for number in 0..reader.batches.len() {
            reader.bytes(number)?;
        }
        Ok(reader)
    }

    pub(crate) fn collection(&self) -> &str {
        &self.header.collection
    }

    pub(crate) fn batches(&self) -> &[Batch] {
        &self.batches
    }

    pub(crate) fn documents(&mut self, number: usize) -> Result<Vec<RawDocumentBuf>> {
        let bytes = self.bytes(number)?;
        self.header.form.documents(&bytes).map_err(failed("reading", &self.path))
    }

    /// The bytes of a batch, which are those that were written.
    fn bytes(&mut self, number: usize) -> Result<Vec<u8>> {
        let batch = &self.batches[number];
        let mut bytes = Vec::new();
        self.data.seek(SeekFrom::Start(batch.offset)).map_err(failed("reading", &self.path))?;
        (&self.data).take(batch.bytes).read_to_end(&mut bytes).map_err(failed("reading", &self.path))?;
        if sha256(&bytes) != batch.sha256 {
            let why = format!("{} bytes from {} on are not those that were written", batch.bytes, batch.offset);
            return Err(failed("reading", &self.path)(why));
        }
        Ok(bytes)
    }
}
