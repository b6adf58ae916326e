//! Holds the picture that `src/lib.rs` and `docs/tour.md` draw: who may use whom.

use std::{collections::BTreeSet, fs, path::Path, path::PathBuf};

/// Each module, and the modules it may use. Nothing else is allowed, and no arrow points back.
const ARROWS: &[(&str, &[&str])] = &[
    ("error", &[]),
    ("meter", &[]),
    ("namespace", &["error"]),
    ("number", &[]),
    ("clock", &[]),
    ("interval", &[]),
    ("index", &["error", "namespace", "number"]),
    ("expiry", &["error", "index", "number"]),
    ("guard", &["error", "expiry", "index", "namespace", "number"]),
    ("entry", &["error", "expiry", "guard", "index"]),
    ("store", &["clock", "entry", "error", "expiry", "guard", "namespace", "number"]),
    ("archive", &["error", "namespace", "store"]),
    ("lease", &["clock", "error", "store"]),
    ("operation", &["entry", "error", "store"]),
    ("pacing", &["entry", "error", "store"]),
    (
        "registry",
        &[
            "entry",
            "error",
            "expiry",
            "guard",
            "index",
            "interval",
            "lease",
            "meter",
            "namespace",
            "operation",
            "pacing",
            "store",
        ],
    ),
    ("restore", &["archive", "clock", "error", "expiry", "namespace", "registry", "store"]),
    (
        "sweep",
        &[
            "archive",
            "clock",
            "entry",
            "error",
            "expiry",
            "guard",
            "lease",
            "meter",
            "namespace",
            "pacing",
            "registry",
            "store",
        ],
    ),
    ("prune", &["error", "index", "interval", "lease", "namespace", "registry", "store", "sweep"]),
    (
        "sweeper",
        &[
            "clock",
            "entry",
            "error",
            "guard",
            "interval",
            "lease",
            "meter",
            "namespace",
            "pacing",
            "registry",
            "store",
            "sweep",
        ],
    ),
    ("doctor", &["entry", "error", "expiry", "guard", "index", "namespace", "registry", "store", "sweeper"]),
];

/// Words that a part of the source must not hold outside of comments, and where they may stand all the same.
const CONFINED: [(&str, &[&str]); 3] = [
    // The storage engine.
    ("redb::", &["src/store/embedded/tables.rs"]),
    // The machine's clock: what decides takes `now`.
    ("DateTime::now", &["src/store/embedded.rs", "src/bin"]),
    ("SystemTime", &["src/bin"]),
];

/// Where the driver may be named beyond its BSON: the store on it, errors that carry its errors, and the index model.
const DRIVER: [&str; 4] = ["src/store/mongo", "src/error", "src/index", "src/bin"];

/// Modules that do no input or output and know no runtime.
const PURE: [&str; 6] = ["number", "index", "expiry", "guard", "entry", "namespace"];

/// About as much as can be read at a sitting.
const LONGEST_FILE: usize = 400;

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// Every source file, by its path from the package's root, without its comments.
fn code() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    sources(&root.join("src"), &mut found);
    let without_comments = |text: String| {
        let lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        lines.collect::<Vec<_>>().join("\n")
    };
    let name = |path: &Path| path.strip_prefix(root).unwrap().to_str().unwrap().replace('\\', "/");
    found.iter().map(|path| (name(path), without_comments(fs::read_to_string(path).unwrap()))).collect()
}

/// `src/store/mongo/pass.rs` belongs to `store`.
fn module(file: &str) -> &str {
    file.trim_start_matches("src/").split(['/', '.']).next().unwrap()
}

/// What the code names of `prefix`: the first word of `prefix::…` and of each branch of `prefix::{…}`.
fn used(prefix: &str, code: &str) -> BTreeSet<String> {
    let prefix = format!("{prefix}::");
    let mut used = BTreeSet::new();
    for (at, _) in code.match_indices(&prefix) {
        if code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_') {
            continue;
        }
        let rest = &code[at + prefix.len()..];
        let Some(group) = rest.strip_prefix('{') else {
            used.insert(first_word(rest));
            continue;
        };
        let mut depth = 0;
        let mut branch_begins = true;
        for (i, c) in group.char_indices() {
            match c {
                '{' => depth += 1,
                '}' if depth == 0 => break,
                '}' => depth -= 1,
                ',' if depth == 0 => branch_begins = true,
                c if branch_begins && !c.is_whitespace() => {
                    used.insert(first_word(&group[i..]));
                    branch_begins = false;
                }
                _ => {}
            }
        }
    }
    used
}

fn first_word(text: &str) -> String {
    text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
}

#[test]
fn arrows_between_modules_point_one_way() {
    let rank = |module: &str| ARROWS.iter().position(|(name, _)| *name == module);
    for (module, allowed) in ARROWS {
        for target in *allowed {
            assert!(rank(target) < rank(module), "{module} -> {target} points up");
        }
    }
    for (file, code) in code() {
        let module = module(&file);
        if file == "src/lib.rs" || module == "bin" {
            continue;
        }
        let (_, allowed) = ARROWS.iter().find(|(name, _)| *name == module).expect(&file);
        for target in used("crate", &code) {
            assert!(target == module || allowed.contains(&target.as_str()), "{file} uses {target}");
        }
    }
}

#[test]
fn the_reader_of_arrows_sees_every_form_of_them() {
    let code = "use crate::{error::{Code, Result}, store::Store,\n  sweep};\nfn f() { crate::index::g() }\nmycrate::x";
    let expected: Vec<String> = ["error", "index", "store", "sweep"].map(str::to_owned).into();
    assert_eq!(used("crate", code).into_iter().collect::<Vec<_>>(), expected);
}

#[test]
fn engine_driver_and_clock_are_named_only_where_they_belong() {
    for (file, code) in code() {
        let driver = used("mongodb", &code).iter().any(|word| word != "bson");
        assert!(!driver || DRIVER.iter().any(|place| file.starts_with(place)), "{file} names the driver");
        for (word, places) in CONFINED {
            let allowed = places.iter().any(|place| file.starts_with(place));
            assert!(allowed || !code.contains(word), "{file} names {word}");
        }
    }
}

#[test]
fn what_decides_does_no_input_or_output() {
    for (file, code) in code().into_iter().filter(|(file, _)| PURE.contains(&module(file))) {
        for word in ["tokio", "async ", "std::fs", "std::net", "Instant"] {
            assert!(!code.contains(word), "{file} names {word}");
        }
    }
}

#[test]
fn no_file_is_too_long_to_be_read() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    for folder in ["src", "tests", "examples"] {
        sources(&root.join(folder), &mut found);
    }
    for path in found {
        let lines = fs::read_to_string(&path).unwrap().lines().count();
        assert!(lines <= LONGEST_FILE, "{} has {lines} lines", path.display());
    }
}
