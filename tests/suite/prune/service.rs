//! The site of the example under load, while the database behind the prune fails.

#[path = "../../../examples/prune.rs"]
#[allow(dead_code)] // its main
mod example;

use std::net::SocketAddr;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use ttl_index::{Retention, TtlRegistry};

use super::worker::{Task, Worker, say};
use super::{expired, index};
use crate::support::mongod::Mongod;
use crate::support::place::Place;
use crate::support::proxy::{Fate, Link, Proxy, nth};
use crate::support::wait;

/// So that failures are tried again often.
const INTERVAL: Duration = Duration::from_millis(100);

const REQUESTS: usize = 300;

/// Serves the site without a prune and with one, and says where.
pub(super) async fn serve(ttl: &TtlRegistry, interval: Duration) {
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).init();
    let prune = example::prune_after_responses(ttl.sweep_if_due(interval), Retention::from_days(Some("1")));
    let listening = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0"));
    let [plain, pruning] = join_all(listening).await.try_into().unwrap();
    let (plain, pruning): (TcpListener, TcpListener) = (plain.unwrap(), pruning.unwrap());
    say(&[plain.local_addr().unwrap(), pruning.local_addr().unwrap()]);
    let served = tokio::join!(
        axum::serve(plain, example::site()).into_future(),
        axum::serve(pruning, example::site().layer(prune)).into_future(),
    );
    panic!("they end with the process: {served:?}");
}

/// What comes back over the wire, but for the time of day.
async fn get(address: SocketAddr, path: &str) -> String {
    tokio::time::timeout(wait::LONG, answer(address, path)).await.expect("a request waits for the prune")
}

async fn answer(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: site\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer.lines().filter(|line| !line.starts_with("date: ")).collect::<Vec<_>>().join("\n")
}

/// Many requests at once, each of which is answered as by the site without a prune.
async fn load([plain, pruning]: [SocketAddr; 2]) {
    let paths = ["/", "/articles/7", "/articles/700", "/articles/x", "/nowhere"];
    let expected = join_all(paths.map(|path| get(plain, path))).await;
    let requests = (0..REQUESTS).map(|number| tokio::spawn(get(pruning, paths[number % paths.len()])));
    for (number, answer) in join_all(requests).await.into_iter().enumerate() {
        let (answer, expected) = (answer.unwrap(), &expected[number % paths.len()]);
        assert!(expected.starts_with("HTTP/1.1 "), "{expected:?}");
        assert_eq!(&answer, expected);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn under_load_every_response_is_the_same_whatever_becomes_of_the_database() {
    let server = Mongod::shared().await;
    let it = server.database().await;
    let proxy = Proxy::before(server.port());
    let uri = format!("{}&serverSelectionTimeoutMS=300", proxy.uri(it.db.name()));
    let place = Place::Mongo(it);
    place.registry().await.create_index("news", index()).await.unwrap();
    let mut worker = Worker::start(&uri, &Task::Serve(INTERVAL));
    let site: [SocketAddr; 2] = worker.says().await;

    // A prune that gets no answer: while it waits, no request does.
    let mut held = proxy.catch(nth(1, "find", "ttl_index.prunes"));
    get(site[1], "/").await;
    held.request().await;
    load(site).await;
    held.then(Fate::Lost);

    // No connection at all, again and again.
    proxy.set(Link::Refuse);
    proxy.cut();
    for _ in 0..5 {
        load(site).await;
        tokio::time::sleep(INTERVAL).await;
    }

    // A network that says nothing, in the middle of it.
    proxy.set(Link::Pass);
    load(site).await;
    proxy.set(Link::Swallow);
    load(site).await;
    proxy.set(Link::Refuse);
    proxy.cut();
    load(site).await;

    // As soon as the database is back, the site prunes.
    proxy.set(Link::Pass);
    place.insert("news", expired(0..50)).await;
    wait::until("the news to go", wait::LONG, async || {
        load(site).await;
        place.count("news").await == 0
    })
    .await;
    let said = worker.kill().await;
    assert!(said.contains("pruning failed") && !said.contains("panicked"), "{said}");
}
