//! How documents are bytes of an archive file: lines of JSON or rows of CSV, as they are or in members of gzip.

use std::io::{self, Read, Write};

use flate2::{Compression, bufread::GzDecoder, write::GzEncoder};
use mongodb::bson::{RawDocument, RawDocumentBuf};

use super::{csv::CsvFields, text::JsonLine};

/// How a member of gzip begins that was written here.
const MEMBER: [u8; 4] = [0x1f, 0x8b, 8, 0];

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Form {
    /// None for lines of JSON.
    csv: Option<CsvFields>,
    gzip: bool,
}

impl Form {
    pub(crate) fn json_lines() -> Self {
        Self { csv: None, gzip: false }
    }

    pub(crate) fn csv(fields: CsvFields) -> Self {
        Self { csv: Some(fields), gzip: false }
    }

    pub(crate) fn gzip(mut self) -> Self {
        self.gzip = true;
        self
    }

    pub(super) fn name(&self) -> &'static str {
        match (&self.csv, self.gzip) {
            (None, false) => "json_lines",
            (None, true) => "json_lines_gzip",
            (Some(_), false) => "csv",
            (Some(_), true) => "csv_gzip",
        }
    }

    pub(super) fn fields(&self) -> Option<&[String]> {
        self.csv.as_ref().map(CsvFields::paths)
    }

    pub(super) fn named(name: &str, fields: Option<Vec<String>>) -> Option<Self> {
        let plain = name.strip_suffix("_gzip").unwrap_or(name);
        let csv = match plain {
            "json_lines" => None,
            "csv" => Some(CsvFields::new(fields?).ok()?),
            _ => return None,
        };
        Some(Self { csv, gzip: plain != name })
    }

    /// Whether the file holds documents as they were.
    pub(crate) fn holds_everything(&self) -> bool {
        self.csv.is_none()
    }

    /// What stands before the first document.
    pub(super) fn head(&self) -> Result<Vec<u8>, String> {
        self.csv.as_ref().map_or_else(|| Ok(Vec::new()), CsvFields::header).map_err(|error| error.to_string())
    }

    /// The row of a document.
    ///
    /// # Errors
    ///
    /// In words, if it would not hold what it shall.
    pub(super) fn row(&self, document: &RawDocument) -> Result<Vec<u8>, String> {
        if let Some(fields) = &self.csv {
            return fields.row(document).map_err(|error| error.to_string());
        }
        let line = JsonLine::of(document).map_err(|error| error.to_string())?;
        match line.loss() {
            Some(loss) => Err(loss.to_owned()),
            None => Ok([line.as_str().as_bytes(), b"\n"].concat()),
        }
    }

    /// Rows as they stand in the file.
    pub(super) fn pack(&self, rows: Vec<u8>) -> io::Result<Vec<u8>> {
        if !self.gzip {
            return Ok(rows);
        }
        let mut member = GzEncoder::new(Vec::new(), Compression::default());
        member.write_all(&rows)?;
        member.finish()
    }

    /// The documents of a batch as it stands in the file.
    pub(crate) fn documents(&self, packed: &[u8]) -> Result<Vec<RawDocumentBuf>, String> {
        // What a crash left of several batches is several members.
        let (mut rows, mut at) = (Vec::new(), 0);
        while self.gzip && at < packed.len() {
            let (member, length) = unpacked(&packed[at..]);
            at += length.map_err(|error| format!("it is no gzip: {error}"))?;
            rows.extend(member);
        }
        let rows = if self.gzip { rows } else { packed.to_vec() };
        let lines = rows.split_inclusive(|byte| *byte == b'\n');
        lines.map(|line| JsonLine::parse(line).map_err(|error| error.to_string())).collect()
    }

    /// How much of what stands in the file is whole, and how many rows that is. The writing of what follows was cut off.
    ///
    /// # Errors
    ///
    /// Where it is damaged, if that is not what a crash leaves of the last line or member.
    pub(super) fn whole(&self, tail: &[u8]) -> Result<(usize, u64), usize> {
        let (whole, rows) = self.readable(tail);
        // Some file systems have zeros where nothing was written before a crash.
        let end = tail.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        match tail.get(whole..end) {
            Some(rest) if !rest.is_empty() && !self.is_cut_off(rest) => Err(whole),
            _ => Ok((whole, rows)),
        }
    }

    /// Whether this is the beginning of a line or member alone, and nothing behind it can be read.
    fn is_cut_off(&self, rest: &[u8]) -> bool {
        if self.gzip {
            let ends_early = unpacked(rest).1.is_err_and(|error| error.kind() == io::ErrorKind::UnexpectedEof);
            let members = (1..rest.len()).filter(|at| rest[*at..].starts_with(&MEMBER));
            return ends_early && members.map(|at| self.whole_rows(&unpacked(&rest[at..]).0).1).all(|rows| rows == 0);
        }
        if self.csv.is_none() {
            return !rest.contains(&b'\n');
        }
        // A cell may hold line breaks: what counts is whether there are rows behind one.
        let breaks = (2..=rest.len()).filter(|end| rest[..*end].ends_with(b"\r\n"));
        breaks.map(|end| self.whole_rows(&rest[end..]).1).all(|rows| rows == 0)
    }

    fn readable(&self, tail: &[u8]) -> (usize, u64) {
        if !self.gzip {
            return self.whole_rows(tail);
        }
        let (mut whole, mut rows) = (0, 0);
        while whole < tail.len()
            && let (member, Ok(length)) = unpacked(&tail[whole..])
            && let (end, more) = self.whole_rows(&member)
            && end == member.len()
        {
            whole += length;
            rows += more;
        }
        (whole, rows)
    }

    fn whole_rows(&self, text: &[u8]) -> (usize, u64) {
        let (mut whole, mut rows) = (0, 0);
        let Some(fields) = &self.csv else {
            for line in text.split_inclusive(|byte| *byte == b'\n') {
                if !line.ends_with(b"\n") || JsonLine::parse(line).is_err() {
                    break;
                }
                whole += line.len();
                rows += 1;
            }
            return (whole, rows);
        };
        let mut reader = csv::ReaderBuilder::new().has_headers(false).from_reader(text);
        let mut row = csv::ByteRecord::new();
        while let Ok(true) = reader.read_byte_record(&mut row)
            && row.len() == fields.paths().len()
            && let Ok(end) = usize::try_from(reader.position().byte())
        {
            // The reader takes the first byte of a line break for all of it.
            let Some(end) = [end, end + 1].into_iter().find(|end| text[..*end.min(&text.len())].ends_with(b"\r\n"))
            else {
                break;
            };
            whole = end;
            rows += 1;
        }
        (whole, rows)
    }
}

