//! An application that depends on `bson` 2 itself works with this crate's types.
//!
//! With the feature `bson-3` the types are those of version 3, and this test
//! has nothing to show.
#![cfg(not(feature = "bson-3"))]

use std::any::TypeId;

use ttl_index::bson as ours;

/// Takes what this crate's functions take.
fn our_document(document: ours::Document) -> ours::Document {
    document
}

/// Takes what the application's functions take.
fn their_document(document: bson::Document) -> bson::Document {
    document
}

#[test]
fn the_types_are_the_same() {
    for (ours, theirs) in [
        (TypeId::of::<ours::Document>(), TypeId::of::<bson::Document>()),
        (TypeId::of::<ours::Bson>(), TypeId::of::<bson::Bson>()),
        (TypeId::of::<ours::DateTime>(), TypeId::of::<bson::DateTime>()),
        (TypeId::of::<ours::Timestamp>(), TypeId::of::<bson::Timestamp>()),
        (TypeId::of::<ours::oid::ObjectId>(), TypeId::of::<bson::oid::ObjectId>()),
    ] {
        assert_eq!(ours, theirs);
    }
}

#[test]
fn documents_of_one_pass_for_the_other() {
    let theirs = our_document(bson::doc! { "at": bson::DateTime::from_millis(1) });
    let ours = their_document(ours::doc! { "at": ours::DateTime::from_millis(1) });
    assert_eq!(theirs, ours);
}

#[test]
fn values_of_one_stand_in_documents_of_the_other() {
    let id = ours::oid::ObjectId::new();
    let mixed = bson::doc! { "_id": id, "inner": ours::doc! { "n": 1 } };
    assert_eq!(mixed.get_object_id("_id"), Ok(id));
    assert_eq!(mixed.get_document("inner"), Ok(&bson::doc! { "n": 1 }));
}
