//! Raw bytes as a definition, through the registry of a store: nothing panics, what is accepted is listed as it was
//! meant, and what is refused changes nothing.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use tokio::runtime::{Builder, Runtime};
use ttl_index::{
    EmbeddedStore, Error, TtlIndex, TtlRegistry,
    bson::{Bson, Document},
};

/// One store for all inputs: making one costs more than everything else.
static STORE: LazyLock<(Runtime, TtlRegistry)> = LazyLock::new(|| {
    let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime");
    let registry = runtime
        .block_on(async { TtlRegistry::open(EmbeddedStore::in_memory()?).await })
        .expect("a registry in memory");
    (runtime, registry)
});

fuzz_target!(|bytes: &[u8]| {
    let Some((name_length, rest)) = bytes.split_first() else { return };
    let (name, spec) = rest.split_at(rest.len().min(usize::from(*name_length % 16)));
    let Ok(name) = std::str::from_utf8(name) else { return };
    let Ok(spec) = Document::from_reader(spec) else { return };
    let (runtime, ttl) = &*STORE;
    runtime.block_on(async {
        let name = if name.is_empty() { "c" } else { name };
        let asked = spec.get("expireAfterSeconds").cloned();
        match ttl.create_index(name, TtlIndex::from(spec)).await {
            Ok(made) => {
                let listed = ttl.list_indexes().await.expect("a registry that can be read");
                assert_eq!(listed, vec![made.clone()]);
                let seconds = made.expire_after.expect("a period").as_secs();
                if let Some(Bson::Int32(asked)) = asked {
                    assert_eq!(u64::try_from(asked), Ok(seconds));
                }
                ttl.drop_index(name, made.name).await.expect("a drop");
            }
            Err(Error::Refused(refusal)) => assert!(!refusal.message().is_empty()),
            Err(other) => panic!("{other}"),
        }
        assert!(ttl.list_indexes().await.expect("a registry that can be read").is_empty());
    });
});