/// What can be read of the member of gzip at the beginning of these bytes, and how long it is.
fn unpacked(bytes: &[u8]) -> (Vec<u8>, io::Result<usize>) {
    let mut member = GzDecoder::new(bytes);
    let mut rows = Vec::new();
    let read = member.read_to_end(&mut rows);
    (rows, read.map(|_| bytes.len() - member.into_inner().len()))
}

#[cfg(test)]
mod tests {
    use mongodb::bson::doc;

    use super::*;

    #[test]
    fn a_damaged_place_with_rows_behind_it_is_not_taken_for_one_that_was_cut_off() {
        let csv = Form::csv(CsvFields::new(["v", "w"]).unwrap());
        for form in [Form::json_lines(), Form::json_lines().gzip(), csv.clone(), csv.gzip()] {
            let parts: Vec<Vec<u8>> = ["a", "b, \"c\"\r\nd", "e", "f"].iter().map(|v| packed(&form, &[v])).collect();
            let all = parts.concat();
            assert_eq!(form.whole(&all), Ok((all.len(), 4)));
            // A line or member without its end, at whatever byte, is one only if nothing follows.
            for end in parts[0].len() + 1..parts[0].len() + parts[1].len() {
                let (begun, rest) = (&all[..end], [parts[2].clone(), parts[3].clone()].concat());
                assert_eq!(form.whole(begun), Ok((parts[0].len(), 1)), "{} {end}", form.name());
                if form.holds_everything() || form.gzip {
                    assert_eq!(form.whole(&[begun, &rest].concat()), Err(parts[0].len()), "{} {end}", form.name());
                }
            }
            if form.holds_everything() {
                for at in 0..all.len() - parts[3].len() {
                    let mut damaged = all.clone();
                    damaged[at] ^= 0x80;
                    // The system and the time in a header of gzip are nobody's loss.
                    assert!(form.whole(&damaged).map_or(true, |(whole, _)| form.gzip && whole == all.len()), "{at}");
                }
            }
        }
        let csv = Form::csv(CsvFields::new(["v", "w"]).unwrap());
        assert_eq!(csv.whole(b"a,b\r\nc,d,e\r\nf,g\r\n"), Err(5));
        assert_eq!(csv.whole(b"a,b\r\n\"c,d\r\nf,g\r\n"), Err(5));
    }

    fn packed(form: &Form, values: &[&str]) -> Vec<u8> {
        let row = |value: &&str| form.row(&RawDocumentBuf::try_from(&doc! { "v": *value }).unwrap()).unwrap();
        form.pack(values.iter().flat_map(row).collect()).unwrap()
    }

    #[test]
    fn what_was_cut_off_is_told_from_what_is_whole_at_every_byte() {
        let csv = Form::csv(CsvFields::new(["v"]).unwrap());
        for form in [Form::json_lines(), Form::json_lines().gzip(), csv.clone(), csv.gzip()] {
            let first = packed(&form, &["a", "b, \"c\""]);
            let both = [first.clone(), packed(&form, &["d"])].concat();
            for end in 0..=both.len() {
                let (whole, rows) = form.whole(&both[..end]).unwrap();
                // The end of a member may be zeros itself.
                let zeros = form.whole(&[&both[..end], &[0; 100][..]].concat()).unwrap();
                assert!(zeros == (whole, rows) || form.gzip && zeros.0 > end, "{zeros:?}");
                let known = [(0, 0), (first.len(), 2), (both.len(), 3)];
                if form.gzip {
                    assert_eq!((whole, rows), *known.iter().rev().find(|(bytes, _)| *bytes <= end).unwrap());
                } else {
                    let lines = |end: usize| both[..end].split(|byte| *byte == b'\n').count() - 1;
                    assert_eq!(rows, lines(end) as u64, "{} of {}", end, both.len());
                    assert!(whole <= end && lines(whole) == lines(end));
                }
            }
        }
    }

    #[test]
    fn a_form_is_found_again_by_its_name() {
        let csv = Form::csv(CsvFields::new(["a.b", "c"]).unwrap());
        for form in [Form::json_lines(), Form::json_lines().gzip(), csv.clone(), csv.gzip()] {
            assert_eq!(Form::named(form.name(), form.fields().map(<[String]>::to_vec)), Some(form));
        }
        assert_eq!(Form::named("csv", None), None);
        assert_eq!(Form::named("parquet", None), None);
    }
}
