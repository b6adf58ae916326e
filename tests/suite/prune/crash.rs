//! A process that dies after its claim.

use mongodb::bson::Document;

use super::worker::{Task, Worker};
use super::{HOUR, HOUR_MS, drained, expired, index, is_not_due, move_claim, swept};
use crate::support::mongod::Mongod;
use crate::support::place::Place;
use crate::support::proxy::{Fate, Proxy, nth};

/// Kills a process when it asks for this after its claim, and has another one prune.
async fn dies_at(command: &'static str, collection: &'static str) {
    let server = Mongod::shared().await;
    let it = server.database().await;
    let proxy = Proxy::before(server.port());
    let uri = proxy.uri(it.db.name());
    let place = Place::Mongo(it);
    place.registry().await.create_index("c", index()).await.unwrap();
    place.insert("c", expired(0..5)).await;

    let mut caught = proxy.catch(nth(1, command, collection));
    let mut worker = Worker::start(&uri, &Task::Ask(1));
    worker.says::<String>().await;
    worker.tell().await;
    caught.request().await;
    worker.kill().await;
    caught.then(Fate::Lost);

    // The claim was made, and that interval is lost: nobody else prunes in it.
    let record: Document = place.find("ttl_index.prunes", "all").await.unwrap();
    record.get_datetime("claimedAt").unwrap();
    assert!(is_not_due(&place.registry().await.sweep_if_due(HOUR).await.unwrap()));
    assert_eq!(place.count("c").await, 5);

    // The next one is not, whatever the dead process still holds.
    let Place::Mongo(it) = &place else { unreachable!() };
    move_claim(it, "all", HOUR_MS).await;
    assert_eq!(swept(place.registry().await.sweep_if_due(HOUR).await.unwrap()), [drained("c", 5)]);
    it.db.drop().await.unwrap();
}

#[tokio::test]
async fn right_after_the_claim_one_interval_is_lost_and_no_more() {
    dies_at("find", "ttl_index.lease").await;
}

#[tokio::test]
async fn a_dead_process_that_holds_the_lease_does_not_cost_the_next_interval() {
    dies_at("delete", "c").await;
}
