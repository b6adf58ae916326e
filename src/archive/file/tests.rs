use mongodb::bson::doc;

use super::{super::reading::ArchiveReader, *};

fn document(id: i32) -> RawDocumentBuf {
    RawDocumentBuf::try_from(&doc! { "_id": id, "text": "a\n\"b\"" }).unwrap()
}

fn header(form: &Form) -> Header {
    Header { database: "app".to_owned(), collection: "c".to_owned(), form: form.clone() }
}

fn append(file: &mut ArchiveFile, ids: std::ops::Range<i32>) {
    let documents: Vec<_> = ids.map(document).collect();
    assert_eq!(file.append(&documents, DateTime::from_millis(0)).unwrap(), []);
}

/// All that the archive holds, by the manifest.
fn ids(path: &Path) -> Vec<i32> {
    let mut reader = ArchiveReader::open(path).unwrap();
    let batches = reader.batches().len();
    let documents = (0..batches).flat_map(|number| reader.documents(number).unwrap());
    documents.map(|document| document.get_i32("_id").unwrap()).collect()
}

/// Data is on the disk before the line that vouches for it is begun: a crash cuts off the one or the other.
#[test]
fn wherever_a_crash_cuts_off_what_was_vouched_for_stays_and_what_is_whole_is_vouched_for() {
    for form in [Form::json_lines(), Form::json_lines().gzip()] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("archive");
        let beside = manifest_path(&path);
        let mut file = ArchiveFile::open(&path, header(&form)).unwrap();
        append(&mut file, 0..2);
        let (first, vouched) = (fs::read(&path).unwrap(), fs::read(&beside).unwrap());
        append(&mut file, 2..5);
        drop(file);
        let (both, vouching) = (fs::read(&path).unwrap(), fs::read(&beside).unwrap());
        let data = (first.len()..both.len()).map(|end| (end, vouched.len()));
        let lines = (vouched.len()..=vouching.len()).map(|end| (both.len(), end));
        for (data, lines) in data.chain(lines).step_by(3) {
            fs::write(&path, &both[..data]).unwrap();
            fs::write(&beside, &vouching[..lines]).unwrap();
            // The same is read before it is opened for writing again.
            let before = ids(&path);
            let mut file = ArchiveFile::open(&path, header(&form)).unwrap();
            append(&mut file, 7..8);
            let found = ids(&path);
            let whole = found.len() - 3;
            assert_eq!(found[..2 + whole], before);
            assert_eq!(found[..2], [0, 1]);
            assert_eq!(found[2..2 + whole], [2, 3, 4][..whole], "{data} of {}, {lines}", both.len());
            assert!(data < both.len() || whole == 3);
            assert_eq!(found.last(), Some(&7));
        }
    }
}

/// A manifest from a backup, and a damaged byte in the middle of what it does not tell of.
#[test]
fn nothing_is_cut_off_where_readable_documents_stand_behind_a_damaged_place() {
    for form in [Form::json_lines(), Form::json_lines().gzip()] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("archive");
        let mut file = ArchiveFile::open(&path, header(&form)).unwrap();
        append(&mut file, 0..2);
        let (first, vouched) = (fs::read(&path).unwrap(), fs::read(manifest_path(&path)).unwrap());
        append(&mut file, 2..5);
        append(&mut file, 5..8);
        drop(file);
        // All of it is read, several batches too, as long as it is whole.
        let newest = fs::read(manifest_path(&path)).unwrap();
        fs::write(manifest_path(&path), &vouched).unwrap();
        assert_eq!(ids(&path), (0..8).collect::<Vec<_>>());
        fs::write(manifest_path(&path), newest).unwrap();
        let mut damaged = fs::read(&path).unwrap();
        damaged[first.len() + 20] ^= 0x80;
        fs::write(&path, &damaged).unwrap();
        // Not even a line of the manifest that was cut off.
        let older = [&vouched[..], b"{\"off"].concat();
        fs::write(manifest_path(&path), &older).unwrap();
        let errors = [ArchiveFile::open(&path, header(&form)).map(drop), ArchiveReader::open(&path).map(drop)];
        for error in errors.map(Result::unwrap_err) {
            let why = std::error::Error::source(&error).unwrap().to_string();
            assert!(
                error.to_string().contains("/archive") && why.contains(&format!("at byte {}", first.len())),
                "{why}"
            );
        }
        assert_eq!((fs::read(&path).unwrap(), fs::read(manifest_path(&path)).unwrap()), (damaged, older));
    }
}

/// Each name has a manifest of its own, which would vouch for what the other one wrote.
#[cfg(unix)]
#[test]
fn a_file_is_written_under_one_name_at_a_time() {
    let directory = tempfile::tempdir().unwrap();
    let [path, hard, soft, nothing] = ["archive", "hard", "soft", "nothing"].map(|name| directory.path().join(name));
    let form = Form::json_lines();
    let mut file = ArchiveFile::open(&path, header(&form)).unwrap();
    fs::hard_link(&path, &hard).unwrap();
    std::os::unix::fs::symlink(&path, &soft).unwrap();
    std::os::unix::fs::symlink(directory.path().join("missing"), &nothing).unwrap();
    for other in [&hard, &soft] {
        let error = ArchiveFile::open(other, header(&form)).unwrap_err();
        let why = std::error::Error::source(&error).unwrap().to_string();
        assert!(why.contains("another pass or process is writing it"), "{error}: {why}");
    }
    append(&mut file, 0..2);
    drop(file);
    append(&mut ArchiveFile::open(&soft, header(&form)).unwrap(), 2..3);
    assert!(!manifest_path(&soft).exists());
    assert_eq!((ids(&path), ids(&soft)), (vec![0, 1, 2], vec![0, 1, 2]));
    let error = ArchiveFile::open(&nothing, header(&form)).unwrap_err();
    assert!(error.to_string().contains("following the link"), "{error}");
}

#[test]
fn a_crash_at_the_very_beginning_leaves_nothing_that_is_in_the_way() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("archive");
    let form = Form::json_lines();
    drop(ArchiveFile::open(&path, header(&form)).unwrap());
    let line = fs::read(manifest_path(&path)).unwrap();
    for end in 0..=line.len() {
        let _ = fs::remove_file(&path);
        fs::write(manifest_path(&path), &line[..end]).unwrap();
        append(&mut ArchiveFile::open(&path, header(&form)).unwrap(), 0..1);
        assert_eq!(ids(&path), [0]);
        fs::remove_file(&path).unwrap();
    }
}

#[test]
fn every_byte_of_a_manifest_counts() {
    let mut manifest = Manifest::default();
    let mut text = manifest.begin(&header(&Form::json_lines().gzip()));
    text += &manifest.add(Batch { bytes: 5, documents: 1, sha256: sha256(b"a"), ..Batch::default() }, None);
    text += &manifest.not_deleted(&[Bson::Int32(1), Bson::String("ä".to_owned())]);
    let read = Manifest::parse(text.as_bytes()).unwrap();
    assert_eq!((read.end(), read.documents(), read.batches[0].not_deleted.len()), (5, 1, 2));
    assert_eq!(read.header, manifest.header);
    for at in 0..text.len() {
        let mut flipped = text.clone().into_bytes();
        flipped[at] ^= 1;
        // Without its end the last line is one that was cut off.
        let cut_off = at + 1 == text.len();
        assert_eq!(Manifest::parse(&flipped).is_ok(), cut_off, "{at}: {:?}", text.as_bytes()[at] as char);
    }
}
