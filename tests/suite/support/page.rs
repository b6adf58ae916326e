//! The page of metrics, as the program serves it and as Prometheus's own client for Python reads it.

#[path = "../../../src/bin/ttl-index/listen.rs"]
mod listen;

use std::collections::BTreeMap;
use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use metrics_exporter_prometheus::PrometheusHandle;
use serde::Deserialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::fetch;

pub(crate) use listen::bind;

/// Reads a page on its input, with the client in the wheel argv[1].
const PARSE: &str = r"
import json, sys
sys.path.insert(0, sys.argv[1])
from prometheus_client.parser import text_string_to_metric_families
page = sys.stdin.buffer.read().decode('utf-8')
json.dump([
    {'name': family.name, 'type': family.type, 'help': family.documentation, 'samples': [
        {'name': sample.name, 'labels': sample.labels, 'value': sample.value} for sample in family.samples]}
    for family in text_string_to_metric_families(page)], sys.stdout)
";

/// All samples of one metric.
#[derive(Debug, Deserialize)]
pub(crate) struct Family {
    /// Without the `_total` of a counter.
    pub(crate) name: String,
    pub(crate) r#type: String,
    pub(crate) help: String,
    pub(crate) samples: Vec<Sample>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Sample {
    pub(crate) name: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) value: f64,
}

/// A page, read.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) text: String,
    pub(crate) families: Vec<Family>,
}

/// Has this process count for the page; to be called before anything is done that shall be on it.
pub(crate) fn counting() -> &'static PrometheusHandle {
    static HANDLE: OnceLock<PrometheusHandle> = OnceLock::new();
    HANDLE.get_or_init(|| listen::install().unwrap())
}

impl Page {
    /// What this process has counted, by way of the program's listener.
    pub(crate) async fn now() -> Page {
        let (head, body) = get("/metrics").await;
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        assert!(head.to_lowercase().contains("\r\ncontent-type: text/plain; version=0.0.4"), "{head}");
        Page::read(&body)
    }

    /// # Panics
    ///
    /// If the client does not understand the page.
    pub(crate) fn read(text: &str) -> Page {
        let families = serde_json::from_str(&parse(&fetch::prometheus_client(), text)).unwrap();
        Page { text: text.to_owned(), families }
    }

    /// The samples of this name that have all these labels, with all of their labels.
    pub(crate) fn samples(&self, name: &str, labels: &[(&str, &str)]) -> Vec<&Sample> {
        let matches = |sample: &&Sample| {
            let has = |(label, value): &(&str, &str)| sample.labels.get(*label).is_some_and(|it| it == value);
            sample.name == name && labels.iter().all(has)
        };
        self.families.iter().flat_map(|family| &family.samples).filter(matches).collect()
    }

    /// The sum of these samples.
    pub(crate) fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.samples(name, labels).iter().map(|sample| sample.value).sum()
    }
}

/// Asks the program's listener for a page, and has it end.
pub(crate) async fn get(path: &str) -> (String, String) {
    let (address, end, serving) = serve().await;
    let answer = ask(address, path).await;
    end.send(()).unwrap();
    serving.await.unwrap().unwrap();
    answer
}

/// The program's listener, on an address of its own until it is told to end.
pub(crate) async fn serve() -> (SocketAddr, oneshot::Sender<()>, JoinHandle<anyhow::Result<()>>) {
    let listener = listen::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
    let address = listener.local_addr().unwrap();
    let (end, ended) = oneshot::channel();
    let serving = tokio::spawn(listen::serve(listener, counting().clone(), async { drop(ended.await) }));
    (address, end, serving)
}

/// The head and the body of the answer to a GET.
pub(crate) async fn ask(address: SocketAddr, path: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{answer:?}"));
    (head.to_owned(), body.to_owned())
}

fn parse(wheel: &Path, text: &str) -> String {
    let mut python = Command::new("python3");
    python.args(["-c", PARSE]).arg(wheel).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = python.spawn().unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}\n{text}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}
