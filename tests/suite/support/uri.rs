//! Putting a test's database into a connection string.

/// `uri` with `database` in the place of the database it names, if any.
///
/// The database of a URI is also where its user is looked up, unless the URI
/// says otherwise; that meaning is kept by saying so.
pub(super) fn with_database(uri: &str, database: &str) -> String {
    let (scheme, rest) = uri.split_once("://").unwrap_or_else(|| panic!("a MongoDB URI has a scheme"));
    let (before_query, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, old) = before_query.split_once('/').unwrap_or((before_query, ""));

    let mut options: Vec<String> = query.split('&').filter(|option| !option.is_empty()).map(str::to_owned).collect();
    let mentions = |name: &str| {
        options.iter().any(|option| {
            let key = option.split('=').next().unwrap_or_default();
            key.eq_ignore_ascii_case(name)
        })
    };
    // A mechanism that was asked for by name may have a source of its own.
    if authority.contains('@') && !mentions("authSource") && !mentions("authMechanism") {
        let source = if old.is_empty() { "admin" } else { old };
        options.push(format!("authSource={source}"));
    }

    let query = if options.is_empty() { "" } else { "?" };
    format!("{scheme}://{authority}/{database}{query}{}", options.join("&"))
}

#[test]
fn the_database_replaces_the_uris_own() {
    for (given, expected) in [
        ("mongodb://h:1", "mongodb://h:1/new"),
        ("mongodb://h:1,i:2/", "mongodb://h:1,i:2/new"),
        ("mongodb://h/old?tls=true", "mongodb://h/new?tls=true"),
        ("mongodb://h/?directConnection=true", "mongodb://h/new?directConnection=true"),
        ("mongodb://u:p@h", "mongodb://u:p@h/new?authSource=admin"),
        ("mongodb+srv://u:p@h/old?w=1", "mongodb+srv://u:p@h/new?w=1&authSource=old"),
        ("mongodb://u:p@h/old?authsource=x", "mongodb://u:p@h/new?authsource=x"),
    ] {
        assert_eq!(with_database(given, "new"), expected, "{given}");
    }
}
