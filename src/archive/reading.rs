//! What an archive file holds, once all of it was seen to be what was written.

use std::{
    fs::{self, File},
    io::{Read, Seek, SeekFrom},
    path::{Path, PathBuf},
};

use mongodb::bson::RawDocumentBuf;
use tracing::warn;

use super::{
    file::{Behind, failed, manifest_path, named},
    manifest::{Batch, Header, Manifest, sha256},
};
use crate::error::{Code, Refusal, Result};

#[derive(Debug)]
pub(crate) struct ArchiveReader {
    path: PathBuf,
    data: File,
    header: Header,
    batches: Vec<Batch>,
    /// How many of them the manifest vouches for.
    vouched: usize,
}

impl ArchiveReader {
    /// Reads all of the file, and compares it with its manifest. What can be read behind that is one more batch.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let path = &*named(path)?;
        let beside = manifest_path(path);
        let text = fs::read(&beside).map_err(failed("reading", &beside))?;
        let manifest = Manifest::parse(&text).map_err(failed("reading", &beside))?;
        let header = manifest.header.clone().ok_or("it is empty").map_err(failed("reading", &beside))?;
        if !header.form.holds_everything() {
            let why = format!("{} holds some fields of each document, and cannot be restored from", path.display());
            return Err(Refusal::new(Code::InvalidOptions, why).into());
        }
        let data = File::open(path).map_err(failed("opening", path))?;
        let behind = Behind::read(&data, path, &manifest, &header.form)?;
        if behind.documents > 0 {
            warn!(
                file = %path.display(), documents = behind.documents,
                "the manifest does not tell of the last documents in the archive, because of a crash or because it is an older \
                 one; whether they were deleted is not known, and those that are missing are put back too"
            );
        }
        let lost = text.len() as u64 - manifest.whole;
        if behind.cut_off > 0 || lost > 0 {
            warn!(
                file = %path.display(), cut_off = behind.cut_off, cut_off_manifest = lost,
                "the archive ends in what was not written to its end, which is left out"
            );
        }
        let (vouched, offset) = (manifest.batches.len(), manifest.end());
        let mut batches = manifest.batches;
        if behind.documents > 0 {
            let (bytes, sha256) = (behind.whole.len() as u64, sha256(&behind.whole));
            batches.push(Batch { offset, bytes, documents: behind.documents, sha256, not_deleted: Vec::new() });
        }
        let mut reader = Self { path: path.to_owned(), data, header, batches, vouched };
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

    /// Whether nobody knows if the documents of the batch were deleted.
    pub(crate) fn is_beyond(&self, number: usize) -> bool {
        number >= self.vouched
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
