//! Where an export goes: a file that is there as a whole or not at all, or standard output.

use std::{
    fs::{self, File},
    io::{self, BufWriter, ErrorKind, Stdout, Write},
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};
use ttl_index::bson::oid::ObjectId;

use super::failure::ReaderGone;

pub(crate) enum Sink {
    Stdout(BufWriter<Stdout>),
    File(Unfinished),
}

/// A file beside the one that is wanted, removed unless it is finished.
pub(crate) struct Unfinished {
    out: BufWriter<File>,
    part: PathBuf,
    path: PathBuf,
    finished: bool,
}

impl Sink {
    pub(crate) fn open(path: Option<&Path>) -> anyhow::Result<Self> {
        let Some(path) = path else { return Ok(Sink::Stdout(BufWriter::new(io::stdout()))) };
        // What a link leads to is replaced, not the link.
        let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        if path.exists() && !path.is_file() {
            bail!("{} is not an ordinary file; without -o, standard output can be led there", path.display());
        }
        let mut part = path.clone().into_os_string();
        // Of its own, so that two exports at once do not write into each other.
        part.push(format!(".part-{}", ObjectId::new().to_hex()));
        let part = PathBuf::from(part);
        let file = File::create_new(&part).with_context(|| format!("making {}", part.display()))?;
        if let Ok(replaced) = fs::metadata(&path) {
            // Whoever may not read the former file may not read what comes in its place either.
            file.set_permissions(replaced.permissions()).with_context(|| format!("making {}", part.display()))?;
        }
        Ok(Sink::File(Unfinished { out: BufWriter::new(file), part, path, finished: false }))
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        match self {
            Sink::Stdout(out) => on_stdout(out.write_all(bytes)),
            Sink::File(file) => file.out.write_all(bytes).with_context(|| format!("writing {}", file.path.display())),
        }
    }

    /// Says that everything is written: only now the file has its name.
    pub(crate) fn finish(self) -> anyhow::Result<()> {
        match self {
            Sink::Stdout(mut out) => on_stdout(out.flush()),
            Sink::File(mut file) => {
                let durable = file.out.flush().and_then(|()| file.out.get_ref().sync_all());
                let named = durable.and_then(|()| fs::rename(&file.part, &file.path));
                named.with_context(|| format!("writing {}", file.path.display()))?;
                file.finished = true;
                Ok(())
            }
        }
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if !self.finished {
            let _ = fs::remove_file(&self.part);
        }
    }
}

fn on_stdout(written: io::Result<()>) -> anyhow::Result<()> {
    match written {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(ReaderGone.into()),
        other => other.context("writing to standard output"),
    }
}
